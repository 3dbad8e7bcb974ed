"""The code of nested regions is proportional to the program, and its results are right. Oracle: numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests import nests
from tests.growth import code_of

MOST, MOST_BYTES = 200, 2048
"""Code for one operation of the source: operations after the step `llvm`, and bytes. 8 copies of a sine are 1,760."""


@pytest.mark.parametrize("trips", [1, 7, 8, 9, 100])
def test_loops(trips: int) -> None:
    _check("loops", 3 if trips < 100 else 2, trips)


@pytest.mark.parametrize("kind", [kind for kind in nests.KINDS if "loops" in kind and kind != "loops"])
@pytest.mark.parametrize("trips", [8, 9])
def test_nests(kind: str, trips: int) -> None:
    _check(kind, 3, trips)


def test_branches_of_elements() -> None:
    _check("branches in a map", 6, 1)


def _check(kind: str, depth: int, trips: int) -> None:
    executable = sx.compile(text := nests.program(kind, depth, trips))
    code, source = code_of(executable), nests.source_size(text)
    assert code.operations < MOST * source
    assert code.bytes < MOST_BYTES * source
    x = np.linspace(-1, 2.5, 8).astype(np.float32)
    wanted = nests.expected(kind, depth, trips, x.astype(np.float64))
    np.testing.assert_allclose(executable(x), wanted, rtol=2e-6, atol=1e-6)
