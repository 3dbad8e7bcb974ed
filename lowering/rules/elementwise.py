"""Lowering of element-wise operations: unary, binary, comparison, selection. The arithmetic itself is in `scalars`."""

from __future__ import annotations

from typing import Any

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.attributes.result_accuracy import ResultAccuracy
from stablexla.dialects.element_types import BY_NAME, ElementType, Kind
from stablexla.lowering.math.complex import arithmetic as complex_math
from stablexla.lowering.math.complex import functions as complex_functions
from stablexla.lowering.math.complex import power as complex_power
from stablexla.lowering.support import scalars
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import identity, read_through
from stablexla.lowering.support.identities import is_identity
from stablexla.lowering.support.operations import constant_bits, constant_of, defining
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import narrow, widen

# Imported for their effect: they register their functions in the tables of lowering.math.complex.
COMPLEX = (complex_functions, complex_power)

UNARY: dict[Kind, dict[str, Any]] = {
    Kind.FLOAT: scalars.FLOAT_UNARY,
    Kind.SIGNED: scalars.INTEGER_UNARY,
    Kind.UNSIGNED: scalars.INTEGER_UNARY,
    Kind.PRED: scalars.PRED_UNARY,
    Kind.COMPLEX: complex_math.UNARY,
}
BINARY: dict[Kind, dict[str, Any]] = {
    Kind.FLOAT: scalars.FLOAT_BINARY,
    Kind.SIGNED: scalars.INTEGER_BINARY,
    Kind.UNSIGNED: scalars.INTEGER_BINARY,
    Kind.PRED: scalars.PRED_BINARY,
    Kind.COMPLEX: complex_math.BINARY,
}


def _names(table: dict[Kind, dict[str, Any]]) -> list[str]:
    return sorted({f"stablehlo.{name}" for rows in table.values() for name in rows})


def _function(ctx: LoweringContext, table: dict[Kind, dict[str, Any]]) -> Any:
    element = ctx.operand_types[0].element
    function = table[element.kind].get(ctx.op_name.removeprefix("stablehlo."))
    if function is None:
        raise ctx.unsupported(f"elements of type {element} are not allowed")
    return function


@lowers(*_names(UNARY))
def unary(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The operation of the same name on each element; the result may be of another type (abs of complex)."""
    function = _function(ctx, UNARY)
    element, result = ctx.operand_types[0].element, ctx.result.element
    if "result_accuracy" in ctx.attributes:
        _check_accuracy(ctx)
    return ctx.elementwise(lambda v: narrow(function(widen(v, element), element), result), x)


def _check_accuracy(ctx: LoweringContext) -> None:
    accuracy = ResultAccuracy.read(ctx.attributes["result_accuracy"])
    unmet = accuracy.unmet(ctx.op_name.removeprefix("stablehlo."), ctx.result.element)
    if unmet:
        raise ctx.unsupported(unmet)


@lowers(*_names(BINARY))
def binary(ctx: LoweringContext, x: ir.Value, y: ir.Value) -> list[ir.Value]:
    """The operation of the same name on each pair of elements; x * 1 and the like are x itself."""
    function = _function(ctx, BINARY)
    element, result = ctx.operand_types[0].element, ctx.result.element
    same = _operand_kept(ctx, x, y)
    if same is not None:
        return [same]
    shift = scalars.PLAIN_SHIFTS.get(ctx.op_name.removeprefix("stablehlo."))
    if shift is not None and element.bits >= 8 and _is_below(y, element.bits):
        return ctx.elementwise(shift, x, y)
    return ctx.elementwise(lambda v, w: narrow(function(widen(v, element), widen(w, element), element), result), x, y)


def _operand_kept(ctx: LoweringContext, x: ir.Value, y: ir.Value) -> ir.Value | None:
    """Return the operand that every element of the result is equal to, as the other is an identity; else None."""
    for place, (kept, other) in enumerate(((x, y), (y, x))):
        bits = _bits_of_all(other)
        if bits is not None and ctx.operand_types[place] == ctx.result:
            name = ctx.op_name.removeprefix("stablehlo.")
            if is_identity(name, bits, ctx.result.element, on_left=place == 1):
                return kept
    return None


def _bits_of_all(value: ir.Value) -> int | None:
    """Return the bits of a constant, or of one that all elements of an array are equal to; None for other values.

    Of each operand of each operation: it asks for as little as it can.
    """
    maker = defining(value)
    if maker is None or maker.name == "linalg.generic":
        return None
    return constant_bits(maker.operands[0] if maker.name == "tensor.splat" else value)


def _is_below(value: ir.Value, limit: int) -> bool:
    """Whether a value is a known constant in [0, limit), the same for all elements."""
    rank = value.type.rank if isinstance(value.type, ir.RankedTensorType) else 0
    number = _known(read_through(value, identity(rank))[0])
    return number is not None and 0 <= number < limit


def _known(scalar: ir.Value) -> int | None:
    """Return the value of an integer constant, or of the difference of two, as rotations are written, else None."""
    maker = defining(scalar)
    if maker is not None and maker.name == "arith.subi":
        x, y = (_known(v) for v in maker.operands)
        return None if x is None or y is None else x - y
    return constant_of(scalar)


@lowers("stablehlo.is_finite")
def is_finite(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Whether each element is neither infinite nor NaN."""
    element = ctx.operand_types[0].element
    return ctx.elementwise(lambda v: scalars.is_finite(widen(v, element), element), x)


@lowers("stablehlo.select")
def select(ctx: LoweringContext, pred: ir.Value, on_true: ir.Value, on_false: ir.Value) -> list[ir.Value]:
    """on_true where pred holds, else on_false; a rank-0 pred selects all elements."""
    return ctx.elementwise(arith.select, pred, on_true, on_false)


@lowers("stablehlo.clamp")
def clamp(ctx: LoweringContext, low: ir.Value, x: ir.Value, high: ir.Value) -> list[ir.Value]:
    """min(max(x, low), high) for each element; rank-0 bounds hold for all."""
    element = ctx.result.element
    table = BINARY[element.kind]
    if "maximum" not in table:
        raise ctx.unsupported(f"elements of type {element} are not allowed")

    def body(a: ir.Value, v: ir.Value, b: ir.Value) -> ir.Value:
        a, v, b = (widen(each, element) for each in (a, v, b))
        return narrow(table["minimum"](table["maximum"](v, a, element), b, element), element)

    return ctx.elementwise(body, low, x, high)


@lowers("stablehlo.compare")
def compare(ctx: LoweringContext, x: ir.Value, y: ir.Value) -> list[ir.Value]:
    """The comparison of each pair, as pred; floats by IEEE-754, or by its total order with TOTALORDER."""
    direction = word(ctx.attributes["comparison_direction"])
    kind = word(ctx.attributes["compare_type"]) if "compare_type" in ctx.attributes else ""
    element = ctx.operand_types[0].element
    return ctx.elementwise(lambda v, w: compare_values(v, w, element, direction, kind), x, y)


def compare_values(x: ir.Value, y: ir.Value, element: ElementType, direction: str, kind: str = "") -> ir.Value:
    """Emit one comparison; `direction` is EQ, NE, GE, GT, LE or LT."""
    if element.is_complex:
        return complex_math.compare(x, y, direction)
    sign = "" if direction in ("EQ", "NE") else "u" if element.is_unsigned or element.is_pred else "s"
    if element.is_float and kind == "TOTALORDER":
        if element.bits < 8:
            x, y, element = widen(x, element), widen(y, element), BY_NAME["f32"]
        x, y = scalars.total_order_key(x, element), scalars.total_order_key(y, element)
        return scalars.cmpi(sign + direction.lower(), x, y)
    if element.is_float:
        predicate = "UNE" if direction == "NE" else "O" + direction
        return scalars.cmpf(predicate, widen(x, element), widen(y, element))
    return scalars.cmpi(sign + direction.lower(), x, y)
