"""Blocked summation in the general path: a loop that accumulates in memory sums blocks first, and then these."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, complex, memref, scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import clone_with, constant_of, defining, walk
from stablexla.targets.codegen.sums.blocked_reduction import BLOCK

_SUMS = ("arith.addf", "complex.add")
_PARTS = ("complex.re", "complex.im")


def block_summation(module: ir.Module) -> None:
    """Rewrite the loops of a module, innermost first, until none adds more than `BLOCK` terms in sequence."""
    for loop in [op for op in walk(module.operation) if op.name == "scf.for"][::-1]:
        found = _match(loop)
        while found is not None:
            rest = found.write()
            found = None if rest is None else _match(rest)


@dataclass(frozen=True)
class _Sum:
    """A loop, the load and store of its accumulator in memory, and the accumulator's new value, which is a sum.

    Attributes:
        trip_count: trip count; at most `BLOCK` iterations are a block of the loop around it.
    """

    loop: ir.Operation
    load: ir.Operation
    value: ir.Value
    store: ir.Operation
    trip_count: int

    def write(self) -> ir.Operation | None:
        """Strip-mine the loop, and return the loop over blocks; None where there is one block."""
        lo, hi, step = list(self.loop.operands)[:3]
        size = constant_of(step)
        assert size is not None
        outer = None
        with self.loop.location, ir.InsertionPoint(self.loop):
            if self.trip_count <= max(2, BLOCK()):
                self._add_block(lo, hi, step)
            else:
                outer = scf.ForOp(lo, hi, arith.constant(step.type, size * max(2, BLOCK())))
                with ir.InsertionPoint(outer.body):
                    begin = outer.induction_variable
                    end = arith.minsi(arith.addi(begin, outer.operation.operands[2]), hi)
                    self._add_block(begin, end, step)
                    scf.YieldOp([])
        erase(self.loop)
        return None if outer is None else outer.operation

    def _add_block(self, begin: ir.Value, end: ir.Value, step: ir.Value) -> None:
        """Sum these iterations from the identity, and add the partial sum to the accumulator."""
        inner = scf.ForOp(begin, end, step, [_zero(self.value.type)])
        self._move(inner)
        place, *at = self.load.operands
        before, own = memref.load(place, at), inner.results[0]
        is_complex = isinstance(self.value.type, ir.ComplexType)
        memref.store(complex.add(before, own) if is_complex else arith.addf(before, own), place, at)

    def _move(self, inner: scf.ForOp) -> None:
        """Move the body onto the block's partial sum."""
        mapping: dict[ir.Value, ir.Value] = {
            self.loop.regions[0].blocks[0].arguments[0]: inner.induction_variable,
            self.load.results[0]: inner.inner_iter_args[0],
        }
        with ir.InsertionPoint(inner.body):
            for view in list(self.loop.regions[0].blocks[0].operations):
                if view.operation in (self.load, self.store) or view.operation.name == "scf.yield":
                    continue
                clone_with(view.operation, mapping)
            scf.YieldOp([mapping[self.value]])


def _match(loop: ir.Operation) -> _Sum | None:
    """Match a loop that only accumulates into a loop-invariant place: a long one, or one in a loop that adds there."""
    *operations, _ = (view.operation for view in loop.regions[0].blocks[0].operations)
    bounds = [constant_of(v) for v in list(loop.operands)[:3]]
    if len(loop.results) or None in bounds or not operations or operations[-1].name != "memref.store":
        return None
    lo, hi, step = (n or 0 for n in bounds)
    store = operations[-1]
    value, *place = store.operands
    load = _added_to(value)
    trip_count = -((lo - hi) // step)
    if load is None or list(load.operands) != place or not (trip_count > max(2, BLOCK()) or _adds_on(loop, place)):
        return None
    if load not in operations or defining(value) not in operations:
        return None
    inside = {op for view in operations for op in walk(view)} | set(operations)
    if any(defining(v) in inside or v == loop.regions[0].blocks[0].arguments[0] for v in place):
        return None
    others = [op for op in inside if op not in (load, store) and place[0] in list(op.operands)]
    return None if others else _Sum(loop, load, value, store, trip_count)


def _adds_on(loop: ir.Operation, place: list[ir.Value]) -> bool:
    """Return whether the loop around a loop accumulates in the same place in each iteration."""
    around = loop.parent
    if around is None or around.name != "scf.for":
        return False
    inside = set(walk(around))
    return not any(defining(v) in inside or v == around.regions[0].blocks[0].arguments[0] for v in place)


def _added_to(value: ir.Value) -> ir.Operation | None:
    """Return the load of the accumulator that a value is the sum of, where the load has no other use."""
    maker = defining(value)
    if maker is not None and maker.name == "complex.create":
        parts = [_term(part, name) for part, name in zip(maker.operands, _PARTS, strict=True)]
        numbers = [part.operands[0] for part in parts if part is not None]
        same = len(numbers) == len(_PARTS) and numbers[0] == numbers[1]
        load, uses = defining(numbers[0]) if same else None, len(_PARTS)
    else:
        load, uses = _term(value, "memref.load"), 1
    read = load is not None and load.name == "memref.load" and len(list(load.results[0].uses)) == uses
    return load if read else None


def _term(value: ir.Value, name: str) -> ir.Operation | None:
    """Return the operation of that name whose result is added to something, and has no other use."""
    add = defining(value)
    if add is None or add.name not in _SUMS:
        return None
    makers = [defining(v) for v in add.operands]
    terms = [op for op in makers if op is not None and op.name == name]
    return next((op for op in terms if len(list(op.results[0].uses)) == 1), None)


def _zero(type_: ir.Type) -> ir.Value:
    """Return the identity of addition that keeps the sign of a zero."""
    if isinstance(type_, ir.ComplexType):
        part = ir.FloatAttr.get(type_.element_type, -0.0)
        return complex.ConstantOp(type_, ir.ArrayAttr.get([part, part])).result
    return arith.constant(type_, -0.0)
