"""Rewrites of custom calls that XLA's passes leave in HLO, and of HLO opcodes imported as calls `hlo.<opcode>`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import chlo, stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.attributes.comparators import direction_of
from stablexla.dialects.erasing import erase
from stablexla.dialects.mhlo import operations
from stablexla.dialects.mhlo.registry import Rule, rewrites

TARGETS: dict[str, Rule] = {}


def _target(name: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        TARGETS[name] = rule
        return rule

    return register


@rewrites("stablehlo.custom_call")
def custom_call(op: Any) -> Sequence[Any] | None:
    """Apply the rule of its target; a call without a rule is left to the registered function of that name."""
    rule = TARGETS.get(ir.StringAttr(op.attributes["call_target_name"]).value)
    return rule(op) if rule else None


@_target("TopK")
def top_k(op: Any) -> None:
    """Rewrite to chlo.top_k (largest elements and their indices, last dimension); other orders are left alone."""
    type_ = op.results[0].type
    if len(op.operands) != 1 or not isinstance(type_, ir.TupleType) or not _takes_largest(op):
        return
    users = [use.owner.operation for use in op.results[0].uses]
    if any(user.name != "stablehlo.get_tuple_element" for user in users):
        return
    found = chlo.top_k(op.operands[0], type_.get_type(0).shape[-1])
    for user in users:
        user.results[0].replace_all_uses_with(found[ir.IntegerAttr(user.attributes["index"]).value])
        erase(user)
    erase(op)


def _takes_largest(op: Any) -> bool:
    """Whether the comparator of a call puts the larger element first; a call may have none."""
    if "called_computations" not in op.attributes:
        return False
    module = op.parent
    while module.name != "builtin.module":
        module = module.parent
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    return direction_of(ir.SymbolTable(module)[name]) == "GT"


_target("hlo.exp2")(operations.exp2)
_target("hlo.log2")(operations.log2)


@_target("hlo.mulhi")
def mulhi(op: Any) -> Sequence[Any]:
    """Rewrite to the upper half of an integer product."""
    return [chlo.mulhi(*op.operands)]


@_target("hlo.scaled-dot")
def scaled_dot(op: Any) -> Sequence[Any] | None:
    """Rewrite a block-scaled dot (operands, then the scales of both) to f32, where scaling is exact."""
    left, right, left_scale, right_scale = op.operands
    if not (_fits(left, left_scale) and _fits(right, right_scale)):
        return None
    config = json.loads(ir.StringAttr(op.attributes["backend_config"]).value)
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_contracting_dimensions=config[0],
        rhs_contracting_dimensions=config[1],
        lhs_batching_dimensions=config[2],
        rhs_batching_dimensions=config[3],
    )
    type_ = op.results[0].type
    wide = ir.RankedTensorType.get(type_.shape, ir.F32Type.get())
    product = stablehlo.dot_general(wide, _scaled(left, left_scale), _scaled(right, right_scale), numbers)
    return [hlo.convert(product, type_.element_type)]


def _fits(x: Any, scale: Any) -> bool:
    """Whether there is a scale for each block of equal size, or one for all."""
    counts, sizes = scale.type.shape, x.type.shape
    return not counts or (
        len(counts) == len(sizes) and all(n and not s % n for s, n in zip(sizes, counts, strict=True))
    )


def _scaled(x: Any, scale: Any) -> Any:
    """Multiply elements by the scales of their blocks; a scalar stands for no scales."""
    x, scale = hlo.convert(x, ir.F32Type.get()), hlo.convert(scale, ir.F32Type.get())
    if not scale.type.rank:
        return x
    pairs = zip(x.type.shape, scale.type.shape, strict=True)
    blocks = [extent for size, count in pairs for extent in (count, size // count)]
    type_ = ir.RankedTensorType.get(blocks, scale.type.element_type)
    repeated = stablehlo.broadcast_in_dim(type_, scale, list(range(0, len(blocks), 2)))
    return stablehlo.multiply(x, hlo.reshape(repeated, x.type.shape))


@_target("SliceToDynamic")
def slice_to_dynamic(op: Any) -> Sequence[Any]:
    """Rewrite to an array whose dimensions have their sizes at run time."""
    value, *sizes = op.operands
    type_ = op.results[0].type
    for dimension, size in enumerate(sizes):
        if type_.is_dynamic_dim(dimension):
            value = stablehlo.set_dimension_size(value, size, dimension)
    return [value] if value.type == type_ else [stablehlo.convert(type_, value)]
