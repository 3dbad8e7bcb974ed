"""Pass that expands bounded dynamic dimensions to padded arrays and sizes, by `lowering/bounded/`."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

import stablexla.lowering.bounded.control
import stablexla.lowering.bounded.normalization
import stablexla.lowering.bounded.rules  # noqa: F401  (they fill the registry of expansions)
from stablexla.dialects.composites import name_and_version
from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.bounded.bounded import expand_main
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import call_decomposition, inline_calls, note_ways, noted_ways, operations_of

# Where dynamic dimensions can come from, besides parameters.
_SOURCES = (
    "stablehlo.set_dimension_size",
    "stablehlo.custom_call",
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_iota",
    "stablehlo.dynamic_reshape",
    "stablehlo.infeed",
    "stablehlo.recv",
)


@module_pass(
    "stablexla-expand-bounded",
    "turns arrays with bounded dimensions into arrays of their bounds, with their sizes as scalars beside them",
    side="stablehlo",
    acts_on=lambda held: held.has(*_SOURCES) or held.has_type(lambda t: bool(extents_of(t)[1])),
)
def expand_bounded(module: hlo_ir.Module) -> None:
    """Expand bounded dynamic dimensions; modules without them are left as they are.

    Raises:
        UnsupportedError: an operation that takes no dynamic dimension.
    """
    if not _has_bounded(module):
        return
    ways = noted_ways(module)
    for op in operations_of(module, "stablehlo.composite"):
        if any(extents_of(value.type)[1] for value in (*op.operands, *op.results)):
            ways["{} v{}".format(*name_and_version(op))] = "decomposition"
            call_decomposition(op)
    note_ways(module, ways)
    inline_calls(module)
    for function in module.body.operations:
        if function.operation.name == "func.func" and symbol_of(function) == "main":
            expand_main(function.operation)


def _has_bounded(module: hlo_ir.Module) -> bool:
    found = False

    def look(op: Any) -> Any:
        nonlocal found
        name = op.name
        if name == "func.func":
            blocks = op.regions[0].blocks
            found = any(extents_of(a.type)[1] for block in blocks for a in block.arguments)
        elif name in _SOURCES:
            found = name == _SOURCES[0] or any(extents_of(r.type)[1] for r in op.results)
        return hlo_ir.WalkResult.INTERRUPT if found else hlo_ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found
