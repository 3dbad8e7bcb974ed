"""Complex arithmetic and elementary functions, over the whole plane and at its special points.

Oracles: mpmath for finite numbers; for infinities, NaN and signed zeros XLA:CPU and numpy, which follows C99 (Annex G).
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import stablexla as sx
from tests import oracles
from tests.numerics.complex_references import (
    BINARY,
    DTYPES,
    PRECISION,
    TOP,
    UNARY,
    Function,
    below,
    errors,
    exact_numbers,
    pairs,
    strata,
)
from tests.programs import check, run

FUNCTIONS = {function.name: function for function in (*UNARY, *BINARY)}
ROWS = [pytest.param(function, name, id=f"{function.name}-{name}") for function in UNARY for name in DTYPES]


def held(actual: np.ndarray, wanted: list[Any], name: str, ulp: float, points: Any) -> None:
    """Each result within `ulp` units in the last place of the larger part of the exact one."""
    found = errors(actual, wanted, name)
    worst = int(np.argmax(found))
    assert found[worst] <= ulp, (found[worst], points[worst], actual[worst], complex(wanted[worst]))


def bound(function: Function, name: str) -> float:
    return function.ulp[name == "c128"]


@pytest.mark.parametrize(("function", "name"), ROWS)
def test_unary_functions(function: Function, name: str) -> None:
    """Over the whole plane, near cuts, branch points and poles, up to the overflow and down to the smallest numbers."""
    z = np.concatenate(list(strata(name, 6, poles=function.poles).values()))
    z = below(z, function.limit)
    (actual,) = run(lambda b, x: getattr(sx, function.name)(x), z, against=[])
    with mpmath.workprec(PRECISION[name]):
        held(actual, [function.exact(v) for v in exact_numbers(z)], name, bound(function, name), z)


@pytest.mark.parametrize("name", list(DTYPES))
def test_powers(name: str) -> None:
    """Of any size, of bases next to 1 with large exponents, with real and whole exponents: |y log x| up to 700."""
    drawn = pairs(name, 12).values()
    x, y = (np.concatenate([pair[k] for pair in drawn]) for k in (0, 1))
    (actual,) = run(lambda b, v, w: sx.pow(v, w), x, y, against=[])
    function = FUNCTIONS["pow"]
    with mpmath.workprec(PRECISION[name]):
        wanted = [function.exact(v, w) for v, w in zip(exact_numbers(x), exact_numbers(y), strict=True)]
        held(actual, wanted, name, bound(function, name), list(zip(x, y, strict=True)))


@pytest.mark.parametrize("name", list(DTYPES))
def test_sums_and_products(name: str) -> None:
    x = np.concatenate(list(strata(name, 8).values()))
    x = x[np.abs(np.log2(np.abs(x.astype(np.clongdouble)))) < TOP[name] // 2 - 20]
    y = np.random.default_rng(1).permutation(x)
    results = run(lambda b, v, w: [sx.add(v, w), sx.sub(v, w), sx.mul(v, w), sx.neg(v)], x, y, against=[])
    with mpmath.workprec(PRECISION[name]):
        a, b = exact_numbers(x), exact_numbers(y)
        wanted = [
            ([v + w for v, w in zip(a, b, strict=True)], 0.5),
            ([v - w for v, w in zip(a, b, strict=True)], 0.5),
            ([v * w for v, w in zip(a, b, strict=True)], 1.5),
            ([-v for v in a], 0),
        ]
        for actual, (exactly, ulp) in zip(results, wanted, strict=True):
            held(actual, exactly, name, ulp, list(zip(x, y, strict=True)))


@pytest.mark.parametrize("name", list(DTYPES))
def test_quotients(name: str) -> None:
    """Neither squares nor products of the parts may overflow, nor underflow."""
    x = np.concatenate(list(strata(name, 8).values()))
    y = np.random.default_rng(2).permutation(x)
    (actual,) = run(lambda b, v, w: sx.div(v, w), x, y, against=[])
    function = FUNCTIONS["div"]
    with mpmath.workprec(PRECISION[name]):
        wanted = [v / w for v, w in zip(exact_numbers(x), exact_numbers(y), strict=True)]
        held(actual, wanted, name, bound(function, name), list(zip(x, y, strict=True)))


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
    z = np.empty(len(SPECIAL) ** 2, DTYPES[name])
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
@pytest.mark.parametrize("function", ["sinh", "cosh"])
def test_special_values_of_sinh_and_cosh(function: str, name: str) -> None:
    """As in C99, which leaves signs open where the other part is NaN."""
    z = special_points(name)
    (actual,) = run(lambda b, x: getattr(sx, function)(x), z, against=[])
    with np.errstate(all="ignore"):
        wanted = getattr(np, function)(z)
    for array in (actual, wanted):
        array.real[np.isnan(array.imag)] = np.abs(array.real[np.isnan(array.imag)])
        array.imag[np.isnan(array.real)] = np.abs(array.imag[np.isnan(array.real)])
    assert_same_kind(actual, wanted, z)


INVERSES = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


@pytest.mark.parametrize("name", ["c64", "c128"])
@pytest.mark.parametrize("function", list(INVERSES))
def test_sides_of_branch_cuts(function: str, name: str) -> None:
    """On the axes, where the sign of a zero says which side of a cut is meant, and at infinity. Oracle: numpy (C99)."""
    parts = (-np.inf, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf)
    z = np.empty(len(parts) ** 2, DTYPES[name])
    z.real, z.imag = np.repeat(parts, len(parts)), np.tile(parts, len(parts))
    (actual,) = run(lambda b, x: getattr(sx, function)(x), z, against=[])
    with np.errstate(all="ignore"):
        assert_same_kind(actual, INVERSES[function](z), z)


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
