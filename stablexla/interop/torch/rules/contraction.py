"""Products of matrices and vectors; halves are summed in f32, integers wrap in their own type."""

from __future__ import annotations

from collections.abc import Sequence

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.torch.call import Call, broadcast, convert, wide
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import Number

Places = Sequence[int]


def dot(x: XlaOp, y: XlaOp, contracting: tuple[Places, Places], batch: tuple[Places, Places] = ((), ())) -> XlaOp:
    """Return sums of products over pairs of dimensions; halves and f8 make f32."""
    narrow = x.element_type.is_float and x.element_type.bits < 32
    numbers = sx.DotDimensionNumbers(*contracting, *batch)
    return sx.dot_general(x, y, numbers, preferred_element_type="f32" if narrow else None)


def contracted(x: XlaOp, labels: str, y: XlaOp, others: str, result: str) -> XlaOp:
    """Return a contraction in Einstein's notation, `contracted(x, "ij", y, "jk", "ik")`.

    A letter of one operand alone that the result lacks is summed over.
    """
    x, labels = _summed(x, labels, others + result)
    y, others = _summed(y, others, labels + result)
    shared = [letter for letter in labels if letter in others]
    batch = [letter for letter in shared if letter in result]
    over = [letter for letter in shared if letter not in result]

    def pair(letters: list[str]) -> tuple[list[int], list[int]]:
        return [labels.index(each) for each in letters], [others.index(each) for each in letters]

    made = dot(x, y, pair(over), pair(batch))
    order = [*batch, *(each for each in labels if each not in shared), *(each for each in others if each not in shared)]
    return sx.transpose(made, [order.index(letter) for letter in result]) if result else made


def _summed(x: XlaOp, labels: str, needed: str) -> tuple[XlaOp, str]:
    over = tuple(d for d, letter in enumerate(labels) if letter not in needed)
    if not over:
        return x, labels
    x = wide(x)
    return sx.reduce(x, 0, sx.add, over), "".join(letter for letter in labels if letter in needed)


@aten("aten.mm.default", "aten.mm.dtype")
def mm(call: Call, x: XlaOp, y: XlaOp, out_dtype: object = None) -> XlaOp:
    return dot(x, y, ((1,), (0,)))


@aten("aten.bmm.default", "aten.bmm.dtype")
def bmm(call: Call, x: XlaOp, y: XlaOp, out_dtype: object = None) -> XlaOp:
    return dot(x, y, ((2,), (1,)), ((0,), (0,)))


@aten("aten.mv.default")
def mv(call: Call, x: XlaOp, y: XlaOp) -> XlaOp:
    return dot(x, y, ((1,), (0,)))


@aten("aten.dot.default")
def dot_of_vectors(call: Call, x: XlaOp, y: XlaOp) -> XlaOp:
    return dot(x, y, ((0,), (0,)))


@aten("aten.vdot.default")
def vdot(call: Call, x: XlaOp, y: XlaOp) -> XlaOp:
    return dot(sx.conj(x) if x.element_type.is_complex else x, y, ((0,), (0,)))


@aten("aten._int_mm.default")
def int_mm(call: Call, x: XlaOp, y: XlaOp) -> XlaOp:
    if x.element_type != y.element_type:  # bytes of different signs, which are multiplied as such
        x, y = convert(x, "s32"), convert(y, "s32")
    return sx.dot_general(x, y, sx.DotDimensionNumbers((1,), (0,)), preferred_element_type="s32")


def _added(call: Call, bias: XlaOp, product: XlaOp, beta: Number, alpha: Number) -> XlaOp:
    """Return beta * bias + alpha * product; with beta 0 the bias is not read, and its NaNs do not count."""
    made = _times(product, alpha)
    if beta == 0:
        return broadcast(made, call.dimensions)
    scaled = _times(convert(bias, made.element_type), beta)
    return sx.add(broadcast(scaled, call.dimensions), broadcast(made, call.dimensions))


def _times(x: XlaOp, factor: Number) -> XlaOp:
    if factor == 1:
        return x
    if x.element_type.is_pred:
        return sx.and_(x, broadcast(x.builder.constant(bool(factor)), x.shape.dimensions))
    if not x.element_type.is_float and not x.element_type.is_complex:
        factor = int(factor.real if isinstance(factor, complex) else factor)
    return sx.mul(x, broadcast(x.builder.constant(factor, x.element_type.name), x.shape.dimensions))


@aten("aten.addmm.default", "aten.addmm.dtype")
def addmm(
    call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, out_dtype: object = None, *, beta: Number, alpha: Number
) -> XlaOp:
    return _added(call, bias, dot(x, y, ((1,), (0,))), beta, alpha)


@aten("aten._addmm_activation.default")
def addmm_activation(
    call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, *, beta: Number, alpha: Number, use_gelu: bool
) -> XlaOp:
    made = convert(_added(call, bias, dot(x, y, ((1,), (0,))), beta, alpha), call.type)
    activated: XlaOp = call.apply("aten.gelu.default" if use_gelu else "aten.relu.default", made)
    return activated


@aten("aten.baddbmm.default", "aten.baddbmm.dtype")
def baddbmm(
    call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, out_dtype: object = None, *, beta: Number, alpha: Number
) -> XlaOp:
    return _added(call, bias, dot(x, y, ((2,), (1,)), ((0,), (0,))), beta, alpha)


@aten("aten.addbmm.default")
def addbmm(call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, *, beta: Number, alpha: Number) -> XlaOp:
    return _added(call, bias, dot(x, y, ((0, 2), (0, 1))), beta, alpha)


@aten("aten.addmv.default")
def addmv(call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, *, beta: Number, alpha: Number) -> XlaOp:
    return _added(call, bias, dot(x, y, ((1,), (0,))), beta, alpha)


@aten("aten.addr.default")
def addr(call: Call, bias: XlaOp, x: XlaOp, y: XlaOp, *, beta: Number, alpha: Number) -> XlaOp:
    bias, x, y = (wide(convert(each, call.type)) for each in (bias, x, y))
    sizes = (*x.shape.dimensions, *y.shape.dimensions)
    rows, columns = sx.broadcast_in_dim(x, sizes, (0,)), sx.broadcast_in_dim(y, sizes, (1,))
    if call.type.is_pred:
        made = _times(sx.and_(rows, columns), alpha)
        return made if beta == 0 else sx.or_(broadcast(_times(bias, beta), sizes), made)
    return _added(call, bias, sx.mul(rows, columns), beta, alpha)


@aten("aten.linear.default")
def linear(call: Call, x: XlaOp, weight: XlaOp, bias: XlaOp | None) -> XlaOp:
    made = dot(x, weight, ((x.shape.rank - 1,), (weight.shape.rank - 1,)))
    return made if bias is None else sx.add(made, broadcast(convert(bias, made.element_type), made.shape.dimensions))


@aten("aten._weight_int8pack_mm.default")
def int8_weights(call: Call, x: XlaOp, weight: XlaOp, scales: XlaOp) -> XlaOp:
    """Weights of eight bits [n, k] with a scale for each row."""
    made = dot(wide(x), convert(weight, "f32"), ((1,), (1,)))
    return sx.mul(made, broadcast(convert(scales, made.element_type), made.shape.dimensions))


@aten("aten._trilinear.default")
def trilinear(
    call: Call,
    x: XlaOp,
    y: XlaOp,
    z: XlaOp,
    expand1: Places,
    expand2: Places,
    expand3: Places,
    sumdim: Places,
    unroll_dim: int,
) -> XlaOp:
    """Products of three tensors, each with further dimensions of size 1, summed over dimensions."""
    letters = "abcdefghijkl"[: x.shape.rank + len(expand1)]

    def labels(expanded: Places) -> str:
        return "".join(letter for d, letter in enumerate(letters) if d not in expanded)

    first, second, third = map(labels, (expand1, expand2, expand3))
    result = "".join(letter for d, letter in enumerate(letters) if d not in sumdim)
    between = "".join(each for each in letters if each in first + second and each in third + result)
    made = contracted(contracted(x, first, y, second, between), between, wide(z), third, result)
    return sx.reshape(made, call.dimensions)


@aten("aten._scaled_mm.default")
def scaled_mm(
    call: Call,
    x: XlaOp,
    y: XlaOp,
    scale_x: XlaOp,
    scale_y: XlaOp,
    bias: XlaOp | None,
    scale_result: XlaOp | None,
    out_dtype: object,
    use_fast_accum: bool,
) -> XlaOp:
    """Of f8, with a scale for each whole, or for each row and each column."""
    made = dot(x, y, ((1,), (0,)))
    for scale in (scale_x, scale_y):
        scale = sx.reshape(scale, ()) if scale.shape.size == 1 else scale
        made = sx.mul(made, broadcast(scale, made.shape.dimensions))
    if bias is not None:
        made = sx.add(made, broadcast(convert(bias, made.element_type), made.shape.dimensions))
    if scale_result is not None and call.type.bits == 8:
        made = sx.mul(made, broadcast(sx.reshape(scale_result, ()), made.shape.dimensions))
    return made


@aten("aten._scaled_mm_v2.default")
def scaled_mm_by_recipes(
    call: Call,
    x: XlaOp,
    y: XlaOp,
    scales_x: Sequence[XlaOp],
    recipes_x: Places,
    swizzles_x: Places,
    scales_y: Sequence[XlaOp],
    recipes_y: Places,
    swizzles_y: Places,
    bias: XlaOp | None,
    out_dtype: object,
    contraction_dim: Places,
    use_fast_accum: bool,
) -> XlaOp:
    """With a scale for each whole, or for each row and each column, the recipes 0 and 1 of PyTorch's `ScalingType`."""
    if {*recipes_x, *recipes_y} - {0, 1} or contraction_dim:
        raise UnsupportedError("there is no rule for scales of blocks", hint="ScalingType.RowWise")
    return scaled_mm(call, x, y, scales_x[0], scales_y[0], bias, None, out_dtype, use_fast_accum)
