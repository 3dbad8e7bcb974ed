"""Compensated summation in blocks, for the floating-point accumulators that emitted loops carry in registers.

The rounding error of a running sum of m numbers is up to m u times their magnitudes, and m u / 4 where all of them are
equal. So a loop that adds more than LONGEST numbers to an accumulator runs in blocks of BLOCK additions, each from
zero, and the partial sums are added to a pair of numbers, the sum and its error (TwoSum: Knuth, TAOCP 2, 4.2.2; Ogita,
Rump, Oishi 2005). Blocks follow from the loops alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, scf

from stablexla.dialects.choices import Gate
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import constant_of, operations_named

# Additions of a block, and the most that stay one running sum, where the error is at worst a quarter of them times u.
BLOCK = Gate("sums.block", 128, eager=2)
LONGEST_RUNNING_SUM = Gate("sums.longest-running", 256, eager=4)
# Attribute of a loop: its largest trip count, where its bounds do not tell.
MAX_TRIP_COUNT = "stablexla.most_turns"
# Trip count of a loop of unknown bounds.
_UNKNOWN = 1 << 62
_FUSED = ("vector.fma", "math.fma")
# Operands of an `scf.for` before the loop-carried values.
_BOUNDS = 3


def compensate_sums(function: ir.Operation) -> None:
    """Rewrite the function's long running sums into compensated blocks; emitters are free to choose the order."""
    loops = operations_named(function, "scf.for")
    if any(len(loop.results) or MAX_TRIP_COUNT in loop.attributes for loop in loops):
        compensate_loops(sorted(loops, key=_depth))


def _depth(op: ir.Operation) -> int:
    """Count the operations around an operation."""
    parent = op.parent
    return 0 if parent is None else 1 + _depth(parent.operation)


def compensate_loops(loops: Sequence[ir.Operation]) -> None:
    """Rewrite the long running sums of some loops, given in program order or by their depth, outer ones first."""
    _Blocking().run(loops)


@dataclass(frozen=True)
class _Sum:
    """An accumulator after a loop that carries it: its value, and the additions on the way to it."""

    value: ir.Value
    additions: int


class _Blocking:
    """The rewrite of a function's loops, innermost first."""

    def __init__(self) -> None:
        self._sums: dict[ir.Operation, dict[int, _Sum]] = {}

    def run(self, loops: Sequence[ir.Operation]) -> None:
        """Rewrite loops, the last first: those inside of a loop, and those that go on with its sums, come before it."""
        for loop in reversed(loops):
            inits = list(loop.operands)[_BOUNDS:]
            found = {n: self._additions(loop, n) for n, init in enumerate(inits) if _is_wide_float(init.type)}
            each = {n: count for n, count in found.items() if count is not None}
            trip_count = _trip_count(loop)
            if MAX_TRIP_COUNT in loop.attributes:
                del loop.attributes[MAX_TRIP_COUNT]
            if each and trip_count * max(each.values()) > LONGEST_RUNNING_SUM():
                self._block(loop, each)
            else:
                self._sums[loop] = {n: _Sum(loop.results[n], trip_count * count) for n, count in each.items()}

    def _additions(self, loop: ir.Operation, number: int) -> int | None:
        """Count the additions of an iteration to a loop-carried value; None if it has any other use."""
        value, count = loop.regions[0].blocks[0].arguments[1 + number], 0
        while True:
            found = self._next(value)
            if found is None:
                return None
            if isinstance(found, ir.OpOperand):
                return count if _carries_on(found, loop, number) and count else None
            value, count = found.value, count + found.additions

    def _next(self, value: ir.Value) -> _Sum | ir.OpOperand | None:
        """Follow an accumulator through its one user; return its use where that is a terminator."""
        uses = list(value.uses)
        if not uses or len(uses) > 2:
            return None
        made = [_added(use) for use in uses]
        if len(uses) == 1:
            use, owner = uses[0], uses[0].owner.operation
            if owner.name == "scf.for":
                return self._sums.get(owner, {}).get(use.operand_number - _BOUNDS)
            return use if owner.name == "scf.yield" else None if made[0] is None else _Sum(made[0], 1)
        # Masked addition: lanes beyond the end keep their value.
        chosen = [u.owner.operation for u in uses if u.owner.operation.name == "arith.select" and u.operand_number]
        sums = [v for v in made if v is not None]
        if len(chosen) == len(sums) == 1 and sums[0] in list(chosen[0].operands)[1:] and _once(sums[0]):
            return _Sum(chosen[0].results[0], 1)
        return None

    def _block(self, loop: ir.Operation, each: dict[int, int]) -> None:
        """Strip-mine the loop: an outer loop over blocks of its iterations."""
        lo, hi, step, *inits = loop.operands
        trip_count = max(1, BLOCK() // max(each.values()))
        with loop.location, ir.InsertionPoint(loop):
            zeros = {n: addition_identity(inits[n].type) for n in each}
            blocks = scf.ForOp(lo, hi, _times(step, trip_count), [*inits, *zeros.values()])
            carried = list(blocks.inner_iter_args)
            with ir.InsertionPoint(blocks.body):
                begin = blocks.induction_variable
                end = arith.minui(arith.addi(begin, blocks.operation.operands[2]), hi)
                starts = [zeros.get(n, v) for n, v in enumerate(carried[: len(inits)])]
                inner = scf.ForOp(begin, end, step, starts)
                _move_body(loop, inner.operation)
                made, errors = list(inner.results), []
                for n, error in zip(each, carried[len(inits) :], strict=True):
                    made[n], more = two_sum(carried[n], made[n])
                    errors.append(arith.addf(error, more))
                scf.YieldOp([*made, *errors])
            results = list(blocks.results)
            for n, error in zip(each, results[len(inits) :], strict=True):
                results[n] = add_compensation(results[n], error)
        for n, old in enumerate(loop.results):
            old.replace_all_uses_with(results[n])
        self._sums[blocks.operation] = {n: _Sum(results[n], BLOCK()) for n in each}
        erase(loop)


def _move_body(loop: ir.Operation, target: ir.Operation) -> None:
    """Move a loop's body into another loop, whose body is empty."""
    source, block = loop.regions[0].blocks[0], target.regions[0].blocks[0]
    for old, new in zip(source.arguments, block.arguments, strict=True):
        old.replace_all_uses_with(new)
    with ir.InsertionPoint(block):
        marker = scf.YieldOp([]).operation
    for view in list(source.operations):
        view.operation.move_before(marker)
    erase(marker)


def _trip_count(loop: ir.Operation) -> int:
    """Return an upper bound of a loop's trip count."""
    if MAX_TRIP_COUNT in loop.attributes:
        return int(ir.IntegerAttr(loop.attributes[MAX_TRIP_COUNT]).value)
    lo, hi, step = (constant_of(v) for v in list(loop.operands)[:_BOUNDS])
    if lo is None or hi is None or step is None:
        return _UNKNOWN
    return max(0, -(-(hi - lo) // step))


def _times(step: ir.Value, trip_count: int) -> ir.Value:
    known = constant_of(step)
    if known is not None:
        return arith.constant(step.type, known * trip_count)
    return arith.muli(step, arith.constant(step.type, trip_count))


def _carries_on(use: ir.OpOperand, loop: ir.Operation, number: int) -> bool:
    """Whether a use yields loop-carried value `number` in the loop's terminator."""
    owner = use.owner.operation
    return bool(owner.parent.operation == loop and use.operand_number == number)


def _added(use: ir.OpOperand) -> ir.Value | None:
    """Return the result of an addition to an accumulator, if this use of it is one."""
    operation, number = use.owner.operation, use.operand_number
    first = operation.name == "arith.subf" and number == 0
    if operation.name == "arith.addf" or first or (operation.name in _FUSED and number == 2):
        result: ir.Value = operation.results[0]
        return result
    return None


def _once(value: ir.Value) -> bool:
    return len(list(value.uses)) == 1


def _is_wide_float(type_: ir.Type) -> bool:
    """Whether a type is an accumulator type: f32, f64, or a vector of them."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return isinstance(element, ir.F32Type | ir.F64Type)


# --- pairs of a sum and its error ---------------------------------------------------------------------------------


def addition_identity(type_: ir.Type) -> ir.Value:
    """Return the identity of addition: -0.0, since -0.0 + -0.0 is -0.0."""
    return _constant_of(type_, -0.0)


def _constant_of(type_: ir.Type, number: float) -> ir.Value:
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    attribute: ir.Attribute = ir.FloatAttr.get(element, number)
    return arith.constant(type_, attribute if type_ == element else ir.DenseElementsAttr.get_splat(type_, attribute))


def two_sum(a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit TwoSum: the rounded sum of two numbers and its error, which add up to theirs exactly."""
    total = arith.addf(a, b)
    part = arith.subf(total, a)
    return total, arith.addf(arith.subf(a, arith.subf(total, part)), arith.subf(b, part))


def add_compensation(total: ir.Value, error: ir.Value) -> ir.Value:
    """Add the error to the sum. That of an infinite sum is NaN, and a zero one would hide the sum's sign."""
    matters = arith.cmpf(arith.CmpFPredicate.ONE, error, _constant_of(total.type, 0.0))
    return arith.select(matters, arith.addf(total, error), total)
