"""Comparisons, logic on truth values and on bits, shifts, choices between two, and tests of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, broadcast, convert, full_like
from stablexla.interop.torch.registry import aten

Binary = Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]


def _comparison(name: str, function: Binary) -> None:
    @aten(f"aten.{name}.Tensor", f"aten.{name}.Scalar", f"prims.{name}.default")
    def rule(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
        return function(*call.promoted(lhs, rhs))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name, getattr(sx, _name))


def _logical(name: str, function: Binary) -> None:
    @aten(f"aten.logical_{name}.default")
    def rule(call: Call, lhs: sx.XlaOp, rhs: sx.XlaOp) -> sx.XlaOp:
        x, y = call.promoted(convert(lhs, "pred"), convert(rhs, "pred"))
        return function(x, y)


def _bitwise(name: str, function: Binary) -> None:
    overloads = [f"aten.bitwise_{name}.{types}" for types in ("Tensor", "Scalar", "Scalar_Tensor")]

    @aten(*overloads, f"aten.__{name}__.Tensor", f"aten.__{name}__.Scalar", f"prims.bitwise_{name}.default")
    def rule(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
        return function(*call.promoted(lhs, rhs, type=call.type))


_OPERATIONS: dict[str, Binary] = {"and": sx.and_, "or": sx.or_, "xor": sx.xor}
for _name, _function in _OPERATIONS.items():
    _logical(_name, _function)
    _bitwise(_name, _function)


@aten("aten.logical_not.default")
def logical_not(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.not_(convert(x, "pred"))


@aten("aten.bitwise_not.default", "prims.bitwise_not.default")
def bitwise_not(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.not_(x)


def _shift(names: Sequence[str], function: Binary, factor: float) -> None:
    @aten(*names)
    def rule(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
        """Return integers shifted, beyond their width by all of it; floats times a power of two, as `<<` has it."""
        x, y = call.promoted(lhs, rhs, type=call.type)
        if x.element_type.is_float:
            return sx.mul(x, sx.pow(full_like(y, factor), y))
        return function(x, y)


def _shifts(name: str) -> list[str]:
    overloads = [f"aten.bitwise_{name}_shift.{types}" for types in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")]
    return [*overloads, f"aten.__{name[0]}shift__.Tensor", f"aten.__{name[0]}shift__.Scalar"]


_shift([*_shifts("left"), "prims.shift_left.default"], sx.shift_left, 2.0)
_shift([*_shifts("right"), "prims.shift_right_arithmetic.default"], operator.rshift, 0.5)


@aten(
    "aten.where.self", "aten.where.Scalar", "aten.where.ScalarSelf", "aten.where.ScalarOther", "prims.where.default"
)  # fmt: skip
def where(call: Call, condition: sx.XlaOp, on_true: Value, on_false: Value) -> sx.XlaOp:
    x, y = call.promoted(on_true, on_false, type=call.type)
    sizes = call.dimensions
    return sx.select(broadcast(convert(condition, "pred"), sizes), broadcast(x, sizes), broadcast(y, sizes))


def _test(name: str, function: Callable[[sx.XlaOp], sx.XlaOp], of_integers: bool = False, either: bool = True) -> None:
    @aten(f"{name}.default")
    def rule(call: Call, x: sx.XlaOp) -> sx.XlaOp:
        if x.element_type.is_complex:
            return (sx.or_ if either else sx.and_)(function(sx.real(x)), function(sx.imag(x)))
        if not x.element_type.is_float:
            return full_like(convert(x, "pred"), of_integers)
        return function(x)


_test("aten.isnan", sx.is_nan)
_test("aten.isinf", sx.is_inf)
_test("aten.isposinf", sx.is_pos_inf)
_test("aten.isneginf", sx.is_neg_inf)
_test("prims.isfinite", sx.is_finite, of_integers=True, either=False)
