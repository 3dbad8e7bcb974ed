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


def test_calls_that_double() -> None:
    """2^20 calls of the innermost function; each further level of them makes no more code than other operations."""
    texts = [nests.program("calls", depth, 2) for depth in (20, 40)]
    few, many = (sx.compile(text) for text in texts)
    further = nests.source_size(texts[1]) - nests.source_size(texts[0])
    assert code_of(many).operations - code_of(few).operations < MOST * further
    assert code_of(many).bytes - code_of(few).bytes < MOST_BYTES * further
    _check_results(few, "calls", 20, 2)


def test_few_calls_are_inlined() -> None:
    assert "while" not in sx.compile(nests.program("calls", 5, 2)).ir("stablehlo")
    assert "while" in sx.compile(nests.program("calls", 12, 2)).ir("stablehlo")


def _check(kind: str, depth: int, trips: int) -> None:
    executable = sx.compile(text := nests.program(kind, depth, trips))
    code, source = code_of(executable), nests.source_size(text)
    assert code.operations < MOST * source
    assert code.bytes < MOST_BYTES * source
    _check_results(executable, kind, depth, trips)


def _check_results(executable: sx.Executable, kind: str, depth: int, trips: int) -> None:
    x = np.linspace(-1, 2.5, 8).astype(np.float32)
    wanted = nests.expected(kind, depth, trips, x.astype(np.float64))
    np.testing.assert_allclose(executable(x), wanted, rtol=2e-6, atol=1e-6)
