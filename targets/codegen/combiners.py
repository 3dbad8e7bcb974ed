"""Combiners of windows and scans that are single operations, on scalars and vectors, and their identities."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value

_SIMPLE: dict[str, Callable[[Value, Value], Value]] = {
    "add": Value.__add__,
    "multiply": Value.__mul__,
    "and": Value.__and__,
    "or": Value.__or__,
    "xor": Value.__xor__,
}


def combine_values(name: str, a: Value, b: Value, *, unsigned: bool) -> Value:
    """Apply the combiner of a StableHLO name to two values."""
    if name in _SIMPLE:
        return _SIMPLE[name](a, b)
    word = "max" if name == "maximum" else "min"
    kind = "imumf" if cg.is_float(a.type) else "ui" if unsigned else "si"
    return Value(getattr(arith, word + kind)(a.ssa, b.ssa))


def identity(name: str, element: ir.Type, *, unsigned: bool) -> float | None:
    """Return the identity of a combiner; None for element types that are computed in another way."""
    if isinstance(element, ir.F32Type | ir.F64Type):
        return {"add": -0.0, "multiply": 1.0, "maximum": -inf, "minimum": inf}.get(name)
    if not isinstance(element, ir.IntegerType):
        return None
    width = int(element.width)
    low = 0 if unsigned else -(1 << (width - 1))
    high = low + (1 << width) - 1
    known = {"multiply": 1, "and": -1, "maximum": low, "minimum": high, "add": 0, "or": 0, "xor": 0}
    return known.get(name)


def compare(direction: str, a: Value, b: Value, *, unsigned: bool) -> Value:
    """Compare two values in a StableHLO direction: LT, GE ..."""
    if unsigned and direction not in ("EQ", "NE"):
        predicate = getattr(arith.CmpIPredicate, "u" + direction.lower())
        return Value(arith.cmpi(predicate, a.ssa, b.ssa))
    made: Value = getattr(a, direction.lower())(b)
    return made
