"""Match reduction bodies that select between two (value, index) pairs: argmax and argmin.

A body of comparisons, logic and selects can only distinguish how the two values and the two indices compare, so
evaluating every case shows what it does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.loop_nest import Reduction

# A new value and the best one so far: less, equal, greater, and for floats with NaN on either side and on both.
_CASES = ((1, 2), (1, 1), (2, 1), (math.nan, 1), (1, math.nan), (math.nan, math.nan))
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "ne": lambda a, b: a < b or a > b,
    "rd": lambda a, b: a == a and b == b,
}
# The negation of an unordered comparison of floats is an ordered one.
_NEGATED = {"uno": "rd", "une": "eq", "ueq": "ne", "ugt": "le", "uge": "lt", "ult": "ge", "ule": "gt"}
_LOGIC: dict[str, Callable[[Any, Any], bool]] = {"ori": operator.or_, "andi": operator.and_, "xori": operator.ne}


@dataclass(frozen=True)
class ArgSelection:
    """The argmax/argmin combiner: keeps the better of two values, the first one of equals and NaN above all.

    Attributes:
        value: which operand holds the values, 0 or 1; the other holds the indices.
        type: element type that values are compared in.
        stored: element type of the values.
        largest: whether larger is better.
        unsigned: whether integers are compared as unsigned.
    """

    value: int
    type: ir.Type
    stored: ir.Type
    largest: bool
    unsigned: bool

    def worst(self) -> float:
        """Return the identity: a value that none is worse than."""
        if cg.is_float(self.type):
            return float("-inf") if self.largest else float("inf")
        bits = cg.bits_of(self.type)
        if self.unsigned:
            return 0 if self.largest else -1
        return -(1 << (bits - 1)) if self.largest else (1 << (bits - 1)) - 1

    def widened(self, value: Value) -> Value:
        """Extend a value from its storage type to the type that it is compared in."""
        return value if self.type == self.stored else Value(arith.extf(cg.vector_of(value.lanes, self.type), value.ssa))

    def narrowed(self, value: Value) -> Value:
        """Truncate to the storage type: the inverse of `widened`."""
        stored = cg.vector_of(value.lanes, self.stored)
        return value if self.type == self.stored else Value(arith.truncf(stored, value.ssa))

    def better(self, new: Value, best: Value) -> Value:
        """Return whether `new` replaces an earlier `best`."""
        if cg.is_float(self.type):
            order = "UGT" if self.largest else "ULT"
            return _cmpf(order, new, best) & _cmpf("ORD", best, best)
        sign = "u" if self.unsigned else "s"
        return _cmpi(sign + ("gt" if self.largest else "lt"), new, best)

    def equal(self, a: Value, b: Value) -> Value:
        """Return whether neither is better."""
        if not cg.is_float(self.type):
            return _cmpi("eq", a, b)
        return _cmpf("OEQ", a, b) | (_cmpf("UNO", a, a) & _cmpf("UNO", b, b))


def _cmpf(predicate: str, a: Value, b: Value) -> Value:
    return Value(arith.cmpf(getattr(arith.CmpFPredicate, predicate), a.ssa, b.ssa))


def _cmpi(predicate: str, a: Value, b: Value) -> Value:
    return Value(arith.cmpi(getattr(arith.CmpIPredicate, predicate), a.ssa, b.ssa))


def match_arg_selection(fold: Reduction) -> ArgSelection | None:
    """Match a reduction of two operands as argmax or argmin, else return None; indices must grow with the place."""
    if len(fold.starts) != 2 or len(fold.operands) != 2:
        return None
    for value in (0, 1):
        index_type = fold.block.arguments[1 - value].type
        if isinstance(index_type, ir.IntegerType):
            found = _match(fold, value)
            if found is not None:
                return found
    return None


def _match(fold: Reduction, value: int) -> ArgSelection | None:
    stored = fold.block.arguments[value].type
    trials = [_Trial(fold, value, case) for case in _CASES[: 6 if isinstance(stored, ir.FloatType) else 3]]
    try:
        outcomes = [trial.outcome() for trial in trials]
    except _NotASelection:
        return None
    unsigned = {u for trial in trials for u in trial.unsigned}
    type_ = next((t for trial in trials for t in trial.types), stored)
    for largest in (True, False):
        if len(unsigned) <= 1 and all(
            _is_wanted(trial, kept, largest) for trial, kept in zip(trials, outcomes, strict=True)
        ):
            return ArgSelection(value, type_, stored, largest, unsigned == {True})
    return None


@dataclass(frozen=True)
class _Operand:
    """A value or an index, new or best so far: a number that compares with the other one as the case has it."""

    is_index: bool
    is_new: bool
    number: float


def _is_wanted(trial: _Trial, kept: tuple[_Operand, _Operand], largest: bool) -> bool:
    """Whether argmax or argmin keeps this value and index; which of two equal values is kept makes no difference."""
    value, index = kept
    new, best = trial.case
    if new == best or (new != new and best != best):
        return not index.is_new
    takes_new = new != new or (best == best and (new > best) is largest)
    return value.is_new is index.is_new is takes_new


class _NotASelection(Exception):
    """The body is neither argmax nor argmin."""


class _Trial:
    """Evaluation of a body in one case, on numbers that stand for the operands. The new index is the larger one."""

    def __init__(self, fold: Reduction, value: int, case: tuple[float, float]) -> None:
        self.case, self.unsigned, self.types = case, set[bool](), list[ir.Type]()
        self._block, self._value = fold.block, value
        self._known: dict[ir.Value, _Operand | bool] = {}
        for number, argument in enumerate(fold.block.arguments):
            is_new, is_index = number < 2, number % 2 != value
            at = int(is_new) if is_index else case[0 if is_new else 1]
            self._known[argument] = _Operand(is_index, is_new, at)

    def outcome(self) -> tuple[_Operand, _Operand]:
        """Return the value and the index that the body keeps."""
        *operations, end = (view.operation for view in self._block.operations)
        for operation in operations:
            self._known[operation.results[0]] = self._run(operation)
        value, index = (self._get(end.operands[number]) for number in (self._value, 1 - self._value))
        if isinstance(value, bool) or isinstance(index, bool) or value.is_index or not index.is_index:
            raise _NotASelection
        return value, index

    def _get(self, value: ir.Value) -> _Operand | bool:
        if value not in self._known:
            raise _NotASelection
        return self._known[value]

    def _run(self, operation: ir.Operation) -> _Operand | bool:
        name = operation.name.removeprefix("arith.")
        if name == "constant" and isinstance(operation.attributes["value"], ir.BoolAttr):
            return bool(operation.attributes["value"].value)
        operands = [self._get(v) for v in operation.operands]
        given = [v for v in operands if not isinstance(v, bool)]
        if name in ("extf", "truncf") and given:
            self.types += [operation.results[0].type] if name == "extf" else []
            return given[0]
        if name == "select" and isinstance(operands[0], bool):
            return operands[1 if operands[0] else 2]
        if name in _LOGIC and not given:
            return _LOGIC[name](*operands)
        if len(given) != 2 or given[0].is_index != given[1].is_index:
            raise _NotASelection
        if name in ("cmpf", "cmpi"):
            return self._compare(operation, *given)
        if name in ("minsi", "minui") and given[0].is_index and given[0] != given[1]:
            return min(given, key=lambda index: index.number)
        raise _NotASelection

    def _compare(self, operation: ir.Operation, a: _Operand, b: _Operand) -> bool:
        predicate = ir.IntegerAttr(operation.attributes["predicate"]).value
        if operation.name == "arith.cmpi":
            kind = str(arith.CmpIPredicate(predicate))
            if kind[0] in "su" and not a.is_index:
                self.unsigned.add(kind[0] == "u")
            return _COMPARISONS[kind[-2:]](a.number, b.number)
        kind = str(arith.CmpFPredicate(predicate))
        if a.is_index:
            raise _NotASelection
        if kind in ("false", "true"):
            return kind == "true"
        negated = _NEGATED.get(kind)
        return _COMPARISONS[negated or kind[-2:]](a.number, b.number) is (negated is None)
