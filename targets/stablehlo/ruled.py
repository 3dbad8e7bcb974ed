"""Pass that protects CHLO operations with users' lowering rules from legalization, by wrapping them in composites.

Operations of StableHLO and custom calls reach the lowering anyway; composites with a rule are kept as those with a
kernel are (`inlining.py`).
"""

from __future__ import annotations

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.passmanager import PassManager

from stablexla.dialects.composites import COMPOSITES
from stablexla.dialects.rules import active_rules
from stablexla.targets.pipeline.passes import module_pass


@module_pass(
    "stablexla-keep-ruled",
    "wraps operations of CHLO that a user's lowering rule is for into composites",
    side="stablehlo",
)
def keep_ruled(module: hlo_ir.Module) -> None:
    """Wrap CHLO operations with rules, except those with kernels here, which are wrapped in any case."""
    names = [name for name in active_rules() if name.startswith("chlo.") and name not in COMPOSITES]
    if names:
        PassManager.parse(f"builtin.module(stablehlo-wrap-in-composite{{op-names={','.join(names)}}})").run(
            module.operation
        )
