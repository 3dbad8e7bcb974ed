"""Fits the polynomials of lowering/math: minimax by the Remez exchange, coefficients rounded one by one.

`python -m benchmarks.fit_polynomials [NAME ...]` prints the coefficients and log2 of the largest weighted error;
without a name, of all. A fit is a function g(x) on an interval with a weight w(x): the polynomial p minimises
max |w (p - g)|.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """One polynomial: what it approximates, where, with which weight, how many coefficients, rounded to what."""

    function: Function
    low: float
    high: float
    weight: Function
    terms: int
    width: int


def rounded(value: mp.mpf, width: int) -> mp.mpf:
    """The nearest f32 or f64."""
    double = float(value)
    if width == 64:
        return mp.mpf(double)
    return mp.mpf(struct.unpack("f", struct.pack("f", double))[0])


def nodes(low: float, high: float, count: int) -> list[mp.mpf]:
    """Chebyshev nodes, ascending."""
    middle, half = (mp.mpf(high) + low) / 2, (mp.mpf(high) - low) / 2
    return [middle - half * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]


def remez(x: list[mp.mpf], g: list[mp.mpf], w: list[mp.mpf], powers: list[int]) -> tuple[list[mp.mpf], mp.mpf]:
    """The minimax polynomial of these powers over the points, and its largest weighted error."""
    size = len(powers) + 1
    picked = [round(k * (len(x) - 1) / (size - 1)) for k in range(size)]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(25):
        matrix = mp.matrix(size, size)
        right = mp.matrix(size, 1)
        for row, k in enumerate(picked):
            for column, power in enumerate(powers):
                matrix[row, column] = x[k] ** power
            matrix[row, size - 1] = (-1) ** row / w[k]
            right[row] = g[k]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[i] for i in range(size - 1)]
        errors = [wi * (value(coefficients, powers, xi) - gi) for xi, gi, wi in zip(x, g, w)]
        largest = max(abs(e) for e in errors)
        if best is None or largest < best[1]:
            best = coefficients, largest
        if largest <= abs(solution[size - 1]) * mp.mpf("1.0005"):
            break
        picked = exchange(errors, size)
    assert best is not None
    return best


def value(coefficients: list[mp.mpf], powers: list[int], x: mp.mpf) -> mp.mpf:
    total = mp.mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total * x ** powers[0]


def exchange(errors: list[mp.mpf], size: int) -> list[int]:
    """The places of `size` extrema of alternating sign, the largest ones."""
    places: list[int] = []
    for k, error in enumerate(errors):
        if places and errors[places[-1]] * error >= 0:
            if abs(error) > abs(errors[places[-1]]):
                places[-1] = k
        else:
            places.append(k)
    while len(places) > size:
        if len(places) == size + 1:
            drop = 0 if abs(errors[places[0]]) < abs(errors[places[-1]]) else len(places) - 1
            places.pop(drop)
            continue
        k = min(range(len(places) - 1), key=lambda i: abs(errors[places[i]]) + abs(errors[places[i + 1]]))
        del places[k : k + 2]
    while len(places) < size:  # a degenerate step: fill up with what is not picked yet
        places = sorted({*places, next(k for k in range(len(errors)) if k not in places)})
    return places


def fit(problem: Fit) -> tuple[list[float], float]:
    """Coefficients, the constant one first, and log2 of the largest weighted error after rounding them.

    Once a coefficient is rounded the others can be fitted anew. With 0 inside the interval the powers without 1 may not
    level the error out, which can be worse than rounding all at once: the better of the two is taken.
    """
    x = nodes(problem.low, problem.high, 24 * (problem.terms + 2))
    exact = [problem.function(t) for t in x]
    weights = [max(abs(problem.weight(t)), mp.mpf(10) ** -25) for t in x]
    coefficients, _ = remez(x, exact, weights, list(range(problem.terms)))
    at_once = [rounded(c, problem.width) for c in coefficients]
    rest, in_turn = exact, []
    for power in range(problem.terms):
        if power:
            coefficients, _ = remez(x, rest, weights, list(range(power, problem.terms)))
        in_turn.append(rounded(coefficients[0], problem.width))
        rest = [r - in_turn[-1] * t**power for r, t in zip(rest, x)]

    def error(found: list[mp.mpf]) -> float:
        powers = list(range(problem.terms))
        return float(mp.log(max(abs(w * (value(found, powers, t) - g)) for t, g, w in zip(x, exact, weights)), 2))

    best = min((at_once, in_turn), key=error)
    return [float(c) for c in best], error(best)


def root_argument(f: Function) -> Function:
    """f(sqrt(z)): odd and even functions are fitted in z = x**2."""
    return lambda z: f(mp.sqrt(z))


def _exp(r: mp.mpf) -> mp.mpf:
    return (mp.expm1(r) - r) / r**2


def _log(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f + f * f / 2) / f**3


def _log_ratio(s: mp.mpf) -> mp.mpf:
    return (2 * mp.atanh(s) / s - 2) / s**2


HALF_LN2 = float(mp.log(2) / 2) * 1.001
LOG_LOW, LOG_HIGH = 2**0.5 / 2 - 1.0001, 2**0.5 - 0.9999
RATIO = (3 - 2 * 2**0.5) * 1.0002  # |f / (2 + f)| for f in [sqrt(1/2) - 1, sqrt(2) - 1]
QUARTER = float(mp.pi / 4) * 1.0001


def scaled_erfc(center: int) -> Function:
    """(1 + 2 x) exp(x**2) erfc(x) as a function of q = (x - center) / (x + center), for x >= 0."""

    def function(q: mp.mpf) -> mp.mpf:
        x = center * (1 + q) / (1 - q)
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)

    return function


def inverse_erf(w: mp.mpf) -> mp.mpf:
    """erf_inv(x) / x as a function of w = -log(1 - x**2)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def shifted(f: Function, low: float, high: float, center: float, terms: int) -> Fit:
    """f as a polynomial of x - center, in f64, with relative error."""
    return Fit(lambda t: f(t + center), low - center, high - center, lambda t: 1 / f(t + center), terms, 64)


def near_erf(limit: float, terms: int, width: int, center: float = 0.0) -> Fit:
    """erf(x) / x - 1 as a polynomial of x**2 - center up to `limit`, relative to erf."""
    function = root_argument(lambda x: mp.erf(x) / x - 1)
    weight = root_argument(lambda x: x / mp.erf(x))
    low, high = 1e-12 - center, limit**2 - center
    return Fit(lambda z: function(z + center), low, high, lambda z: weight(z + center), terms, width)


def odd(f: Function, limit: float, terms: int, width: int) -> Fit:
    """f(x) = x + x**3 p(x**2) up to `limit`, with relative error."""
    return Fit(
        root_argument(lambda x: (f(x) / x - 1) / x**2),
        1e-12,
        limit**2,
        root_argument(lambda x: x**3 / f(x)),
        terms,
        width,
    )


FITS: dict[str, Fit] = {
    # exp(r) = 1 + r + r**2 p(r), relative to expm1
    "exp f32": Fit(_exp, -HALF_LN2, HALF_LN2, lambda r: r * r / mp.expm1(r), 5, 32),
    "exp f64": Fit(_exp, -HALF_LN2, HALF_LN2, lambda r: r * r / mp.expm1(r), 11, 64),
    "exp short": Fit(_exp, -HALF_LN2, HALF_LN2, lambda r: r * r / mp.expm1(r), 6, 64),
    "exp shortest": Fit(_exp, -HALF_LN2, HALF_LN2, lambda r: r * r / mp.exp(r), 4, 32),
    # log(1 + f) = f - f**2 / 2 + f**3 p(f)
    "log f32": Fit(_log, LOG_LOW, LOG_HIGH, lambda f: f**3 / mp.log1p(f), 9, 32),
    # log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s**2
    "log f64": Fit(root_argument(_log_ratio), 1e-12, RATIO**2, lambda z: z / 2, 7, 64),
    "log short": Fit(root_argument(_log_ratio), 1e-12, RATIO**2, lambda z: z / 2, 4, 64),
    # the same with 2/3 taken out: 2 s + s z (2/3 + z p(z))
    "log pair": Fit(
        root_argument(lambda s: (_log_ratio(s) - mp.mpf(2) / 3) / s**2), 1e-9, RATIO**2, lambda z: z * z / 2, 8, 64
    ),
    "tanh f32": odd(mp.tanh, 0.625, 5, 32),
    "sin f32": odd(mp.sin, QUARTER, 3, 32),
    "sin f64": odd(mp.sin, QUARTER, 7, 64),
    # cos(x) = 1 - z / 2 + z**2 p(z)
    "cos f32": Fit(
        root_argument(lambda x: (mp.cos(x) - 1 + x * x / 2) / x**4), 1e-9, QUARTER**2, lambda z: z**2, 3, 32
    ),
    "cos f64": Fit(
        root_argument(lambda x: (mp.cos(x) - 1 + x * x / 2) / x**4), 1e-9, QUARTER**2, lambda z: z**2, 6, 64
    ),
    "atan f32": odd(mp.atan, 0.5, 6, 32),
    "atan f64": odd(mp.atan, 0.5, 13, 64),
    "asin f32": odd(mp.asin, 0.5, 5, 32),
    "asin f64": odd(mp.asin, 0.5, 12, 64),
    "sinh f32": odd(mp.sinh, 1.0, 4, 32),
    "sinh f64": odd(mp.sinh, 1.0, 8, 64),
    # the cube root of x from t near it: t p(t**3 / x)
    "cbrt": Fit(lambda r: 1 / mp.cbrt(r), 0.9095, 1.0995, mp.cbrt, 7, 64),
    # exp(2 x) = 1 + 2 x + x**2 p(x), relative to exp(2 x)
    "tanh far f32": Fit(
        lambda r: (mp.expm1(2 * r) - 2 * r) / r**2, -HALF_LN2 / 2, HALF_LN2 / 2, lambda r: r * r / mp.exp(2 * r), 5, 32
    ),
    # erf(x) = x + x p(z - 1/2)
    "erf f32": near_erf(1.0848, 7, 32, 0.5),
    # erf(x) = x + x p(z)
    "erf f64": near_erf(1.0, 13, 64),
    # erfc(t) = p(t - 1.25)**3
    "erf far f32": Fit(
        lambda u: mp.cbrt(mp.erfc(u + 1.25)),
        1.0848 - 1.25,
        3.93 - 1.25,
        lambda u: 3 * mp.cbrt(mp.erfc(u + 1.25)) ** 2 / mp.erf(u + 1.25),
        9,
        32,
    ),
    # erfc(t) = exp(t p(t) - t)
    "erf far f64": Fit(lambda t: mp.log(mp.erfc(t)) / t + 1, 1, 6.0, lambda t: t * mp.erfc(t) / mp.erf(t), 18, 64),
    # erfc(x) = p(q) exp(-x**2) / (1 + 2 x), q = (x - 4) / (x + 4)
    "erfc f64": Fit(scaled_erfc(4), -1, 0.75, lambda q: 1 / scaled_erfc(4)(q), 22, 64),
    # erf_inv(x) = x p(w - center) for small w, x p(sqrt(w) - center) for large
    # (centres at which the first coefficient is nearly an f64 are the better ones)
    "erf_inv short": shifted(inverse_erf, 0.0, 5.0, 2.5, 12),
    "erf_inv short tail": shifted(lambda s: inverse_erf(s * s), 2.2, 4.2, 3.2, 13),
    "erf_inv f64": shifted(inverse_erf, 0.0, 6.25, 3.125, 25),
    "erf_inv f64 tail": shifted(lambda s: inverse_erf(s * s), 2.5, 4.0, 3.171875, 20),
    "erf_inv f64 far tail": shifted(lambda s: inverse_erf(s * s), 4.0, 6.05, 5.119140625, 20),
}


def main(names: list[str]) -> None:
    mp.mp.dps = 50
    for name in names or FITS:
        coefficients, error = fit(FITS[name])
        print(f"{name}: error 2**{error:.2f}")
        print("    " + ", ".join(repr(c) for c in coefficients))


if __name__ == "__main__":
    main(sys.argv[1:])
