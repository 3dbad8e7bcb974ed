"""The dimensions that windows slide along, as loops see them: neighbours where windows are single elements are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import prod

from stablexla.dialects.attributes.windows import Window


@dataclass(frozen=True)
class Axis:
    """One dimension, or several neighbours in which windows are single elements.

    Attributes:
        extent, positions: of the array, and of the windows.
        size, stride, low: of a window, its steps, and the padding before the array.
        step, position_step: between neighbours, in elements of the array and of one with an element for each window.
    """

    extent: int
    positions: int
    size: int
    stride: int
    low: int
    step: int
    position_step: int

    @property
    def alone(self) -> bool:
        """Whether each of its elements is a window."""
        return self.size == self.stride == 1 and not self.low and self.positions == self.extent

    @property
    def reaches_in(self) -> bool:
        """Whether every window has an element that is none of the padding's."""
        last = (self.positions - 1) * self.stride - self.low
        return self.low < self.size and last < self.extent

    def numbers(self) -> list[int]:
        """The attributes in their order, for a kernel's configuration."""
        return list(astuple(self))


def axes_of(window: Window, shape: Sequence[int], positions: Sequence[int]) -> list[Axis]:
    """The axes of a window without dilations, outermost first; the first and the last one may be of several
    dimensions."""
    made: list[Axis] = []
    for d in reversed(range(len(shape))):
        step, position_step = prod(shape[d + 1 :]), prod(positions[d + 1 :])
        axis = Axis(
            shape[d], positions[d], window.sizes[d], window.strides[d], window.padding[d][0], step, position_step
        )
        if made and axis.alone and made[0].alone:
            inner = made.pop(0)
            size = axis.extent * inner.extent
            axis = Axis(size, size, 1, 1, 0, inner.step, inner.position_step)
        made.insert(0, axis)
    return made
