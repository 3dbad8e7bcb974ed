"""Code and compilation are proportional to the program, and results are right. Oracle: numpy in f64.

Catches what looks at all operations for each one, and nested regions that are copied for each trip.
"""

from __future__ import annotations

import cProfile

import jaxlib.mlir.ir as hlo_ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.lowering.support.context import ModuleLowering
from stablexla.targets.grouping import group
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.stablehlo.repeats.search import LEAST_CHAIN
from tests import nests
from tests.growth import code_of, program

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
    """2^16 calls of the innermost function; each further level of them makes no more code than other operations."""
    texts = [nests.program("calls", depth, 2) for depth in (16, 30)]
    few, many = (sx.compile(text) for text in texts)
    further = nests.source_size(texts[1]) - nests.source_size(texts[0])
    assert code_of(many).operations - code_of(few).operations < MOST * further
    assert code_of(many).bytes - code_of(few).bytes < MOST_BYTES * further
    _check_results(few, "calls", 16, 2)


def test_few_calls_are_inlined() -> None:
    assert "while" not in sx.compile(nests.program("calls", 5, 2)).ir("stablehlo")
    assert "while" in sx.compile(nests.program("calls", 12, 2)).ir("stablehlo")


@pytest.mark.parametrize("kind", ["additions", "built"])
def test_a_chain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of its stretches and the rest are lowered; calls of Python functions are in proportion to its length."""
    lowered = 0
    lower = ModuleLowering._lower_operation

    def counted(self: ModuleLowering, op: hlo_ir.Operation) -> None:
        nonlocal lowered
        lowered += 1
        lower(self, op)

    monkeypatch.setattr(ModuleLowering, "_lower_operation", counted)
    few, many = (_calls(kind, count) for count in (2500, 20_000))
    assert lowered < 2 * (3 * LEAST_CHAIN.usual)
    assert many < 8 * few


def test_a_chain_is_cut_where_kernels_end() -> None:
    """In as many kernels as without functions for its parts, and one for what is before them; the same bits."""
    assert LEAST_CHAIN.usual == group.MOST_OPERATIONS * group.PLAIN_IN_ONE
    x = np.linspace(-1, 1, 8).astype(np.float32)
    shared, whole = (
        sx.compile(program("additions", 1250), options=sx.CompileOptions(find_repeats=found)) for found in (True, False)
    )
    assert shared.explain().parts
    assert not whole.explain().parts
    calls = [executable.ir("buffers").count("call @loop_") for executable in (shared, whole)]
    assert 25 < calls[1] <= calls[0] <= calls[1] + 1
    assert shared(x).tobytes() == whole(x).tobytes()


def _calls(kind: str, count: int) -> int:
    """Return how many calls of Python functions a compilation takes, the builder's too."""
    profile = cProfile.Profile(builtins=False)
    with knobs.scoped(kernel_cache="off"), profile:
        sx.compile(program(kind, count))
    return sum(entry.callcount for entry in profile.getstats())


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
