"""Lowering of composites that are not decomposed: CHLO's elementary functions, which have expansions of their own.

Their decompositions are polynomials written in StableHLO, of lower accuracy and several times the operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith, math

from stablexla.dialects.composites import composite_kernel, kernel_of, name_and_version
from stablexla.dialects.element_types import ElementType
from stablexla.lowering.math import erf_inv
from stablexla.lowering.math.complex import arithmetic as complex_math
from stablexla.lowering.math.complex import functions as complex_functions
from stablexla.lowering.math.complex import inverse as complex_inverse
from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.rules.calls.host import host_call
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.scalars import cmpf, cmpi
from stablexla.lowering.support.storage import constant, from_storage, narrow, to_storage, widen
from stablexla.lowering.support.types import value_type

# Imported for their effect: they register their functions in the tables of lowering.math.complex.
COMPLEX = (complex_functions, complex_inverse)

FUNCTIONS = {
    "chlo.acos": math.acos,
    "chlo.acosh": math.acosh,
    "chlo.asin": math.asin,
    "chlo.asinh": math.asinh,
    "chlo.atan": math.atan,
    "chlo.atanh": math.atanh,
    "chlo.cosh": math.cosh,
    "chlo.erf": math.erf,
    "chlo.erfc": math.erfc,
    "chlo.erf_inv": erf_inv,
    "chlo.sinh": math.sinh,
    "chlo.tan": math.tan,
}


@lowers("stablehlo.composite")
def composite(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """Lower a composite by the kernel registered under its name."""
    kernel = kernel_of(ctx.op)
    if kernel is None:
        name, _ = name_and_version(ctx.op)
        raise ctx.unsupported(f"there is no kernel for the composite {name!r}, and it was not decomposed")
    lowered: Sequence[ir.Value] = kernel.rule(ctx, *operands)
    return lowered


def call_of_host(name: str, version: int, ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """Emit a call of the Python function that is registered for a composite."""
    attributes = str(ctx.attributes["composite_attributes"]) if "composite_attributes" in ctx.attributes else "{}"
    types = ctx.operand_types, ctx.result_types
    return host_call(
        ctx, "composite", operands, *types, effect=False, target=name, version=version, keywords=attributes
    )


@composite_kernel(*complex_math.COMPOSITES, accepts=lambda element: element.is_float or element.is_complex)
@composite_kernel(
    *(name for name in FUNCTIONS if name not in complex_math.COMPOSITES), accepts=lambda element: element.is_float
)
def elementary_function(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The elementary function of each element, computed in f32 or wider."""
    return _elementary(ctx, hlo_ir.StringAttr(ctx.attributes["name"]).value, x)


def _elementary(ctx: LoweringContext, name: str, x: ir.Value) -> list[ir.Value]:
    element = ctx.result.element
    if element.is_complex:
        of_complex = complex_math.COMPOSITES[name]
        return ctx.elementwise(lambda v: of_complex(v, element), x)
    function = FUNCTIONS[name]
    return ctx.elementwise(lambda v: narrow(function(widen(v, element)), element), x)


@composite_kernel("chlo.next_after", accepts=lambda element: element.is_float and element.bits < 16)
def next_after(ctx: LoweringContext, x: ir.Value, y: ir.Value) -> list[ir.Value]:
    """The next representable value after each element of x toward y, by its bit pattern.

    MLIR's legalization takes each type for one of IEEE-754: it reads 6 bits as an integer that StableHLO does not have,
    and knows neither types without a negative zero nor the one without a sign.
    """
    element = ctx.result.element
    step = _step_unsigned if element.name.endswith("fnu") else _step_signed
    no_negative_zero = element.name.endswith("fnuz")

    def body(v: ir.Value, w: ir.Value) -> ir.Value:
        from_, to = _bits(v, element), _bits(w, element)
        x, y = widen(v, element), widen(w, element)
        moved = step(x, y, from_, to, 1 << (element.bits - 1))
        if no_negative_zero:
            is_zero = cmpi("eq", moved, constant(moved.type, 1 << (element.bits - 1)))
            moved = arith.select(is_zero, constant(moved.type, 0), moved)
        value = _from_bits(arith.select(cmpf("OEQ", x, y), to, moved), element)
        return arith.select(cmpf("UNO", x, y), narrow(arith.addf(x, y), element), value)

    return ctx.elementwise(body, x, y)


def _step_signed(x: ir.Value, y: ir.Value, from_: ir.Value, to: ir.Value, sign: int) -> ir.Value:
    """Step the bit pattern of x toward y: magnitudes are ordered as the integers are; zero has two neighbours."""
    one, zero = constant(from_.type, 1), constant(x.type, 0)
    away = cmpi("eq", cmpf("OGT", y, x), cmpf("OGT", x, zero))
    stepped = arith.select(away, arith.addi(from_, one), arith.subi(from_, one))
    smallest = arith.ori(arith.andi(to, constant(to.type, sign)), one)
    return arith.select(cmpf("OEQ", x, zero), smallest, stepped)


def _step_unsigned(x: ir.Value, y: ir.Value, from_: ir.Value, to: ir.Value, sign: int) -> ir.Value:
    """Step the bit pattern of x toward y in a type without a sign bit."""
    one = constant(from_.type, 1)
    return arith.select(cmpf("OGT", y, x), arith.addi(from_, one), arith.subi(from_, one))


def _bits(value: ir.Value, element: ElementType) -> ir.Value:
    stored = to_storage(value, element)
    return stored if element.bits < 8 else arith.bitcast(ir.IntegerType.get_signless(8), stored)


def _from_bits(bits: ir.Value, element: ElementType) -> ir.Value:
    return from_storage(bits, element) if element.bits < 8 else arith.bitcast(value_type(element), bits)


def _older_name(name: str, ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Lower an elementary function under the name that it had in another dialect before it came into CHLO."""
    of_complex = ctx.result.element.is_complex and name in complex_math.COMPOSITES
    if ctx.operand_types != [ctx.result] or not (of_complex or ctx.result.element.is_float):
        raise ctx.unsupported(f"{name} takes an array of floats and gives one of its type")
    return _elementary(ctx, name, x)


for _name in FUNCTIONS:
    operation_call(_name.replace("chlo.", "mhlo."))(functools.partial(_older_name, _name))
