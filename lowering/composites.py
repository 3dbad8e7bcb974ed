"""Lowering of composites that need not be decomposed: CHLO's elementary functions, which have expansions of their own.

Their decompositions are polynomials written in StableHLO, of lower accuracy and several times the operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import math

from stablexla.dialects.composites import composite_kernel, kernel_for
from stablexla.dialects.element_types import ElementType
from stablexla.lowering.context import LoweringContext
from stablexla.lowering.generic import elementwise
from stablexla.lowering.math_expansion import erf_inv
from stablexla.lowering.registry import lowers
from stablexla.lowering.storage import narrow, widen

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
    name = hlo_ir.StringAttr(ctx.attributes["name"]).value
    version = hlo_ir.IntegerAttr(ctx.attributes["version"]).value if "version" in ctx.attributes else 0
    kernel = kernel_for(name, version, [v.type for v in ctx.op.operands])
    if kernel is None:
        raise ctx.unsupported(f"there is no kernel for the composite {name!r}, and it was not decomposed")
    lowered: Sequence[ir.Value] = kernel.rule(ctx, *operands)
    return lowered


def _is_float(element: ElementType) -> bool:
    return element.is_float


@composite_kernel(*FUNCTIONS, accepts=_is_float)
def elementary_function(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The function of each element, computed in f32 or wider."""
    function = FUNCTIONS[hlo_ir.StringAttr(ctx.attributes["name"]).value]
    element = ctx.result.element
    return elementwise([x], ctx.operand_types, ctx.result_types, lambda v: narrow(function(widen(v, element)), element))
