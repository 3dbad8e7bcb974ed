"""Sums on the general path: linalg.generic on buffers that only add up, as loops over blocks with compensation.

Totals lie in buffers with their errors, in f32 where elements are narrower. A block of the outermost reduced loop is
summed in a register for each place of the result. Everything else is left to upstream's loops, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, memref, scf

from stablexla.lowering.operations import body_of, defining, remap, walk
from stablexla.targets.cpu.blocked_sums import BLOCK, LONGEST, block_loops, compensated, plus, two_sum, zero

_SUMS = ("arith.addf", "complex.add")
Values = list[ir.Value]


def block_general_sums(module: ir.Module) -> None:
    """Writes the loops of all long sums of a module whose kernels are bufferized."""
    for op in walk(module.operation):
        if op.name == "linalg.generic" and not len(op.results):
            sums = _match(op)
            if sums is not None:
                with op.location, ir.InsertionPoint(op):
                    sums.write()
                op.erase()


@dataclass(frozen=True)
class _One:
    """A total: its argument of the body, what is added to it, and the conversions before and after the addition."""

    argument: ir.Value
    added: ir.Value
    widen: ir.Operation | None
    narrow: ir.Operation | None


def _match(op: ir.Operation) -> _Sums | None:
    """A generic all of whose results are sums, long ones or of narrow floats; None for others."""
    *_, terminator = body_of(op)
    count = len(terminator.operands)
    maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
    reduced = ["reduction" in str(kind) for kind in op.attributes["iterator_types"]]
    arguments = list(op.regions[0].blocks[0].arguments)
    ones = [_match_one(a, v) for a, v in zip(arguments[-count:], terminator.operands, strict=True)]
    extents = _extents(op, maps)
    if not any(reduced) or extents is None or 0 in extents or not all(_is_simple(e) for m in maps for e in m.results):
        return None
    known = [one for one in ones if one is not None]
    length = prod(n for n, r in zip(extents, reduced, strict=True) if r)
    if len(known) != count or (length <= LONGEST and not any(one.widen for one in known)):
        return None
    return _Sums(op, maps, extents, reduced, known)


def _match_one(argument: ir.Value, result: ir.Value) -> _One | None:
    """A total of which nothing is known but that something is added to it."""
    total, widen = argument, _only_user(argument)
    if widen is not None and widen.name == "arith.extf":
        total = widen.results[0]
    else:
        widen = None
    addition = _only_user(total)
    if addition is None or addition.name not in _SUMS or not _is_wide(total.type):
        return None
    narrow = defining(result) if widen is not None else None
    end = narrow.operands[0] if narrow is not None and narrow.name == "arith.truncf" else result
    if end != addition.results[0] or _only_user(end) is None:
        return None
    added = next(v for v in addition.operands if v != total)
    return _One(argument, added, widen, narrow)


def _only_user(value: ir.Value) -> ir.Operation | None:
    uses = list(value.uses)
    return uses[0].owner.operation if len(uses) == 1 else None


def _is_wide(type_: ir.Type) -> bool:
    part = type_.element_type if isinstance(type_, ir.ComplexType) else type_
    return isinstance(part, ir.F32Type | ir.F64Type)


def _extents(op: ir.Operation, maps: Sequence[ir.AffineMap]) -> list[int] | None:
    """The loops' extents; None if an operand's dimensions do not tell them."""
    found: dict[int, int] = {}
    for operand, map_ in zip(op.operands, maps, strict=True):
        for place, expression in enumerate(map_.results):
            if isinstance(expression, ir.AffineDimExpr):
                found[expression.position] = operand.type.shape[place]
    count = maps[0].n_dims
    return [found[d] for d in range(count)] if len(found) == count else None


def _is_simple(expression: ir.AffineExpr) -> bool:
    """Whether an index is made of additions and multiplications."""
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        return _is_simple(expression.lhs) and _is_simple(expression.rhs)
    return isinstance(expression, ir.AffineDimExpr | ir.AffineConstantExpr)


@dataclass
class _Sums:
    """The loops of a generic."""

    op: ir.Operation
    maps: list[ir.AffineMap]
    extents: list[int]
    reduced: list[bool]
    ones: list[_One]
    loops: list[ir.Operation] = field(default_factory=list)

    def write(self) -> None:
        """Clears the totals, adds up block after block, and writes the results."""
        outputs = list(self.op.operands)[-len(self.ones) :]
        kept = [d for d, r in enumerate(self.reduced) if not r]
        first, *inner = (d for d, r in enumerate(self.reduced) if r)
        pairs = [[_room(o.type, one.added.type) for _ in range(2)] for o, one in zip(outputs, self.ones, strict=True)]
        length = max(1, BLOCK // prod(self.extents[d] for d in inner))

        def begin(at: dict[int, ir.Value]) -> None:
            for output, one, (total, error), place in zip(outputs, self.ones, pairs, self._places(at), strict=True):
                start = memref.load(output, place)
                memref.store(_converted(one.widen, start), total, place)
                memref.store(zero(one.added.type), error, place)

        def add(at: dict[int, ir.Value], start: ir.Value, stop: ir.Value) -> None:
            made = self._block(at, [(first, start, stop), *((d, *self._span(d)) for d in inner)])
            for value, (total, error), place in zip(made, pairs, self._places(at), strict=True):
                whole, off = two_sum(memref.load(total, place), value)
                memref.store(whole, total, place)
                memref.store(plus(memref.load(error, place), off), error, place)

        def end(at: dict[int, ir.Value]) -> None:
            for output, one, (total, error), place in zip(outputs, self.ones, pairs, self._places(at), strict=True):
                value = compensated(memref.load(total, place), memref.load(error, place))
                memref.store(_converted(one.narrow, value), output, place)

        self._each(kept, {}, begin)
        low, high = self._span(first)
        blocks = scf.ForOp(low, high, _index(length))
        with ir.InsertionPoint(blocks.body):
            start = blocks.induction_variable
            stop = arith.minui(arith.addi(start, _index(length)), high)
            self._each(kept, {}, lambda at: add(at, start, stop))
            scf.YieldOp([])
        self._each(kept, {}, end)
        block_loops(self.loops)

    def _span(self, dim: int) -> tuple[ir.Value, ir.Value]:
        return _index(0), _index(self.extents[dim])

    def _each(self, dims: Sequence[int], at: dict[int, ir.Value], do: Callable[[dict[int, ir.Value]], None]) -> None:
        """Does something at every place of the loops `dims`."""
        if not dims:
            do(at)
            return
        loop = scf.ForOp(*self._span(dims[0]), _index(1))
        with ir.InsertionPoint(loop.body):
            self._each(dims[1:], at | {dims[0]: loop.induction_variable}, do)
            scf.YieldOp([])

    def _block(
        self, at: dict[int, ir.Value], spans: Sequence[tuple[int, ir.Value, ir.Value]], totals: Values | None = None
    ) -> Values:
        """The sums over some loops, from nothing."""
        totals = [zero(one.added.type) for one in self.ones] if totals is None else totals
        if not spans:
            return self._step(at, totals)
        dim, low, high = spans[0]
        loop = scf.ForOp(low, high, _index(1), totals)
        self.loops.append(loop.operation)
        with ir.InsertionPoint(loop.body):
            here = at | {dim: loop.induction_variable}
            scf.YieldOp(self._block(here, spans[1:], list(loop.inner_iter_args)))
        return list(loop.results)

    def _step(self, at: dict[int, ir.Value], totals: Values) -> Values:
        """The totals with the elements at a place."""
        mapping: dict[ir.Value, ir.Value] = {}
        outputs = {one.argument for one in self.ones}
        arguments = self.op.regions[0].blocks[0].arguments
        for argument, operand, map_ in zip(arguments, self.op.operands, self.maps, strict=True):
            if argument not in outputs and any(True for _ in argument.uses):
                is_array = isinstance(operand.type, ir.MemRefType)
                mapping[argument] = memref.load(operand, self._place(map_, at)) if is_array else operand
        *operations, _ = body_of(self.op)
        for one, total in zip(self.ones, totals, strict=True):
            mapping[one.argument if one.widen is None else one.widen.results[0]] = total
        skipped = {op for one in self.ones for op in (one.widen, one.narrow) if op is not None}
        for op in operations:
            if op.name == "linalg.index":
                mapping[op.results[0]] = at[ir.IntegerAttr(op.attributes["dim"]).value]
            elif op not in skipped:
                copy = op.clone().operation
                remap(copy, mapping)
                mapping.update(zip(op.results, copy.results, strict=True))
        sums = [next(u.owner.operation for u in _total(one).uses).results[0] for one in self.ones]
        return [mapping[value] for value in sums]

    def _places(self, at: dict[int, ir.Value]) -> list[Values]:
        """Where the results at a place lie."""
        return [self._place(m, at) for m in self.maps[-len(self.ones) :]]

    @staticmethod
    def _place(map_: ir.AffineMap, at: dict[int, ir.Value]) -> Values:
        return [_applied(e, at) for e in map_.results]


def _total(one: _One) -> ir.Value:
    """What stands for a total in the body, in the type of the sum."""
    return one.argument if one.widen is None else one.widen.results[0]


def _room(output: ir.Type, element: ir.Type) -> ir.Value:
    return memref.alloc(ir.MemRefType.get(output.shape, element), [], [])


def _converted(operation: ir.Operation | None, value: ir.Value) -> ir.Value:
    if operation is None:
        return value
    return ir.Operation.create(operation.name, results=[operation.results[0].type], operands=[value]).result


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)


def _applied(expression: ir.AffineExpr, at: dict[int, ir.Value]) -> ir.Value:
    """An index as arithmetic on the loops'."""
    if isinstance(expression, ir.AffineDimExpr):
        return at[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return _index(expression.value)
    a, b = (_applied(e, at) for e in (expression.lhs, expression.rhs))
    return arith.addi(a, b) if isinstance(expression, ir.AffineAddExpr) else arith.muli(a, b)
