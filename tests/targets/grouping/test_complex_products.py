"""Products of complex arrays, in every order of their dimensions. Oracle: numpy in complex128, and wider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.grouping.complex_products import LEAST_WORK

# Letters of the factors' dimensions and of the result's, as numpy.einsum has them; their extents.
EXTENTS = {"b": 5, "c": 3, "k": 17, "l": 6, "m": 33, "n": 29, "p": 4, "M": 400, "N": 300, "K": 90}
PRODUCTS = [
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "KM,KN->MN", "MK,NK->MN",
    "MK,K->M", "KM,K->M", "K,KN->N", "K,NK->N", "pK,KN->pN", "pK,NK->pN",
    "bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "bcmk,bckn->bcmn", "bMk,bk->bM",
    "mkl,kln->mn", "mlk,kln->mn", "mk,knp->mnp", "mpk,kn->mpn",
]  # fmt: skip


def numbers(dtype: Any, letters: str, seed: int) -> np.ndarray:
    rng, shape = np.random.default_rng(seed), [EXTENTS[letter] for letter in letters]
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def product(x: np.ndarray, y: np.ndarray, left: str, right: str, result: str) -> sx.Executable:
    batch = [letter for letter in left if letter in right and letter in result]
    summed = [letter for letter in left if letter in right and letter not in result]
    numbers_ = sx.DotDimensionNumbers(
        [left.index(s) for s in summed],
        [right.index(s) for s in summed],
        [left.index(s) for s in batch],
        [right.index(s) for s in batch],
    )
    b = sx.XlaBuilder("product")
    parameters = [b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate((x, y))]
    return sx.compile(b.build(sx.dot_general(*parameters, numbers_)))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("spelled", PRODUCTS)
def test_products(spelled: str, dtype: Any) -> None:
    factors, result = spelled.split("->")
    left, right = factors.split(",")
    x, y = numbers(dtype, left, 0), numbers(dtype, right, 1)
    made = product(x, y, left, right, result)
    kernels = made.explain().kernels
    assert {k.path for k in kernels} == {"emitted"}
    assert [k.kind for k in kernels].count("contraction") == 1
    wide = np.einsum(spelled, x.astype(np.clongdouble), y.astype(np.clongdouble))
    magnitudes = np.einsum(spelled, np.abs(x), np.abs(y))
    assert (np.abs(made(x, y) - wide) <= 16 * np.finfo(dtype).eps * magnitudes).all()


def test_an_infinity_makes_what_the_products_make() -> None:
    """The textbook product, as XLA has it: NaN where infinities meet in a part."""
    x, y = numbers(np.complex64, "mk", 0), numbers(np.complex64, "kn", 1)
    x[3, 5], x[4, 0] = complex(np.inf, 0), complex(np.nan, 1)
    got = product(x, y, "mk", "kn", "mn")(x, y)
    with np.errstate(all="ignore"):
        re = x.real @ y.real - x.imag @ y.imag
        im = x.real @ y.imag + x.imag @ y.real
    np.testing.assert_array_equal(np.isnan(got.real), np.isnan(re))
    np.testing.assert_array_equal(np.isnan(got.imag), np.isnan(im))
    np.testing.assert_array_equal(np.isposinf(got.real), np.isposinf(re))


def test_small_ones_stay_one_kernel() -> None:
    x = numbers(np.complex64, "pl", 0)
    made = product(x, x, "pl", "nl", "pn")
    assert x.shape[0] ** 2 * x.shape[1] < LEAST_WORK()
    assert len(made.explain().kernels) == 1
    np.testing.assert_allclose(made(x, x), x @ x.T, rtol=1e-5)


def test_arguments_results_and_loops() -> None:
    """A product of a parameter that is the program's result, and one in a loop whose carried array it replaces."""
    b = sx.XlaBuilder("powers")
    x = b.parameter(0, sx.c64[32, 32])
    state = sx.tuple([b.constant(np.int32(0)), x, x])

    def goes_on(state: sx.XlaOp) -> sx.XlaOp:
        return sx.lt(sx.get_tuple_element(state, 0), 3)

    def step(state: sx.XlaOp) -> sx.XlaOp:
        turn, power, x = (sx.get_tuple_element(state, i) for i in range(3))
        return sx.tuple([sx.add(turn, 1), sx.mul(sx.dot(power, x), 0.2), x])

    made = sx.compile(b.build(sx.get_tuple_element(sx.while_(goes_on, step, state), 1)))
    a = numbers(np.complex64, "mM", 0)[:32, :32].copy()
    before, wanted = a.copy(), a.astype(np.complex128)
    for _ in range(3):
        wanted = wanted @ a * 0.2
    np.testing.assert_allclose(made(a), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    np.testing.assert_array_equal(a, before)
