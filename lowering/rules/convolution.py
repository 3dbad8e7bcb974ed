"""Lowering of convolutions: a direct convolution as one linalg.generic over the result and the window.

Padding and dilation are not materialized: an element outside of lhs counts as zero. Whether the product of such a zero
and a weight is computed, which matters for infinite weights, is left to the target. An attribute of the loop nest
describes the convolution, for targets with better loops.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import Convolution, SpatialDimension
from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.contraction import accumulation_type, add_product, rounded_sum, sum_products
from stablexla.lowering.rules.shape import constant_value
from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, REDUCTION, Output, fill, generic, loop_index, projection
from stablexla.lowering.support.kernels import is_constant
from stablexla.lowering.support.loops import number as index
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType

# The attribute of a convolution's loop nest: its shapes, dimension numbers, and the window.
CONVOLUTION = "stablexla.convolution"
# Below this many output pixels a pointwise convolution is a skinny matrix, for which contractions have own loops.
PIXELS = Gate("convolution.pointwise-pixels", 32, eager=1)


@dataclass(frozen=True)
class ConvolutionConfig:
    """A convolution, from which a target can emit other loops: the arrays' shapes, dimension numbers and the window."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    result: tuple[int, ...]
    convolution: Convolution


@lowers("stablehlo.convolution")
def convolution(ctx: LoweringContext, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Sums of products of the window's weights and the elements of lhs under them."""
    conv = Convolution.read(ctx.attributes)
    if not all(t.size for t in (*ctx.operand_types, ctx.result)):
        return fill(constant_value(0, ctx.result.element), ctx.result)
    maps = None if _is_over_pixels(ctx, conv, rhs) else _contraction_maps(ctx, conv)
    if maps is not None:
        return sum_products(ctx, lhs, rhs, *maps)
    return _windows(ctx, conv, lhs, rhs)


def _contraction_maps(ctx: LoweringContext, conv: Convolution) -> tuple[list[ir.AffineMap], list[str]] | None:
    """Match a convolution that is a contraction; return the maps of lhs, rhs and result, and the loop kinds, or None.

    Each element of lhs must be read at one window position at most: windows of one element, or as large as lhs.
    """
    if conv.feature_groups != 1 or conv.batch_groups != 1:
        return None
    (lhs, rhs), result = (t.shape for t in ctx.operand_types), ctx.result.shape
    rank = len(result)
    places = {conv.input_batch: conv.output_batch, conv.input_feature: rank}
    window = {conv.kernel_input: rank, conv.kernel_output: conv.output_feature}
    for number, d in enumerate(conv.spatial, start=rank + 1):
        if d.low or d.high or (d.lhs_dilation != 1 and lhs[d.input] != 1):
            return None
        passes = rhs[d.kernel] == 1 and d.stride == 1
        whole = result[d.output] == 1 and (d.rhs_dilation == 1 or lhs[d.input] == 1) and not d.reversed
        if not passes and not (whole and lhs[d.input] == rhs[d.kernel]):
            return None
        places[d.input] = d.output if passes else number
        window[d.kernel] = number
    loops = rank + 1 + len(conv.spatial)
    maps = [projection(loops, [of[d] for d in range(rank)]) for of in (places, window)]
    return [*maps, projection(loops, range(rank))], [PARALLEL] * rank + [REDUCTION] * (loops - rank)


def _is_over_pixels(ctx: LoweringContext, conv: Convolution, weights: ir.Value) -> bool:
    """Whether a convolution is pointwise over many pixels, with no more output features than input features.

    It is a matrix product, but the adjacent convolutions of a network share its code. It is as fast either way; with
    more output features, or weights that are packed once, the loops of products are faster, up to 1.5 times where few
    features are summed.
    """
    if is_constant(weights):
        return False
    element, shape = ctx.result.element, ctx.operand_types[1].shape
    narrows = shape[conv.kernel_output] <= shape[conv.kernel_input]
    pointwise = bool(conv.spatial) and all(shape[d.kernel] == 1 for d in conv.spatial)
    pixels = ctx.result.size // shape[conv.kernel_output]
    return pointwise and narrows and element.is_float and element.bits >= 32 and pixels >= PIXELS()


def _windows(ctx: LoweringContext, conv: Convolution, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Emit the loop nest: the result's dimensions, then the window's, then the input features."""
    source, weights = ctx.operand_types
    rank, loops = ctx.result.rank, 2 * ctx.result.rank - 1
    accumulator = TensorType(accumulation_type(ctx.result.element), ctx.result.shape)
    of_kernel = {conv.kernel_output: conv.output_feature, conv.kernel_input: loops - 1}
    of_kernel |= {d.kernel: rank + number for number, d in enumerate(conv.spatial)}

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        stored, total = arguments
        x = from_storage(_element(ctx, conv, lhs), source.element)
        y = from_storage(stored, weights.element)
        total = from_storage(total, accumulator.element)
        summed = add_product(x, y, total, [source.element, weights.element], accumulator.element)
        return [to_storage(summed, accumulator.element)]

    summed = generic(
        [rhs],
        [Output(accumulator, to_storage(constant_value(0, accumulator.element), accumulator.element))],
        [projection(loops, [of_kernel[d] for d in range(rank)]), projection(loops, range(rank))],
        [PARALLEL] * rank + [REDUCTION] * (loops - rank),
        body,
        attributes={CONVOLUTION: config_attribute(_config(ctx, conv))},
    )[0]
    return rounded_sum(ctx, summed)


def _element(ctx: LoweringContext, conv: Convolution, lhs: ir.Value) -> ir.Value:
    """Load the element of lhs, in storage form, under the current window element; zero in the padding."""
    (source, weights), rank = ctx.operand_types, ctx.result.rank
    batch, output, feature = loop_index(conv.output_batch), loop_index(conv.output_feature), loop_index(2 * rank - 2)
    outputs = weights.shape[conv.kernel_output]
    if conv.feature_groups > 1:
        group = arith.divui(output, index(outputs // conv.feature_groups))
        feature = _plus(_times(group, source.shape[conv.input_feature] // conv.feature_groups), feature)
    if conv.batch_groups > 1:
        group = arith.divui(output, index(outputs // conv.batch_groups))
        batch = _plus(_times(group, source.shape[conv.input_batch] // conv.batch_groups), batch)
    indices = {conv.input_batch: batch, conv.input_feature: feature}
    inside: ir.Value | None = None
    for number, d in enumerate(conv.spatial):
        sizes = (source.shape[d.input], weights.shape[d.kernel], ctx.result.shape[d.output])
        indices[d.input], here = _position(d, sizes, loop_index(d.output), loop_index(rank + number))
        inside = arith.andi(inside, here) if inside is not None and here is not None else inside or here
    read = tensor.extract(lhs, [indices[i] for i in range(rank)])
    if inside is None:
        return read
    return arith.select(inside, read, to_storage(constant_value(0, source.element), source.element))


def _position(
    d: SpatialDimension, sizes: tuple[int, int, int], output: ir.Value, window: ir.Value
) -> tuple[ir.Value, ir.Value | None]:
    """Return the index of a window element along a dimension of lhs, and a bounds mask if it may lie outside.

    Outside of lhs the index is 0: the element loaded there is masked out.
    """
    size, count, outputs = sizes
    if d.reversed:
        window = arith.subi(index(count - 1), window)
    place = _plus(_plus(_times(output, d.stride), _times(window, d.rhs_dilation)), index(-d.low))
    span = (size - 1) * d.lhs_dilation + 1
    inside = None
    if d.low > 0 or (outputs - 1) * d.stride + (count - 1) * d.rhs_dilation - d.low >= span:
        inside = arith.cmpi(arith.CmpIPredicate.ult, place, index(span))
    if d.lhs_dilation > 1:
        dilation = index(d.lhs_dilation)
        exact = arith.cmpi(arith.CmpIPredicate.eq, arith.remui(place, dilation), index(0))
        inside = exact if inside is None else arith.andi(inside, exact)
        place = arith.divui(place, dilation)
    return (place, None) if inside is None else (arith.select(inside, place, index(0)), inside)


def _times(value: ir.Value, factor: int) -> ir.Value:
    return value if factor == 1 else arith.muli(value, index(factor))


def _plus(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addi(a, b)


def _config(ctx: LoweringContext, conv: Convolution) -> ConvolutionConfig:
    lhs, rhs = (tuple(t.shape) for t in ctx.operand_types)
    return ConvolutionConfig(lhs, rhs, tuple(ctx.result.shape), conv)
