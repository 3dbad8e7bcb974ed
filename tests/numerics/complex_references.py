"""Functions of complex numbers with their exact values by mpmath, numbers that are hard for them, and how errors count.

An error is |result - exact| in units in the last place of the larger part of the exact value: the smaller part may be
nearly all cancellation. Signs of zeros and special values have no place here; C99 and numpy have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

Exact = Callable[..., Any]
DTYPES = {"c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128)}
#: exponents of the largest numbers of the parts, and of the smallest
TOP, BOTTOM = {"c64": 127, "c128": 1023}, {"c64": -149, "c128": -1074}
FRACTION = {"c64": 24, "c128": 53}
#: bits for mpmath: enough for angles of any size, and for logarithms of numbers next to 1
PRECISION = {"c64": 500, "c128": 2600}


@dataclass(frozen=True)
class Function:
    """A function of the builder.

    Attributes:
        exact: by mpmath.
        ulp: bounds for c64 and c128, which the tests hold.
        limit: the largest magnitude it is tried on, where mpmath would count digits for ever beyond.
        poles: points near which it is tried, besides the usual ones.
    """

    name: str
    exact: Exact
    ulp: tuple[float, float]
    limit: float = np.inf
    poles: tuple[complex, ...] = ()


def _cbrt(z: Any) -> Any:
    return mpmath.cbrt(abs(z)) * mpmath.expj(mpmath.arg(z) / 3)


_TURNS = tuple(np.pi * (k + 0.5) for k in range(-3, 3))
_ODD = tuple(1j * np.pi * (2 * k + 1) for k in range(-2, 2))
_ENDS = (1.0, -1.0, 1j, -1j)
UNARY = (
    Function("abs", abs, (0.51, 2)),
    Function("sign", lambda z: z / abs(z), (0.51, 3)),
    Function("sqrt", mpmath.sqrt, (0.51, 2)),
    Function("rsqrt", lambda z: 1 / mpmath.sqrt(z), (0.51, 4)),
    Function("cbrt", _cbrt, (0.51, 4)),
    Function("exp", mpmath.exp, (0.51, 3), 5e4),
    Function("expm1", mpmath.expm1, (0.51, 3), 5e4),
    Function("log", mpmath.log, (0.51, 2)),
    Function("log1p", lambda z: mpmath.log(1 + z), (0.51, 3), np.inf, (-1.0,)),
    Function("logistic", lambda z: 1 / (1 + mpmath.exp(-z)), (0.51, 6), 5e4, _ODD),
    Function("sin", mpmath.sin, (0.51, 3), 5e4),
    Function("cos", mpmath.cos, (0.51, 3), 5e4, _TURNS),
    Function("tan", mpmath.tan, (0.51, 4), 5e4, _TURNS),
    Function("sinh", mpmath.sinh, (0.51, 3), 5e4),
    Function("cosh", mpmath.cosh, (0.51, 3), 5e4),
    Function("tanh", mpmath.tanh, (0.51, 4), 5e4, tuple(1j * t for t in _TURNS)),
    Function("asin", mpmath.asin, (0.51, 3), np.inf, _ENDS),
    Function("acos", mpmath.acos, (0.51, 3), np.inf, _ENDS),
    Function("atan", mpmath.atan, (0.51, 3), np.inf, _ENDS),
    Function("asinh", mpmath.asinh, (0.51, 3), np.inf, _ENDS),
    Function("acosh", mpmath.acosh, (0.51, 3), np.inf, _ENDS),
    Function("atanh", mpmath.atanh, (0.51, 3), np.inf, _ENDS),
)
BINARY = (
    Function("div", lambda x, y: x / y, (0.51, 3)),
    Function("pow", lambda x, y: mpmath.exp(y * mpmath.log(x)), (0.51, 4)),
)


def exact_numbers(z: np.ndarray) -> list[Any]:
    """The numbers for mpmath."""
    return [mpmath.mpc(float(v.real), float(v.imag)) for v in z]


# ---- numbers that are hard -------------------------------------------------------------------------------------------


def _part(rng: np.random.Generator, count: int, low: float, high: float) -> np.ndarray:
    return np.asarray(rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(low, high, count))


def strata(name: str, count: int, seed: int = 7, poles: Sequence[complex] = ()) -> dict[str, np.ndarray]:
    """Numbers by what is hard about them."""
    rng = np.random.default_rng(seed)
    top, bottom = TOP[name], BOTTOM[name]

    def both(low: float, high: float) -> np.ndarray:
        return _part(rng, count, low, high) + 1j * _part(rng, count, low, high)

    circle = np.exp(1j * rng.uniform(-np.pi, np.pi, count))
    near = np.concatenate([both(-FRACTION[name] * 2, -1) + p for p in (1, -1, 1j, -1j, *poles)])
    made = {
        "ordinary": both(-3, 3),
        "small and large": both(-20, 5),
        "any": both(-top, top),
        "smallest": both(bottom, 12 - top),
        "largest": both(top - 5, top),
        "unit circle": np.concatenate([circle, circle - 1, circle * (1 + _part(rng, count, -50, -5))]),
        "branch points, poles": near,
        "large real part": _part(rng, count, 0, 9.6) + 1j * _part(rng, count, 0, 9),
        "overflow": _part(rng, count, -0.02, 0.02) * np.log(2.0) * top + 1j * _part(rng, count, -3, 5),
        "near the real axis": _part(rng, count, -3, 3) + 1j * _part(rng, count, -60, -10),
        "near the imaginary axis": _part(rng, count, -60, -10) + 1j * _part(rng, count, -3, 3),
        "far out on the real axis": _part(rng, count, 3, top) + 1j * _part(rng, count, bottom, 0),
        "far out on the imaginary axis": _part(rng, count, bottom, 0) + 1j * _part(rng, count, 3, top),
    }
    with np.errstate(all="ignore"):
        rounded = {k: z.astype(DTYPES[name]) for k, z in made.items()}
    return {k: z[np.isfinite(z) & (z.real != 0) & (z.imag != 0)] for k, z in rounded.items()}


def below(z: np.ndarray, limit: float) -> np.ndarray:
    """Those of a magnitude that mpmath can take."""
    return z[np.abs(z.astype(np.clongdouble)) < limit]


def pairs(name: str, count: int, seed: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Bases and exponents whose powers are in range, and some whose are not."""
    rng = np.random.default_rng(seed)

    def polar(low: float, high: float) -> np.ndarray:
        return 2.0 ** rng.uniform(low, high, count) * np.exp(1j * rng.uniform(-np.pi, np.pi, count))

    top = TOP[name]
    any_base = polar(-top, top)
    size = np.abs(np.log(np.abs(any_base)) + 1j * np.angle(any_base))
    near_one = 1 + _part(rng, count, -40, -1) + 1j * _part(rng, count, -40, -1)
    made = {
        "ordinary": (polar(-3, 3), polar(-3, 4)),
        "results of any size": (any_base, polar(0, np.log2(top * 0.65)) / size),
        "large exponents": (near_one, polar(0, 9) / np.abs(np.log(near_one))),
        "integers": (polar(-4, 4), rng.integers(-30, 30, count) + 0j),
        "real exponents": (polar(-9, 9), rng.normal(size=count) * 8 + 0j),
        "small exponents": (any_base, polar(-40, -5)),
    }
    rounded = {k: (x.astype(DTYPES[name]), y.astype(DTYPES[name])) for k, (x, y) in made.items()}
    return {k: (x[(x != 0) & (y != 0)], y[(x != 0) & (y != 0)]) for k, (x, y) in rounded.items()}


# ---- errors ----------------------------------------------------------------------------------------------------------


def errors(actual: np.ndarray, wanted: Sequence[Any], name: str) -> np.ndarray:
    """Each result's error in units in the last place; infinite where it should be finite and is not, or the reverse."""
    largest = mpmath.mpf(float(np.finfo(DTYPES[name]).max))
    rows = zip(actual, wanted, strict=True)
    return np.array([_error(value, mpmath.mpc(exact), name, largest) for value, exact in rows])


def _error(value: Any, exact: Any, name: str, largest: Any) -> float:
    size = max(abs(exact.real), abs(exact.imag))
    _, exponent = mpmath.frexp(size)
    unit = mpmath.ldexp(1, max(int(exponent) - FRACTION[name], BOTTOM[name]))
    found = 0.0
    for got, part in ((float(value.real), exact.real), (float(np.imag(value)), exact.imag)):
        if abs(part) > largest:
            found = max(found, 0.0 if abs(got) >= largest * 0.999 else np.inf)
        elif not np.isfinite(got):
            found = max(found, 1.0 if abs(part) > largest * (1 - mpmath.ldexp(1, -20)) else np.inf)
        else:
            found = max(found, float(abs(mpmath.mpf(got) - part) / unit))
    return found
