"""Custom calls whose result is a tuple, as HLO has them, made into calls of several results, as StableHLO has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError

CALL, TUPLE, ELEMENT = "stablehlo.custom_call", "stablehlo.tuple", "stablehlo.get_tuple_element"


def flatten_tuples(module: ir.Module) -> ir.Module:
    """The module itself, changed in place.

    Raises:
        UnsupportedError: such a tuple goes elsewhere than apart.
    """
    calls: list[Any] = []
    tuples: list[Any] = []

    def note(op: Any) -> ir.WalkResult:
        if op.name == CALL and any(isinstance(result.type, ir.TupleType) for result in op.results):
            calls.append(op.operation)
        elif op.name == TUPLE:
            tuples.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for call in calls:
        _flatten(call)
    for op in reversed(tuples):  # those that nobody uses; one may be in another
        if not list(op.results[0].uses):
            op.erase()
    return module


def _flatten(call: Any) -> None:
    attributes = dict(call.attributes.items())
    tuples = [result.type for result in call.results]
    if len(tuples) > 1 or any(isinstance(t, ir.TupleType) for t in _parts(tuples[0])):
        attributes.pop("output_operand_aliases", None)  # its indices are those of the tuple; it is only a permission
    with call.context, ir.InsertionPoint(call):
        flat = ir.Operation.create(
            CALL,
            results=[leaf for type_ in tuples for leaf in _leaves(type_)],
            operands=list(call.operands),
            attributes=attributes,
            loc=call.location,
        )
    values = list(flat.results)
    for result in call.results:
        count = len(_leaves(result.type))
        _replace(result, values[:count])
        values = values[count:]
    call.erase()


def _replace(value: Any, leaves: Sequence[Any]) -> None:
    """Puts the leaves where the value is used, which takes it apart if it is a tuple."""
    if not isinstance(value.type, ir.TupleType):
        value.replace_all_uses_with(leaves[0])
        return
    sizes = [len(_leaves(part)) for part in _parts(value.type)]
    for use in list(value.uses):
        user = use.owner.operation
        if user.name != ELEMENT:
            raise UnsupportedError(f"a tuple that {user.name} takes whole", operation=CALL)
        index = ir.IntegerAttr(user.attributes["index"]).value
        start = sum(sizes[:index])
        _replace(user.results[0], leaves[start : start + sizes[index]])
        user.erase()


def _parts(type_: Any) -> list[Any]:
    return [type_.get_type(i) for i in range(type_.num_types)] if isinstance(type_, ir.TupleType) else []


def _leaves(type_: Any) -> list[Any]:
    if not isinstance(type_, ir.TupleType):
        return [type_]
    return [leaf for part in _parts(type_) for leaf in _leaves(part)]
