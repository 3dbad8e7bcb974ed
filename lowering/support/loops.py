"""Loops that rules write by hand in the bodies of kernels: counting, searching, arithmetic on indices.

What a loop changes it carries: numbers, and tensors that `put` makes anew; bufferization does that in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.lowering.support.types import TensorType, tensor_storage

Values = Sequence[ir.Value]


def number(n: int) -> ir.Value:
    """A constant of type index."""
    return arith.constant(ir.IndexType.get(), n)


def add(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.addi(a, _like(b, a))


def sub(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.subi(a, _like(b, a))


def mul(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return arith.muli(a, _like(b, a))


def quotient(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """a / b for numbers from 0 on."""
    return arith.divui(a, _like(b, a))


def remainder(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """a mod b for numbers from 0 on."""
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
    """An integer without sign, or a condition as 0 or 1, as an index."""
    return arith.index_castui(ir.IndexType.get(), integer)


def _like(b: ir.Value | int, a: ir.Value) -> ir.Value:
    return arith.constant(a.type, b) if isinstance(b, int) else b


def count(
    low: ir.Value | int, high: ir.Value | int, carried: Values, turn: Callable[..., Values], step: ir.Value | int = 1
) -> list[ir.Value]:
    """`turn(i, *carried)` for i from `low` to `high` gives what the next turn carries; what the last one gave."""
    bounds = [number(b) if isinstance(b, int) else b for b in (low, high, step)]
    loop = scf.ForOp(*bounds, list(carried))
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(list(turn(loop.induction_variable, *loop.inner_iter_args)))
    return list(loop.results)


def repeat(carried: Values, going: Callable[..., ir.Value], turn: Callable[..., Values]) -> list[ir.Value]:
    """`turn(*carried)` as long as `going(*carried)` holds."""
    types = [v.type for v in carried]
    loop = scf.WhileOp(types, list(carried))
    location = [ir.Location.current] * len(types)
    before, after = (region.blocks.append(*types, arg_locs=location) for region in (loop.before, loop.after))
    with ir.InsertionPoint(before):
        scf.ConditionOp(going(*before.arguments), list(before.arguments))
    with ir.InsertionPoint(after):
        scf.YieldOp(list(turn(*after.arguments)))
    return list(loop.results)


def choose(
    condition: ir.Value, types: Sequence[ir.Type], then: Callable[[], Values], other: Callable[[], Values]
) -> list[ir.Value]:
    """The values of the side that is taken; only that one runs."""
    op = scf.IfOp(condition, list(types), has_else=True)
    for block, values in ((op.then_block, then), (op.else_block, other)):
        with ir.InsertionPoint(block):
            scf.YieldOp(list(values()))
    return list(op.results)


def get(arrays: Values, at: ir.Value) -> list[ir.Value]:
    """The elements of arrays of one dimension at a place."""
    return [tensor.extract(array, [at]) for array in arrays]


def put(values: Values, arrays: Values, at: ir.Value) -> list[ir.Value]:
    """The arrays with their elements at a place replaced."""
    return [tensor.insert(value, array, [at]) for value, array in zip(values, arrays, strict=True)]


def pick(condition: ir.Value, these: Values, those: Values) -> list[ir.Value]:
    """These where the condition holds, else those."""
    return [arith.select(condition, a, b) for a, b in zip(these, those, strict=True)]


def either(condition: ir.Value, this: ir.Value, that: ir.Value) -> ir.Value:
    """This index where the condition holds, else that one: by arithmetic, since a branch on what is as good as chance
    would be guessed wrongly half of the time."""
    mask = sub(number(0), as_index(condition))
    return arith.xori(that, arith.andi(arith.xori(this, that), mask))


def empties(types: Sequence[TensorType]) -> list[ir.Value]:
    """Arrays whose contents are not defined yet."""
    return [ir.Operation.create("tensor.empty", results=[tensor_storage(t)], operands=[]).result for t in types]


def empty_like(arrays: Values, size: int) -> list[ir.Value]:
    """Arrays of one dimension and the same element types, whose contents are not defined yet."""
    return [
        ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get([size], array.type.element_type)], operands=[]
        ).result
        for array in arrays
    ]
