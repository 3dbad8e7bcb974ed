"""Integer arithmetic of `main`, evaluated at compile time: the bits of results from the bits of operands.

Numbers are unsigned Python integers of the operand's width. Arithmetic on floats is left out: its results could
differ from those of the host's machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir

_COMPARED: dict[int, Callable[[int, int], bool]] = {
    0: lambda a, b: a == b,
    1: lambda a, b: a != b,
    2: lambda a, b: a < b,
    3: lambda a, b: a <= b,
    4: lambda a, b: a > b,
    5: lambda a, b: a >= b,
}
"""The predicates of `arith.cmpi`; from 6 on those of 2 and following, unsigned."""

_PLAIN: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.maxui": max,
    "arith.minui": min,
}
"""Operations on unsigned numbers."""

_SIGNED: dict[str, Callable[[int, int], int]] = {"arith.maxsi": max, "arith.minsi": min}

_DIVISIONS: dict[str, tuple[bool, Callable[[int, int], int]]] = {
    "arith.divui": (False, lambda a, b: a // b),
    "arith.remui": (False, lambda a, b: a % b),
    "arith.ceildivui": (False, lambda a, b: -(-a // b)),
    "arith.divsi": (True, lambda a, b: _toward_zero(a, b)),
    "arith.remsi": (True, lambda a, b: a - b * _toward_zero(a, b)),
    "arith.floordivsi": (True, lambda a, b: a // b),
    "arith.ceildivsi": (True, lambda a, b: -(-a // b)),
}
"""Divisions, each with whether it is signed; undefined for a divisor of 0."""

_SHIFTS: dict[str, tuple[bool, Callable[[int, int], int]]] = {
    "arith.shli": (False, lambda a, n: a << n),
    "arith.shrui": (False, lambda a, n: a >> n),
    "arith.shrsi": (True, lambda a, n: a >> n),
}
"""Shifts, each with whether it is signed; undefined for the width and more."""

_SAME_BITS = ("arith.index_castui", "arith.extui", "arith.trunci", "arith.bitcast")
_SIGN_EXTENDED = ("arith.index_cast", "arith.extsi")


def width_of(type_: ir.Type) -> int:
    """Return the bits of a scalar; an index has 64, and 0 stands for a type that is none."""
    if isinstance(type_, ir.IndexType):
        return 64
    return int(type_.width) if isinstance(type_, ir.IntegerType | ir.FloatType) else 0


def evaluate(op: ir.Operation, operands: Sequence[int]) -> int | None:
    """Return the result of an operation on integers; None if it has none that is defined, or is of another kind."""
    found = _value(op, operands)
    return None if found is None else found & ((1 << width_of(op.results[0].type)) - 1)


def _value(op: ir.Operation, operands: Sequence[int]) -> int | None:
    name, width = op.name, width_of(op.operands[0].type) if len(op.operands) else 0
    if name in _SAME_BITS:
        return operands[0]
    if name in _SIGN_EXTENDED:
        return _signed(operands[0], width)
    if name == "arith.select":
        return operands[1] if operands[0] else operands[2]
    if name in _PLAIN:
        return _PLAIN[name](*operands)
    if name in _SIGNED:
        return _SIGNED[name](*(_signed(n, width) for n in operands))
    if name == "arith.cmpi":
        predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
        if predicate >= 6:
            return int(_COMPARED[predicate - 4](*operands))
        return int(_COMPARED[predicate](*(_signed(n, width) for n in operands)))
    if name in _DIVISIONS and operands[1]:
        is_signed, divide = _DIVISIONS[name]
        return divide(*(_signed(n, width) if is_signed else n for n in operands))
    if name in _SHIFTS and operands[1] < width:
        is_signed, shift = _SHIFTS[name]
        return shift(_signed(operands[0], width) if is_signed else operands[0], operands[1])
    return None


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
