"""Calls with side effects in a partitioned program: they run once, on the first partition."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.targets.stablehlo.partition.annotations import SHARDING, shape_of
from stablexla.targets.stablehlo.partition.emit import Emitter, array, constant, create, operation, scalar


def has_effect(op: Any) -> bool:
    """Whether it is a custom call with side effects."""
    key = "has_side_effect"
    return op.name == "stablehlo.custom_call" and key in op.attributes and hlo_ir.BoolAttr(op.attributes[key]).value


def once(op: Any, emitter: Emitter) -> list[Any]:
    """Replace `op`, whose operands are replicated, by a call on the first partition that broadcasts its results."""
    number = create("stablehlo.convert", [scalar("i32")], [create("stablehlo.partition_id", [scalar("ui32")], [])])
    is_first = create(
        "stablehlo.compare",
        [scalar("i1")],
        [number, constant(np.array(0, np.int32))],
        comparison_direction=hlo_ir.Attribute.parse("#stablehlo<comparison_direction EQ>"),
    )
    types = [result.type for result in op.results]
    choice = operation("stablehlo.if", types, [is_first], 2)
    with hlo_ir.InsertionPoint(hlo_ir.Block.create_at_start(choice.regions[0], [])):
        call = op.clone()
        if SHARDING in call.attributes:
            del call.attributes[SHARDING]
        operation("stablehlo.return", [], list(call.results))
    tokens = iter([value for value in op.operands if shape_of(value.type) is None])
    with hlo_ir.InsertionPoint(hlo_ir.Block.create_at_start(choice.regions[1], [])):
        others = [next(tokens) if shape_of(type_) is None else _zeros(type_) for type_ in types]
        operation("stablehlo.return", [], others)
    return [r if shape_of(r.type) is None else emitter.from_first(r) for r in choice.results]


def _zeros(type_: Any) -> Any:
    zero = create("stablehlo.convert", [hlo_ir.RankedTensorType.get([], type_.element_type)], [constant(np.array(0))])
    return create("stablehlo.broadcast_in_dim", [type_], [zero], broadcast_dimensions=array([]))
