"""Legalization of CHLO to StableHLO: MLIR's own pass, and floats that it does not handle.

MLIR's legalization has no approximations below 16 bits for some functions, which are computed in f32 here. It skips
functions that are only decompositions of composites with kernels: those never run.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects import hlo
from stablexla.dialects.contexts import pass_manager
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.context import place_of
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

_LEGALIZE = "func.func(chlo-legalize-to-stablehlo)"
# Functions whose legalization supports f16, bf16, f32 and f64 alone.
_FROM_16_BITS = ("chlo.bessel_i1e", "chlo.erf", "chlo.erfc")


@module_pass(
    "stablexla-legalize-chlo",
    "writes operations of CHLO out in StableHLO, except in decompositions of composites that have kernels",
    side="stablehlo",
    acts_on=for_any(["chlo."]),
)
def legalize_chlo(module: hlo_ir.Module) -> None:
    """Run MLIR's `chlo-legalize-to-stablehlo` on each function that is reachable at run time."""
    kept = {
        hlo_ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
        for op in operations_of(module, "stablehlo.composite")
    }
    legalize = pass_manager("stablehlo", _LEGALIZE)
    for function in (op.operation for op in module.body.operations if op.operation.name == "func.func"):
        if symbol_of(function) not in kept:
            for name in _FROM_16_BITS:
                for op in operations_of(function, name):
                    _compute_in_f32(op)
            legalize.run(function)


def _compute_in_f32(op: Any) -> None:
    """Promote a unary function of a float below 16 bits to f32, and round the result once.

    Raises:
        UnsupportedError: complex numbers, which CHLO's types allow and its legalization does not.
    """
    narrow = hlo_ir.RankedTensorType(op.results[0].type)
    if isinstance(narrow.element_type, hlo_ir.ComplexType):
        raise UnsupportedError(f"complex numbers{place_of(op.location)}", operation=op.name)
    if BY_MLIR[str(narrow.element_type)].bits >= 16:
        return
    with op.context, op.location, hlo_ir.InsertionPoint(op):
        wide = hlo_ir.RankedTensorType.get(narrow.shape, hlo_ir.F32Type.get(), narrow.encoding)
        computed = hlo.emit(op.name, [hlo.convert(op.operands[0], wide.element_type)], [wide])
        op.results[0].replace_all_uses_with(hlo.convert(computed, narrow.element_type))
    erase(op)
