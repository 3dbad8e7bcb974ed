"""Complex arithmetic and elementary functions, over the whole plane and at its special points.

Oracles: mpmath for finite numbers; for infinities, NaN and signed zeros XLA:CPU and numpy, which follows C99 (Annex G).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest

import stablexla as sx
from tests import oracles
from tests.programs import check, run

LARGEST = {"c64": 127, "c128": 1023}
PRECISION = {"c64": 24, "c128": 53}
DTYPE = {"c64": np.complex64, "c128": np.complex128}


@dataclass(frozen=True)
class Row:
    """A function, its meaning in mpmath, the magnitudes it is tried on, and how many units in the last place of the
    larger part of the result a part of it may be off, for c128. For c64 all are rounded only once."""

    name: str
    meaning: Callable[..., Any]
    ulp: float
    limit: float = np.inf


UNARY = [
    Row("abs", abs, 2),
    Row("sign", lambda z: z / abs(z), 3),
    Row("sqrt", mpmath.sqrt, 2),
    Row("rsqrt", lambda z: 1 / mpmath.sqrt(z), 4),
    Row("cbrt", lambda z: mpmath.cbrt(abs(z)) * mpmath.expj(mpmath.arg(z) / 3), 4),
    Row("exp", mpmath.exp, 3, 5e4),
    Row("expm1", lambda z: mpmath.exp(z) - 1, 3, 5e4),
    Row("log", mpmath.log, 2),
    Row("log1p", lambda z: mpmath.log(1 + z), 3),
    Row("logistic", lambda z: 1 / (1 + mpmath.exp(-z)), 6, 5e4),
    Row("sin", mpmath.sin, 3, 5e4),
    Row("cos", mpmath.cos, 3, 5e4),
    Row("tan", mpmath.tan, 4, 5e4),
    Row("tanh", mpmath.tanh, 4, 5e4),
]


def plane(name: str, limit: float, count: int = 24) -> np.ndarray:
    """Numbers near 1, everywhere, at the ends of the exponent's range, near the unit circle, and near both axes."""
    rng = np.random.default_rng(7)
    top = LARGEST[name]

    def part(low: float, high: float) -> np.ndarray:
        return rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(low, high, count)

    spans = [(-3, 3), (-20, 5), (-top, top), (-top - 20, -top + 10), (top - 5, top)]
    regions = [part(*span) + 1j * part(*span) for span in spans]
    circle = np.exp(1j * rng.uniform(-np.pi, np.pi, count))
    regions += [circle, circle - 1, 1 + part(-40, -1) + 1j * part(-40, -1), part(0, 9.6) + 1j * part(0, 9)]
    regions += [part(-3, 3) + 1j * part(-60, -10), part(-60, -10) + 1j * part(-3, 3)]
    z = np.concatenate(regions).astype(DTYPE[name])
    return z[np.abs(z.astype(np.clongdouble)) < limit]


def assert_near(actual: np.ndarray, wanted: list[Any], name: str, ulp: float, points: Any) -> None:
    """Each part within `ulp` units in the last place of the larger part of the exact result."""
    precision, lowest = PRECISION[name], {"c64": -149, "c128": -1074}[name]
    largest = mpmath.mpf(float(np.finfo(DTYPE[name]).max))
    for value, exact, point in zip(actual, wanted, points, strict=True):
        exact = mpmath.mpc(exact)
        size = max(abs(exact.real), abs(exact.imag))
        _, exponent = mpmath.frexp(size)
        unit = mpmath.ldexp(1, max(int(exponent) - precision, lowest))
        for got, part in ((value.real, exact.real), (value.imag, exact.imag)):
            if abs(part) > largest:
                assert abs(got) >= largest * 0.999, (point, value, exact)
            else:
                assert np.isfinite(got), (point, value, exact)
                assert abs(mpmath.mpf(float(got)) - part) <= ulp * unit, (point, value, exact)


def exact(z: np.ndarray) -> list[Any]:
    return [mpmath.mpc(float(v.real), float(v.imag)) for v in z]


@pytest.mark.parametrize("name", ["c64", "c128"])
@pytest.mark.parametrize("row", UNARY, ids=lambda row: row.name)
def test_unary_functions(row: Row, name: str) -> None:
    z = plane(name, row.limit)
    with mpmath.workprec(2400 if name == "c128" else 400):
        wanted = [row.meaning(v) for v in exact(z)]
        (actual,) = run(lambda b, x: getattr(sx, row.name)(x), z, against=[])
        assert_near(actual, wanted, name, row.ulp if name == "c128" else 0.51, z)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_sums_products_and_quotients(name: str) -> None:
    x = plane(name, 2.0 ** (LARGEST[name] // 2 - 2))
    x = x[np.abs(x) > 2.0 ** -(LARGEST[name] // 2 - 20)]
    y = np.random.default_rng(1).permutation(x)
    results = run(lambda b, v, w: [sx.add(v, w), sx.sub(v, w), sx.mul(v, w), sx.div(v, w), sx.neg(v)], x, y, against=[])
    with mpmath.workprec(400):
        a, b = exact(x), exact(y)
        wanted = [
            ([v + w for v, w in zip(a, b)], 0.5),
            ([v - w for v, w in zip(a, b)], 0.5),
            ([v * w for v, w in zip(a, b)], 1.5),
            ([v / w for v, w in zip(a, b)], 3 if name == "c128" else 0.51),
            ([-v for v in a], 0),
        ]
        for actual, (exactly, ulp) in zip(results, wanted, strict=True):
            assert_near(actual, exactly, name, ulp, zip(x, y))


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_quotients_of_the_largest_and_smallest(name: str) -> None:
    """Neither squares nor products of the parts may overflow, nor underflow."""
    x = plane(name, np.inf)
    y = np.random.default_rng(2).permutation(x)
    (actual,) = run(lambda b, v, w: sx.div(v, w), x, y, against=[])
    with mpmath.workprec(400):
        wanted = [v / w for v, w in zip(exact(x), exact(y))]
    assert_near(actual, wanted, name, 3, zip(x, y))


@pytest.mark.parametrize(("name", "ulp"), [("c64", 0.51), ("c128", 150)])
def test_power(name: str, ulp: float) -> None:
    """The error of c128 grows with |y log x|, as XLA's does."""
    x = plane(name, 1e4)
    x = x[np.abs(x) > 1e-4]
    y = np.random.default_rng(3).permutation(x)
    x, y = x[np.abs(y) < 20], y[np.abs(y) < 20]
    (actual,) = run(lambda b, v, w: sx.pow(v, w), x, y, against=[])
    with mpmath.workprec(400):
        wanted = [mpmath.exp(w * mpmath.log(v)) for v, w in zip(exact(x), exact(y))]
    assert_near(actual, wanted, name, ulp, zip(x, y))


def test_atan2() -> None:
    """-i log((x + i y) / sqrt(x^2 + y^2)). Oracle: XLA:CPU."""
    z = np.random.default_rng(0).normal(size=(4, 50))
    text = """func.func @main(%y: tensor<50xcomplex<f64>>, %x: tensor<50xcomplex<f64>>) -> tensor<50xcomplex<f64>> {
      %0 = stablehlo.atan2 %y, %x : tensor<50xcomplex<f64>>
      return %0 : tensor<50xcomplex<f64>>
    }"""
    check(text, [z[0] + 1j * z[1], z[2] + 1j * z[3]], against=["xla"], scale=1e-14)


# ---- special values --------------------------------------------------------------------------------------------------

SPECIAL = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)


def special_points(name: str) -> np.ndarray:
    """All pairs of special parts; written part by part, since a product with 1j would make more NaN."""
    z = np.empty(len(SPECIAL) ** 2, DTYPE[name])
    z.real, z.imag = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    return z


def assert_same_kind(actual: np.ndarray, wanted: np.ndarray, points: Any, *, signs: bool = True) -> None:
    """NaN where NaN is wanted, the same infinities and zeros (their signs too if asked for), the rest nearly equal."""
    for got, right in ((actual.real, wanted.real), (actual.imag, wanted.imag)):
        finite = np.isfinite(got) & np.isfinite(right)
        with np.errstate(invalid="ignore"):
            near = finite & (np.abs(got - right) <= 1e-6 * np.abs(right)) | (got == right)
        if signs:
            near &= np.signbit(got) == np.signbit(right)
        near |= np.isnan(got) & np.isnan(right)
        assert near.all(), [(p, a, w) for p, a, w, ok in zip(points, actual, wanted, near) if not ok][:5]


@pytest.mark.parametrize("name", ["c64", "c128"])
@pytest.mark.parametrize("function", ["exp", "log", "sqrt", "tanh", "tan", "log1p", "abs"])
def test_special_values_as_in_c99(function: str, name: str) -> None:
    """XLA:CPU drops the sign of a zero imaginary part in several of these, and so leaves the wrong side of a cut."""
    z = special_points(name)
    (actual,) = run(lambda b, x: getattr(sx, function)(x), z, against=[])
    with np.errstate(all="ignore"):
        assert_same_kind(actual, getattr(np, function)(z), z)


@pytest.mark.parametrize("name", ["c64", "c128"])
@pytest.mark.parametrize("function", ["sin", "cos"])
def test_special_values_of_sin_and_cos(function: str, name: str) -> None:
    """As in C99, except that signs which it leaves open are not compared."""
    z = special_points(name)
    (actual,) = run(lambda b, x: getattr(sx, function)(x), z, against=[])
    with np.errstate(all="ignore"):
        wanted = getattr(np, function)(z)
    open_sign = np.isnan(wanted.real) & np.isinf(wanted.imag)
    wanted.imag[open_sign] = np.abs(wanted.imag[open_sign])
    actual.imag[open_sign] = np.abs(actual.imag[open_sign])
    assert_same_kind(actual, wanted, z, signs=False)
    exact_zero = (z == 0) | (np.isfinite(z.real) & np.isinf(z.imag))
    assert_same_kind(actual[exact_zero], wanted[exact_zero], z[exact_zero])


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_special_values_of_sign_as_xla_has_them(name: str) -> None:
    z = special_points(name)
    (actual,) = run(lambda b, x: sx.sign(x), z, against=[])
    shape = f"tensor<{z.size}x{'complex<f32>' if name == 'c64' else 'complex<f64>'}>"
    text = f"func.func @main(%x: {shape}) -> {shape} {{ %0 = stablehlo.sign %x : {shape} return %0 : {shape} }}"
    assert_same_kind(actual, oracles.xla(text, [z])[0], z)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_special_quotients(name: str) -> None:
    """All pairs of special points. Oracle: XLA:CPU; signs of zeros are not compared, it computes in another way."""
    z = special_points(name)
    x, y = np.repeat(z, z.size), np.tile(z, z.size)
    (actual,) = run(lambda b, v, w: sx.div(v, w), x, y, against=[])
    shape = f"tensor<{x.size}x{'complex<f32>' if name == 'c64' else 'complex<f64>'}>"
    text = f"""func.func @main(%x: {shape}, %y: {shape}) -> {shape} {{
      %0 = stablehlo.divide %x, %y : {shape}
      return %0 : {shape}
    }}"""
    assert_same_kind(actual, oracles.xla(text, [x, y])[0], list(zip(x, y)), signs=False)


def test_special_powers() -> None:
    """x^0 = 1^y = 1; 0^y = 0 for a positive real part (numpy; XLA:CPU has that only for a real y), else NaN."""
    rows = [
        (0, 0, 1),
        (complex(np.nan, 0), 0, 1),
        (1, complex(np.inf, np.nan), 1),
        (0, 2, 0),
        (0, 1 + 1j, 0),
        (0, -1, complex(np.nan, np.nan)),
        (0, 1j, complex(np.nan, np.nan)),
        (complex(np.inf, 0), -1, 0),
        (complex(np.inf, 0), 1, complex(np.inf, 0)),
    ]
    x, y, wanted = (np.array(column, np.complex128) for column in zip(*rows, strict=True))
    (actual,) = run(lambda b, v, w: sx.pow(v, w), x, y, against=[])
    assert_same_kind(actual, wanted, rows, signs=False)


def test_special_roots() -> None:
    """1 / sqrt: of an infinity 0, of 0 inf + NaN i. Oracle: XLA:CPU."""
    z = np.array([0, complex(np.inf, 1), complex(1, np.inf), complex(np.nan, -np.inf), complex(np.nan, 1)])
    (actual,) = run(lambda b, x: sx.rsqrt(x), z, against=[])
    nan = np.nan
    wanted = np.array([complex(np.inf, nan), complex(0, -0.0), complex(0, -0.0), 0, complex(nan, nan)])
    assert_same_kind(actual, wanted, z)


@pytest.mark.parametrize("name", ["c64", "c128"])
@pytest.mark.parametrize("direction", ["eq", "ne"])
def test_comparison(direction: str, name: str) -> None:
    """Both parts count, zeros are equal, NaN is not. Oracle: numpy and XLA:CPU."""
    z = special_points(name)
    x, y = np.repeat(z, z.size), np.tile(z, z.size)
    wanted = x == y if direction == "eq" else x != y
    run(lambda b, v, w: getattr(sx, direction)(v, w), x, y, against=["xla"], expected=[wanted])


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_order(name: str) -> None:
    """Real parts decide, imaginary ones where those are equal. Oracle: Python's order of pairs."""
    points = [complex(a, b) for a in (-np.inf, -2, 0, 3.5, np.inf) for b in (-np.inf, -1, 0, 4)]
    z = np.array(points, sx.element_type(name).dtype)
    x, y = np.repeat(z, z.size), np.tile(z, z.size)
    pairs = [((a.real, a.imag), (b.real, b.imag)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    wanted = [np.array([complex(*choose(p)) for p in pairs], z.dtype) for choose in (max, min)]
    run(lambda b, v, w: [sx.max(v, w), sx.min(v, w)], x, y, against=[], expected=wanted)
    run(lambda b, v, w: sx.clamp(w, v, w), x, y, against=[], expected=[y])
    run(lambda b, v: sx.reduce_all(v, v[0], sx.max), z, against=[], expected=[z[-1]])


def test_scalars_and_empty_arrays() -> None:
    for z in (np.array(3 - 4j), np.zeros((0, 3), np.complex64), np.full((2, 1, 3), 3 - 4j, np.complex64)):
        run(lambda b, x: [sx.abs(x), sx.mul(x, x)], z, against=[], expected=[np.abs(z), z * z])
