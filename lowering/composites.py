"""Lowering of composites that need not be decomposed: CHLO's elementary functions, which have expansions of their own.

Their decompositions are polynomials written in StableHLO, of lower accuracy and several times the operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import math

from stablexla.dialects.composites import composite_kernel, kernel_of, name_and_version
from stablexla.dialects.element_types import ElementType
from stablexla.lowering import complex_functions, complex_inverse, complex_math
from stablexla.lowering.context import LoweringContext
from stablexla.lowering.custom_call import operation_call
from stablexla.lowering.generic import elementwise
from stablexla.lowering.host import host_call
from stablexla.lowering.math_expansion import erf_inv
from stablexla.lowering.registry import lowers
from stablexla.lowering.storage import narrow, widen

# They enter what they have in the tables of complex_math.
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
    """By the kernel that is registered for it."""
    kernel = kernel_of(ctx.op)
    if kernel is None:
        name, _ = name_and_version(ctx.op)
        raise ctx.unsupported(f"there is no kernel for the composite {name!r}, and it was not decomposed")
    lowered: Sequence[ir.Value] = kernel.rule(ctx, *operands)
    return lowered


def call_of_host(name: str, version: int, ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """A call of the Python function that is registered for a composite."""
    attributes = str(ctx.attributes["composite_attributes"]) if "composite_attributes" in ctx.attributes else "{}"
    types = ctx.operand_types, ctx.result_types
    return host_call(
        ctx, "composite", operands, *types, effect=False, target=name, version=version, keywords=attributes
    )


def _is_float(element: ElementType) -> bool:
    return element.is_float


def _is_float_or_complex(element: ElementType) -> bool:
    return element.is_float or element.is_complex


@composite_kernel(*complex_math.COMPOSITES, accepts=_is_float_or_complex)
@composite_kernel(*(name for name in FUNCTIONS if name not in complex_math.COMPOSITES), accepts=_is_float)
def elementary_function(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The function of each element, computed in f32 or wider."""
    return _elementary(ctx, hlo_ir.StringAttr(ctx.attributes["name"]).value, x)


def _elementary(ctx: LoweringContext, name: str, x: ir.Value) -> list[ir.Value]:
    element = ctx.result.element
    if element.is_complex:
        of_complex = complex_math.COMPOSITES[name]
        return elementwise([x], ctx.operand_types, ctx.result_types, lambda v: of_complex(v, element))
    function = FUNCTIONS[name]
    return elementwise([x], ctx.operand_types, ctx.result_types, lambda v: narrow(function(widen(v, element)), element))


def _older_name(name: str, ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """A function that came into CHLO from another dialect, whose name it has in older programs."""
    of_complex = ctx.result.element.is_complex and name in complex_math.COMPOSITES
    if ctx.operand_types != [ctx.result] or not (of_complex or ctx.result.element.is_float):
        raise ctx.unsupported(f"{name} takes an array of floats and gives one of its type")
    return _elementary(ctx, name, x)


for _name in FUNCTIONS:
    operation_call(_name.replace("chlo.", "mhlo."))(functools.partial(_older_name, _name))
