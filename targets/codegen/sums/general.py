"""Compensated summation on the general path: bufferized linalg.generic sums, as loops over blocks.

Accumulators and their rounding errors are kept in buffers, in f32 where elements are narrower. A block of the outermost
reduced loop is summed in a register for each element of the result. Everything else is left to upstream's loops, in its
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, memref, scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.loops import number
from stablexla.lowering.support.operations import body_of, clone_with, defining, only_user, operations_named
from stablexla.targets.codegen.sums.compensated import (
    BLOCK,
    LONGEST_RUNNING_SUM,
    add_compensation,
    addition_identity,
    compensate_loops,
    two_sum,
)
from stablexla.targets.grouping.loops import Loops, loops_of

Values = list[ir.Value]
# Induction variable of each dimension.
Places = dict[int, ir.Value]


def block_general_sums(module: ir.Module) -> None:
    """Emit the loops of all long sums of a module whose kernels are bufferized."""
    for op in operations_named(module.operation, "linalg.generic"):  # not what is inside of them: they are erased
        if not len(op.results):
            sums = _match(op)
            if sums is not None:
                with op.location, ir.InsertionPoint(op):
                    sums.write()
                erase(op)


@dataclass(frozen=True)
class _Total:
    """One accumulator: a result of the body that is a sum.

    Attributes:
        argument: the block argument that stands for it.
        opened: operations that extend or split it before the addition: a wider number, or the parts of a complex one.
        closed: the operation that makes an element of the sums; None where the sum is one.
        parts: for each sum its value before and after the addition.
    """

    argument: ir.Value
    opened: list[ir.Operation]
    closed: ir.Operation | None
    parts: list[tuple[ir.Value, ir.Value]]

    def open(self, element: ir.Value) -> Values:
        """Convert an element to its sums (storage type to value type)."""
        return [_again(op, [element]) for op in self.opened] or [element]

    def close(self, sums: Values) -> ir.Value:
        """Convert sums to an element (value type to storage type)."""
        return sums[0] if self.closed is None else _again(self.closed, sums)


def _match(op: ir.Operation) -> _Sums | None:
    """Match a generic all of whose results are sums, long ones or of narrow floats; return None for others."""
    *_, terminator = body_of(op)
    count = len(terminator.operands)
    loops = loops_of(op)
    arguments = list(op.regions[0].blocks[0].arguments)
    found = [_match_total(a, v) for a, v in zip(arguments[-count:], terminator.operands, strict=True)]
    if not any(loops.reduced) or 0 in loops.extents or not all(_is_simple(e) for m in loops.maps for e in m.results):
        return None
    totals = [total for total in found if total is not None]
    length = prod(n for n, r in zip(loops.extents, loops.reduced, strict=True) if r)
    narrow = any(op.name == "arith.extf" for total in totals for op in total.opened)
    if len(totals) != count or (length <= LONGEST_RUNNING_SUM() and not narrow):
        return None
    return _Sums(op, loops, totals)


def _match_total(argument: ir.Value, result: ir.Value) -> _Total | None:
    """Match an accumulator whose only user, or that of each of its parts, is an addition."""
    users = [use.owner.operation for use in argument.uses]
    names = {op.name: op for op in users}
    opened: list[ir.Operation] = []
    if len(users) == 2 and names.keys() == {"complex.re", "complex.im"}:
        opened = [names["complex.re"], names["complex.im"]]
    elif len(users) == 1 and users[0].name == "arith.extf":
        opened = users
    closed = defining(result) if opened else None
    if opened and (closed is None or closed.name not in ("arith.truncf", "complex.create")):
        return None
    starts = [op.results[0] for op in opened] or [argument]
    ends = list(closed.operands) if closed is not None else [result]
    parts = list(zip(starts, ends, strict=True)) if len(starts) == len(ends) else []
    return _Total(argument, opened, closed, parts) if parts and all(_adds(*part) for part in parts) else None


def _adds(before: ir.Value, after: ir.Value) -> bool:
    """Return whether `after` is `before` with something added to it, and neither has another use."""
    addition = only_user(before)
    return (
        isinstance(before.type, ir.F32Type | ir.F64Type)
        and addition is not None
        and addition.name == "arith.addf"
        and after == addition.results[0]
        and only_user(after) is not None
    )


def _is_simple(expression: ir.AffineExpr) -> bool:
    """Return whether an index expression has additions and multiplications only."""
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        return _is_simple(expression.lhs) and _is_simple(expression.rhs)
    return isinstance(expression, ir.AffineDimExpr | ir.AffineConstantExpr)


@dataclass
class _Sums:
    """The loop nest of a generic that sums."""

    op: ir.Operation
    loops: Loops
    totals: list[_Total]
    emitted: list[ir.Operation] = field(default_factory=list)

    def write(self) -> None:
        """Clear the accumulators, add up block after block, and store the results."""
        kept = [d for d, r in enumerate(self.loops.reduced) if not r]
        first, *inner = (d for d, r in enumerate(self.loops.reduced) if r)
        outputs = list(self.op.operands)[-len(self.totals) :]
        # For each result of the body pairs of buffers (sum, error), one for each of its parts.
        rooms = [
            [(_room(output.type, before.type), _room(output.type, before.type)) for before, _ in total.parts]
            for output, total in zip(outputs, self.totals, strict=True)
        ]
        length = max(1, BLOCK() // prod(self.loops.extents[d] for d in inner))

        def begin(at: Places) -> None:
            for output, total, pairs, place in zip(outputs, self.totals, rooms, self._places(at), strict=True):
                for (whole, error), value in zip(pairs, total.open(memref.load(output, place)), strict=True):
                    memref.store(value, whole, place)
                    memref.store(addition_identity(value.type), error, place)

        def add(at: Places, start: ir.Value, stop: ir.Value) -> None:
            made = iter(self._block(at, [(first, start, stop), *((d, *self._span(d)) for d in inner)]))
            for pairs, place in zip(rooms, self._places(at), strict=True):
                for whole, error in pairs:
                    value, off = two_sum(memref.load(whole, place), next(made))
                    memref.store(value, whole, place)
                    memref.store(arith.addf(memref.load(error, place), off), error, place)

        def end(at: Places) -> None:
            for output, total, pairs, place in zip(outputs, self.totals, rooms, self._places(at), strict=True):
                sums = [
                    add_compensation(memref.load(whole, place), memref.load(error, place)) for whole, error in pairs
                ]
                memref.store(total.close(sums), output, place)

        self._each(kept, {}, begin)
        low, high = self._span(first)
        blocks = scf.ForOp(low, high, number(length))
        with ir.InsertionPoint(blocks.body):
            start = blocks.induction_variable
            stop = arith.minui(arith.addi(start, number(length)), high)
            self._each(kept, {}, lambda at: add(at, start, stop))
            scf.YieldOp([])
        self._each(kept, {}, end)
        compensate_loops(self.emitted)

    def _span(self, dim: int) -> tuple[ir.Value, ir.Value]:
        return number(0), number(self.loops.extents[dim])

    def _each(self, dims: Sequence[int], at: Places, do: Callable[[Places], None]) -> None:
        """Emit the loops `dims` around the body `do`."""
        if not dims:
            do(at)
            return
        loop = scf.ForOp(*self._span(dims[0]), number(1))
        with ir.InsertionPoint(loop.body):
            self._each(dims[1:], at | {dims[0]: loop.induction_variable}, do)
            scf.YieldOp([])

    def _block(
        self, at: Places, spans: Sequence[tuple[int, ir.Value, ir.Value]], totals: Values | None = None
    ) -> Values:
        """Emit the partial sums over some loops, from zero."""
        totals = (
            [addition_identity(before.type) for t in self.totals for before, _ in t.parts] if totals is None else totals
        )
        if not spans:
            return self._step(at, totals)
        dim, low, high = spans[0]
        loop = scf.ForOp(low, high, number(1), totals)
        self.emitted.append(loop.operation)
        with ir.InsertionPoint(loop.body):
            here = at | {dim: loop.induction_variable}
            scf.YieldOp(self._block(here, spans[1:], list(loop.inner_iter_args)))
        return list(loop.results)

    def _step(self, at: Places, totals: Values) -> Values:
        """Add the elements at one iteration to the accumulators."""
        mapping: dict[ir.Value, ir.Value] = {}
        outputs = {total.argument for total in self.totals}
        arguments = self.op.regions[0].blocks[0].arguments
        for argument, operand, map_ in zip(arguments, self.op.operands, self.loops.maps, strict=True):
            if argument not in outputs and any(True for _ in argument.uses):
                is_array = isinstance(operand.type, ir.MemRefType)
                mapping[argument] = memref.load(operand, self._place(map_, at)) if is_array else operand
        *operations, _ = body_of(self.op)
        parts = [part for total in self.totals for part in total.parts]
        for (before, _), value in zip(parts, totals, strict=True):
            mapping[before] = value
        skipped = {op for total in self.totals for op in (*total.opened, total.closed) if op is not None}
        for op in operations:
            if op.name == "linalg.index":
                mapping[op.results[0]] = at[ir.IntegerAttr(op.attributes["dim"]).value]
            elif op not in skipped:
                clone_with(op, mapping)
        return [mapping[after] for _, after in parts]

    def _places(self, at: Places) -> list[Values]:
        """Return the indices of the results at one iteration."""
        return [self._place(m, at) for m in self.loops.maps[-len(self.totals) :]]

    @staticmethod
    def _place(map_: ir.AffineMap, at: Places) -> Values:
        return [_applied(e, at) for e in map_.results]


def _room(output: ir.Type, element: ir.Type) -> ir.Value:
    return memref.alloc(ir.MemRefType.get(output.shape, element), [], [])


def _again(operation: ir.Operation, operands: Values) -> ir.Value:
    """Clone an operation of the body onto other operands."""
    return ir.Operation.create(operation.name, results=[operation.results[0].type], operands=operands).result


def _applied(expression: ir.AffineExpr, at: Places) -> ir.Value:
    """Expand an affine index expression as arithmetic on the induction variables."""
    if isinstance(expression, ir.AffineDimExpr):
        return at[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return number(expression.value)
    a, b = (_applied(e, at) for e in (expression.lhs, expression.rhs))
    return arith.addi(a, b) if isinstance(expression, ir.AffineAddExpr) else arith.muli(a, b)
