"""Custom calls that XLA's passes leave in HLO, and whose targets XLA's runtime has itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import chlo

from stablexla.dialects.mhlo.registry import Rule, rewrites

TARGETS: dict[str, Rule] = {}


def _target(name: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        TARGETS[name] = rule
        return rule

    return register


@rewrites("stablehlo.custom_call")
def custom_call(op: Any) -> Sequence[Any] | None:
    """By the rule of its target; one without a rule is left to whoever registered a function of that name."""
    rule = TARGETS.get(ir.StringAttr(op.attributes["call_target_name"]).value)
    return rule(op) if rule else None


@_target("TopK")
def top_k(op: Any) -> None:
    """The largest elements along the last dimension, and where they stood; any other order is left alone."""
    type_ = op.results[0].type
    if len(op.operands) != 1 or not isinstance(type_, ir.TupleType) or not _takes_largest(op):
        return
    users = [use.owner.operation for use in op.results[0].uses]
    if any(user.name != "stablehlo.get_tuple_element" for user in users):
        return
    found = chlo.top_k(op.operands[0], type_.get_type(0).shape[-1])
    for user in users:
        user.results[0].replace_all_uses_with(found[ir.IntegerAttr(user.attributes["index"]).value])
        user.erase()
    op.erase()


def _takes_largest(op: Any) -> bool:
    """Whether the comparison of a call says that the first of two elements is the larger one.

    XLA's passes write a total order of floats as one of integers, so both sides may be computed.
    """
    module = op.parent
    while module.name != "builtin.module":
        module = module.parent
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    function = ir.SymbolTable(module)[name]
    block = function.regions[0].blocks[0]
    root = block.operations[len(block.operations) - 1].operands[0]
    compare: Any = root.owner
    if isinstance(compare, ir.Block) or compare.operation.name != "stablehlo.compare":
        return False
    first, second = (_arguments_behind(side) for side in compare.operation.operands)
    return "GT" in str(compare.operation.attributes["comparison_direction"]) and (first, second) == ({0}, {1})


def _arguments_behind(value: Any) -> set[int]:
    """Which arguments of its block a value is computed from."""
    if isinstance(value.owner, ir.Block):
        return {ir.BlockArgument(value).arg_number}
    return {number for operand in value.owner.operation.operands for number in _arguments_behind(operand)}
