"""Register tiles: accumulators in vector registers over a loop along k, and their epilogue and stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import TracebackType

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.codegen.match.epilogue import COMPLETE_SUM, BatchFrame, ContractionScene, ResultSpan, SumState
from stablexla.targets.cpu.contraction.dot_instructions import broadcast_group

# Loads of an operand at step k, given the offset that outer loops over k add: (k, offset) -> (row or vector) -> value.
OperandLoads = Callable[[Index, Index], Callable[[int], Value]]
# An epilogue of more operations than this is emitted once in a loop over the tile's rows, not unrolled for every
# register. Large products count an elementary function by its expansion (`epilogue_size`); products of short k count it
# once (`epilogue_length`), for there the loop's constants and each function's latency cost more than the sums: 64x64x64
# with tanh takes 2.5 times as long that way (loop-products-64 of benchmarks/).
INLINE_EPILOGUE = 6


@dataclass(frozen=True)
class RegisterTile:
    """Size of a register (accumulator) tile: rows, and vectors a row."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class OuterAxis:
    """An outer axis of k of a shared function: its extent, and its strides in both operands."""

    extent: Index
    a: Index
    b: Index


class OuterReduction:
    """Loop nest over the outer axes of k that carries accumulators: `with OuterSums(...) as nest: ...`.

    `most` is that of its loops, see `cg.loop`.
    """

    def __init__(
        self,
        axes: Sequence[ContractionAxis | OuterAxis],
        at_a: Index,
        at_b: Index,
        inits: Sequence[Value] = (),
        most: int | None = None,
    ) -> None:
        self._axes, self._most, self.at_a, self.at_b = axes, most, cg.index(at_a), cg.index(at_b)
        self._loops: list[cg.loop] = []
        self.sums = list(inits)
        self.results: list[Value] = []

    def __enter__(self) -> OuterReduction:
        for axis in self._axes:
            nested = cg.loop(0, axis.extent, 1, self.sums, most=self._most)
            nested.__enter__()
            self._loops.append(nested)
            self.at_a, self.at_b = nested.iv * axis.a + self.at_a, nested.iv * axis.b + self.at_b
            self.sums = nested.args
        self.results = self.sums
        return self

    def yields(self, *sums: Value) -> None:
        """Set the accumulators after the innermost body."""
        self.results = list(sums)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for nested in reversed(self._loops):
            if kind is None:
                nested.yields(*self.results)
            nested.__exit__(kind, error, trace)
            self.results = nested.results if kind is None else []


def accumulate(
    zero: Value,
    tile: RegisterTile,
    extent: Index,
    unroll: int,
    a: OperandLoads,
    b: OperandLoads,
    outer: Sequence[ContractionAxis | OuterAxis] = (),
    most: int | None = None,
) -> list[Value]:
    """Emit a tile's accumulation from `zero` over `extent` steps of k (a multiple of `unroll`) and the outer axes.

    `most` is that of the loops, see `cg.loop`.
    """
    with OuterReduction(outer, 0, 0, [zero] * (tile.rows * tile.vectors), most) as nest:
        with cg.loop(0, extent, unroll, nest.sums, most=most) as k:
            values = k.args
            for step in range(unroll):
                at = k.iv + step
                values = multiply_add(tile, a(at, nest.at_a), b(at, nest.at_b), values)
            k.yields(*values)
        nest.yields(*k.results)
    return nest.results


def multiply_add(
    tile: RegisterTile,
    a: Callable[[int], Value],
    b: Callable[[int], Value],
    sums: Sequence[Value],
    fma: Callable[[Value, Value, Value], Value] = cg.fma,
) -> list[Value]:
    """Accumulate one group of k, an outer product of groups a(0), a(1) ... of rows and vectors b(0), b(1) ..."""
    vectors = [b(v) for v in range(tile.vectors)]
    out = []
    for r in range(tile.rows):
        of_row = sums[r * tile.vectors : (r + 1) * tile.vectors]
        factor = broadcast_group(a(r), sums[0].lanes)
        out += [fma(factor, vector, s) for vector, s in zip(vectors, of_row, strict=True)]
    return out


def prefetch_tile(
    scene: ContractionScene, tile: RegisterTile, frame: BatchFrame, at: tuple[Index, Index], rows: Index | None = None
) -> None:
    """Prefetch the result's cache lines at a tile's row starts, or some of its rows, before the accumulation."""
    if not scene.vectors:
        return
    with cg.loop(0, tile.rows if rows is None else rows) as r:
        row = r.iv + at[0]
        cg.prefetch(scene.results[0], row * scene.contraction.m.c + frame.c + at[1], write=True)


def store_tile(
    scene: ContractionScene,
    tile: RegisterTile,
    values: Sequence[Value],
    frame: BatchFrame,
    at: tuple[Index, Index],
    columns: int,
    buffer: Value,
    sums: SumState = COMPLETE_SUM,
) -> None:
    """Store a tile's sums to the result; the first `columns` elements of each row are valid."""
    if not scene.vectors or scene.contraction.epilogue_length > INLINE_EPILOGUE:
        spill_tile(scene.lanes, values, buffer)
        scene.write_block(buffer, tile.vectors * scene.lanes, frame, (tile.rows, columns), at, sums)
        return
    rows = [scene.row(frame, cg.index(at[0]) + r) for r in range(tile.rows)]
    places: list[ResultSpan] = [
        (row, cg.index(at[1]) + v * scene.lanes, min(scene.lanes, columns - v * scene.lanes))
        for row in rows
        for v in range(tile.vectors)
    ]
    if sums.first is not None:
        choice = cg.branch(sums.first, [v.type for v in values])
        with choice.then:
            choice.yields(*values)
        with choice.otherwise:
            before = [scene.load_partial(row, at, scene.lanes, count, sums.offset) for row, at, count in places]
            choice.yields(*(value + b for value, b in zip(values, before, strict=True)))
        values = choice.results
    scene.write_all(values, places, sums)


def spill_tile(lanes: int, values: Sequence[Value], buffer: Value) -> None:
    """Store a tile's accumulators row by row into a buffer of its size."""
    for number, value in enumerate(values):
        cg.store(value, buffer, number * lanes)


def contraction_grain(contraction: Contraction, items: int) -> int:
    """Return the grain: items that take about 20 microseconds."""
    c = contraction
    work = c.batches * c.m.extent * c.n.extent * (c.depth + 8 + 4 * c.epilogue_size)
    return max(1, min(items, math.ceil(items * 5e5 / max(1, work))))
