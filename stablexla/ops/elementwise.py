"""Element-wise operations: unary, binary, comparisons, select and clamp.

Two operands are broadcast together by `stablexla.builder.broadcasting`. Conversions between types are in conversion.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.broadcasting import broadcast, fitting_dimensions
from stablexla.builder.checking import Operand, Rules, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import (
    ANY,
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMBER,
    PRED,
    REGISTRY,
    SIGNED,
    operation,
)
from stablexla.dialects.element_types import ElementType, Kind
from stablexla.ops.support.accuracy import Accuracy, checked_accuracy

__all__ = [
    "abs", "acos", "acosh", "add", "and_", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i1e", "cbrt", "ceil",
    "clamp", "clz", "compare", "complex", "conj", "cos", "cosh", "digamma", "div", "eq", "eq_total_order", "erf",
    "erf_inv", "erfc", "exp", "expm1", "floor", "ge", "ge_total_order", "gt", "gt_total_order", "imag", "is_finite",
    "is_inf", "is_nan", "is_neg_inf", "is_pos_inf", "le", "le_total_order", "lgamma", "log", "log1p", "logistic",
    "lt", "lt_total_order", "max", "min", "mul", "mulhi", "ne", "ne_total_order", "neg", "next_after", "not_", "or_",
    "polygamma", "population_count", "pow", "real", "reciprocal", "rem", "round", "round_nearest_even", "rsqrt",
    "select", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "sub", "tan", "tanh", "xor", "zeta",
]  # fmt: skip

# The result's element type, where it differs from the operands'.
_PARTS = ("abs", "imag", "real")
_TESTS = ("is_finite", "is_inf", "is_neg_inf", "is_pos_inf")


def _unary(name: str, operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    with checking(name, operand=operand, result_accuracy=result_accuracy) as rule:
        x = rule.op("operand", operand)
        rule.types(operand=x)
        accuracy = None if result_accuracy is None else checked_accuracy(rule, result_accuracy, x, name)
    shape = x.shape
    if name in _PARTS:
        shape = shape.with_element_type(shape.element_type.part)
    elif name in _TESTS:
        shape = shape.with_element_type("pred")
    emits = REGISTRY[name].emits
    # CHLO's error function has no such attribute.
    told = accuracy is not None and emits.startswith("stablehlo.")
    return x.builder.emit(emits, [x], shape, {"result_accuracy": accuracy} if told else None)


def _binary(name: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int]) -> XlaOp:
    with checking(name, lhs=lhs, rhs=rhs) as rule:
        x, y = rule.ops(lhs=lhs, rhs=rhs)
        rule.types(lhs=x, rhs=y)
        x, y = _broadcast_operands(rule, x, y, broadcast_dimensions)
    shape = x.shape
    if name == "complex":
        shape = shape.with_element_type({"f32": "c64", "f64": "c128"}[shape.element_type.name])
    return x.builder.emit(REGISTRY[name].emits, [x, y], shape)


def _broadcast_operands(
    rule: Rules, lhs: XlaOp, rhs: XlaOp, broadcast_dimensions: Sequence[int]
) -> tuple[XlaOp, XlaOp]:
    """Both operands, broadcast to the result's dimensions."""
    rule(
        "C1",
        same_element_type(lhs, rhs),
        "lhs and rhs must have the same element type",
        _convert_hint(lhs, rhs),
    )
    given = rule.integers("broadcast_dimensions", broadcast_dimensions)
    if given:
        rule.operands["broadcast_dimensions"] = given
    found = broadcast(rule, lhs.shape, rhs.shape, given)
    return broadcast_to(lhs, found.dimensions, found.lhs), broadcast_to(rhs, found.dimensions, found.rhs)


def _convert_hint(lhs: XlaOp, rhs: XlaOp) -> str:
    """The conversion of the operand whose type holds less to the other's."""
    types = {"lhs": lhs.shape.element_type, "rhs": rhs.shape.element_type}
    narrow, wide = sorted(types, key=lambda name: (_KINDS.index(types[name].kind), types[name].bits, name == "rhs"))
    return f'sx.convert_element_type({narrow}, "{types[wide]}")'


_KINDS = (Kind.PRED, Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX)


def broadcast_to(op: XlaOp, dimensions: Sequence[int], places: Sequence[int]) -> XlaOp:
    """`op` in these dimensions, its own becoming those at `places`; the op itself where nothing changes."""
    if op.shape.dimensions == tuple(dimensions):
        return op
    shape = op.shape.with_dimensions(dimensions)
    return op.builder.emit("stablehlo.broadcast_in_dim", [op], shape, {"broadcast_dimensions": tuple(places)})


def _compare_type(element_type: ElementType, total: bool) -> str:
    """The comparison type of StableHLO that goes with an element type."""
    if element_type.is_float:
        return "TOTALORDER" if total else "FLOAT"
    if element_type.is_complex:
        return "FLOAT"
    return "SIGNED" if element_type.is_signed else "UNSIGNED"


def _compare(
    name: str,
    lhs: Operand,
    rhs: Operand,
    broadcast_dimensions: Sequence[int],
    direction: str,
    compare_type: str | None = None,
) -> XlaOp:
    with checking(name, lhs=lhs, rhs=rhs) as rule:
        x, y = rule.ops(lhs=lhs, rhs=rhs)
        rule.arrays(lhs=x, rhs=y)
        usual = _compare_type(x.shape.element_type, name.endswith("_total_order"))
        if compare_type is not None:
            allowed = ("FLOAT", "TOTALORDER") if x.shape.element_type.is_float else (usual,)
            rule.word("C3", f"compare_type for {x.shape.element_type}", compare_type, allowed)
        x, y = _broadcast_operands(rule, x, y, broadcast_dimensions)
    context = x.builder.context
    attributes = {
        "comparison_direction": stablehlo.ComparisonDirectionAttr.get(direction, context),
        "compare_type": stablehlo.ComparisonTypeAttr.get(compare_type or usual, context),
    }
    return x.builder.emit("stablehlo.compare", [x, y], x.shape.with_element_type("pred"), attributes)


@operation("stablehlo.compare")
def compare(
    lhs: Operand,
    rhs: Operand,
    broadcast_dimensions: Sequence[int] = (),
    comparison_direction: str = "",
    compare_type: str | None = None,
) -> XlaOp:
    """The comparison that is named: "EQ", "NE", "GE", "GT", "LE" or "LT".

    Args:
        lhs: an array of any type.
        rhs: an array of the same element type.
        broadcast_dimensions: as for every operation of two operands.
        comparison_direction: the name, which must be given.
        compare_type: "FLOAT" (the default) or "TOTALORDER" for floats; "SIGNED", "UNSIGNED" or "FLOAT" for signed
            integers, for unsigned integers and truth values, and for complex numbers, which have no choice.

    Raises:
        ShapeError: (C1) element types differ; (C2) shapes do not broadcast; (C3) a compare_type for other types.

    Source: XLA's client library; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.compare(x, 1.0, comparison_direction="LT", compare_type="TOTALORDER")
    XlaOp(stablehlo.compare, pred[2,3])
    """
    with checking("compare", lhs=lhs, rhs=rhs, comparison_direction=comparison_direction) as rule:
        rule.word("I3", "comparison_direction", comparison_direction, ("EQ", "NE", "GE", "GT", "LE", "LT"))
    return _compare("compare", lhs, rhs, broadcast_dimensions, comparison_direction, compare_type)


def _alike(x: XlaOp, y: XlaOp) -> bool:
    """The same element type and the same sizes, of dynamic dimensions the bounds."""
    return same_element_type(x, y) and x.shape.dimensions == y.shape.dimensions


def _spread(op: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """A scalar as an array; arrays as they are."""
    return broadcast_to(op, dimensions, ()) if op.shape.is_scalar else op


@operation("stablehlo.select")
def select(pred: XlaOp, on_true: Operand, on_false: Operand) -> XlaOp:
    """Elements of `on_true` where `pred` is true, of `on_false` elsewhere; a scalar `pred` chooses for all.

    Between tuples of one shape, `pred` must be a scalar. A scalar, such as a Python number, stands for an array of it.

    Raises:
        ShapeError: (C1) `pred` is neither a scalar nor of the others' dimensions; (C2) these differ in shape.

    Source: `Select` of XLA's operation semantics; StableHLO `select`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.select(x > 0, x, 0.0)
    XlaOp(stablehlo.select, f32[2,3])
    """
    with checking("select", pred=pred, on_true=on_true, on_false=on_false) as rule:
        p = rule.op("pred", pred)
        x, y = rule.ops(on_true=on_true, on_false=on_false)
        rule.one_builder([p, x, y])
        rule("I1", p.shape.is_array and p.shape.element_type.is_pred, "pred must be of pred type")
        if x.shape.is_array and y.shape.is_array:
            sizes = x.shape.dimensions or y.shape.dimensions or p.shape.dimensions
            x, y = _spread(x, sizes), _spread(y, sizes)
        alike = _alike(x, y) if x.shape.is_array and y.shape.is_array else x.shape == y.shape
        rule("C2", alike, "on_true and on_false must have the same shape")
        if x.shape.is_tuple:
            rule("C1", p.shape.is_scalar, "pred must be a scalar to choose between tuples")
        else:
            rule(
                "C1",
                p.shape.is_scalar or p.shape.dimensions == x.shape.dimensions,
                "pred must be a scalar or have the dimensions of on_true",
            )
            rule("", x.shape.is_array, "there is no choice between tokens")
    if not x.shape.is_tuple:
        return p.builder.emit("stablehlo.select", [p, x, y], x.shape)
    chosen = [select(p, a, b) for a, b in zip(x, y)]
    values = tuple(value for op in chosen for value in op.values)
    return chosen[0].builder.wrap(x.shape, values, "stablehlo.select")


@operation("stablehlo.clamp")
def clamp(min: Operand, operand: XlaOp, max: Operand) -> XlaOp:
    """Each element of `operand`, held between `min` and `max`; a scalar among the three stands for an array of it.

    Raises:
        ShapeError: (C1, C2) a bound is neither a scalar nor of `operand`'s dimensions; (C3) element types differ.

    Source: `Clamp` of XLA's operation semantics; StableHLO `clamp`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.s32[3])
    >>> sx.clamp(0, x, 6)
    XlaOp(stablehlo.clamp, s32[3])
    """
    with checking("clamp", min=min, operand=operand, max=max) as rule:
        x = rule.op("operand", operand)
        x, low, high = rule.ops(operand=x, min=min, max=max)
        rule.arrays(min=low, operand=x, max=high)
        if x.shape.is_scalar:
            x = _spread(x, low.shape.dimensions or high.shape.dimensions)
        for number, name, bound in (("C1", "min", low), ("C2", "max", high)):
            places = fitting_dimensions(bound.shape, x.shape)
            rule(
                number,
                bound.shape.is_scalar or bound.shape.dimensions == x.shape.dimensions,
                f"{name} must be a scalar or have operand's dimensions",
                f"sx.broadcast_in_dim({name}, {x.shape.dimensions}, {places})" if places else "",
            )
        rule("C3", same_element_type(low, x, high), "min, operand and max must have one element type")
    return x.builder.emit("stablehlo.clamp", [low, x, high], x.shape)


@operation("stablehlo.compare", FLOAT)
def is_nan(operand: XlaOp) -> XlaOp:
    """Whether each element is NaN.

    An array of floating-point numbers.
    Source: XLA's client library, which compares the operand with itself.

    >>> sx.is_nan(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.compare, pred[3])
    """
    with checking("is_nan", operand=operand) as rule:
        rule.types(operand=rule.op("operand", operand))
    return ne(operand, operand)


@operation("stablehlo.divide", FLOAT | COMPLEX)
def reciprocal(operand: XlaOp) -> XlaOp:
    """One over each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library.

    >>> sx.reciprocal(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.divide, f32[3])
    """
    with checking("reciprocal", operand=operand) as rule:
        rule.types(operand=rule.op("operand", operand))
    return div(1, operand)


def shift_right(lhs: Operand, rhs: Operand) -> XlaOp:
    """The operation of `>>`: an arithmetic shift of signed integers, a logical shift of unsigned ones."""
    like = lhs if isinstance(lhs, XlaOp) else rhs
    signed = isinstance(like, XlaOp) and like.shape.is_array and like.shape.element_type.is_signed
    return shift_right_arithmetic(lhs, rhs) if signed else shift_right_logical(lhs, rhs)


@operation("stablehlo.abs", SIGNED | FLOAT | COMPLEX)
def abs(operand: XlaOp) -> XlaOp:
    """The absolute value of each element; for complex numbers their modulus, of the type of the parts.

    An array of signed integers, floating-point or complex numbers.
    Source: `Abs` of XLA's operation semantics; StableHLO `abs`.

    >>> sx.abs(sx.XlaBuilder("example").parameter(0, sx.c64[3]))
    XlaOp(stablehlo.abs, f32[3])
    """
    return _unary("abs", operand)


@operation("chlo.acos", FLOAT | COMPLEX)
def acos(operand: XlaOp) -> XlaOp:
    """The arc cosine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `acos`.

    >>> sx.acos(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.acos, f32[3])
    """
    return _unary("acos", operand)


@operation("chlo.acosh", FLOAT | COMPLEX)
def acosh(operand: XlaOp) -> XlaOp:
    """The inverse hyperbolic cosine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `acosh`.

    >>> sx.acosh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.acosh, f32[3])
    """
    return _unary("acosh", operand)


@operation("chlo.asin", FLOAT | COMPLEX)
def asin(operand: XlaOp) -> XlaOp:
    """The arc sine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `asin`.

    >>> sx.asin(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.asin, f32[3])
    """
    return _unary("asin", operand)


@operation("chlo.asinh", FLOAT | COMPLEX)
def asinh(operand: XlaOp) -> XlaOp:
    """The inverse hyperbolic sine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `asinh`.

    >>> sx.asinh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.asinh, f32[3])
    """
    return _unary("asinh", operand)


@operation("chlo.atan", FLOAT | COMPLEX)
def atan(operand: XlaOp) -> XlaOp:
    """The arc tangent of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `atan`.

    >>> sx.atan(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.atan, f32[3])
    """
    return _unary("atan", operand)


@operation("chlo.atanh", FLOAT | COMPLEX)
def atanh(operand: XlaOp) -> XlaOp:
    """The inverse hyperbolic tangent of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `atanh`.

    >>> sx.atanh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.atanh, f32[3])
    """
    return _unary("atanh", operand)


@operation("chlo.bessel_i1e", FLOAT)
def bessel_i1e(operand: XlaOp) -> XlaOp:
    """The modified Bessel function of order 1, scaled by exp(-|x|), of each element.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `bessel_i1e`.

    >>> sx.bessel_i1e(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.bessel_i1e, f32[3])
    """
    return _unary("bessel_i1e", operand)


@operation("stablehlo.cbrt", FLOAT | COMPLEX)
def cbrt(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The cubic root of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Cbrt` of XLA's operation semantics; StableHLO `cbrt`.

    >>> sx.cbrt(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.cbrt, f32[3])
    """
    return _unary("cbrt", operand, result_accuracy)


@operation("stablehlo.ceil", FLOAT)
def ceil(operand: XlaOp) -> XlaOp:
    """The least integer that is not below each element.

    An array of floating-point numbers.
    Source: `Ceil` of XLA's operation semantics; StableHLO `ceil`.

    >>> sx.ceil(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.ceil, f32[3])
    """
    return _unary("ceil", operand)


@operation("stablehlo.count_leading_zeros", INTEGER)
def clz(operand: XlaOp) -> XlaOp:
    """The number of leading zero bits of each element.

    An array of integers.
    Source: `Clz` of XLA's operation semantics; StableHLO `count_leading_zeros`.

    >>> sx.clz(sx.XlaBuilder("example").parameter(0, sx.s32[3]))
    XlaOp(stablehlo.count_leading_zeros, s32[3])
    """
    return _unary("clz", operand)


@operation("chlo.conj", COMPLEX)
def conj(operand: XlaOp) -> XlaOp:
    """The conjugate of each complex number.

    An array of complex numbers.
    Source: XLA's client library; CHLO `conj`.

    >>> sx.conj(sx.XlaBuilder("example").parameter(0, sx.c64[3]))
    XlaOp(chlo.conj, c64[3])
    """
    return _unary("conj", operand)


@operation("stablehlo.cosine", FLOAT | COMPLEX)
def cos(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The cosine of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Cos` of XLA's operation semantics; StableHLO `cosine`.

    >>> sx.cos(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.cosine, f32[3])
    """
    return _unary("cos", operand, result_accuracy)


@operation("chlo.cosh", FLOAT | COMPLEX)
def cosh(operand: XlaOp) -> XlaOp:
    """The hyperbolic cosine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `cosh`.

    >>> sx.cosh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.cosh, f32[3])
    """
    return _unary("cosh", operand)


@operation("chlo.digamma", FLOAT)
def digamma(operand: XlaOp) -> XlaOp:
    """The derivative of the logarithm of the gamma function at each element.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `digamma`.

    >>> sx.digamma(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.digamma, f32[3])
    """
    return _unary("digamma", operand)


@operation("chlo.erf", FLOAT)
def erf(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The error function of each element.

    An array of floating-point numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Erf` of XLA's operation semantics; CHLO `erf`.

    >>> sx.erf(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.erf, f32[3])
    """
    return _unary("erf", operand, result_accuracy)


@operation("chlo.erf_inv", FLOAT)
def erf_inv(operand: XlaOp) -> XlaOp:
    """The inverse of the error function at each element.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `erf_inv`.

    >>> sx.erf_inv(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.erf_inv, f32[3])
    """
    return _unary("erf_inv", operand)


@operation("chlo.erfc", FLOAT)
def erfc(operand: XlaOp) -> XlaOp:
    """One minus the error function of each element.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `erfc`.

    >>> sx.erfc(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.erfc, f32[3])
    """
    return _unary("erfc", operand)


@operation("stablehlo.exponential", FLOAT | COMPLEX)
def exp(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """e to the power of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Exp` of XLA's operation semantics; StableHLO `exponential`.

    >>> sx.exp(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.exponential, f32[3])
    """
    return _unary("exp", operand, result_accuracy)


@operation("stablehlo.exponential_minus_one", FLOAT | COMPLEX)
def expm1(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """e to the power of each element, minus one, exact near zero too.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Expm1` of XLA's operation semantics; StableHLO `exponential_minus_one`.

    >>> sx.expm1(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.exponential_minus_one, f32[3])
    """
    return _unary("expm1", operand, result_accuracy)


@operation("stablehlo.floor", FLOAT)
def floor(operand: XlaOp) -> XlaOp:
    """The greatest integer that is not above each element.

    An array of floating-point numbers.
    Source: `Floor` of XLA's operation semantics; StableHLO `floor`.

    >>> sx.floor(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.floor, f32[3])
    """
    return _unary("floor", operand)


@operation("stablehlo.imag", FLOAT | COMPLEX)
def imag(operand: XlaOp) -> XlaOp:
    """The imaginary part of each element; zero for real numbers.

    An array of floating-point or complex numbers.
    Source: `Imag` of XLA's operation semantics; StableHLO `imag`.

    >>> sx.imag(sx.XlaBuilder("example").parameter(0, sx.c64[3]))
    XlaOp(stablehlo.imag, f32[3])
    """
    return _unary("imag", operand)


@operation("stablehlo.is_finite", FLOAT)
def is_finite(operand: XlaOp) -> XlaOp:
    """Whether each element is neither infinite nor NaN.

    An array of floating-point numbers.
    Source: `IsFinite` of XLA's operation semantics; StableHLO `is_finite`.

    >>> sx.is_finite(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.is_finite, pred[3])
    """
    return _unary("is_finite", operand)


@operation("chlo.is_inf", FLOAT)
def is_inf(operand: XlaOp) -> XlaOp:
    """Whether each element is an infinity of either sign.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `is_inf`.

    >>> sx.is_inf(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.is_inf, pred[3])
    """
    return _unary("is_inf", operand)


@operation("chlo.is_neg_inf", FLOAT)
def is_neg_inf(operand: XlaOp) -> XlaOp:
    """Whether each element is minus infinity.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `is_neg_inf`.

    >>> sx.is_neg_inf(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.is_neg_inf, pred[3])
    """
    return _unary("is_neg_inf", operand)


@operation("chlo.is_pos_inf", FLOAT)
def is_pos_inf(operand: XlaOp) -> XlaOp:
    """Whether each element is plus infinity.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `is_pos_inf`.

    >>> sx.is_pos_inf(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.is_pos_inf, pred[3])
    """
    return _unary("is_pos_inf", operand)


@operation("chlo.lgamma", FLOAT)
def lgamma(operand: XlaOp) -> XlaOp:
    """The logarithm of the absolute value of the gamma function at each element.

    An array of floating-point numbers.
    Source: XLA's client library; CHLO `lgamma`.

    >>> sx.lgamma(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.lgamma, f32[3])
    """
    return _unary("lgamma", operand)


@operation("stablehlo.log", FLOAT | COMPLEX)
def log(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The natural logarithm of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Log` of XLA's operation semantics; StableHLO `log`.

    >>> sx.log(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.log, f32[3])
    """
    return _unary("log", operand, result_accuracy)


@operation("stablehlo.log_plus_one", FLOAT | COMPLEX)
def log1p(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The natural logarithm of one plus each element, exact near zero too.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Log1p` of XLA's operation semantics; StableHLO `log_plus_one`.

    >>> sx.log1p(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.log_plus_one, f32[3])
    """
    return _unary("log1p", operand, result_accuracy)


@operation("stablehlo.logistic", FLOAT | COMPLEX)
def logistic(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """1 / (1 + exp(-x)) for each element x.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Logistic` of XLA's operation semantics; StableHLO `logistic`.

    >>> sx.logistic(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.logistic, f32[3])
    """
    return _unary("logistic", operand, result_accuracy)


@operation("stablehlo.negate", NUMBER)
def neg(operand: XlaOp) -> XlaOp:
    """Each element with the opposite sign; unsigned integers wrap around.

    An array of integers, floating-point or complex numbers.
    Source: `Neg` of XLA's operation semantics; StableHLO `negate`.

    >>> sx.neg(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.negate, f32[3])
    """
    return _unary("neg", operand)


@operation("stablehlo.not", INTEGER | PRED)
def not_(operand: XlaOp) -> XlaOp:
    """The logical negation of each truth value, or of each bit of integers.

    An array of truth values or integers.
    Source: `Not` of XLA's operation semantics; StableHLO `not`.

    >>> sx.not_(sx.XlaBuilder("example").parameter(0, sx.pred[3]))
    XlaOp(stablehlo.not, pred[3])
    """
    return _unary("not_", operand)


@operation("stablehlo.popcnt", INTEGER)
def population_count(operand: XlaOp) -> XlaOp:
    """The number of bits that are set in each element.

    An array of integers.
    Source: `PopulationCount` of XLA's operation semantics; StableHLO `popcnt`.

    >>> sx.population_count(sx.XlaBuilder("example").parameter(0, sx.s32[3]))
    XlaOp(stablehlo.popcnt, s32[3])
    """
    return _unary("population_count", operand)


@operation("stablehlo.real", FLOAT | COMPLEX)
def real(operand: XlaOp) -> XlaOp:
    """The real part of each element.

    An array of floating-point or complex numbers.
    Source: `Real` of XLA's operation semantics; StableHLO `real`.

    >>> sx.real(sx.XlaBuilder("example").parameter(0, sx.c64[3]))
    XlaOp(stablehlo.real, f32[3])
    """
    return _unary("real", operand)


@operation("stablehlo.round_nearest_afz", FLOAT)
def round(operand: XlaOp) -> XlaOp:
    """The nearest integer to each element, halves away from zero.

    An array of floating-point numbers.
    Source: `Round` of XLA's operation semantics; StableHLO `round_nearest_afz`.

    >>> sx.round(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.round_nearest_afz, f32[3])
    """
    return _unary("round", operand)


@operation("stablehlo.round_nearest_even", FLOAT)
def round_nearest_even(operand: XlaOp) -> XlaOp:
    """The nearest integer to each element, halves to the even one.

    An array of floating-point numbers.
    Source: `RoundNearestEven` of XLA's operation semantics; StableHLO `round_nearest_even`.

    >>> sx.round_nearest_even(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.round_nearest_even, f32[3])
    """
    return _unary("round_nearest_even", operand)


@operation("stablehlo.rsqrt", FLOAT | COMPLEX)
def rsqrt(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """One over the square root of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Rsqrt` of XLA's operation semantics; StableHLO `rsqrt`.

    >>> sx.rsqrt(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.rsqrt, f32[3])
    """
    return _unary("rsqrt", operand, result_accuracy)


@operation("stablehlo.sign", SIGNED | FLOAT | COMPLEX)
def sign(operand: XlaOp) -> XlaOp:
    """-1, 0 or 1 by the sign of each element; zeros and NaN stay; x / |x| for complex numbers.

    An array of signed integers, floating-point or complex numbers.
    Source: `Sign` of XLA's operation semantics; StableHLO `sign`.

    >>> sx.sign(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.sign, f32[3])
    """
    return _unary("sign", operand)


@operation("stablehlo.sine", FLOAT | COMPLEX)
def sin(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The sine of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Sin` of XLA's operation semantics; StableHLO `sine`.

    >>> sx.sin(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.sine, f32[3])
    """
    return _unary("sin", operand, result_accuracy)


@operation("chlo.sinh", FLOAT | COMPLEX)
def sinh(operand: XlaOp) -> XlaOp:
    """The hyperbolic sine of each element.

    An array of floating-point or complex numbers.
    Source: XLA's client library; CHLO `sinh`.

    >>> sx.sinh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(chlo.sinh, f32[3])
    """
    return _unary("sinh", operand)


@operation("stablehlo.sqrt", FLOAT | COMPLEX)
def sqrt(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The square root of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Sqrt` of XLA's operation semantics; StableHLO `sqrt`.

    >>> sx.sqrt(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.sqrt, f32[3])
    """
    return _unary("sqrt", operand, result_accuracy)


@operation("stablehlo.multiply", NUMBER)
def square(operand: XlaOp) -> XlaOp:
    """Each element times itself.

    An array of integers, floating-point or complex numbers.
    Source: XLA's client library.

    >>> sx.square(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.multiply, f32[3])
    """
    with checking("square", operand=operand) as rule:
        rule.types(operand=rule.op("operand", operand))
    return mul(operand, operand)


@operation("stablehlo.tan", FLOAT | COMPLEX)
def tan(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The tangent of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Tan` of XLA's operation semantics; StableHLO `tan`.

    >>> sx.tan(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.tan, f32[3])
    """
    return _unary("tan", operand, result_accuracy)


@operation("stablehlo.tanh", FLOAT | COMPLEX)
def tanh(operand: XlaOp, result_accuracy: Accuracy | None = None) -> XlaOp:
    """The hyperbolic tangent of each element.

    An array of floating-point or complex numbers.
    `result_accuracy` is the error that is allowed: `ResultAccuracy`, or "DEFAULT" or "HIGHEST".
    Source: `Tanh` of XLA's operation semantics; StableHLO `tanh`.

    >>> sx.tanh(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(stablehlo.tanh, f32[3])
    """
    return _unary("tanh", operand, result_accuracy)


@operation("stablehlo.add", ANY)
def add(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs + rhs; of truth values, whether either is true. Integers wrap around.

    Arrays of any type.
    Source: `Add` of XLA's operation semantics; StableHLO `add`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.add(x, x)
    XlaOp(stablehlo.add, f32[2,3])
    """
    return _binary("add", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.and", INTEGER | PRED)
def and_(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether both are true; for integers bit by bit.

    Arrays of truth values or integers.
    Source: `And` of XLA's operation semantics; StableHLO `and`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.pred[2, 3])
    >>> sx.and_(x, x)
    XlaOp(stablehlo.and, pred[2,3])
    """
    return _binary("and_", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.atan2", FLOAT | COMPLEX)
def atan2(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The angle of the point (rhs, lhs), from -pi to pi.

    Arrays of floating-point or complex numbers.
    Source: `Atan2` of XLA's operation semantics; StableHLO `atan2`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.atan2(x, x)
    XlaOp(stablehlo.atan2, f32[2,3])
    """
    return _binary("atan2", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.complex", FLOAT, only=("f32", "f64"))
def complex(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The complex numbers of real parts lhs and imaginary parts rhs.

    Arrays of f32 or f64.
    Source: `Complex` of XLA's operation semantics; StableHLO `complex`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.complex(x, x)
    XlaOp(stablehlo.complex, c64[2,3])
    """
    return _binary("complex", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.divide", NUMBER)
def div(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs / rhs, which integers round toward zero. Integer division by zero gives -1 (all bits set), and the least
    integer by -1 itself.

    Arrays of integers, floating-point or complex numbers.
    Source: `Div` of XLA's operation semantics; StableHLO `divide`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.div(x, x)
    XlaOp(stablehlo.divide, f32[2,3])
    """
    return _binary("div", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.maximum", ANY)
def max(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The greater of lhs and rhs; NaN where either is NaN.

    Arrays of any type.
    Source: `Max` of XLA's operation semantics; StableHLO `maximum`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.max(x, x)
    XlaOp(stablehlo.maximum, f32[2,3])
    """
    return _binary("max", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.minimum", ANY)
def min(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The lesser of lhs and rhs; NaN where either is NaN.

    Arrays of any type.
    Source: `Min` of XLA's operation semantics; StableHLO `minimum`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.min(x, x)
    XlaOp(stablehlo.minimum, f32[2,3])
    """
    return _binary("min", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.multiply", ANY)
def mul(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs * rhs; of truth values, whether both are true. Integers wrap around.

    Arrays of any type.
    Source: `Mul` of XLA's operation semantics; StableHLO `multiply`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.mul(x, x)
    XlaOp(stablehlo.multiply, f32[2,3])
    """
    return _binary("mul", lhs, rhs, broadcast_dimensions)


@operation("chlo.mulhi", INTEGER)
def mulhi(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The high half of each product: the upper N bits of the 2N bits that N bits times N bits have.

    Arrays of integers.
    Source: `Mulhi` of XLA's builder; CHLO `mulhi`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.u32[3])
    >>> sx.mulhi(x, 3)
    XlaOp(chlo.mulhi, u32[3])
    """
    return _binary("mulhi", lhs, rhs, broadcast_dimensions)


@operation("chlo.next_after", FLOAT)
def next_after(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The next representable number after lhs in the direction of rhs.

    Arrays of floating-point numbers.
    Source: XLA's client library; CHLO `next_after`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.next_after(x, x)
    XlaOp(chlo.next_after, f32[2,3])
    """
    return _binary("next_after", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.or", INTEGER | PRED)
def or_(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether either is true; for integers bit by bit.

    Arrays of truth values or integers.
    Source: `Or` of XLA's operation semantics; StableHLO `or`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.pred[2, 3])
    >>> sx.or_(x, x)
    XlaOp(stablehlo.or, pred[2,3])
    """
    return _binary("or_", lhs, rhs, broadcast_dimensions)


@operation("chlo.polygamma", FLOAT)
def polygamma(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The derivative of order lhs of the digamma function at rhs.

    Arrays of floating-point numbers.
    Source: XLA's client library; CHLO `polygamma`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.polygamma(x, x)
    XlaOp(chlo.polygamma, f32[2,3])
    """
    return _binary("polygamma", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.power", NUMBER)
def pow(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs to the power of rhs.

    Arrays of integers, floating-point or complex numbers.
    Source: `Pow` of XLA's operation semantics; StableHLO `power`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.pow(x, x)
    XlaOp(stablehlo.power, f32[2,3])
    """
    return _binary("pow", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.remainder", INTEGER | FLOAT)
def rem(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The remainder of lhs / rhs rounded toward zero, with the sign of lhs. Of an integer by zero, lhs itself.

    Arrays of integers or floating-point numbers; complex numbers have no order, and so no remainder.
    Source: `Rem` of XLA's operation semantics; StableHLO `remainder`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.rem(x, x)
    XlaOp(stablehlo.remainder, f32[2,3])
    """
    return _binary("rem", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.shift_left", INTEGER)
def shift_left(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted left by rhs bits; 0 where rhs is not below the width.

    Arrays of integers.
    Source: `ShiftLeft` of XLA's operation semantics; StableHLO `shift_left`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.s32[2, 3])
    >>> sx.shift_left(x, x)
    XlaOp(stablehlo.shift_left, s32[2,3])
    """
    return _binary("shift_left", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.shift_right_arithmetic", INTEGER)
def shift_right_arithmetic(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted right by rhs bits, filled with copies of the sign bit.

    Arrays of integers.
    Source: `ShiftRightArithmetic` of XLA's operation semantics; StableHLO `shift_right_arithmetic`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.s32[2, 3])
    >>> sx.shift_right_arithmetic(x, x)
    XlaOp(stablehlo.shift_right_arithmetic, s32[2,3])
    """
    return _binary("shift_right_arithmetic", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.shift_right_logical", INTEGER)
def shift_right_logical(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted right by rhs bits, filled with zeros.

    Arrays of integers.
    Source: `ShiftRightLogical` of XLA's operation semantics; StableHLO `shift_right_logical`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.s32[2, 3])
    >>> sx.shift_right_logical(x, x)
    XlaOp(stablehlo.shift_right_logical, s32[2,3])
    """
    return _binary("shift_right_logical", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.subtract", NUMBER)
def sub(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs - rhs. Integers wrap around.

    Arrays of integers, floating-point or complex numbers.
    Source: `Sub` of XLA's operation semantics; StableHLO `subtract`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.sub(x, x)
    XlaOp(stablehlo.subtract, f32[2,3])
    """
    return _binary("sub", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.xor", INTEGER | PRED)
def xor(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether just one is true; for integers bit by bit.

    Arrays of truth values or integers.
    Source: `Xor` of XLA's operation semantics; StableHLO `xor`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.pred[2, 3])
    >>> sx.xor(x, x)
    XlaOp(stablehlo.xor, pred[2,3])
    """
    return _binary("xor", lhs, rhs, broadcast_dimensions)


@operation("chlo.zeta", FLOAT)
def zeta(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The Hurwitz zeta function of order lhs at rhs.

    Arrays of floating-point numbers.
    Source: XLA's client library; CHLO `zeta`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.zeta(x, x)
    XlaOp(chlo.zeta, f32[2,3])
    """
    return _binary("zeta", lhs, rhs, broadcast_dimensions)


@operation("stablehlo.compare")
def eq(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs = rhs, element by element; NaN compares false.

    Arrays of any type.
    Source: `Eq` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.eq(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("eq", lhs, rhs, broadcast_dimensions, "EQ")


@operation("stablehlo.compare")
def ne(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs != rhs, element by element; NaN differs from everything.

    Arrays of any type.
    Source: `Ne` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.ne(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("ne", lhs, rhs, broadcast_dimensions, "NE")


@operation("stablehlo.compare")
def ge(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs >= rhs, element by element; NaN compares false.

    Arrays of any type.
    Source: `Ge` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.ge(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("ge", lhs, rhs, broadcast_dimensions, "GE")


@operation("stablehlo.compare")
def gt(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs > rhs, element by element; NaN compares false.

    Arrays of any type.
    Source: `Gt` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.gt(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("gt", lhs, rhs, broadcast_dimensions, "GT")


@operation("stablehlo.compare")
def le(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs <= rhs, element by element; NaN compares false.

    Arrays of any type.
    Source: `Le` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.le(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("le", lhs, rhs, broadcast_dimensions, "LE")


@operation("stablehlo.compare")
def lt(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs < rhs, element by element; NaN compares false.

    Arrays of any type.
    Source: `Lt` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.lt(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("lt", lhs, rhs, broadcast_dimensions, "LT")


@operation("stablehlo.compare")
def eq_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs = rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `eq`.
    Source: `EqTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.eq_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("eq_total_order", lhs, rhs, broadcast_dimensions, "EQ")


@operation("stablehlo.compare")
def ne_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs != rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `ne`.
    Source: `NeTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.ne_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("ne_total_order", lhs, rhs, broadcast_dimensions, "NE")


@operation("stablehlo.compare")
def ge_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs >= rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `ge`.
    Source: `GeTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.ge_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("ge_total_order", lhs, rhs, broadcast_dimensions, "GE")


@operation("stablehlo.compare")
def gt_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs > rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `gt`.
    Source: `GtTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.gt_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("gt_total_order", lhs, rhs, broadcast_dimensions, "GT")


@operation("stablehlo.compare")
def le_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs <= rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `le`.
    Source: `LeTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.le_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("le_total_order", lhs, rhs, broadcast_dimensions, "LE")


@operation("stablehlo.compare")
def lt_total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Whether lhs < rhs in the total order -NaN < -inf < finite < -0 < +0 < finite < +inf < +NaN.

    Arrays of any type; only for floats it differs from `lt`.
    Source: `LtTotalOrder` of XLA's operation semantics; StableHLO `compare`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.lt_total_order(x, x)
    XlaOp(stablehlo.compare, pred[2,3])
    """
    return _compare("lt_total_order", lhs, rhs, broadcast_dimensions, "LT")
