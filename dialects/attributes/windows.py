"""Sliding windows of convolutions and reductions: sizes, strides, dilations and padding, and numbers of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Window:
    """A sliding window, with one size for each dimension of the array.

    Attributes:
        sizes: number of elements along each dimension.
        strides: distance of two successive positions.
        base_dilations: the array's elements lie this far apart, with padding between them.
        window_dilations: the window's elements lie this far apart.
        padding: how many padding elements lie before and after the array; negative ones cut it off.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, attributes: Any, rank: int) -> Window:
        """Read the window from StableHLO's attributes; absent ones mean 1, or no padding."""

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
        """Return the extents of an array after dilation and padding; negative where more is cut off than there is."""
        return tuple(
            dilated(n, dilation) + low + high
            for n, dilation, (low, high) in zip(shape, self.base_dilations, self.padding, strict=True)
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """Extents of the dilated window: elements of the padded array from its first to its last one, inclusive."""
        return tuple(dilated(n, dilation) for n, dilation in zip(self.sizes, self.window_dilations, strict=True))

    def positions(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the number of positions along each dimension of an array.

        >>> Window((3,), (2,), (1,), (1,), ((1, 1),)).positions([5])
        (3,)
        """
        return tuple(
            0 if reach > extent else (extent - reach) // stride + 1
            for extent, reach, stride in zip(self.padded(shape), self.reach, self.strides, strict=True)
        )


def dilated(size: int, dilation: int) -> int:
    """Return the extent of `size` elements with dilation `dilation`."""
    return (size - 1) * dilation + 1 if size else 0


def same_padding(extent: int, reach: int, stride: int) -> tuple[int, int]:
    """Return the SAME padding: as many positions as strides in `extent`, an odd element at the end.

    >>> same_padding(5, 3, 2)
    (1, 1)
    """
    positions = -(-extent // stride)
    total = max((positions - 1) * stride + reach - extent, 0)
    return total // 2, total - total // 2
