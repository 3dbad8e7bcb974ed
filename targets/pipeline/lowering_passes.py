"""Pass registrations of the functions of `lowering/`."""

from __future__ import annotations

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.lowering.math import expand_math
from stablexla.lowering.math.small_floats import ToBf16, expand_small_floats
from stablexla.lowering.support.context import lower_to_tensor
from stablexla.lowering.support.registry import load_rules
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.pipelines import LOWER

load_rules()


@module_pass(LOWER, "lowers StableHLO to linalg, tensor, scf, arith and math on tensors", side="stablehlo")
def to_tensor(module: hlo_ir.Module, *, whole_sorts: bool = False) -> ir.Module:
    """Lower StableHLO to a new module of linalg on tensors, in upstream's context.

    Args:
        whole_sorts: makes each sort one kernel.
    """
    lowered: ir.Module = lower_to_tensor(module, whole_sorts=whole_sorts)
    return lowered


@module_pass("stablexla-expand-math", "writes elementary functions out as arithmetic, on scalars and vectors alike")
def math(module: ir.Module) -> None:
    """Expand the math dialect; operations that processors have stay."""
    expand_math(module)


@module_pass("stablexla-expand-angles", "writes atan2 out before constants are folded")
def angles(module: ir.Module) -> None:
    """Lower atan2 ourselves: upstream folds atan2(0, 0) to NaN."""
    expand_math(module, "math.atan2")


@module_pass(
    "stablexla-expand-small-floats", "writes conversions of bf16 and narrower floats out as integer arithmetic"
)
def small_floats(module: ir.Module, *, to_bf16: str = ToBf16.SHORT_NANS.value) -> None:
    """Lower conversions of narrow floats: LLVM lacks the types, and its bf16 ones flush denormals or call a library.

    Args:
        to_bf16: how f32 is rounded to bf16, a value of `ToBf16`.
    """
    expand_small_floats(module, ToBf16(to_bf16))
