"""Pass that protects CHLO operations with kernels or users' rules from legalization, by wrapping them in composites.

Operations of StableHLO and custom calls reach the lowering anyway; composites with a rule are kept as those with a
kernel are (`inlining.py`).
"""

from __future__ import annotations

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.composites import COMPOSITES
from stablexla.dialects.contexts import pass_manager
from stablexla.dialects.rules import active_rules
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass


@module_pass(
    "stablexla-keep-ruled",
    "wraps operations of CHLO that have a kernel here, or that a user's lowering rule is for, into composites",
    side="stablehlo",
    acts_on=for_any(["chlo."]),
)
def keep_ruled(module: hlo_ir.Module) -> None:
    """Run MLIR's `stablehlo-wrap-in-composite` for these operations."""
    names = ",".join(sorted({name for name in (*COMPOSITES, *active_rules()) if name.startswith("chlo.")}))
    wrap = pass_manager("stablehlo", f"builtin.module(stablehlo-wrap-in-composite{{op-names={names}}})")
    wrap.run(module.operation)
