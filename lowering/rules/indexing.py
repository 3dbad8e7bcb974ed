"""Lowering of gather, dynamic_gather and torch_index_select: slices of an array at indices given by another array.

A kernel over flattened arrays; each start index is clamped to the operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers
from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.kernels.scan.lines import (
    Axis,
    Values,
    as_line,
    from_line,
    index,
    line_type,
    loops,
    merged,
    read_only_line,
)
from stablexla.lowering.rules.shape import constant_value, reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import elementwise, empty, fill
from stablexla.lowering.support.index_vectors import IndexVectors, Start, table_of_starts
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import from_storage
from stablexla.lowering.support.types import TensorType

# The most entries of a lookup table that is held in registers, and the fewest elements that are looked up in it.
LEAST_LOOKUPS = Gate("lookup.least-lookups", 1 << 12, eager=1)
LOOKED_UP = Gate("lookup.most-entries", 16, eager=1)


@dataclass(frozen=True)
class GatherAxis:
    """A loop: its trip count, and its strides in the indices, the operand and the result, in elements."""

    extent: int
    index_step: int
    operand_step: int
    result_step: int


@dataclass(frozen=True)
class GatherStart:
    """A component of an index vector: its offset from the first, its stride in the operand, and its highest value.

    Without a highest value it is known to be in bounds.
    """

    offset: int
    step: int
    highest: int | None = None


@dataclass(frozen=True)
class GatherConfig:
    """The loop nest of a gather, the components of its index vectors, and their element type."""

    axes: tuple[GatherAxis, ...]
    starts: tuple[GatherStart, ...]
    index_type: str


@lowers("stablehlo.gather")
def gather(ctx: LoweringContext, operand: ir.Value, indices: ir.Value) -> ir.Value:
    """A slice of the operand for each index vector, in the result's offset dimensions."""
    numbers = GatherDimensionNumbers.read(ctx.attributes["dimension_numbers"])
    return _gather(ctx, operand, indices, numbers, integers(ctx.attributes["slice_sizes"]))


@lowers("stablehlo.dynamic_gather")
def dynamic_gather(ctx: LoweringContext, operand: ir.Value, indices: ir.Value, sizes: ir.Value) -> ir.Value:
    """A gather whose slice sizes are an operand; the result's type states them too."""
    numbers = GatherDimensionNumbers.read(ctx.attributes["dimension_numbers"])
    left_out = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    extents = iter([ctx.result.shape[d] for d in numbers.offset_dims])
    known = [1 if d in left_out else next(extents) for d in range(ctx.operand_types[0].rank)]
    return _gather(ctx, operand, indices, numbers, known)


@lowers("stablehlo.torch_index_select")
def torch_index_select(ctx: LoweringContext, operand: ir.Value, indices: ir.Value) -> ir.Value:
    """The elements at the indices along `dim`; the first `batch_dims` dimensions of both operands are batched."""
    source, index_type = ctx.operand_types
    dim, batch = (int(ctx.attributes[name]) for name in ("dim", "batch_dims"))
    dim += source.rank if dim < 0 else 0
    batch += index_type.rank if batch < 0 else 0
    shape = (*source.shape[:dim], *index_type.shape[batch:], *source.shape[dim + 1 :])
    if not index_type.element.is_integer:
        raise ctx.unsupported("indices must be integers")
    if not 0 <= batch <= dim < source.rank or batch > index_type.rank or ctx.result.shape != shape:
        raise ctx.unsupported(
            f"dim is {dim} and batch_dims {batch}: dim must be a dimension of the operand, and batch_dims before it"
        )
    behind = range(dim + index_type.rank - batch, ctx.result.rank)
    together = tuple(range(batch))
    numbers = GatherDimensionNumbers((*range(batch, dim), *behind), (dim,), (dim,), index_type.rank, together, together)
    sizes = [1 if d == dim or d < batch else extent for d, extent in enumerate(source.shape)]
    return _gather(ctx, operand, indices, numbers, sizes)


def _gather(
    ctx: LoweringContext, operand: ir.Value, indices: ir.Value, numbers: GatherDimensionNumbers, sizes: Sequence[int]
) -> ir.Value:
    source, index_type = ctx.operand_types[:2]
    if not ctx.result.size:
        return empty(ctx.result)
    if not source.size:  # empty slices, whose dimensions are all collapsed
        return fill(constant_value(0, source.element), ctx.result)
    if _is_lookup(source, ctx.result, numbers):
        return _looked_up(ctx, operand, reshaped(indices, index_type, index_type.with_shape(ctx.result.shape)))
    vectors = IndexVectors.of(index_type, numbers.index_vector_dim)
    starts = vectors.starts(numbers.start_index_map, source.shape, sizes)
    line = read_only_line(indices, index_type)
    axes = merged(_axes(source, ctx.result, numbers, vectors.dims, vectors.strides))
    if _reads_again(axes):
        dims = vectors.dims
        line, vectors = table_of_starts(indices, vectors, starts, source.size)
        starts = [Start(0, source.size, 1, 1, inside=True)]
        axes = merged(_axes(source, ctx.result, numbers, dims, vectors.strides))

    def body(operand: ir.Value, *rest: ir.Value) -> list[ir.Value]:
        return _copy_slices(operand, rest[0], axes, vectors, starts, ctx.result)

    (made,) = kernel(
        ctx,
        "gather",
        [as_line(operand, source), line],
        body,
        config=GatherConfig(
            tuple(GatherAxis(axis.extent, *axis.steps) for axis in axes),
            tuple(GatherStart(s.offset, s.step, None if s.inside else s.highest) for s in starts),
            vectors.type.element.name,
        ),
        result_types=[line_type(ctx.result)],
        independent=True,
    )
    return from_line(made, ctx.result)


def _is_lookup(source: TensorType, result: TensorType, numbers: GatherDimensionNumbers) -> bool:
    """Whether the operand is a small lookup table, such as the codebook of a quantised weight, with many lookups."""
    few = source.size <= LOOKED_UP() and tuple(numbers.start_index_map) == (0,) and source.rank == 1
    many = result.rank > 0 and result.size >= LEAST_LOOKUPS()
    return few and many and not numbers.offset_dims and not source.element.is_complex


def _looked_up(ctx: LoweringContext, table: ir.Value, indices: ir.Value) -> ir.Value:
    """Emit selections by the bits of the clamped index: elementwise arithmetic, which fuses with what is around it."""
    source, element = ctx.operand_types[0], ctx.operand_types[1].element
    entries = [tensor.extract(table, [index(i)]) for i in range(source.size)]
    number = TensorType(element, ctx.result.shape)

    def body(at: ir.Value, *values: ir.Value) -> ir.Value:
        at = _clamped(at, element, source.size - 1)
        left, bit = list(values), 1
        while len(left) > 1:
            is_set = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(at, _like(at, bit)), _like(at, 0))
            left = [
                arith.select(is_set, high, low) for low, high in zip(left[::2], [*left[1::2], left[-1]], strict=False)
            ]
            bit *= 2
        return left[0]

    scalars = [source.with_shape(())] * len(entries)
    stored = [from_storage(entry, source.element) for entry in entries]
    return elementwise([indices, *stored], [number, *scalars], [ctx.result], body)[0]


def _clamped(at: ir.Value, element: ElementType, highest: int) -> ir.Value:
    """Return an index of at least 32 bits, held between 0 and `highest`."""
    if element.bits < 32:
        extend = arith.extui if element.is_unsigned else arith.extsi
        at = extend(ir.IntegerType.get_signless(32), at)
    if element.is_unsigned:
        return arith.minui(at, _like(at, highest))
    return arith.minsi(arith.maxsi(at, _like(at, 0)), _like(at, highest))


def _like(value: ir.Value, number: int) -> ir.Value:
    return arith.constant(value.type, number)


def _axes(
    source: TensorType,
    result: TensorType,
    numbers: GatherDimensionNumbers,
    dims: Sequence[int],
    strides: Sequence[int],
) -> Iterator[Axis]:
    """Yield the loop of each result dimension with its strides in index vectors, operand and result.

    Dimension dims[i] of the indices has stride strides[i] between vectors.
    """
    steps = row_major(source.shape)
    left_out = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    together = zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    batching = {by: steps[d] for by, d in together}
    in_slice = iter([(0, step) for d, step in enumerate(steps) if d not in left_out])
    vectors = iter([(stride, batching.get(d, 0)) for d, stride in zip(dims, strides, strict=True)])
    for d, (extent, step) in enumerate(zip(result.shape, row_major(result.shape), strict=True)):
        yield Axis(extent, (*next(in_slice if d in numbers.offset_dims else vectors), step))


def _last_over_vectors(axes: Sequence[Axis]) -> int:
    """Return the number of loops up to the innermost one that iterates over index vectors."""
    return max((i + 1 for i, axis in enumerate(axes) if axis.steps[0]), default=0)


def _reads_again(axes: Sequence[Axis]) -> bool:
    """Whether the loop nest would load and clamp the same index vectors several times."""
    return not all(axis.steps[0] for axis in axes[: _last_over_vectors(axes)])


def _copy_slices(
    operand: ir.Value,
    indices: ir.Value,
    axes: Sequence[Axis],
    vectors: IndexVectors,
    starts: Sequence[Start],
    result: TensorType,
) -> Values:
    """Emit the loop nest of a gather on flattened arrays; the iterations of the outermost loop are independent."""
    count = _last_over_vectors(axes)

    def copy(places: Values, carried: Values) -> Values:
        _, read, written = places
        return [tensor.insert(tensor.extract(operand, [read]), carried[0], [written])]

    def slice_(places: Values, carried: Values) -> Values:
        vector, read, written = places
        begin = arith.addi(read, vectors.first_element(indices, vector, starts))
        return loops(axes[count:], [vector, begin, written], carried, copy)

    return loops(axes[:count], [index(0)] * 3, [empty(line_type(result))], slice_)
