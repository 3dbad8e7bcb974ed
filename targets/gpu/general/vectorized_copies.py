"""Vectorized copies of an array into a part of another, or fills: a thread moves 16 bytes in one access."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import vector

BITS = 128


def copy_lanes(loop: ir.Operation, extents: Sequence[int]) -> int:
    """Return the vector width of the innermost of these parallel loops; 1 where it does anything but copy or fill."""
    ops = _copy_in(loop)
    if ops is None:
        return 1
    store = ops[-1]
    element = store.operands[0].type
    if not isinstance(element, ir.IntegerType | ir.FloatType) or element.width < 8:
        return 1
    lanes = BITS // int(element.width)
    while lanes > 1 and (extents[-1] % lanes or not all(_lies_at(_memref(op).type, lanes) for op in ops)):
        lanes //= 2
    return lanes


def write_vectorized(loop: ir.Operation, mapping: dict[ir.Value, ir.Value], lanes: int) -> None:
    """Emit the body for `lanes` neighbours; the mapped index of the innermost loop is the first."""
    ops = _copy_in(loop)
    assert ops is not None, "a loop that `copy_lanes` has not seen"
    *loads, store = ops
    value = store.operands[0]
    type_ = ir.VectorType.get([lanes], value.type)
    if loads:
        memref, *indices = (mapping.get(v, v) for v in loads[0].operands)
        wide = vector.load(type_, memref, indices)
    else:
        wide = vector.broadcast(type_, mapping.get(value, value))
    _, memref, *indices = (mapping.get(v, v) for v in store.operands)
    vector.store(wide, memref, indices)


def _copy_in(loop: ir.Operation) -> list[ir.Operation] | None:
    """Match a body that is a store, and a load if any, at the loops' own indices."""
    block = loop.regions[0].blocks[0]
    *ops, _ = (view.operation for view in block.operations)
    names = [op.name for op in ops]
    if names not in (["memref.load", "memref.store"], ["memref.store"]):
        return None
    inside = list(block.arguments)
    if any(_indices(op) != inside for op in ops):
        return None
    value = ops[-1].operands[0]
    if len(ops) == 2:
        return ops if value == ops[0].results[0] else None
    return ops if value.owner != block else None


def _memref(op: ir.Operation) -> ir.Value:
    return op.operands[0 if op.name == "memref.load" else 1]


def _indices(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[1 if op.name == "memref.load" else 2 :]


def _lies_at(type_: ir.MemRefType, lanes: int) -> bool:
    """Return whether rows are aligned to accesses and of unit stride."""
    strides, offset = type_.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    if dynamic in (*strides, offset) or not strides or strides[-1] != 1:
        return False
    return all(number % lanes == 0 for number in (*strides[:-1], offset))
