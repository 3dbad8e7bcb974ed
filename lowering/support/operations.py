"""Finding one's way among operations and values: what makes a value, what is inside an operation, what it uses."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.errors import CompileError


def body_of(op: ir.Operation) -> list[ir.Operation]:
    """The operations of a linalg.generic's body."""
    return [o.operation for o in op.regions[0].blocks[0].operations]


def main_of(module: ir.Module) -> ir.Operation:
    """The function `main`.

    Raises:
        CompileError: there is none.
    """
    for view in module.body.operations:
        attributes = view.operation.attributes
        if "sym_name" in attributes and ir.StringAttr(attributes["sym_name"]).value == "main":
            return view.operation
    raise CompileError("the module has no function main")


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def defining(value: ir.Value) -> ir.Operation | None:
    """The operation that makes a value; None for a block's argument."""
    owner = value.owner
    return owner.operation if isinstance(owner, ir.OpView | ir.Operation) else None


def walk(op: ir.Operation) -> list[ir.Operation]:
    """The operation and all inside it, outer ones first."""
    if not len(op.operation.regions):  # most often
        return [op.operation]
    found: list[ir.Operation] = []

    def note(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    op.operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return found


def within(op: ir.Operation, holders: set[ir.Operation]) -> bool:
    """Whether the operation is one of `holders` or lies inside one of them."""
    found: ir.Operation | None = op
    while found is not None and found not in holders:
        found = found.parent.operation if found.parent is not None else None
    return found is not None


def remap(op: ir.Operation, mapping: dict[ir.Value, ir.Value]) -> None:
    """Lets an operation, and all inside it, use other values."""
    for inner in walk(op):
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]


def captured(op: ir.Operation) -> list[ir.Value]:
    """Values from outside that an operation uses, its operands first, then those used inside its regions."""
    seen: list[ir.Value] = list(op.operands)
    inside = walk(op)
    if len(inside) == 1:
        return seen
    known = set(inside)
    for inner in inside[1:]:
        for value in inner.operands:
            if _holder(value) not in known and value not in seen:
                seen.append(value)
    return seen


def _holder(value: ir.Value) -> ir.Operation:
    """The operation that makes a value, or in whose region the value is an argument."""
    owner = value.owner
    return owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
