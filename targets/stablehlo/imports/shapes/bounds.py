"""Removal of bounds of dynamic dimensions: they become unknown extents, which arguments can refine."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.targets.pipeline.passes import module_pass


@module_pass(
    "stablexla-forget-bounds",
    "turns dimensions of bounded size into ones of unknown extent, for stablexla-refine-arguments",
    side="stablehlo",
)
def forget_bounds(module: ir.Module) -> None:
    """Remove bounds from all types; operations are left as they are."""

    def look(op: Any) -> Any:
        for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)):
            if extents_of(value.type)[1]:
                value.set_type(_open(value.type))
        if op.name == "func.func":
            type_ = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            inputs, results = ([_open(t) for t in types] for types in (type_.inputs, type_.results))
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        return ir.WalkResult.ADVANCE

    with module.context, ir.Location.unknown():
        module.operation.walk(look)


def _open(type_: Any) -> Any:
    if not extents_of(type_)[1]:
        return type_
    unknown = ir.ShapedType.get_dynamic_size()
    extents = [unknown if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape)]
    return ir.RankedTensorType.get(extents, type_.element_type)
