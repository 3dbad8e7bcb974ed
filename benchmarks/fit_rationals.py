"""Fits the rational functions of lowering/math: least squares with the denominator of the step before, and
weights that grow where the error is large (Lawson's iteration), until it is nearly minimax.

`python -m benchmarks.fit_rationals` prints numerator, denominator (constants first, the denominator's is 1) and log2 of
the largest relative error.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

from benchmarks.fit_polynomials import nodes

Function = Callable[[mp.mpf], mp.mpf]
Rational = tuple[list[mp.mpf], list[mp.mpf], mp.mpf]
ROUNDS = 25


def fit_rational(f: Function, high: float, top: int, bottom: int) -> Rational:
    """Numerator of degree `top`, denominator of degree `bottom` and the largest relative error on [0, high]."""
    x = nodes(0.0, high, 30 * (top + bottom + 2))
    exact = [f(t) for t in x]
    weights = [mp.mpf(1)] * len(x)
    divisors = list(weights)
    best: Rational | None = None
    for _ in range(ROUNDS):
        numerator, denominator = _least_squares(x, exact, weights, divisors, top, bottom)
        divisors = [mp.polyval(denominator[::-1], t) for t in x]
        values = [mp.polyval(numerator[::-1], t) / d for t, d in zip(x, divisors, strict=True)]
        errors = [abs(v / g - 1) for v, g in zip(values, exact, strict=True)]
        if best is None or max(errors) < best[2]:
            best = numerator, denominator, max(errors)
        mean = sum(w * e for w, e in zip(weights, errors, strict=True)) / len(x)
        weights = [w * e / mean for w, e in zip(weights, errors, strict=True)]
    assert best is not None
    return best


def _least_squares(
    x: list[mp.mpf], exact: list[mp.mpf], weights: list[mp.mpf], divisors: list[mp.mpf], top: int, bottom: int
) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """Minimises the sum of w ((A - f B) / (f B'))**2 for B' of the step before; B begins with 1."""
    rows = mp.matrix(len(x), top + 1 + bottom)
    right = mp.matrix(len(x), 1)
    for i, (t, g) in enumerate(zip(x, exact, strict=True)):
        factor = mp.sqrt(weights[i]) / (g * divisors[i])
        for power in range(top + 1):
            rows[i, power] = factor * t**power
        for power in range(1, bottom + 1):
            rows[i, top + power] = -factor * g * t**power
        right[i] = factor * g
    turned = rows.T
    solution = list(mp.lu_solve(turned * rows, turned * right))
    return solution[: top + 1], [mp.mpf(1), *solution[top + 1 :]]


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    return mp.exp(t * t) * mp.erfc(t)


# erfc(x) = exp(-x**2) p(x) / q(x); beyond 10.06 it is 0 in f32
FITS = {"erfc short": (scaled_erfc, 10.1, 5, 6), "erfc shortest": (scaled_erfc, 10.1, 3, 4)}


def main() -> None:
    mp.mp.dps = 40
    for name, problem in FITS.items():
        numerator, denominator, error = fit_rational(*problem)
        print(f"{name}: error 2**{float(mp.log(error, 2)):.2f}")
        for part in (numerator, denominator):
            print("    " + ", ".join(repr(float(c)) for c in part))


if __name__ == "__main__":
    main()
