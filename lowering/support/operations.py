"""Operations and values: defining operation, nested operations, captured values, clones with a mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlir.ir as ir
from mlir import rewrite

from stablexla.dialects.constants import dense_values
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import CompileError
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.repeats import PART


def body_of(op: ir.Operation) -> list[ir.Operation]:
    """Return the operations of a linalg.generic's body."""
    return [o.operation for o in op.regions[0].blocks[0].operations]


def main_of(module: ir.Module) -> ir.Operation:
    """Return the function `main`.

    Raises:
        CompileError: there is none.
    """
    for view in module.body.operations:
        if symbol_of(view) == "main":
            return view.operation
    raise CompileError("the module has no function main")


def program_of(module: ir.Module) -> list[ir.Operation]:
    """Return the functions that hold the program: its equal parts, as long as there are any, and `main`.

    Raises:
        CompileError: there is no `main`.
    """
    return [*(view.operation for view in module.body.operations if PART in view.operation.attributes), main_of(module)]


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def defining(value: Any) -> Any:
    """Return the operation that defines a value of either MLIR; None for a block argument."""
    return getattr(value.owner, "operation", None)


def only_user(value: Any) -> Any:
    """Return the operation of a value's only use, of either MLIR; None where there are none or several."""
    uses = list(value.uses)
    return uses[0].owner.operation if len(uses) == 1 else None


def constant_attribute(value: ir.Value) -> ir.Attribute | None:
    """Return the attribute of an `arith.constant`; None for other values."""
    maker = defining(value)
    return maker.attributes["value"] if maker is not None and maker.name == "arith.constant" else None


def constant_of(value: ir.Value) -> int | None:
    """Return the number of an integer `arith.constant`; None for other values."""
    attribute = constant_attribute(value)
    if attribute is None or not isinstance(value.type, ir.IntegerType | ir.IndexType):
        return None
    return int(ir.IntegerAttr(attribute).value)


def constant_bits(value: ir.Value) -> int | None:
    """Return the bits of a constant number, also behind conversions between value and storage; None for others."""
    maker = defining(value)
    if maker is None:
        return None
    if maker.name in ("arith.bitcast", "arith.extui"):
        return constant_bits(maker.operands[0])
    if maker.name == "arith.andi":
        x, y = map(constant_bits, maker.operands)
        return None if x is None or y is None else x & y
    attribute = constant_attribute(value)
    if isinstance(attribute, ir.BoolAttr):
        return int(attribute.value)
    if isinstance(attribute, ir.IntegerAttr) and isinstance(attribute.type, ir.IntegerType):
        return int(attribute.value) & ((1 << int(attribute.type.width)) - 1)
    if isinstance(attribute, ir.FloatAttr) and isinstance(attribute.type, ir.F16Type | ir.F32Type | ir.F64Type):
        return float_bits(attribute)
    return None


def float_bits(number: ir.Attribute) -> int:
    """Return the bits of a float's attribute, also of a NaN, which Python's numbers may not keep."""
    type_ = ir.RankedTensorType.get([1], ir.FloatAttr(number).type)
    values = dense_values(ir.DenseElementsAttr.get_splat(type_, number), BY_NAME[str(type_.element_type)], (1,))
    return int(values.view(f"u{values.itemsize}")[0])


def terminator_of(block: ir.Block) -> ir.Operation:
    """Return the last operation of a block."""
    operation: ir.Operation = block.operations[len(block.operations) - 1].operation
    return operation


def walk(op: ir.Operation) -> list[ir.Operation]:
    """Return the operation and all nested in it, in pre-order."""
    if not len(op.operation.regions):  # most often
        return [op.operation]
    found: list[ir.Operation] = []

    def note(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    op.operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return found


def is_inside(value: ir.Value, op: ir.Operation) -> bool:
    """Return whether a value is defined in an operation's regions, by an operation or as a block's argument."""
    maker = defining(value)
    owner = value.owner.owner if maker is None else maker.parent
    while owner is not None and owner.name != "func.func":
        if owner == op:
            return True
        owner = owner.parent
    return False


def operations_named(root: ir.Operation, *names: str) -> list[ir.Operation]:
    """Return the operations of some names in an operation, nested ones first, then itself.

    MLIR's pattern driver looks for them: the others cost 20 ns each, where a walk in Python takes 600.
    """
    found: list[ir.Operation] = []

    def refuse(op: Any, _: rewrite.PatternRewriter) -> bool:
        found.append(op.operation)
        return True

    patterns = rewrite.RewritePatternSet(root.context)
    for name in names:
        patterns.add(name, refuse)
    rewrite.walk_and_apply_patterns(root.operation, patterns.freeze())
    return [*found, root.operation] if root.operation.name in names else found


def within(op: ir.Operation, holders: set[ir.Operation]) -> bool:
    """Whether the operation is one of `holders` or nested in one of them."""
    found: ir.Operation | None = op
    while found is not None and found not in holders:
        found = found.parent.operation if found.parent is not None else None
    return found is not None


def remap(op: ir.Operation, mapping: dict[ir.Value, ir.Value], *, captures: bool = True) -> None:
    """Replace operands of an operation, and, if it `captures` any of them, of all nested in it, by a mapping."""
    for inner in walk(op) if captures else [op]:
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]


def clone_with(op: ir.Operation, mapping: dict[ir.Value, ir.Value], *, captures: bool = True) -> ir.Operation:
    """Clone an operation at the insertion point, its operands by a mapping that its results are added to.

    Args:
        captures: whether its regions use values from outside.
    """
    copy = op.clone().operation
    remap(copy, mapping, captures=captures)
    mapping.update(zip(op.results, copy.results, strict=True))
    return copy


def inline_body(
    op: ir.Operation, arguments: Sequence[ir.Value], outside: Mapping[ir.Value, ir.Value] | None = None
) -> list[ir.Value]:
    """Clone the body of a linalg.generic at the insertion point, on `arguments`; return the values that it yields.

    Arguments without a use, such as an output's old elements, may be left out at the end. `outside` maps captured
    values.
    """
    mapping = dict(outside or {}) | dict(zip(op.regions[0].blocks[0].arguments, arguments, strict=False))
    *operations, end = body_of(op)
    for inner in operations:
        clone_with(inner, mapping)
    return [mapping.get(v, v) for v in end.operands]


def captured(op: ir.Operation) -> list[ir.Value]:
    """Return the values from outside that an operation uses: its operands, then those captured by its regions."""
    operands: list[ir.Value] = list(op.operands)
    return [*operands, *(value for value in captured_by_regions(op) if value not in operands)]


def captured_by_regions(op: ir.Operation) -> list[ir.Value]:
    """Return the values from outside that an operation's regions use, each once."""
    if not len(op.regions):
        return []
    inside = walk(op)[1:]
    blocks = {inner.block for inner in inside}
    found: list[ir.Value] = []
    for inner in inside:
        for value in inner.operands:
            owner = value.owner
            block = owner if isinstance(owner, ir.Block) else owner.operation.block
            if block not in blocks and value not in found:
                found.append(value)
    return found
