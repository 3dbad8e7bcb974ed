"""Match reduction bodies that select between two (value, index) pairs: argmax and argmin.

A body of comparisons, logic and selects can only distinguish how the two values and the two indices compare, so
evaluating every case symbolically shows what it does.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.loop_nest import Reduction

# The cases of a comparison between a new value and the best one so far.
_CASES = ("less", "equal", "greater", "new is NaN", "best is NaN", "both are NaN")
_NEW, _BEST, _NEW_INDEX, _BEST_INDEX = "new", "best", "new index", "best index"
# Comparison predicate -> the cases in which it holds, for operands in the order (new, best).
_FLOAT = {
    "oeq": {"equal"},
    "ogt": {"greater"},
    "oge": {"greater", "equal"},
    "olt": {"less"},
    "ole": {"less", "equal"},
    "one": {"less", "greater"},
    "ord": {"less", "equal", "greater"},
}
_INTEGER = {
    "eq": {"equal"},
    "ne": {"less", "greater"},
    "gt": {"greater"},
    "ge": {"greater", "equal"},
    "lt": {"less"},
    "le": {"less", "equal"},
}


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
        return (
            value
            if self.type == self.stored
            else Value(arith.truncf(cg.vector_of(value.lanes, self.stored), value.ssa))
        )

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
    cases = _CASES if isinstance(stored, ir.FloatType) else _CASES[:3]
    trials = [_Trial(fold, value, case) for case in cases]
    try:
        outcomes = {trial.case: trial.outcome() for trial in trials}
    except _NotASelection:
        return None
    unsigned = {u for trial in trials for u in trial.unsigned}
    type_ = next((t for trial in trials for t in trial.types), stored)
    for largest in (True, False):
        if outcomes == _wanted(outcomes, largest) and len(unsigned) <= 1:
            return ArgSelection(value, type_, stored, largest, unsigned == {True})
    return None


def _wanted(outcomes: dict[str, tuple[str, str]], largest: bool) -> dict[str, tuple[str, str]]:
    """Return the outcomes of argmax or argmin; which of two equal values is kept makes no difference."""
    new, best = (_NEW, _NEW_INDEX), (_BEST, _BEST_INDEX)
    wanted = {"greater": new if largest else best, "less": best if largest else new}
    wanted |= {"new is NaN": new, "best is NaN": best}
    for case in ("equal", "both are NaN"):
        wanted[case] = (outcomes.get(case, best)[0], _BEST_INDEX)
    return {case: wanted[case] for case in outcomes}


class _NotASelection(Exception):
    """The body is neither argmax nor argmin."""


class _Trial:
    """Symbolic evaluation of a body in one case, on names instead of values. The new index is the larger one."""

    def __init__(self, fold: Reduction, value: int, case: str) -> None:
        self.case = case
        self.unsigned: set[bool] = set()
        self.types: list[ir.Type] = []
        self._block = fold.block
        names = [_NEW, _NEW_INDEX, _BEST, _BEST_INDEX]
        if value:
            names = [_NEW_INDEX, _NEW, _BEST_INDEX, _BEST]
        self._value = value
        self._known: dict[ir.Value, str | bool] = dict(zip(fold.block.arguments, names, strict=True))

    def outcome(self) -> tuple[str, str]:
        """Return the names of the resulting value and index."""
        for view in self._block.operations:
            operation = view.operation
            if operation.name != "linalg.yield":
                self._known[operation.results[0]] = self._run(operation)
        results = [self._get(v) for v in terminator_of(self._block).operands]
        value, index = results[self._value], results[1 - self._value]
        if not isinstance(value, str) or not isinstance(index, str):
            raise _NotASelection
        return value, index

    def _get(self, value: ir.Value) -> str | bool:
        if value not in self._known:
            raise _NotASelection
        return self._known[value]

    def _run(self, operation: ir.Operation) -> str | bool:
        name = operation.name.removeprefix("arith.")
        if name == "constant":
            attribute = operation.attributes["value"]
            if isinstance(attribute, ir.BoolAttr):
                return bool(attribute.value)
            raise _NotASelection
        operands = [self._get(v) for v in operation.operands]
        if name in ("cmpf", "cmpi"):
            return self._compare(operation, operands)
        if name in ("extf", "truncf"):
            if name == "extf":
                self.types.append(operation.results[0].type)
            return operands[0]
        if name == "select":
            return operands[1] if self._truth(operands[0]) else operands[2]
        if name in ("minsi", "minui") and set(operands) == {_NEW_INDEX, _BEST_INDEX}:
            return _BEST_INDEX
        return self._logic(name, [self._truth(v) for v in operands])

    def _truth(self, value: str | bool) -> bool:
        if not isinstance(value, bool):
            raise _NotASelection
        return value

    def _logic(self, name: str, operands: list[bool]) -> bool:
        if name == "ori":
            return any(operands)
        if name == "andi":
            return all(operands)
        if name == "xori":
            return operands[0] != operands[1]
        raise _NotASelection

    def _compare(self, operation: ir.Operation, operands: list[str | bool]) -> bool:
        predicate = ir.IntegerAttr(operation.attributes["predicate"]).value
        case = self._case(operands)
        if operation.name == "arith.cmpf":
            if not set(operands) <= {_NEW, _BEST}:
                raise _NotASelection
            return _float_holds(str(arith.CmpFPredicate(predicate)), case)
        kind = str(arith.CmpIPredicate(predicate))
        if kind[0] in "su" and set(operands) & {_NEW, _BEST}:
            self.unsigned.add(kind[0] == "u")
        return case in _INTEGER[kind if kind in _INTEGER else kind[1:]]

    def _case(self, operands: list[str | bool]) -> str:
        """Return how the first operand compares with the second."""
        first, second = operands
        if {first, second} == {_NEW_INDEX, _BEST_INDEX}:
            return "greater" if first == _NEW_INDEX else "less"
        if first == second and first in (_NEW_INDEX, _BEST_INDEX):
            return "equal"
        if {first, second} == {_NEW, _BEST}:
            turned = {"less": "greater", "greater": "less"}
            return self.case if first == _NEW else turned.get(self.case, self.case)
        if first == second and first in (_NEW, _BEST):
            nans = {_NEW: ("new is NaN", "both are NaN"), _BEST: ("best is NaN", "both are NaN")}
            return "both are NaN" if self.case in nans[str(first)] else "equal"
        raise _NotASelection


def _float_holds(predicate: str, case: str) -> bool:
    """Return whether a float comparison holds; an unordered one is the opposite of an ordered one."""
    if predicate in ("false", "true"):
        return predicate == "true"
    opposites = {"uno": "ord", "une": "oeq", "ueq": "one", "ugt": "ole", "uge": "olt", "ult": "oge", "ule": "ogt"}
    if predicate in opposites:
        return case not in _FLOAT[opposites[predicate]]
    return case in _FLOAT[predicate]
