"""Builders of scf loops for the bodies of kernels: counted and while loops, branches, index arithmetic.

Loops carry all that they change: numbers, and the tensors of `put`, which bufferization updates in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.lowering.support.types import TensorType, tensor_storage

Values = Sequence[ir.Value]


def number(n: int) -> ir.Value:
    """Return a constant of type index."""
    return arith.constant(ir.IndexType.get(), n)


def add(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.addi(a, _like(b, a))


def sub(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.subi(a, _like(b, a))


def mul(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.muli(a, _like(b, a))


def quotient(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """Return a / b of non-negative numbers."""
    return arith.divui(a, _like(b, a))


def remainder(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """Return a mod b of non-negative numbers."""
    return arith.remui(a, _like(b, a))


def smaller(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.minsi(a, _like(b, a))


def larger(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.maxsi(a, _like(b, a))


def is_less(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.slt, a, _like(b, a))


def is_equal(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, a, _like(b, a))


def not_(condition: ir.Value) -> ir.Value:
    return arith.xori(condition, arith.constant(condition.type, -1))


def as_index(integer: ir.Value) -> ir.Value:
    """Convert an unsigned integer, or a condition as 0 or 1, to an index."""
    return arith.index_castui(ir.IndexType.get(), integer)


def _like(b: ir.Value | int, a: ir.Value) -> ir.Value:
    return arith.constant(a.type, b) if isinstance(b, int) else b


def count(
    low: ir.Value | int,
    high: ir.Value | int,
    carried: Values,
    body: Callable[..., Values],
    step: ir.Value | int = 1,
) -> list[ir.Value]:
    """Emit a counted loop over [low, high): `body(i, *carried)` is the next carried values; return the last."""
    bounds = [number(b) if isinstance(b, int) else b for b in (low, high, step)]
    loop = scf.ForOp(*bounds, list(carried))
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(list(body(loop.induction_variable, *loop.inner_iter_args)))
    return list(loop.results)


def repeat(carried: Values, going: Callable[..., ir.Value], body: Callable[..., Values]) -> list[ir.Value]:
    """Emit a while loop: `body(*carried)` as long as `going(*carried)` holds."""
    types = [v.type for v in carried]
    loop = scf.WhileOp(types, list(carried))
    location = [ir.Location.current] * len(types)
    before, after = (region.blocks.append(*types, arg_locs=location) for region in (loop.before, loop.after))
    with ir.InsertionPoint(before):
        scf.ConditionOp(going(*before.arguments), list(before.arguments))
    with ir.InsertionPoint(after):
        scf.YieldOp(list(body(*after.arguments)))
    return list(loop.results)


def choose(
    condition: ir.Value, types: Sequence[ir.Type], then: Callable[[], Values], other: Callable[[], Values]
) -> list[ir.Value]:
    """Emit a branch; return the values of the side that is taken."""
    op = scf.IfOp(condition, list(types), has_else=True)
    for block, values in ((op.then_block, then), (op.else_block, other)):
        with ir.InsertionPoint(block):
            scf.YieldOp(list(values()))
    return list(op.results)


def get(arrays: Values, at: ir.Value) -> list[ir.Value]:
    """Load the elements of flat arrays at an index."""
    return [tensor.extract(array, [at]) for array in arrays]


def put(values: Values, arrays: Values, at: ir.Value) -> list[ir.Value]:
    """Store elements in flat arrays at an index; return the new arrays."""
    return [tensor.insert(value, array, [at]) for value, array in zip(values, arrays, strict=True)]


def pick(condition: ir.Value, these: Values, those: Values) -> list[ir.Value]:
    """Select these where the condition holds, else those."""
    return [arith.select(condition, a, b) for a, b in zip(these, those, strict=True)]


def either(condition: ir.Value, this: ir.Value, that: ir.Value) -> ir.Value:
    """Select an index by arithmetic, without a branch: one on random data would be mispredicted half of the time."""
    mask = sub(number(0), as_index(condition))
    return arith.xori(that, arith.andi(arith.xori(this, that), mask))


def empties(types: Sequence[TensorType]) -> list[ir.Value]:
    """Return arrays of undefined contents."""
    return [ir.Operation.create("tensor.empty", results=[tensor_storage(t)], operands=[]).result for t in types]


def empty_like(arrays: Values, size: int) -> list[ir.Value]:
    """Return flat arrays of the same element types and undefined contents."""
    return [
        ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get([size], array.type.element_type)], operands=[]
        ).result
        for array in arrays
    ]
