"""Coordinates of a convolution's work item, and the taps of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.convolution import DilationPhase, WindowDimension
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes

# What takes the place of the last dimension but one where there is none.
ONE_ROW = WindowDimension(1, 1, 1, 0, 0, 0, None, (DilationPhase(1, 0, 0),), stride=1, tap_stride=1, tap_step=1)


def select_constant(values: Sequence[int], at: Index) -> Value:
    """Emit values[at], as selects."""
    place = cg.known(at)
    if place is not None:
        return cg.index(values[place])
    found = cg.index(values[0])
    for position, value in enumerate(values[1:], start=1):
        if value != values[0]:
            found = cg.select(cg.index(at).eq(position), cg.index(value), found)
    return found


@dataclass(frozen=True)
class Taps:
    """Window elements (taps) of an output along one dimension: count, first in the window, and start in lhs."""

    spatial: WindowDimension
    count: Value
    first: Value
    start: Value

    @classmethod
    def of(cls, d: WindowDimension, round_: Index, phase: Index) -> Taps:
        """Emit the taps of output `round_` * phases + `phase`."""
        count, first, offset = (
            select_constant([getattr(p, name) for p in d.phases], phase) for name in ("count", "first", "offset")
        )
        return cls(d, count, first, cg.index(round_) * d.stride + offset)

    def after(self, taps: Value, count: int) -> Taps:
        """Emit as many of the taps that follow the first `taps` of all `count`."""
        d = self.spatial
        return Taps(
            d,
            cg.minimum(self.count, cg.index(count) - taps),
            self.first + taps * d.tap_step,
            self.start + taps * d.tap_stride,
        )


@dataclass(frozen=True)
class ItemCoordinates:
    """Coordinates of a work item.

    Attributes:
        part: number of the part of the window.
        batch, group: coordinates; of an item of several images that of one of them.
        image: the number of that image in the item.
        planes: coordinates along the spatial dimensions but the last two, and their taps.
        height: taps of the item's first row, if there are rows.
        phase, row, rows: phase and first round of the item's rows, and their number.
        round, rounds: first round along the last dimension, and their number.
        column: first output feature, in its group.
    """

    part: Value
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
class PackedLhs:
    """Layout of an item's packed lhs: [features of channels][planes][rows][elements of a row][features].

    Attributes:
        buffer: its buffer.
        element: contiguous values of an element: features, or independent channels.
        row: elements of a row.
        plane: values of a plane.
        image: values of all of an image.
        lines: features, if a row has a line of single elements for each; else 0.
    """

    buffer: Value
    element: int
    row: int
    plane: int
    image: int
    lines: int = 0

    @property
    def line(self) -> int:
        """Values of a row."""
        return self.row * self.element * max(1, self.lines)


class ItemPartition:
    """Partition of the work into items: an item's coordinates, and loops over its images and panels."""

    def __init__(self, sizes: ConvolutionSizes, plan: ConvolutionPlan, outputs: int) -> None:
        self.sizes, self.plan, self.outputs = sizes, plan, outputs
        self.width, self.panel = sizes.width, plan.tile.vectors * sizes.lanes

    def place(self, coordinates: Sequence[Value]) -> ItemCoordinates:
        """Emit the item at coordinates in the order of `ConvolutionPlan.items`."""
        part, batch, group, *planes, phase, row_block, round_block, column_block = coordinates
        d, plan = self.sizes.height, self.plan
        met = []
        for o, plane in zip(planes, self.sizes.planes, strict=True):
            count = len(plane.phases)
            met.append((o, Taps.of(plane, o // count, o % count)))
        row, rows, height = cg.index(0), cg.index(1), None
        if d is not None:
            row = row_block * plan.rows
            last = select_constant([-(-(d.outputs - p) // len(d.phases)) for p in range(len(d.phases))], phase)
            rows = (
                cg.minimum(last - row, plan.rows) if d.rounds > plan.rows or len(d.phases) > 1 else cg.index(plan.rows)
            )
            height = Taps.of(d, row, phase)
            if plan.depth:
                height = height.after(part * plan.depth, self.sizes.convolved.outer[-1].taps)
        round_ = round_block * plan.rounds
        all_rounds = self.width.rounds
        rounds = (
            cg.minimum(cg.index(all_rounds) - round_, plan.rounds) if all_rounds > plan.rounds else cg.index(all_rounds)
        )
        column = column_block * plan.columns
        return ItemCoordinates(
            part, batch * plan.images, cg.index(0), group, tuple(met), height, phase, row, rows, round_, rounds, column
        )

    def images(self, place: ItemCoordinates, each: Callable[[ItemCoordinates], None]) -> None:
        """Call `each` for the images of the item, in a loop."""
        with cg.loop(0, self.plan.images) as image:
            each(replace(place, batch=place.batch + image.iv, image=image.iv))

    def panels(self, place: ItemCoordinates, each: Callable[[Value, int], None]) -> None:
        """Call `each` with the number of a panel in its group and its columns, in loops over the item's panels."""
        width, outputs, plan = self.panel, self.outputs, self.plan
        columns = (
            cg.minimum(cg.index(outputs) - place.column, plan.columns) if outputs > plan.columns else cg.index(outputs)
        )
        first = place.column // width
        if outputs >= width:
            with cg.loop(0, columns // width) as panel:
                each(first + panel.iv, width)
        if outputs % width:
            if outputs > plan.columns:
                with cg.when((place.column + columns).eq(outputs)):
                    each(cg.index(outputs // width), outputs % width)
            else:
                each(cg.index(outputs // width), outputs % width)
