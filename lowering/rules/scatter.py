"""Lowering of scatter: windows of updates combined into an array at indices given by another array.

A kernel over flattened arrays that updates its operands in place, in the order of the index vectors. An element that
is out of bounds is masked by itself: the other elements of its window are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.dialects.attributes.index_numbers import ScatterDimensionNumbers
from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.kernels.scan.lines import (
    Axis,
    Iteration,
    Values,
    as_line,
    element_at,
    from_line,
    index,
    line_type,
    loop,
    loops,
    merged,
    moved,
    read_only_line,
)
from stablexla.lowering.rules.conversion import convert_value, in_element_type
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.index_vectors import IndexVectors, Start
from stablexla.lowering.support.kernels import Combiner, kernel
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.scalars import cmpi
from stablexla.lowering.support.storage import constant, from_storage, to_storage
from stablexla.lowering.support.types import TensorType, storage_type

Bounds = tuple[ir.Value, ir.Value]
# From this many updates on, a scatter with unique indices is shared between threads.
WORTH_SHARING = Gate("scatter.worth-sharing", 1 << 14, eager=1)


@dataclass(frozen=True)
class ScatterLoop:
    """A loop over windows: its trip count, and its strides in indices, operand and updates, in elements."""

    extent: int
    index_step: int
    operand_step: int
    update_step: int


@dataclass(frozen=True)
class ScatterWindowLoop:
    """A loop over a window's elements; `moved` is the start index that may move it partly out of bounds."""

    extent: int
    operand_step: int
    update_step: int
    moved: int | None = None


@dataclass(frozen=True)
class ScatterStart:
    """A component of an index vector: its offset from the first, its limit, and its stride in the operand."""

    offset: int
    extent: int
    step: int


@dataclass(frozen=True)
class ScatterConfig:
    """The loop nest of a scatter.

    Attributes:
        unique: the iterations of the outermost loop change different elements.
        distinct: all windows change different elements.
    """

    outer: tuple[ScatterLoop, ...]
    window: tuple[ScatterWindowLoop, ...]
    starts: tuple[ScatterStart, ...]
    index_type: str
    unique: bool
    distinct: bool


@lowers("stablehlo.scatter")
def scatter(ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """The inputs with the windows of the updates combined into them by the region."""
    count = len(operands) // 2
    inputs = [
        in_element_type(x, given, wanted.element)
        for x, given, wanted in zip(operands[:count], ctx.operand_types, ctx.result_types, strict=False)
    ]
    source, index_type, update = ctx.result_types[0], *ctx.operand_types[count : count + 2]
    if not update.size or not source.size:
        return inputs
    plan = _plan(ctx, source, index_type, update)
    lines = [as_line(x, t) for x, t in zip(inputs, ctx.result_types, strict=True)]
    indices, *updates = [read_only_line(v, t) for v, t in zip(operands[count:], ctx.operand_types[count:], strict=True)]
    made = kernel(
        ctx,
        "scatter",
        [*lines, indices, *updates],
        lambda *arrays: _Writer(ctx, plan, arrays).write(),
        config=plan.config(),
        combiner=_combiner(ctx),
        result_types=[line_type(t) for t in ctx.result_types],
        independent=plan.independent,
    )
    return [from_line(v, t) for v, t in zip(made, ctx.result_types, strict=True)]


@dataclass(frozen=True)
class _Plan:
    """The loop nest of a scatter, over indices, operand and updates.

    Attributes:
        vectors: the index vectors.
        starts: the start indices of a vector.
        outer: loops over index vectors.
        window: loops over a window, each with the start index that offsets it, if it may be partly out of bounds.
        independent: the iterations of the outermost loop change different elements.
        distinct: all windows change different elements.
    """

    vectors: IndexVectors
    starts: list[Start]
    outer: list[Axis]
    window: list[tuple[Axis, int | None]]
    independent: bool
    distinct: bool

    def config(self) -> ScatterConfig:
        """Return the kernel's configuration."""
        return ScatterConfig(
            outer=tuple(ScatterLoop(axis.extent, *axis.steps) for axis in self.outer),
            window=tuple(ScatterWindowLoop(a.extent, a.steps[1], a.steps[2], moved) for a, moved in self.window),
            starts=tuple(ScatterStart(start.offset, start.extent, start.step) for start in self.starts),
            index_type=self.vectors.type.element.name,
            unique=self.independent,
            distinct=self.distinct,
        )


def _plan(ctx: LoweringContext, source: TensorType, index_type: TensorType, update: TensorType) -> _Plan:
    if not index_type.element.is_integer:  # which the verifier lets pass
        raise ctx.unsupported("indices must be integers")
    numbers = ScatterDimensionNumbers.read(ctx.attributes["scatter_dimension_numbers"])
    vectors = IndexVectors.of(index_type, numbers.index_vector_dim)
    left_out = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    in_window = [d for d in range(source.rank) if d not in left_out]
    sizes = [1] * source.rank
    for d, by in zip(in_window, numbers.update_window_dims, strict=True):
        sizes[d] = update.shape[by]
    starts = vectors.starts(numbers.scatter_dims_to_operand_dims, source.shape, sizes)
    outer = merged(_axes_over_vectors(source, update, numbers, vectors))
    window = list(_axes_of_window(source, update, numbers, in_window))
    apart = next((axis for axis in outer if axis.steps[1]), None)
    unique = "unique_indices" in ctx.attributes and bool(ctx.attributes["unique_indices"].value)
    if apart is not None:  # a batching dimension: each of its indices has its own part of the operand
        outer = [apart, *(axis for axis in outer if axis is not apart)]
        return _Plan(vectors, starts, outer, window, independent=True, distinct=unique or len(outer) == 1)
    shared = unique and bool(outer) and update.size >= WORTH_SHARING()
    return _Plan(vectors, starts, outer, window, independent=shared, distinct=unique or not outer)


def _axes_over_vectors(
    source: TensorType, update: TensorType, numbers: ScatterDimensionNumbers, vectors: IndexVectors
) -> Iterator[Axis]:
    steps, in_update = row_major(source.shape), row_major(update.shape)
    together = zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True)
    batching = {by: steps[d] for by, d in together}
    over = [d for d in range(update.rank) if d not in numbers.update_window_dims]
    for d, by, stride in zip(over, vectors.dims, vectors.strides, strict=True):
        yield Axis(update.shape[d], (stride, batching.get(by, 0), in_update[d]))


def _axes_of_window(
    source: TensorType, update: TensorType, numbers: ScatterDimensionNumbers, in_window: Sequence[int]
) -> Iterator[tuple[Axis, int | None]]:
    """Yield the window's loops; adjacent loops without a start index are collapsed where contiguous."""
    steps, in_update = row_major(source.shape), row_major(update.shape)
    pointed = numbers.scatter_dims_to_operand_dims
    still: list[Axis] = []
    for d, by in zip(in_window, numbers.update_window_dims, strict=True):
        axis = Axis(update.shape[by], (0, steps[d], in_update[by]))
        if d in pointed and axis.extent > 1:
            yield from ((each, None) for each in merged(still))
            yield axis, pointed.index(d)
            still = []
        else:
            still.append(axis)
    yield from ((each, None) for each in merged(still))


class _Writer:
    """Emitter of a scatter's loop nest. `arrays` are the flattened operands, the indices, and the updates."""

    def __init__(self, ctx: LoweringContext, plan: _Plan, arrays: Sequence[ir.Value]) -> None:
        self._ctx, self._plan = ctx, plan
        count = len(ctx.result_types)
        self._lines, self._indices = list(arrays[:count]), arrays[count]
        self._updates = arrays[count + 1 : 2 * count + 1]

    def write(self) -> Values:
        """Emit the loop nest; return the flattened operands after all updates."""
        return loops(self._plan.outer, [index(0)] * 3, self._lines, self._window)

    def _window(self, places: Values, carried: Values) -> Values:
        """Emit one window; its loop bounds are clipped to the operand."""
        vector, at, given = places
        element = self._plan.vectors.type.element
        inside: list[ir.Value] = []
        whole: list[ir.Value] = []
        bounds: dict[int, Bounds] = {}
        for number, start in enumerate(self._plan.starts):
            value = self._plan.vectors.read(self._indices, vector, start)
            fits = _lies_inside(value, element, start.extent - start.size + 1)
            if start.size == 1:
                inside.append(fits)
                first = as_index(value, element)
            else:
                whole.append(fits)
                first = _saturated(value, element, start)
                least = arith.maxsi(arith.subi(index(0), first), index(0))
                bounds[number] = least, arith.minsi(index(start.size), arith.subi(index(start.extent), first))
            at = moved(at, first, start.step)

        def everything(places: Values, carried: Values) -> Values:
            return self._loops(self._plan.window, {}, places, carried)

        def some(places: Values, carried: Values) -> Values:
            return self._loops(self._plan.window, bounds, places, carried)

        def within(places: Values, carried: Values) -> Values:
            return _where(whole, everything, some, places, carried)

        return _where(inside, within, lambda _, unchanged: unchanged, [vector, at, given], carried)

    def _loops(
        self,
        axes: Sequence[tuple[Axis, int | None]],
        bounds: dict[int, Bounds],
        places: Values,
        carried: Values,
    ) -> Values:
        if not axes:
            return self._combine(places, carried)
        (axis, start), *rest = axes
        low, high = (index(0), index(axis.extent)) if start not in bounds else bounds[start]
        return loop(axis, low, high, places, carried, lambda p, c: self._loops(rest, bounds, p, c))

    def _combine(self, places: Values, carried: Values) -> Values:
        """Combine one element of the operand with its update by the region."""
        _, at, given = places
        there = [tensor.extract(line, [at]) for line in carried]
        made = _combined(self._ctx, there, [element_at(line, given) for line in self._updates])
        return [tensor.insert(v, line, [at]) for v, line in zip(made, carried, strict=True)]


def _element_types(ctx: LoweringContext) -> tuple[list[ElementType], list[ElementType]]:
    """Return the element types of the operands, in the region's type, and of the updates."""
    elements = [t.element for t in ctx.result_types]
    return elements, [t.element for t in ctx.operand_types[len(elements) + 1 :]]


def _combined(ctx: LoweringContext, there: Values, updates: Values) -> Values:
    """Inline the region on an element of each operand and of each of the updates, all in storage form."""
    elements, given = _element_types(ctx)
    new = [convert_value(from_storage(v, e), e, wanted) for v, e, wanted in zip(updates, given, elements, strict=True)]
    made = ctx.inline_region(0, [*(from_storage(v, e) for v, e in zip(there, elements, strict=True)), *new])
    return [to_storage(v, e) for v, e in zip(made, elements, strict=True)]


def _combiner(ctx: LoweringContext) -> Combiner:
    elements, given = _element_types(ctx)
    types = [storage_type(e) for e in (*elements, *given)]
    return Combiner(types, lambda both: _combined(ctx, both[: len(elements)], both[len(elements) :]))


def _where(
    conditions: Sequence[ir.Value], then: Iteration, otherwise: Iteration, places: Values, carried: Values
) -> Values:
    """Emit `then` where all conditions hold, else `otherwise`."""
    if not conditions:
        return list(then(places, carried))
    made = scf.IfOp(reduce(arith.andi, conditions), [v.type for v in carried], has_else=True)
    for block, taken in ((made.then_block, then), (made.else_block, otherwise)):
        with ir.InsertionPoint(block):
            scf.YieldOp(list(taken(places, carried)))
    return list(made.results)


def _lies_inside(value: ir.Value, element: ElementType, extent: int) -> ir.Value:
    """Emit 0 <= value < extent."""
    reachable = (1 << (element.bits - element.is_signed)) - 1
    if extent <= reachable:
        return cmpi("ult", value, constant(value.type, extent))
    if element.is_signed:
        return cmpi("sge", value, constant(value.type, 0))
    return constant(ir.IntegerType.get_signless(1), 1)


def _saturated(value: ir.Value, element: ElementType, start: Start) -> ir.Value:
    """Convert a start to an index, clamped to the nearest start with the whole window out of bounds."""
    if not element.is_signed:
        return as_index(held_within(value, element, start.extent), element)
    wide = ir.IntegerType.get_signless(64)
    number = value if value.type == wide else arith.extsi(wide, value)
    number = arith.maxsi(number, constant(wide, -start.size))
    return arith.index_cast(ir.IndexType.get(), arith.minsi(number, constant(wide, start.extent)))
