"""Calls with side effects in a partitioned program: they run once, on the first partition."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.targets.stablehlo.partition.annotations import SHARDING, shape_of
from stablexla.targets.stablehlo.partition.emit import Emitter, partition_id, zeros


def has_effect(op: Any) -> bool:
    """Whether it is a custom call with side effects."""
    key = "has_side_effect"
    return op.name == "stablehlo.custom_call" and key in op.attributes and hlo_ir.BoolAttr(op.attributes[key]).value


def once(op: Any, emitter: Emitter) -> list[Any]:
    """Replace `op`, whose operands are replicated, by a call on the first partition that broadcasts its results."""
    number = hlo.convert(partition_id(), hlo_ir.IntegerType.get_signless(32))
    is_first = hlo.compare(number, hlo.array(np.array(0, np.int32)), "EQ", kind=None)
    types = [result.type for result in op.results]
    choice = hlo.operation("stablehlo.if", [is_first], types, regions=2)
    with hlo.block(choice.regions[0]):
        call = op.clone()
        if SHARDING in call.attributes:
            del call.attributes[SHARDING]
        hlo.return_(list(call.results))
    tokens = iter([value for value in op.operands if shape_of(value.type) is None])
    with hlo.block(choice.regions[1]):
        others = [next(tokens) if shape_of(type_) is None else zeros(type_) for type_ in types]
        hlo.return_(others)
    return [r if shape_of(r.type) is None else emitter.from_first(r) for r in choice.results]
