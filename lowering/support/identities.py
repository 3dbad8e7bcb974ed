"""The identities of combiners, by StableHLO's names: what a reduction without an initial value starts from."""

from __future__ import annotations

from math import inf


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
