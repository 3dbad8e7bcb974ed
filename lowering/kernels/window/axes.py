"""Axes of a sliding window: adjacent dimensions of window size 1 are collapsed into one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Axis:
    """One dimension of a window, or several adjacent ones of window size 1.

    Attributes:
        extent, positions: extents of the array, and of the result.
        size, stride, low: the window's extent, the stride between windows, and the padding before the array.
        step, position_step: memory strides, in elements, of the array and of an array with an element per window.
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
        """Whether windows are single elements along the axis."""
        return self.size == self.stride == 1 and not self.low and self.positions == self.extent

    @property
    def reaches_in(self) -> bool:
        """Whether every window has an element outside of the padding."""
        last = (self.positions - 1) * self.stride - self.low
        return self.low < self.size and last < self.extent


def axes_of(window: Window, shape: Sequence[int], positions: Sequence[int]) -> list[Axis]:
    """Return the axes of a window without dilations, outermost first.

    The first and the last one may be of several dimensions.
    """
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
