"""Joining, padding and updating arrays: by accesses of 16 bytes where all rows begin at such, by elements elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers, program
from tests.targets.gpu.simulation import check_simulated

LOAD, STORE = "ld.global.nc.v4.b32", "st.global.v4.b32"
Make = Callable[..., Any]


def joined(dimension: int) -> Make:
    return lambda b, x, y: sx.concatenate((x, y), dimension)


def padded(low: int, high: int) -> Make:
    return lambda b, x: sx.pad(x, 1.5, ((1, 2, 0), (low, high, 0)))


def updated(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
    return sx.dynamic_update_slice(x * 2.0, y, (i, 0))


def at(i: int) -> np.ndarray[Any, Any]:
    return np.array(i, np.int32)


BYTES = np.arange(96, dtype=np.int8)
WIDE = [
    (joined(1), (numbers(5, 100), numbers(5, 28, seed=1)), 2),
    (joined(0), (numbers(3, 7, 4), numbers(2, 7, 4, seed=1)), 2),
    (joined(0), (BYTES[:64], BYTES), 2),
    (joined(1), (numbers(5, 8).astype(np.float16), numbers(5, 16).astype(np.float16)), 2),
    (padded(4, 8), (numbers(6, 20),), 1),
]
NARROW = [
    (joined(1), (numbers(5, 99), numbers(5, 29, seed=1))),
    (joined(0), (BYTES[:63], BYTES)),
    (padded(1, 2), (numbers(6, 20),)),
    (updated, (numbers(8, 6), numbers(3, 4, seed=1), at(2))),
    (updated, (numbers(8, 8), numbers(3, 8, seed=1), at(7))),
    (joined(0), (numbers(0, 4), numbers(3, 4))),
]


@pytest.mark.parametrize(("make", "arrays", "loads"), WIDE)
def test_whole_accesses(make: Make, arrays: tuple[np.ndarray[Any, Any], ...], loads: int) -> None:
    check_simulated(make, *arrays)
    ptx = sx.compile(program(make, *arrays), target="gpu:sm_80").ir("ptx")
    assert ptx.count(LOAD) == loads
    assert ptx.count(STORE) == 2
    assert "ld.global.nc.b" not in ptx


@pytest.mark.parametrize(("make", "arrays"), NARROW)
def test_elements(make: Make, arrays: tuple[np.ndarray[Any, Any], ...]) -> None:
    check_simulated(make, *arrays)
