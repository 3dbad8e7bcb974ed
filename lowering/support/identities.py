"""The identities of binary operations, by StableHLO's names.

A reduction without an initial value starts from its combiner's, and an operation on one is its other operand.
"""

from __future__ import annotations

from math import inf

import numpy as np

from stablexla.dialects.element_types import ElementType

_ON_THE_RIGHT = {
    "divide": 1,
    "power": 1,
    "shift_left": 0,
    "shift_right_arithmetic": 0,
    "shift_right_logical": 0,
    "subtract": 0,
}
"""Identities as right operands alone, of integers and floats: x - 0 is x for x = -0 too."""


def identity_of(combiner: str, bits: int, *, floating: bool = False, unsigned: bool = False) -> float | None:
    """Return the identity of a combiner of floats, or of integers of so many bits; None for one without.

    That of a sum of floats is -0: 0 would change the sign of a sum of negative zeros.

    >>> identity_of("maximum", 8), identity_of("maximum", 8, unsigned=True), identity_of("add", 32, floating=True)
    (-128, 0, -0.0)
    """
    if floating:
        return {"add": -0.0, "multiply": 1.0, "maximum": -inf, "minimum": inf}.get(combiner)
    low = 0 if unsigned else -(1 << (bits - 1))
    high = low + (1 << bits) - 1
    ones = high if unsigned else -1
    return {"add": 0, "multiply": 1, "and": ones, "or": 0, "xor": 0, "maximum": low, "minimum": high}.get(combiner)


def is_identity(operation: str, bits: int, element: ElementType, *, on_left: bool = False) -> bool:
    """Whether a binary operation of real numbers with this operand is exactly its other operand, zeros' signs included.

    Args:
        bits: the operand's.
        on_left: whether it is the first operand.
    """
    if element.is_complex:  # inf * 1 is NaN in one part
        return False
    found = identity_of(operation, element.bits, floating=element.is_float, unsigned=not element.is_signed)
    if found is None and not on_left:
        found = _ON_THE_RIGHT.get(operation)
    if found is None:
        return False
    number = np.array(found, element.dtype)
    if number != found:  # the type has no zero, or no infinity
        return False
    return (bits ^ int(number.view(f"u{element.bytes}"))) & ((1 << element.bits) - 1) == 0
