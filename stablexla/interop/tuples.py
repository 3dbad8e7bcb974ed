"""Flattening of HLO's tuple values: StableHLO has several operands and results instead.

They may be nested, and go through functions, regions and any operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase

CALL, TUPLE, ELEMENT = "stablehlo.custom_call", "stablehlo.tuple", "stablehlo.get_tuple_element"


def flatten_tuples(module: ir.Module) -> ir.Module:
    """Return the module itself, changed in place; without tuples it stays unchanged."""
    if has_tuples(module):
        with module.context:
            _Flattening().run(module)
    return module


def has_tuples(module: ir.Module) -> bool:
    """Return whether a value is a tuple."""
    found = False

    def look(op: Any) -> Any:
        nonlocal found
        found = any(isinstance(v.type, ir.TupleType) for v in (*op.results, *_arguments(op)))
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


class _Flattening:
    """Visits operations in program order, so that a tuple's elements are known at its uses."""

    def __init__(self) -> None:
        self._parts: dict[Any, list[Any]] = {}
        self._old: list[Any] = []
        self._old_arguments: list[tuple[Any, int]] = []

    def run(self, module: ir.Module) -> None:
        self._block(module.body)
        for op in reversed(self._old):
            erase(op)
        for block, count in self._old_arguments:
            for _ in range(count):
                block.erase_argument(0)

    def _block(self, block: Any) -> None:
        if any(isinstance(a.type, ir.TupleType) for a in block.arguments):
            self._take_arguments_apart(block)
        for op in [view.operation for view in block.operations]:
            self._operation(op)

    def _take_arguments_apart(self, block: Any) -> None:
        old = list(block.arguments)
        for argument in old:
            new = [block.add_argument(leaf, argument.location) for leaf in _leaves(argument.type)]
            self._replace(argument, new)
        self._old_arguments.append((block, len(old)))

    def _replace(self, old: Any, new: Sequence[Any]) -> None:
        if isinstance(old.type, ir.TupleType):
            self._parts[old] = list(new)
        else:
            old.replace_all_uses_with(new[0])

    def _values(self, operand: Any) -> list[Any]:
        return self._parts[operand] if isinstance(operand.type, ir.TupleType) else [operand]

    def _operation(self, op: Any) -> None:
        if op.name == "func.func":
            _flatten_signature(op)
        if op.name == TUPLE:
            self._parts[op.results[0]] = [value for operand in op.operands for value in self._values(operand)]
            self._old.append(op)
        elif op.name == ELEMENT:
            self._replace(op.results[0], self._element(op))
            self._old.append(op)
        elif any(isinstance(v.type, ir.TupleType) for v in (*op.operands, *op.results)):
            op = self._rebuilt(op)
        for region in op.regions:
            for block in region.blocks:
                self._block(block)

    def _element(self, op: Any) -> list[Any]:
        (operand,) = op.operands
        sizes = [len(_leaves(part)) for part in _members(operand.type)]
        index = ir.IntegerAttr(op.attributes["index"]).value
        start = sum(sizes[:index])
        return self._parts[operand][start : start + sizes[index]]

    def _rebuilt(self, op: Any) -> Any:
        """Return the operation with arrays in place of tuples; its regions are moved."""
        with ir.InsertionPoint(op):
            new = ir.Operation.create(
                op.name,
                results=[leaf for result in op.results for leaf in _leaves(result.type)],
                operands=[value for operand in op.operands for value in self._values(operand)],
                attributes=_attributes(op),
                regions=len(op.regions),
                loc=op.location,
            )
        for old_region, region in zip(op.regions, new.regions, strict=True):
            for block in list(old_region.blocks):
                block.append_to(region)
        values = list(new.results)
        for result in op.results:
            count = len(_leaves(result.type))
            self._replace(result, values[:count])
            values = values[count:]
        self._old.append(op)
        return new


def _attributes(op: Any) -> dict[str, Any]:
    """Drop attributes that count by tuples: aliases are optional, layouts of tuples do not exist."""
    attributes = dict(op.attributes.items())
    types = [result.type for result in op.results]
    nested = any(isinstance(t, ir.TupleType) for type_ in types for t in _members(type_))
    given = any(isinstance(operand.type, ir.TupleType) for operand in op.operands)
    if op.name == CALL and (len(types) > 1 or nested or given):
        attributes.pop("output_operand_aliases", None)
    return attributes


def _flatten_signature(function: Any) -> None:
    """Flatten the type of a function, and the attributes of its parameters and results; a tuple's are dropped."""
    attributes = function.attributes
    type_ = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
    inputs, results = ([leaf for t in types for leaf in _leaves(t)] for types in (type_.inputs, type_.results))
    for name, types in (("arg_attrs", type_.inputs), ("res_attrs", type_.results)):
        if name in attributes:
            pairs = zip(types, ir.ArrayAttr(attributes[name]), strict=True)
            leaves = [each for t, own in pairs for each in _spread(t, own)]
            attributes[name] = ir.ArrayAttr.get(leaves)
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _spread(type_: Any, own: Any) -> list[Any]:
    return [ir.DictAttr.get({})] * len(_leaves(type_)) if isinstance(type_, ir.TupleType) else [own]


def _arguments(op: Any) -> list[Any]:
    return [argument for region in op.regions for block in region.blocks for argument in block.arguments]


def _members(type_: Any) -> list[Any]:
    return [type_.get_type(i) for i in range(type_.num_types)] if isinstance(type_, ir.TupleType) else []


def _leaves(type_: Any) -> list[Any]:
    if not isinstance(type_, ir.TupleType):
        return [type_]
    return [leaf for part in _members(type_) for leaf in _leaves(part)]
