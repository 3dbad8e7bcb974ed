"""Combiners of windows and scans that are single operations, on scalars and vectors, and their identities."""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.lowering.support.identities import identity_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value

_SIMPLE: dict[str, Callable[[Value, Value], Value]] = {
    "add": Value.__add__,
    "multiply": Value.__mul__,
    "and": Value.__and__,
    "or": Value.__or__,
    "xor": Value.__xor__,
}


def plus_zero(value: Value) -> Value:
    """Return -0.0 as 0.0, in f32 at least; integers as they are."""
    if not cg.is_float(value.type):
        return value
    wide = cg.to_float(value, ir.F32Type.get()) if cg.bits_of(value.type) < 32 else value
    return cg.to_float(wide + cg.constant(0.0, wide.type), value.element)


def combine_values(name: str, a: Value, b: Value, *, unsigned: bool) -> Value:
    """Apply the combiner of a StableHLO name to two values."""
    if name in _SIMPLE:
        return _SIMPLE[name](a, b)
    word = "max" if name == "maximum" else "min"
    kind = "imumf" if cg.is_float(a.type) else "ui" if unsigned else "si"
    return Value(getattr(arith, word + kind)(a.ssa, b.ssa))


def identity(name: str, element: ir.Type, *, unsigned: bool) -> float | None:
    """Return the identity of a combiner; None for element types that are computed in another way."""
    if not isinstance(element, ir.F32Type | ir.F64Type | ir.IntegerType):
        return None
    return identity_of(name, element.width, floating=cg.is_float(element), unsigned=unsigned)


def compare(direction: str, a: Value, b: Value, *, unsigned: bool) -> Value:
    """Compare two values in a StableHLO direction: LT, GE ..."""
    if unsigned and direction not in ("EQ", "NE"):
        predicate = getattr(arith.CmpIPredicate, "u" + direction.lower())
        return Value(arith.cmpi(predicate, a.ssa, b.ssa))
    made: Value = getattr(a, direction.lower())(b)
    return made
