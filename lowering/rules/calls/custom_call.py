"""Lowering of custom calls, by the call target that is registered under their name at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.custom_calls import PARTITIONER_NOTES, CustomCallTarget, registered, unknown_target
from stablexla.dialects.shapes import Shape
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.rules.calls.attributes import NAMES, ORIGINAL, TYPED_FFI, api_version, keywords_of_call
from stablexla.lowering.rules.calls.host import HostUpdate, host_call
from stablexla.lowering.rules.calls.layouts import OPERANDS, RESULTS, Layout, layouts_of, row_major
from stablexla.lowering.support.context import LoweringContext, new_token, place_of
from stablexla.lowering.support.registry import Rule, lowers
from stablexla.lowering.support.types import is_token

ARGUMENTS, RESULT = "stablexla.arguments", "stablexla.result"
"""Attributes of a custom call: the shapes of its arguments and of its result, for tuples that the types do not show."""

FUNCTION, C, FFI = "function", "c", "ffi"
"""Kinds of callees: a Python function, a C function, or a handler of XLA's foreign function interface."""

OPERATIONS: dict[str, Rule] = {}
"""Rules for operations of other dialects, which programs hold as custom calls of their names."""


def operation_call(name: str) -> Callable[[Rule], Rule]:
    """Register the decorated rule for custom calls of that name."""

    def register(rule: Rule) -> Rule:
        assert name not in OPERATIONS, f"two rules for calls of {name}"
        OPERATIONS[name] = rule
        return rule

    return register


@lowers("stablehlo.custom_call")
def custom_call(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """Lower a custom call to a call of a registered function, or by an operation's rule; tokens follow the call."""
    name = str(hlo_ir.StringAttr(ctx.attributes["call_target_name"]).value)
    target = registered(name)
    if target is not None:
        return _call_of_target(ctx, target, operands)
    if name in PARTITIONER_NOTES and ctx.operand_types == ctx.result_types:
        return operands
    if name in OPERATIONS:
        made = OPERATIONS[name](ctx, *operands)
        return [made] if isinstance(made, ir.Value) else made
    raise unknown_target(name, place_of(ctx.op.location), OPERATIONS)


def _call_of_target(ctx: LoweringContext, target: CustomCallTarget, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Emit the call: a Python function gets arrays, whatever their layout; other callees get memory."""
    what = _convention(ctx, target)
    gives = [not is_token(v.type) for v in ctx.op.results]
    takes = [not is_token(v.type) for v in ctx.op.operands]
    inputs, outputs = _sides(ctx, in_memory=what != FUNCTION)
    arrays = [side for side, is_array in zip(inputs, takes, strict=True) if is_array]
    results = [side for side, is_array in zip(outputs, gives, strict=True) if is_array]
    given = [side.enter(v) for v, side, is_array in zip(operands, inputs, takes, strict=True) if is_array]
    made = iter(
        host_call(
            ctx,
            what,
            given,
            [side.held for side in arrays],
            [side.held for side in results],
            effect=bool(ctx.attributes["has_side_effect"]) if "has_side_effect" in ctx.attributes else False,
            target=target.name,
            keywords=keywords_of_call(ctx),
            arguments=_tree(ctx, ARGUMENTS, [side.type for side in arrays], tuple_of_one=True),
            result=_tree(ctx, RESULT, [side.type for side in results]),
            updates=tuple(HostUpdate(*pair) for pair in _aliases(ctx, takes, gives, inputs, outputs)),
            shapes=tuple(tuple(str(side.type) for side in sides) for sides in (arrays, results) if what == FFI),
        )
    )
    return [side.leave(next(made)) if is_array else new_token() for side, is_array in zip(outputs, gives, strict=True)]


def _tree(ctx: LoweringContext, key: str, types: Sequence[TensorType], *, tuple_of_one: bool = False) -> str:
    """Return the tuple tree of these arrays without tokens: as noted, else a flat tuple, or the single shape."""
    if key in ctx.attributes:
        return str(Shape.parse(hlo_ir.StringAttr(ctx.attributes[key]).value).without_tokens())
    shapes = [Shape(t.element.name, t.shape) for t in types]
    return str(shapes[0] if len(shapes) == 1 and not tuple_of_one else Shape.tuple(shapes))


def _convention(ctx: LoweringContext, target: CustomCallTarget) -> str:
    """Return the calling convention of a target.

    Raises:
        UnsupportedError: a C function that is none of the kind that the call asks for.
    """
    if target.function is not None:
        return FUNCTION
    version = api_version(ctx)
    if target.stages and version == TYPED_FFI:
        return FFI
    if not target.stages and version == ORIGINAL:
        return C
    known = NAMES[TYPED_FFI] if target.stages else f"void(void* out, void** in), which is {NAMES[ORIGINAL]}"
    asked = NAMES.get(version, str(version))
    option = f"api_version = {TYPED_FFI if target.stages else ORIGINAL} : i32 in the call"
    register = f"sx.register_custom_call({target.name!r}, function, api_version={asked!r})"
    raise ctx.unsupported(
        f"the C function {target.name!r} is called as {known}; this call asks for {asked}",
        hint=register if version in (ORIGINAL, TYPED_FFI) else option,
        option=option,
    )


def _sides(ctx: LoweringContext, in_memory: bool) -> tuple[list[Layout], list[Layout]]:
    """Return the memory layouts of operands and results, tokens included."""
    if not in_memory:
        return [row_major(t) for t in ctx.operand_types], [row_major(t) for t in ctx.result_types]
    return layouts_of(ctx, OPERANDS, ctx.operand_types), layouts_of(ctx, RESULTS, ctx.result_types)


def _aliases(
    ctx: LoweringContext, takes: list[bool], gives: list[bool], inputs: list[Layout], outputs: list[Layout]
) -> list[tuple[int, int]]:
    """Return the aliases: pairs (result, operand) that begin with the same elements, numbered without tokens."""
    if "output_operand_aliases" not in ctx.attributes:
        return []
    pairs = []
    for attribute in ctx.attributes["output_operand_aliases"]:
        alias = stablehlo.OutputOperandAlias(attribute)
        places = list(alias.output_tuple_indices)
        result, operand = (places[0] if places else 0), int(alias.operand_index)
        if inputs[operand].order != outputs[result].order:
            raise ctx.unsupported(f"result {result} lies in memory in another order than its alias, operand {operand}")
        pairs.append((sum(gives[:result]), sum(takes[:operand])))
    return pairs
