"""Errors of the expanded functions over their whole range. Oracles: numpy and scipy (f32), mpmath (f64)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from stablexla.lowering.math import erf_inv_of_drawn
from tests.numerics.harness import Kernel
from tests.numerics.references import FUNCTIONS, LIMITS, Function, errors, sample


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with mp.workdps(60):
        yield


def check(function: Function, dtype: Any, count: int) -> None:
    arguments = sample(function, dtype, count)
    result = Kernel(function.emit, [dtype] * function.arity)(*arguments)
    found = errors(function, result, *arguments)
    worst = int(np.argmax(found))
    place = ", ".join(repr(a[worst]) for a in arguments)
    message = f"{function.name}({place}) = {result[worst]!r}: {found[worst]} ULP"
    assert found[worst] <= (0 if function.name == "remf" else LIMITS[np.dtype(dtype)]), message


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_f32(function: Function) -> None:
    check(function, np.float32, 200_000)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_f64(function: Function) -> None:
    check(function, np.float64, 6_000)


def test_inverse_erf_in_its_worst_region() -> None:
    function = FUNCTIONS["erf_inv"]
    x = 1 - np.exp(-np.random.default_rng(1).uniform(15.5, 25.5, 2000))
    assert errors(function, Kernel(function.emit, [np.float64])(x), x).max() <= LIMITS[np.dtype(np.float64)]


def test_inverse_erf_of_drawn_numbers() -> None:
    """Of every eighth number that can be drawn, and the last of them."""
    x = ((np.arange(-(1 << 23), 1 << 23, 8) + 0.5) * 2.0**-23).astype(np.float32)
    x = np.concatenate([x, 1 - np.arange(1, 1000, 2, np.float32) * np.float32(2.0**-24)])
    found = errors(FUNCTIONS["erf_inv"], Kernel(erf_inv_of_drawn, [np.float32])(x), x)
    assert found.max() <= 4, x[np.argmax(found)]
