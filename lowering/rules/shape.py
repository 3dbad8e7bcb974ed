"""Lowering of data movement and creation: constant, iota, broadcast, reshape, transpose, slice, pad, concatenate ..."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import PaddingConfig, integers
from stablexla.dialects.choices import Gate
from stablexla.dialects.constants import read_constant, splat_value
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.held_arrays import elements_attribute, held_array, is_borrowed, is_one_number, value_of
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import (
    BROADCAST,
    PARALLEL,
    TRANSPOSE,
    Output,
    elementwise,
    empty,
    fill,
    generic,
    identity,
    loop_index,
    projection,
    read_through,
)
from stablexla.lowering.support.operations import constant_attribute
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import constant as scalar_constant
from stablexla.lowering.support.storage import from_storage, narrow, to_storage
from stablexla.lowering.support.types import TensorType, tensor_storage, value_type
from stablexla.lowering.support.unit_dimensions import differ_only_in_units, with_dimensions, without

# Slices of constants of up to this many elements are folded.
SMALL_TABLE = Gate("slices.small-table", 64, eager=1)


@lowers("stablehlo.constant")
def constant(ctx: LoweringContext) -> ir.Value:
    """The constant array; a scalar, or a splat, needs no memory."""
    splat = splat_value(ctx.op, ctx.result.element) if ctx.result.size else None
    if splat is not None:
        scalar = constant_value(splat, ctx.result.element)
        return scalar if not ctx.result.rank else fill(scalar, ctx.result)
    values, value = read_constant(ctx.op, ctx.result.element, ctx.result.shape), value_of(ctx.op)
    # Elements of the program are views of its context, which would live as long as they.
    return constant_array(values, ctx.result, held_array(value) is None or is_borrowed(value))


def constant_array(values: np.ndarray, type_: TensorType, borrowed: bool = False) -> ir.Value:
    """Return a constant of any element type; a splat becomes a fill.

    Args:
        borrowed: the array may change after compiling.
    """
    if not type_.rank or is_one_number(values):
        first = values.flat[0] if type_.size else np.zeros((), type_.element.dtype)[()]
        scalar = constant_value(first, type_.element)
        return scalar if not type_.rank else fill(scalar, type_)
    if type_.element.is_complex:
        part = TensorType(type_.element.part, type_.shape)
        parts = [constant_array(np.ascontiguousarray(p), part) for p in (values.real, values.imag)]
        pair = ir.Type.parse(type_.element.mlir)
        return elementwise(parts, [part, part], [type_], lambda re, im: _create_complex(pair, re, im))[0]
    return _dense(values, type_, borrowed)


def _dense(values: np.ndarray, type_: TensorType, borrowed: bool) -> ir.Value:
    """Emit an arith.constant of integers or common floats; other floats are bitcast from their bit patterns."""
    stored = tensor_storage(type_)
    if values.dtype.isbuiltin == 1 and type_.element.bits >= 8 and not type_.element.is_pred:
        attribute = elements_attribute(np.ascontiguousarray(_signless(values)), stored, borrowed=borrowed)
        return arith.ConstantOp(stored, attribute).result
    bits = np.ascontiguousarray(values).view(f"i{type_.element.bytes}").reshape(type_.shape)
    integers_type = ir.RankedTensorType.get(type_.shape, ir.IntegerType.get_signless(8 * type_.element.bytes))
    attribute = elements_attribute(bits, integers_type, borrowed=borrowed)
    held = arith.ConstantOp(integers_type, attribute).result
    return held if integers_type == stored else tensor.bitcast(stored, held)


def _signless(values: np.ndarray) -> np.ndarray:
    return values.view(f"i{values.dtype.itemsize}") if values.dtype.kind == "u" else values


def constant_value(value: object, element: ElementType) -> ir.Value:
    """Return a scalar constant in SSA form."""
    number = np.asarray(value, element.dtype)
    type_ = value_type(element)
    if element.is_complex:
        real, imag = (constant_value(p, element.part) for p in (number.real, number.imag))
        return _create_complex(type_, real, imag)
    if element.is_float and element.name not in ("f16", "f32", "f64"):
        width = ir.IntegerType.get_signless(element.bits)
        raw = int(number.view(f"u{element.bytes}")) & ((1 << element.bits) - 1)
        return arith.bitcast(type_, scalar_constant(width, raw))
    if element.is_float:
        if np.isnan(number):  # keeps sign and NaN payload, which a decimal literal would lose
            raw = int(number.view(f"u{element.bytes}"))
            return arith.bitcast(type_, scalar_constant(ir.IntegerType.get_signless(element.bits), raw))
        return arith.constant(type_, float(number))
    return scalar_constant(type_, int(number))


def _create_complex(type_: ir.Type, real: ir.Value, imag: ir.Value) -> ir.Value:
    return ir.Operation.create("complex.create", results=[type_], operands=[real, imag]).result


@lowers("stablehlo.iota")
def iota(ctx: LoweringContext) -> list[ir.Value]:
    """The index along `iota_dimension`, modulo the element type's range."""
    dimension = int(ctx.attributes["iota_dimension"])
    element = ctx.result.element
    part = element.part

    def body(_: Sequence[ir.Value]) -> list[ir.Value]:
        index = loop_index(dimension)
        if part.is_float:
            count = arith.index_cast(ir.IntegerType.get_signless(64), index)
            wide = ir.F64Type.get() if part.bits == 64 else ir.F32Type.get()
            value = narrow(arith.sitofp(wide, count), part)
        else:
            value = narrow(arith.index_cast(value_type(part), index), part)
        if element.is_complex:
            zero = arith.constant(value_type(part), 0.0)
            value = _create_complex(value_type(element), value, zero)
        return [to_storage(value, element)]

    rank = ctx.result.rank
    return generic([], [Output(ctx.result)], [identity(rank)], [PARALLEL] * rank, body)


@lowers("stablehlo.broadcast_in_dim")
def broadcast_in_dim(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """x repeated along the new dimensions and along its dimensions of size 1."""
    source = ctx.operand_types[0]
    if not source.rank:
        return fill(x, ctx.result) if ctx.result.rank else x
    dimensions = integers(ctx.attributes["broadcast_dimensions"])
    return broadcast(x, source, ctx.result, dimensions)


def broadcast(x: ir.Value, source: TensorType, result: TensorType, dimensions: Sequence[int]) -> ir.Value:
    """Broadcast x: its dimension i is the result's dimension dimensions[i]; those of size 1 are repeated."""
    if source.shape == result.shape and tuple(dimensions) == tuple(range(result.rank)):
        return x
    exprs = [
        ir.AffineConstantExpr.get(0) if source.shape[i] == 1 and result.shape[d] != 1 else ir.AffineDimExpr.get(d)
        for i, d in enumerate(dimensions)
    ]
    value, map_ = read_through(x, identity(source.rank))
    composed = ir.AffineMap.get(result.rank, 0, exprs)
    map_ = ir.AffineMap.get(result.rank, 0, [e.compose(composed) for e in map_.results])
    if not isinstance(value.type, ir.RankedTensorType):
        return tensor.splat(tensor_storage(result), value, [])
    return _copy_through(value, map_, result, mark=BROADCAST)


def _copy_through(x: ir.Value, map_: ir.AffineMap, result: TensorType, mark: str = "") -> ir.Value:
    """Emit a copy whose element at i is x's at map_(i); `mark` allows consumers to read x through the map."""
    rank = result.rank
    maps = [map_, identity(rank)]
    return generic([x], [Output(result)], maps, [PARALLEL] * rank, lambda arguments: [arguments[0]], mark)[0]


@lowers("stablehlo.reshape")
def reshape(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """The same elements in row-major order with another shape."""
    source, result = ctx.operand_types[0], ctx.result
    if not result.rank:
        if not source.rank:
            return x
        stored, _ = read_through(x, identity(source.rank))
        if isinstance(stored.type, ir.RankedTensorType):
            stored = tensor.extract(x, [arith.constant(ir.IndexType.get(), 0)] * source.rank)
        return from_storage(stored, source.element)
    if not source.rank:
        return fill(x, result)
    return reshaped(x, source, result)


def reshaped(x: ir.Value, source: TensorType, result: TensorType) -> ir.Value:
    """Reshape by way of one dimension (collapse, expand), so that all pairs of shapes are the same two operations."""
    if source.shape == result.shape:
        return x
    if isinstance(x.owner, ir.OpView | ir.Operation) and x.owner.operation.name == "tensor.splat":
        return tensor.splat(tensor_storage(result), x.owner.operation.operands[0], [])
    if differ_only_in_units(source.shape, result.shape):
        squeezed = without(x, [d for d, n in enumerate(source.shape) if n == 1])
        return with_dimensions(squeezed, result.shape)
    flat = tensor_storage(source.with_shape((prod(source.shape),)))
    if source.rank > 1:
        x = tensor.collapse_shape(flat, x, [list(range(source.rank))])
    if result.rank > 1:
        x = tensor.expand_shape(tensor_storage(result), x, [list(range(result.rank))], [], result.shape)
    return x


@lowers("stablehlo.transpose")
def transpose(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """Result dimension i is x's dimension permutation[i]."""
    return transposed(x, ctx.operand_types[0], integers(ctx.attributes["permutation"]))


def transposed(x: ir.Value, source: TensorType, permutation: Sequence[int]) -> ir.Value:
    """Transpose x: dimension i of the result is dimension permutation[i] of x."""
    if list(permutation) == list(range(source.rank)):
        return x
    result = source.with_shape(tuple(source.shape[d] for d in permutation))
    inverse = [list(permutation).index(d) for d in range(source.rank)]
    return _copy_through(x, projection(source.rank, inverse), result, mark=TRANSPOSE)


@lowers("stablehlo.reverse")
def reverse(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """x with the order of elements reversed along the given dimensions."""
    if not ctx.result.rank:
        return x
    reversed_dimensions = integers(ctx.attributes["dimensions"])
    exprs = [
        size - 1 - ir.AffineDimExpr.get(d) if d in reversed_dimensions else ir.AffineDimExpr.get(d)
        for d, size in enumerate(ctx.result.shape)
    ]
    return _copy_through(x, ir.AffineMap.get(ctx.result.rank, 0, exprs), ctx.result)


@lowers("stablehlo.slice")
def slice_(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """Every strides[d]-th element from start_indices[d] on, before limit_indices[d]."""
    if ctx.result.shape == ctx.operand_types[0].shape:
        return x
    if not ctx.result.size:
        return empty(ctx.result)
    starts, strides = (integers(ctx.attributes[name]) for name in ("start_indices", "strides"))
    known = _small_constant(x)
    if known is not None:
        ends = integers(ctx.attributes["limit_indices"])
        chosen = np.ascontiguousarray(known[tuple(map(slice, starts, ends, strides))])
        result = tensor_storage(ctx.result)
        return arith.ConstantOp(result, ir.DenseElementsAttr.get(chosen, type=result)).result
    if ctx.result.size == 1:
        return _one_element(x, [arith.constant(ir.IndexType.get(), start) for start in starts], ctx.result)
    source = ctx.operand_types[0].shape
    cut = [e != r for e, r in zip(source, ctx.result.shape, strict=True)]
    if any(c and start == 0 and stride == 1 for c, start, stride in zip(cut, starts, strides, strict=True)):
        # linalg takes the extent of a loop from the first operand that it indexes alone, here the longer one.
        result = tensor_storage(ctx.result)
        return tensor.extract_slice(result, x, [], [], [], list(starts), list(ctx.result.shape), list(strides))
    exprs = [
        ir.AffineDimExpr.get(d) * stride + start for d, (start, stride) in enumerate(zip(starts, strides, strict=True))
    ]
    return _copy_through(x, ir.AffineMap.get(ctx.result.rank, 0, exprs), ctx.result)


def _one_element(x: ir.Value, place: Sequence[ir.Value], result: TensorType) -> ir.Value:
    """Slice one element, most often reshaped to a scalar, which then is never stored to memory."""
    return tensor.splat(tensor_storage(result), tensor.extract(x, place), [])


def _small_constant(x: ir.Value) -> np.ndarray | None:
    """Return the elements of a small constant of integers, such as a generator's rotations, to fold slices of it."""
    attribute = constant_attribute(x)
    small = prod(x.type.shape) <= SMALL_TABLE() and isinstance(x.type.element_type, ir.IntegerType)
    return np.array(attribute) if small and isinstance(attribute, ir.DenseIntElementsAttr) else None


@lowers("stablehlo.pad")
def pad(ctx: LoweringContext, x: ir.Value, padding: ir.Value) -> ir.Value:
    """padding_value around x and between its elements; negative edges cut x off."""
    if not ctx.result.rank:
        return x
    config = PaddingConfig.read(ctx.attributes)
    return padded(x, ctx.operand_types[0], padding, ctx.result, config.low, [n + 1 for n in config.interior])


def padded(
    x: ir.Value, source: TensorType, padding: ir.Value, result: TensorType, low: Sequence[int], steps: Sequence[int]
) -> ir.Value:
    """Pad x: its elements from index `low` on with strides `steps`, `padding` everywhere else."""
    filled = fill(padding, result)
    placed = list(map(_placed, source.shape, result.shape, low, steps))
    kept = [count for _, count, _ in placed]
    if 0 in kept:
        return filled
    cut = static_slice(x, source, [first for first, _, _ in placed], kept)
    return static_insert(cut, filled, [offset for _, _, offset in placed], kept, steps)


def _placed(size: int, extent: int, low: int, step: int) -> tuple[int, int, int]:
    """Clip elements at low, low + step ... to [0, extent): return the first inside, their count, and its index."""
    first = max(0, -(low // step))
    last = min(size - 1, (extent - 1 - low) // step)
    return first, max(0, last - first + 1), low + first * step


@lowers("stablehlo.concatenate")
def concatenate(ctx: LoweringContext, *operands: ir.Value) -> ir.Value:
    """The operands concatenated along `dimension`."""
    dimension = int(ctx.attributes["dimension"])
    result, offset = empty(ctx.result), 0
    for operand, type_ in zip(operands, ctx.operand_types, strict=True):
        if type_.size:
            offsets = [offset if d == dimension else 0 for d in range(type_.rank)]
            result = static_insert(operand, result, offsets, type_.shape, [1] * type_.rank)
        offset += type_.shape[dimension]
    return result


@lowers("stablehlo.dynamic_slice")
def dynamic_slice(ctx: LoweringContext, x: ir.Value, *starts: ir.Value) -> ir.Value:
    """The block of `slice_sizes` at start_indices, which are clamped so that the block lies inside x."""
    if not ctx.result.rank:
        return x
    source, sizes = ctx.operand_types[0], ctx.result.shape
    offsets = clamped_starts(ctx, starts, source.shape, sizes, first_operand=1)
    if not ctx.result.size:
        return empty(ctx.result)
    result = tensor_storage(ctx.result)
    if ctx.result.size == 1:
        return _one_element(x, offsets, ctx.result)
    return tensor.extract_slice(result, x, offsets, [], [], _dynamic(len(sizes)), list(sizes), [1] * len(sizes))


@lowers("stablehlo.dynamic_update_slice")
def dynamic_update_slice(ctx: LoweringContext, x: ir.Value, update: ir.Value, *starts: ir.Value) -> ir.Value:
    """x with the block at start_indices (clamped so that it lies inside x) replaced by update."""
    source, block = ctx.operand_types[:2]
    if not source.rank:
        return update
    if not block.size:
        return x
    offsets = clamped_starts(ctx, starts, source.shape, block.shape, first_operand=2)
    sizes, ones = list(block.shape), [1] * block.rank
    return tensor.insert_slice(update, x, offsets, [], [], _dynamic(block.rank), sizes, ones)


def _dynamic(rank: int) -> list[int]:
    return [ir.ShapedType.get_dynamic_stride_or_offset()] * rank


def clamped_starts(
    ctx: LoweringContext, starts: Sequence[ir.Value], extents: Sequence[int], sizes: Sequence[int], first_operand: int
) -> list[ir.Value]:
    """Return clamp(0, start, extent - size) of each start, as an index; unsigned starts are compared as such."""
    offsets = []
    for i, (start, extent, size) in enumerate(zip(starts, extents, sizes, strict=True)):
        element = ctx.operand_types[first_operand + i].element
        offsets.append(as_index(held_within(start, element, extent - size), element))
    return offsets


def held_within(start: ir.Value, element: ElementType, highest: int) -> ir.Value:
    """Return clamp(0, start, highest) in the type of the start; unsigned ones and truth values are compared as such."""
    reachable = (1 << (element.bits - element.is_signed)) - 1
    if element.is_signed:
        start = arith.maxsi(start, scalar_constant(start.type, 0))
    if highest >= reachable:
        return start
    least = arith.minsi if element.is_signed else arith.minui
    return least(start, scalar_constant(start.type, highest))


def as_index(number: ir.Value, element: ElementType) -> ir.Value:
    """Convert an integer to an index; true is 1."""
    cast = arith.index_cast if element.is_signed else arith.index_castui
    return cast(ir.IndexType.get(), number)


def static_slice(x: ir.Value, source: TensorType, offsets: Sequence[int], sizes: Sequence[int]) -> ir.Value:
    """Slice a block of x."""
    if tuple(sizes) == source.shape:
        return x
    result = tensor_storage(source.with_shape(tuple(sizes)))
    return tensor.extract_slice(result, x, [], [], [], list(offsets), list(sizes), [1] * len(sizes))


def static_insert(
    x: ir.Value, into: ir.Value, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> ir.Value:
    """Insert x in `into` at the given offsets and strides."""
    return tensor.insert_slice(x, into, [], [], [], list(offsets), list(sizes), list(strides))


@lowers("stablehlo.optimization_barrier")
def optimization_barrier(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands as they are."""
    return operands


@lowers("stablehlo.get_dimension_size")
def get_dimension_size(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """The extent of a dimension, a constant here."""
    extent = ctx.operand_types[0].shape[int(ctx.attributes["dimension"])]
    return scalar_constant(value_type(ctx.result.element), extent)
