"""Kernels whose threads are not all alike: their PTX is interpreted, with checks of races, and assembled by ptxas.

The oracle is the CPU target, whose results the operations' tests compare with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import _runtime
from tests.comparison import assert_same
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.irregular import IRREGULAR, cumulative
from tests.targets.gpu.programs import numbers, program
from tests.targets.gpu.ptxas import find_ptxas, knows, refused_by_ptxas

CHIP = "sm_100"
# A program or two for each way that a kernel is written.
ASSEMBLED = [
    "scatter-atomic",
    "scatter-rows",
    "scan-parts",
    "sort_rows-best",
    "cholesky-complex",
    "fft-chirp",
]


@pytest.fixture(scope="class")
def _simulated() -> Iterator[None]:
    """The runtime finds simulated GPUs, which take PTX alone."""
    _runtime.use_cuda_driver(str(simulator.library()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STABLEXLA_PTXAS", "none")
        yield
    _runtime.use_cuda_driver(None)


@pytest.mark.usefixtures("_simulated")
class TestSimulated:
    @pytest.mark.parametrize("name", IRREGULAR)
    def test_results(self, name: str) -> None:
        make, arrays = IRREGULAR[name]
        computation = program(make, *arrays)
        executable = sx.compile(computation, target="gpu:sm_90")
        wanted = sx.compile(computation).execute(list(arrays))
        for actual, other in zip(executable.execute(list(arrays)), wanted, strict=True):
            assert_same(actual, other, ulp=8, scale=1e-6)
        ours = [kernel for kernel in executable.kernels if kernel.kind == name.split("-")[0]]
        assert ours
        assert all(kernel.path == "emitted" for kernel in ours)

    @pytest.mark.parametrize(
        ("shape", "axis", "reverse"), [((3, 700), 1, True), ((20000,), 0, False), ((2, 70, 3), 1, False)]
    )
    def test_associative_scans(self, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
        """A linear recurrence, whose order matters."""
        jax = pytest.importorskip("jax")

        def scan(a: Any, b: Any) -> Any:
            return jax.lax.associative_scan(
                lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b), axis=axis, reverse=reverse
            )

        arrays = [numbers(*shape, seed=seed) * 0.5 for seed in range(2)]
        text = jax.jit(scan).lower(*arrays).as_text()
        executable = sx.compile(text, target="gpu:sm_90")
        assert [(kernel.kind, kernel.path) for kernel in executable.kernels] == [("scan", "emitted")]
        for actual, other in zip(executable.execute(arrays), sx.compile(text).execute(arrays), strict=True):
            assert_same(actual, other, ulp=8, scale=1e-6)

    @pytest.mark.parametrize(
        ("shape", "axis", "reverse"), [((3, 700), 1, True), ((20000,), 0, False), ((2, 70, 3), 1, False)]
    )
    def test_segmented_sums(self, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
        """Of integers, with truth values for the beginnings of segments: bytes in memory."""
        jax = pytest.importorskip("jax")

        def add(p: Any, q: Any) -> Any:
            return jax.numpy.where(q[1], q[0], p[0] + q[0]), p[1] | q[1]

        def scan(a: Any, b: Any) -> Any:
            return jax.lax.associative_scan(add, (a, b), axis=axis, reverse=reverse)

        rng = np.random.default_rng(5)
        arrays = [rng.integers(-9, 9, shape).astype(np.int32), rng.random(shape) < 0.02]
        text = jax.jit(scan).lower(*arrays).as_text()
        executable = sx.compile(text, target="gpu:sm_90")
        assert [(kernel.kind, kernel.path) for kernel in executable.kernels] == [("scan", "emitted")]
        wanted = [np.flip(a, axis) if reverse else a for a in arrays]
        sums, begins = (np.moveaxis(a, axis, 0).copy() for a in wanted)
        for i in range(1, len(sums)):
            sums[i] = np.where(begins[i], sums[i], sums[i - 1] + sums[i])
            begins[i] |= begins[i - 1]
        for actual, made in zip(executable.execute(arrays), (sums, begins), strict=True):
            made = np.moveaxis(made, 0, axis)
            np.testing.assert_array_equal(actual, np.flip(made, axis) if reverse else made)

    @pytest.mark.parametrize("name", ["s4", "u4"])
    def test_scans_of_half_bytes(self, name: str) -> None:
        x = sx.element_type(name).dtype.type
        given = np.random.default_rng(4).integers(0, 7, (2, 300)).astype(x)

        def make(b: sx.XlaBuilder, a: sx.XlaOp) -> sx.XlaOp:
            return cumulative(sx.add, 0, 1)(b, a)

        executable = sx.compile(program(make, given), target="gpu:sm_90")
        wanted = np.cumsum(given.astype(np.int64), 1)
        (found,) = executable.execute([given])
        np.testing.assert_array_equal(found.astype(np.int64) % 16, wanted % 16)


def test_sorts_of_more_arrays_than_a_block_can_hold() -> None:
    """They go the general path, and so they run everywhere."""
    arrays = [numbers(12, seed=seed).astype(np.float64) for seed in range(33)]

    def make(b: sx.XlaBuilder, *operands: sx.XlaOp) -> sx.XlaOp:
        return sx.sort(operands, lambda *sides: sx.lt(sides[0], sides[1]))

    computation = program(make, *arrays)
    for chip, path in (("sm_75", "general"), ("sm_90", "emitted")):
        assert [kernel.path for kernel in sx.compile(computation, target=f"gpu:{chip}").kernels] == [path]


@pytest.mark.parametrize("name", ASSEMBLED)
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install stablexla[gpu]")
def test_assembled(name: str, tmp_path: Path) -> None:
    make, arrays = IRREGULAR[name]
    computation = program(make, *arrays)
    chip = CHIP if knows(CHIP) else "sm_90"
    ptx = sx.compile(computation, target=sx.gpu.target(chip=chip)).ir("ptx")
    assert not refused_by_ptxas(ptx, chip, tmp_path)
