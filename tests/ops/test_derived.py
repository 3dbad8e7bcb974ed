"""Operations that come to others, through CHLO or in the builder: run on numbers that cover their cases.

Oracles: scipy and numpy in float64, rounded; the reference interpreter and XLA:CPU where they take what is emitted, as
CHLO they do not. The special functions are as exact as CHLO's decompositions, which are polynomials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.samples import sample
from tests.programs import run

EXACT = ("interpreter", "xla")
SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
POSITIVE = np.concatenate([np.linspace(0.05, 3, 60), np.linspace(3.5, 40, 60)]).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("is_inf", np.isinf),
        ("is_nan", np.isnan),
        ("is_pos_inf", np.isposinf),
        ("is_neg_inf", np.isneginf),
    ],
)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_kinds_of_floats(name: str, function: Callable[[Any], Any], dtype: str) -> None:
    with np.errstate(over="ignore"):
        x = SPECIAL.astype(dtype.replace("f", "float"))
    run(lambda b, v: getattr(sx, name)(v), x, against=[], expected=[function(x)])


@pytest.mark.parametrize("dtype", ["s8", "u32", "f32", "f64"])
def test_square(dtype: str) -> None:
    x = sample(dtype, 203)
    with np.errstate(over="ignore"):
        run(lambda b, v: sx.square(v), x, against=[], expected=[x * x])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_reciprocal(dtype: str) -> None:
    x = np.concatenate([sample(dtype, 203), SPECIAL.astype(dtype.replace("f", "float"))])
    with np.errstate(divide="ignore", over="ignore"):
        run(lambda b, v: sx.reciprocal(v), x, against=["interpreter"], expected=[1 / x])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_conj(dtype: Any) -> None:
    x = np.array([1 + 2j, -3.5j, 0, complex(np.inf, -0.0)], dtype)
    result = run(lambda b, v: sx.conj(v), x, against=[], expected=[np.conj(x)])
    assert list(np.signbit(result[0].imag)) == list(np.signbit(np.conj(x).imag))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("digamma", scipy.special.digamma),
        ("lgamma", scipy.special.gammaln),
        ("bessel_i1e", scipy.special.i1e),
    ],
)
def test_special_functions(name: str, function: Callable[[Any], Any]) -> None:
    x = np.concatenate([POSITIVE, -POSITIVE[POSITIVE % 1 != 0]])
    if name == "lgamma":
        assert scipy.special.gammaln(0.5) == pytest.approx(np.log(np.pi) / 2)
    expected = function(x.astype(np.float64)).astype(np.float32)
    # Near a zero of the function an error is large in its own units, and small beside the values around it.
    run(lambda b, v: getattr(sx, name)(v), x, against=[], expected=[expected], ulp=16, scale=1e-6)


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_polygamma(order: int) -> None:
    n = np.full_like(POSITIVE, order)
    expected = scipy.special.polygamma(order, POSITIVE.astype(np.float64)).astype(np.float32)
    run(lambda b, m, v: sx.polygamma(m, v), n, POSITIVE, against=[], expected=[expected], ulp=64, scale=1e-6)


def test_zeta() -> None:
    x = np.linspace(1.25, 12, 120).astype(np.float32)
    expected = scipy.special.zeta(x.astype(np.float64), POSITIVE.astype(np.float64)).astype(np.float32)
    run(lambda b, v, q: sx.zeta(v, q), x, POSITIVE, against=[], expected=[expected], ulp=64, scale=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_next_after(dtype: Any) -> None:
    x, y = (each.ravel().astype(dtype) for each in np.meshgrid(SPECIAL[:7], SPECIAL[:7]))
    run(lambda b, v, w: sx.next_after(v, w), x, y, against=[], expected=[np.nextafter(x, y)])


@pytest.mark.parametrize("name", ["s2", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u16", "u32", "u64"])
def test_mulhi(name: str) -> None:
    """Oracle: Python's integers."""
    x, y = sample(name, 203), sample(name, 203, 1)
    width = element_type(name).bits

    def high(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.array([int(a) * int(c) >> width for a, c in zip(v, w, strict=True)], object).astype(x.dtype)

    wanted = [high(x, y), high(np.full_like(y, x[0]), y)]
    run(lambda b, v, w: [sx.mulhi(v, w), sx.mulhi(v[0], w)], x, y, against=[], expected=wanted)


@pytest.mark.parametrize("shape", [(), (3, 0), (2, 5)])
def test_copy(shape: tuple[int, ...]) -> None:
    x = sample("f32", int(np.prod(shape))).reshape(shape)
    run(lambda b, v: [sx.copy(v), sx.copy(sx.tuple((v, v)))[1]], x, against=EXACT, expected=[x, x])


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_compare(direction: str) -> None:
    x, y = (each.ravel() for each in np.meshgrid(SPECIAL, SPECIAL))
    run(lambda b, v, w: sx.compare(v, w, (), direction), x, y, against=["interpreter"])


def test_names_of_the_builder_for_one_dimension() -> None:
    x = sample("f32", 24).reshape(2, 3, 4)
    run(lambda b, v: sx.slice_in_dim(v, 1, 4, 2, 2), x, against=EXACT, expected=[x[:, :, 1:4:2]])
    run(lambda b, v: sx.concat_in_dim((v, v), 1), x, against=EXACT, expected=[np.concatenate([x, x], 1)])
    padded = np.pad(x, ((0, 0), (2, 1), (0, 0)), constant_values=7)
    run(lambda b, v: sx.pad_in_dim(v, 7.0, 1, 2, 1), x, against=EXACT, expected=[padded])


def test_get_dimension_size() -> None:
    x = sample("f32", 24).reshape(2, 3, 4)
    run(lambda b, v: sx.get_dimension_size(v, 1), x, against=EXACT, expected=[np.int32(3)])


def test_optimization_barrier_changes_nothing() -> None:
    x, y = sample("f32", 6), sample("s32", 3)
    run(lambda b, v, w: list(sx.optimization_barrier(sx.tuple((v, w)))), x, y, against=["xla"], expected=[x, y])


def test_get_tuple_element() -> None:
    x, y = sample("f32", 6), sample("s32", 3)
    run(lambda b, v, w: sx.get_tuple_element(sx.tuple((v, w)), 1), x, y, against=EXACT, expected=[y])
