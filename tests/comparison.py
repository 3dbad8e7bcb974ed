"""Comparing arrays the way numerical results should be: bits for integers, units in the last place for floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from stablexla.inspection.judging.tolerances import ulp_distance


def assert_same(actual: Any, expected: Any, *, ulp: float = 0, scale: float = 0) -> None:
    """The same shape, type and values; floats may be `ulp` units in the last place apart.

    Args:
        ulp: for floats and the parts of complex numbers.
        scale: also allows a difference of this fraction of the largest magnitude, for sums with cancellation.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    if actual.tobytes() == expected.tobytes():
        return
    if actual.dtype.kind == "c":
        assert_same(actual.real, expected.real, ulp=ulp, scale=scale)
        assert_same(actual.imag, expected.imag, ulp=ulp, scale=scale)
        return
    if actual.dtype.kind in "biu" or "int" in actual.dtype.name:
        np.testing.assert_array_equal(actual, expected)
        return
    with np.errstate(invalid="ignore"):
        distance = ulp_distance(np.ascontiguousarray(actual), np.ascontiguousarray(expected))
        wide = [a.astype(np.float64).reshape(-1) for a in (actual, expected)]
    finite = np.abs(wide[1][np.isfinite(wide[1])])
    with np.errstate(invalid="ignore"):
        near = np.abs(wide[0] - wide[1]) <= scale * finite.max(initial=0.0)
    wrong = (distance > ulp) & ~near
    if wrong.any():
        i = int(np.argmax(np.where(wrong, distance, -1)))
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} differ; the worst by {distance[i]} ulp at {i}: "
            f"{actual.reshape(-1)[i]!r} where {expected.reshape(-1)[i]!r} is right"
        )
