"""Lowering of custom calls: by the target that is registered under their name when they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.custom_calls import find_custom_call
from stablexla.lowering.context import LoweringContext, new_token, place_of
from stablexla.lowering.host import host_call
from stablexla.lowering.registry import Rule, lowers
from stablexla.lowering.types import is_token

TUPLE = "stablexla.tuple"
"""On a custom call: its one result is a tuple's, so that C functions get an array of one pointer."""

# Notes to partitioners, which have nothing to do on one device.
IDENTITIES = frozenset(["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"])

ORIGINAL, TYPED_FFI = (0, 1), 4

OPERATIONS: dict[str, Rule] = {}
"""Rules for operations of other dialects, which come as custom calls of their names."""


def operation_call(name: str) -> Callable[[Rule], Rule]:
    """Registers the rule for custom calls of that name."""

    def register(rule: Rule) -> Rule:
        assert name not in OPERATIONS, f"two rules for calls of {name}"
        OPERATIONS[name] = rule
        return rule

    return register


@lowers("stablehlo.custom_call")
def custom_call(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """A call of a registered function; tokens are not passed to it, and follow the call."""
    name = str(hlo_ir.StringAttr(ctx.attributes["call_target_name"]).value)
    if name in IDENTITIES and ctx.operand_types == ctx.result_types:
        return operands
    if name in OPERATIONS:
        made = OPERATIONS[name](ctx, *operands)
        return [made] if isinstance(made, ir.Value) else made
    target = find_custom_call(name, place_of(ctx.op.location))
    version = int(ctx.attributes["api_version"]) if "api_version" in ctx.attributes else 1
    if target.function is None and version not in ORIGINAL:
        raise ctx.unsupported(
            f"the C function {name!r} is called as void(void* out, void** in), which is API_VERSION_ORIGINAL; "
            f"this call asks for version {version}"
        )
    gives = [not is_token(v.type) for v in ctx.op.results]
    takes = [not is_token(v.type) for v in ctx.op.operands]
    made = iter(
        host_call(
            ctx,
            "c" if target.function is None else "function",
            [v for v, is_array in zip(operands, takes, strict=True) if is_array],
            [t for t, is_array in zip(ctx.operand_types, takes, strict=True) if is_array],
            [t for t, is_array in zip(ctx.result_types, gives, strict=True) if is_array],
            effect=bool(ctx.attributes["has_side_effect"]) if "has_side_effect" in ctx.attributes else False,
            target=name,
            keywords=_keywords(ctx, version),
            tuple=TUPLE in ctx.attributes or sum(gives) != 1,
            updates=[i for pair in _aliases(ctx, takes, gives) for i in pair],
        )
    )
    return [next(made) if is_array else new_token() for is_array in gives]


def _aliases(ctx: LoweringContext, takes: list[bool], gives: list[bool]) -> list[tuple[int, int]]:
    """Pairs (result, operand) that begin with the same elements, numbered without tokens."""
    if "output_operand_aliases" not in ctx.attributes:
        return []
    pairs = []
    for attribute in ctx.attributes["output_operand_aliases"]:
        alias = stablehlo.OutputOperandAlias(attribute)
        places = list(alias.output_tuple_indices)
        result, operand = (places[0] if places else 0), int(alias.operand_index)
        pairs.append((sum(gives[:result]), sum(takes[:operand])))
    return pairs


def _keywords(ctx: LoweringContext, version: int) -> str:
    """What a Python function gets by keyword, as the text of a dictionary attribute."""
    if "backend_config" not in ctx.attributes:
        return "{}"
    config = ctx.attributes["backend_config"]
    if isinstance(config, hlo_ir.DictAttr):
        return str(config)
    return "{opaque = " + str(config) + "}" if hlo_ir.StringAttr(config).value else "{}"
