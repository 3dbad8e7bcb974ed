"""Long scans, and scatters to few places, against f64: off by 8 u log2(n) at most; products of c64 are exact."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import jax
import numpy as np
import pytest

import stablexla as sx
from benchmarks.beside_xla import PROGRAMS, geometric_means
from tests.ops.test_window import cumulative, log_add_exp
from tests.oracles import xla

Array = np.ndarray[Any, np.dtype[Any]]
UNIT = 2.0**-24


def compiled(make: Callable[..., Any], *arrays: Array) -> tuple[sx.XlaComputation, list[Array]]:
    """A computation of parameters of the arrays' shapes, and its results for them."""
    b = sx.XlaBuilder("scan")
    root = make(b, *(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)))
    computation = b.build(root)
    return computation, sx.compile(computation).execute(list(arrays))


def is_near(found: Array, exact: Array, magnitudes: Array, length: int) -> bool:
    """Whether all elements are as near to the exact ones as sums of so many numbers have to be."""
    return bool((np.abs(found - exact) <= 8 * log2(length) * UNIT * magnitudes).all())


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(("shape", "axis"), [((1 << 16,), 0), ((1 << 14, 3), 0), ((3, 1 << 12), 1)])
def test_logarithms_of_sums_of_exponentials(shape: tuple[int, ...], axis: int, backwards: bool) -> None:
    """A running total of the whole line was off by thousands of units."""
    x = (np.random.default_rng(1).normal(size=shape) + 10).astype(np.float32)
    _, (found,) = compiled(cumulative(log_add_exp, -np.inf, shape, axis, backwards), x)
    order = slice(None, None, -1 if backwards else 1)
    wide = np.flip(x, axis) if backwards else x
    exact = np.logaddexp.accumulate(wide.astype(np.float64), axis)
    exact = np.moveaxis(np.moveaxis(exact, axis, 0)[order], 0, axis)
    assert is_near(found, exact, np.abs(exact), shape[axis])


@pytest.mark.parametrize(("shape", "axis"), [((10_000,), 0), ((1000, 3), 0), ((3, 1000), 1)])
def test_products_of_complex_numbers(shape: tuple[int, ...], axis: int) -> None:
    """They are made in c128 and rounded once; 71 units for 10,000 factors, when each product was rounded."""
    rng = np.random.default_rng(0)
    x = (np.exp(2j * np.pi * rng.random(shape)) * np.exp(rng.normal(size=shape) / 10)).astype(np.complex64)
    _, (found,) = compiled(cumulative(sx.mul, 1, shape, axis), x)
    exact = np.cumprod(x.astype(np.clongdouble), axis)
    unit = np.spacing(np.maximum(np.abs(exact.real), np.abs(exact.imag)).astype(np.float32))
    assert (np.abs(found.real - exact.real) <= 0.51 * unit).all()
    assert (np.abs(found.imag - exact.imag) <= 0.51 * unit).all()


@pytest.mark.parametrize(("shape", "axis"), [((1 << 16,), 0), ((1 << 14, 3), 0)])
def test_sums_of_complex_numbers(shape: tuple[int, ...], axis: int) -> None:
    x = np.full(shape, 0.1 + 0.3j, np.complex64)
    _, (found,) = compiled(cumulative(sx.add, 0, shape, axis), x)
    exact = np.cumsum(x.astype(np.complex128), axis)
    assert is_near(found.real, exact.real, exact.real, shape[axis])
    assert is_near(found.imag, exact.imag, exact.imag, shape[axis])


@pytest.mark.parametrize(("shape", "axis"), [((1 << 16,), 0), ((1 << 16, 3), 0), ((1 << 10, 64), 0), ((9, 1 << 14), 1)])
def test_recurrences(shape: tuple[int, ...], axis: int) -> None:
    """y = a y + x by an associative scan, with a = 1; equal numbers, so that every addition rounds alike."""

    def step(before: Any, after: Any) -> Any:
        return before[0] * after[0], before[1] * after[0] + after[1]

    def run(x: Any) -> Any:
        return jax.lax.associative_scan(step, (jax.numpy.ones_like(x), x), axis=axis)[1]

    x = np.full(shape, 0.1, np.float32)
    (found,) = sx.compile(jax.jit(run).lower(x).as_text()).execute([x])
    exact = np.cumsum(x.astype(np.float64), axis)
    assert is_near(found, exact, exact, shape[axis])


def test_integers_keep_their_order() -> None:
    """A computation that is not associative, where no digit is lost: one element after the other."""
    x = np.random.default_rng(2).integers(-3, 3, 300).astype(np.int32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_window(v, b.constant(np.int32(0)), lambda a, c: a * 3 + c, (300,), (1,), [(299, 0)])

    _, (found,) = compiled(make, x)
    expected, total = [], np.int32(0)
    with np.errstate(over="ignore"):
        for value in x:
            total = np.int32(total * np.int32(3) + value)
            expected.append(total)
    assert (found == np.array(expected)).all()


@pytest.mark.parametrize("kind", ["uniform", "equal"])
@pytest.mark.parametrize(("places", "columns"), [(1, 1), (16, 1), (16, 8)])
def test_scatters_to_few_places_are_no_worse_than_xlas(kind: str, places: int, columns: int) -> None:
    count = 1 << 14
    rng = np.random.default_rng(3)
    updates = rng.random((count, columns)) if kind == "uniform" else np.full((count, columns), 0.1)
    arrays = np.zeros((places, columns), np.float32), rng.integers(0, places, count), updates.astype(np.float32)

    text = jax.jit(lambda x, at, v: x.at[at].add(v)).lower(*arrays).as_text()
    exact = np.zeros((places, columns))
    np.add.at(exact, arrays[1], arrays[2].astype(np.float64))
    here, there = sx.compile(text).execute(_narrow(arrays)), xla(text, _narrow(arrays))
    assert np.abs(here[0] - exact).max() <= np.abs(there[0] - exact).max()


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_programs_are_as_near_as_xlas(name: str) -> None:
    """The geometric mean over many arguments: for one of them either may be several times as near."""
    here, there = geometric_means(*PROGRAMS[name], seeds=100)
    assert here <= 1.5 * there


def _narrow(arrays: tuple[Array, ...]) -> list[Array]:
    """As JAX takes them: without numbers of 64 bits."""
    return [a.astype(np.int32) if a.dtype == np.int64 else a for a in arrays]
