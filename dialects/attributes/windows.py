"""Windows that slide over an array: their sizes, steps, dilations and padding, and how many positions they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stablexla.dialects.attributes.attributes import integers


@dataclass(frozen=True)
class Window:
    """A window of one extent for each dimension of the array that it slides over.

    Attributes:
        sizes: how many elements it takes along each dimension.
        strides: how far it moves between two positions.
        base_dilations: the array's elements lie this far apart, with padding between them.
        window_dilations: the elements that it takes lie this far apart.
        padding: how many padding elements lie before and after the array; negative ones cut it off.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, attributes: Any, rank: int) -> Window:
        """The window that StableHLO's attributes describe; what is left out is 1, or no padding."""

        def numbers(name: str) -> tuple[int, ...]:
            return integers(attributes[name]) if name in attributes else (1,) * rank

        padding = [int(n) for n in attributes["padding"]] if "padding" in attributes and rank else [0] * 2 * rank
        return cls(
            numbers("window_dimensions"),
            numbers("window_strides"),
            numbers("base_dilations"),
            numbers("window_dilations"),
            tuple(zip(padding[::2], padding[1::2], strict=True)),
        )

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def padded(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The extents of an array after dilation and padding; negative where more is cut off than there is."""
        return tuple(
            dilated(n, dilation) + low + high
            for n, dilation, (low, high) in zip(shape, self.base_dilations, self.padding, strict=True)
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements of the padded array lie between the first and the last one of a window, both included."""
        return tuple(dilated(n, dilation) for n, dilation in zip(self.sizes, self.window_dilations, strict=True))

    def positions(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many positions it has along each dimension of an array.

        >>> Window((3,), (2,), (1,), (1,), ((1, 1),)).positions([5])
        (3,)
        """
        return tuple(
            0 if reach > extent else (extent - reach) // stride + 1
            for extent, reach, stride in zip(self.padded(shape), self.reach, self.strides, strict=True)
        )


def dilated(size: int, dilation: int) -> int:
    """The extent of `size` elements that lie `dilation` apart."""
    return (size - 1) * dilation + 1 if size else 0


def same_padding(extent: int, reach: int, stride: int) -> tuple[int, int]:
    """The padding with which a window has as many positions as there are strides in `extent`, the odd one at the end.

    >>> same_padding(5, 3, 2)
    (1, 1)
    """
    positions = -(-extent // stride)
    total = max((positions - 1) * stride + reach - extent, 0)
    return total // 2, total - total // 2
