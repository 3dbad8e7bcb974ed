"""Matrix tiles of AMX: 16 rows of 64 bytes, whose products accumulate into 16 by 16 tiles of sums.

The loop over them is in `accumulate_tiles`. There are two implementations of `MatrixTiles`: the processor's, and an
emulation that keeps tiles in memory and multiplies by vectors, so that everything but the instructions is tested on any
processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import mlir.ir as ir
from mlir.dialects import memref

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.contraction.dot_instructions import DotInstruction, as_bits, broadcast_group, load_group

ROWS = 16
LANES = 16
BLOCK = 2 * ROWS
"""Rows and columns of the accumulator block: two by two tiles, the most that eight tile registers allow."""

# Location of 16 rows of 64 bytes: buffer, index of the first, and the row stride, in units.
TileRows = tuple[Value, Value, Index]


class MatrixTiles(Protocol):
    """An implementation of tile operations. The loop-carried accumulators are the values returned by `zeros`."""

    def zeros(self) -> list[Value]:
        """Return four accumulator tiles of zeros."""

    def step(self, a: Sequence[TileRows], b: Sequence[TileRows], sums: Sequence[Value]) -> list[Value]:
        """Accumulate the products of two tiles of lhs with two of rhs."""

    def load(self, buffer: Value, at: Index, stride: Index) -> list[Value]:
        """Load the accumulators from `BLOCK` rows, a stride apart."""

    def store(self, sums: Sequence[Value], to: Value, at: Index = 0, stride: Index = BLOCK) -> None:
        """Store the accumulators as `BLOCK` rows, a stride apart."""


def accumulate_tiles(
    tiles: MatrixTiles,
    groups: Index,
    a: Callable[[int, Index], TileRows],
    b: Callable[[int, Index], TileRows],
    ahead: Callable[[Index], None],
) -> list[Value]:
    """Emit the K loop over `groups`, a multiple of 16, for `BLOCK` rows and columns; `a` and `b` locate tiles.

    `ahead` emits the prefetches of a step.
    """
    with cg.loop(0, groups, LANES, tiles.zeros()) as k:
        ahead(k.iv)
        k.yields(*tiles.step([a(0, k.iv), a(1, k.iv)], [b(0, k.iv), b(1, k.iv)], k.args))
    return k.results


def make_tiles(product: DotInstruction, sums: ir.Type) -> MatrixTiles:
    """Return the implementation that the product requires; to be called at the top of a kernel."""
    return _Vectors(product, sums) if product.emulated else _Amx(product, sums)


class _Amx:
    """Tiles in the processor's tile registers, by the `amx` dialect."""

    def __init__(self, product: DotInstruction, sums: ir.Type) -> None:
        self._product = product
        element = {"tiles_bf16": "bf16", "tiles_f16": "f16"}.get(product.name, "i8")
        self._unit = ir.Type.parse(f"!amx.tile<{ROWS}x{LANES * product.group}x{element}>")
        self._sums = ir.Type.parse(f"!amx.tile<{ROWS}x{LANES}x{sums}>")

    def zeros(self) -> list[Value]:
        return [_operation("amx.tile_zero", [], self._sums) for _ in range(4)]

    def step(self, a: Sequence[TileRows], b: Sequence[TileRows], sums: Sequence[Value]) -> list[Value]:
        left, right = ([self._load(lines) for lines in side] for side in (a, b))
        pairs = [(x, y) for x in left for y in right]
        return [self._multiply(x, y, s) for (x, y), s in zip(pairs, sums, strict=True)]

    def _multiply(self, a: Value, b: Value, sums: Value) -> Value:
        if self._product.unit != "i8":
            return _operation("amx.tile_mulf", [a, b, sums], self._sums)
        signs = zip(("isZextLhs", "isZextRhs"), self._product.name[-2:], strict=True)
        flags = {name: ir.UnitAttr.get() for name, sign in signs if sign == "u"}
        return _operation("amx.tile_muli", [a, b, sums], self._sums, flags)

    def _load(self, lines: TileRows) -> Value:
        return self._load_as(self._unit, *lines, LANES * self._product.group)

    def _load_as(self, type_: ir.Type, buffer: Value, at: Index, stride: Index, columns: int) -> Value:
        zero = cg.index(0)
        return _operation("amx.tile_load", [_view(buffer, at, stride, columns), zero, zero], type_, _segments(1, 2, 0))

    def load(self, buffer: Value, at: Index, stride: Index) -> list[Value]:
        return [self._load_as(self._sums, buffer, place, stride, LANES) for place in _quarters(at, stride)]

    def store(self, sums: Sequence[Value], to: Value, at: Index = 0, stride: Index = BLOCK) -> None:
        zero = cg.index(0)
        for value, place in zip(sums, _quarters(at, stride), strict=True):
            view = _view(to, place, stride, LANES)
            _operation("amx.tile_store", [view, zero, zero, value], None, _segments(1, 2, 1, 0))


def _quarters(at: Index, stride: Index) -> list[Value]:
    """Emit the offsets of the four accumulators in `BLOCK` rows."""
    return [cg.index(stride) * (i * ROWS) + at + j * LANES for i in range(2) for j in range(2)]


def _operation(
    name: str, operands: Sequence[Value], result: ir.Type | None, attributes: dict[str, ir.Attribute] | None = None
) -> Value:
    made = ir.Operation.create(
        name, results=[result] if result else [], operands=[o.ssa for o in operands], attributes=attributes
    )
    return Value(made.result) if result else operands[0]


def _segments(*sizes: int) -> dict[str, ir.Attribute]:
    return {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes)}


def _view(buffer: Value, at: Index, stride: Index, columns: int) -> Value:
    """View 16 rows of a flat buffer as a matrix."""
    dynamic, known = ir.ShapedType.get_dynamic_stride_or_offset(), cg.known(stride)
    step = dynamic if known is None else known
    layout = ir.StridedLayoutAttr.get(dynamic, [step, 1])
    type_ = ir.MemRefType.get([ROWS, columns], buffer.element, layout=layout)
    made = memref.reinterpret_cast(
        type_,
        buffer.ssa,
        [cg.index(at).ssa],
        [],
        [] if known is not None else [cg.index(stride).ssa],
        static_offsets=[dynamic],
        static_sizes=[ROWS, columns],
        static_strides=[step, 1],
    )
    return Value(made)


class _Vectors:
    """Emulation by vectors: the accumulators lie in a buffer of their own, as `store` leaves them."""

    def __init__(self, product: DotInstruction, sums: ir.Type) -> None:
        self._product = product
        self._sums = cg.alloca(BLOCK * BLOCK, sums)
        self._lanes = 4

    def zeros(self) -> list[Value]:
        with cg.loop(0, BLOCK * BLOCK, self._lanes) as i:
            cg.store(cg.constant(0, cg.vector_of(self._lanes, self._sums.element)), self._sums, i.iv)
        return []

    def step(self, a: Sequence[TileRows], b: Sequence[TileRows], sums: Sequence[Value]) -> list[Value]:
        for i, left in enumerate(a):
            for j, right in enumerate(b):
                self._multiply(left, right, (i * BLOCK + j) * LANES)
        return []

    def _multiply(self, a: TileRows, b: TileRows, base: int) -> None:
        group, lanes = self._product.group, self._lanes
        with cg.loop(0, ROWS) as row, cg.loop(0, LANES, lanes) as column:
            place = row.iv * BLOCK + column.iv + base
            with cg.loop(0, LANES, 1, [cg.load(self._sums, place, lanes)]) as g:
                units = as_bits(load_group(self._product, a[0], row.iv * a[2] + a[1] + g.iv * group))
                columns = cg.load(b[0], g.iv * b[2] + b[1] + column.iv * group, lanes * group)
                g.yields(self._product.multiply_add(broadcast_group(units, lanes), columns, g.args[0]))
            cg.store(g.results[0], self._sums, place)

    def load(self, buffer: Value, at: Index, stride: Index) -> list[Value]:
        with cg.loop(0, BLOCK) as r, cg.loop(0, BLOCK, self._lanes) as i:
            value = cg.load(buffer, r.iv * stride + at + i.iv, self._lanes)
            cg.store(value, self._sums, r.iv * BLOCK + i.iv)
        return []

    def store(self, sums: Sequence[Value], to: Value, at: Index = 0, stride: Index = BLOCK) -> None:
        with cg.loop(0, BLOCK) as r, cg.loop(0, BLOCK, self._lanes) as i:
            cg.store(cg.load(self._sums, r.iv * BLOCK + i.iv, self._lanes), to, r.iv * stride + at + i.iv)
