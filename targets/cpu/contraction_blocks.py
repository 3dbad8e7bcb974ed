"""Products of packed factors by functions that all contractions of an element type share.

Sizes and places are arguments: a module with products of many shapes has the code of the register tile once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.cpu.contraction_output import load_converted
from stablexla.targets.cpu.contraction_panels import Panels, Source, pack_panels
from stablexla.targets.cpu.contraction_tiles import Tile, multiply_add
from stablexla.targets.cpu.emission import (
    Index,
    Value,
    alloca,
    branch,
    constant,
    load,
    loop,
    minimum,
    prefetch,
    store,
    vector_of,
    when,
)
from stablexla.targets.cpu.shared import Shared


@dataclass(frozen=True)
class Factor:
    """Packed panels of a factor: a buffer, where the first panel begins, and how far it is to the next."""

    buffer: Value
    at: Index
    stride: Index = 0


@dataclass(frozen=True)
class Target:
    """Where sums go.

    Attributes:
        buffer, at: where they begin.
        stride: from row to row.
        add: 1 to add them to what is there, else 0.
    """

    buffer: Value
    at: Index
    stride: Index
    add: Index = 0


def sum_tile(shared: Shared, tile: Tile, lanes: int, lhs: Factor, rhs: Factor, steps: Index, to: Target) -> None:
    """The sums of one register tile over `steps` of k; all of its rows and columns are written."""

    def write(buffers: list[Value], numbers: list[Value]) -> None:
        a, b, out = buffers
        a_at, b_at, count, at, stride, add = numbers
        places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        rows = [at + stride * r for r in range(tile.rows)]
        for row in rows:  # their lines come while the sums are made
            prefetch(out, row, write=True)
        zero = constant(0, vector_of(lanes, a.element))
        width = tile.vectors * lanes
        with loop(0, count, 1, [zero] * len(places)) as k:
            left, right = k.iv * tile.rows + a_at, k.iv * width + b_at
            factors = [load(a, left + r) for r in range(tile.rows)]
            vectors = [load(b, right + v * lanes, lanes) for v in range(tile.vectors)]
            k.yields(*multiply_add(lanes, tile, factors.__getitem__, vectors.__getitem__, k.args))
        choice = branch(add.ne(0))
        with choice.then:
            for (r, v), value in zip(places, k.results, strict=True):
                store(value + load(out, rows[r] + v * lanes, lanes), out, rows[r] + v * lanes)
        with choice.otherwise:
            for (r, v), value in zip(places, k.results, strict=True):
                store(value, out, rows[r] + v * lanes)

    name = f"stablexla_sum_tile_{tile.rows}x{tile.vectors}"
    numbers = [lhs.at, rhs.at, steps, to.at, to.stride, to.add]
    shared.call(name, [lhs.buffer, rhs.buffer, to.buffer], numbers, write, rolled=True)


def sum_block(
    shared: Shared,
    tile: Tile,
    lanes: int,
    lhs: Factor,
    rhs: Factor,
    size: tuple[Index, Index, Index],
    to: Target,
) -> None:
    """The sums of a block of `size` (rows, columns, steps of k), row by row side by side in `to`."""

    def write(buffers: list[Value], numbers: list[Value]) -> None:
        a, b, out = buffers
        a_at, a_stride, b_at, b_stride, rows, columns, steps, at, stride, add = numbers
        width = tile.vectors * lanes
        spill = alloca(tile.rows * width, a.element)
        with (
            loop(0, (columns + (width - 1)) // width) as j,
            loop(0, (rows + (tile.rows - 1)) // tile.rows) as i,
        ):
            left, right = Factor(a, i.iv * a_stride + a_at), Factor(b, j.iv * b_stride + b_at)
            down, across = rows - i.iv * tile.rows, columns - j.iv * width
            corner = at + i.iv * tile.rows * stride + j.iv * width
            whole = branch(down.ge(tile.rows) & across.ge(width))
            with whole.then:
                sum_tile(shared, tile, lanes, left, right, steps, Target(out, corner, stride, add))
            with whole.otherwise:
                sum_tile(shared, tile, lanes, left, right, steps, Target(spill, 0, width))
                _write_part(spill, width, (minimum(down, tile.rows), minimum(across, width)), out, corner, stride, add)

    name = f"stablexla_sum_block_{tile.rows}x{tile.vectors}"
    numbers = [lhs.at, lhs.stride, rhs.at, rhs.stride, *size, to.at, to.stride, to.add]
    shared.call(name, [lhs.buffer, rhs.buffer, to.buffer], numbers, write, rolled=True)


def _write_part(
    spill: Value, width: int, size: tuple[Value, Value], out: Value, at: Value, stride: Value, add: Value
) -> None:
    """A tile at the edge, element by element: there are few of them."""
    with loop(0, size[0]) as r:
        start, to = r.iv * width, r.iv * stride + at
        with when(add.ne(0)), loop(0, size[1]) as c:
            store(load(spill, start + c.iv) + load(out, to + c.iv), spill, start + c.iv)
        with loop(0, size[1]) as c:
            store(load(spill, start + c.iv), out, to + c.iv)


def pack(
    shared: Shared,
    panels: Panels,
    source: Source,
    conversion: Sequence[ir.Operation],
    to: Factor,
) -> None:
    """Packs a matrix, whose elements go through `conversion`, into panels; see `pack_panels`."""
    along = [source.along_width, source.along_depth]
    unit = "".join("1" if step == 1 else "n" for step in along)
    steps = "_".join([f"{op.name}_{op.results[0].type}" for op in conversion]).replace(".", "_")
    name = f"stablexla_pack_{panels.width}{'_ahead' if source.ahead else ''}_{unit}_{steps}"

    def write(buffers: list[Value], numbers: list[Value]) -> None:
        matrix, packed = buffers
        at, along_width, along_depth, width, depth, base, depth_of_panels = numbers

        def element(place: Index, lanes: int = 0, count: Index | None = None) -> Value:
            return load_converted(matrix, conversion, packed.element, place, lanes, count)

        inner = Source(
            *(element, matrix, at),
            1 if unit[0] == "1" else along_width,
            1 if unit[1] == "1" else along_depth,
            *(width, depth, source.ahead),
        )
        pack_panels(Panels(panels.width, depth_of_panels, panels.lanes), inner, packed, base)

    numbers = [source.at, *along, source.width, source.depth, to.at, panels.depth]
    shared.call(name, [source.buffer, to.buffer], numbers, write, rolled=True)
