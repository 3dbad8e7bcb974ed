"""Where an item of a convolution lies: its coordinates, and what of lhs and of the window its outputs meet."""

from __future__ import annotations

from dataclasses import dataclass

from stablexla.targets.cpu.convolution_match import Spatial
from stablexla.targets.cpu.convolution_pack import lookup
from stablexla.targets.cpu.emission import Index, Value, index


@dataclass(frozen=True)
class Taps:
    """Elements of the window along one dimension that an output meets: how many, the first, and where in lhs."""

    spatial: Spatial
    count: Value
    first: Value
    start: Value

    @classmethod
    def of(cls, d: Spatial, round_: Index, phase: Index) -> Taps:
        """Those of the output `round_` * phases + `phase`."""
        count, first, offset = (
            lookup([getattr(p, name) for p in d.phases], phase) for name in ("count", "first", "offset")
        )
        return cls(d, count, first, index(round_) * d.stride + offset)


@dataclass(frozen=True)
class Place:
    """Where an item lies.

    Attributes:
        batch, group: coordinates; of an item of several images that of one of them.
        image: the number of that image in the item.
        planes: coordinates along the spatial dimensions but the last two, and what they meet.
        height: what the first of the item's rows meets, if there are rows.
        phase, row, rows: phase and first round of the item's rows, and their number.
        round, rounds: first round along the last dimension, and their number.
        column: first output feature, in its group.
    """

    batch: Value
    image: Value
    group: Value
    planes: tuple[tuple[Value, Taps], ...]
    height: Taps | None
    phase: Value
    row: Value
    rows: Value
    round: Value
    rounds: Value
    column: Value


@dataclass(frozen=True)
class Packed:
    """An item's part of lhs as it is packed: [features of channels][planes][rows][elements of a row][features].

    Attributes:
        buffer: where it lies.
        element: values that lie side by side for an element: features, or channels that have nothing in common.
        row: elements of a row.
        plane: values of a plane.
        image: values of all of an image.
    """

    buffer: Value
    element: int
    row: int
    plane: int
    image: int

    @property
    def line(self) -> int:
        """Values of a row."""
        return self.row * self.element
