"""Programs for a GPU in files, and what can be asked of them, with the simulated driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.targets.gpu.launch.test_host_runs import CHIP, PROGRAMS
from tests.targets.gpu.programs import numbers, program


@pytest.mark.usefixtures("simulated_gpu")
@pytest.mark.filterwarnings("ignore:.*run on the host")
class TestFiles:
    @pytest.fixture
    def _half(self) -> Iterator[None]:
        sx.register_custom_call("test_host_tools_half", lambda x: x / 2)
        yield
        sx.unregister_custom_call("test_host_tools_half")

    @pytest.mark.usefixtures("_half")
    def test_saved(self, tmp_path: Path) -> None:
        def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
            halves = sx.custom_call("test_host_tools_half", (sx.exp(x),), sx.f32[10])
            return halves + b.constant(np.arange(10, dtype=np.float32))

        executable = sx.compile(program(make, numbers(10)), target=CHIP)
        executable.save(tmp_path / "program.sxe")
        loaded = sx.load_executable(tmp_path / "program.sxe")
        assert loaded.target == executable.target == sx.gpu.target(chip="sm_80")
        assert loaded.ir("ptx") == executable.ir("ptx")
        assert_same(loaded(numbers(10)), executable(numbers(10)))

    def test_cached(self, tmp_path: Path) -> None:
        options = sx.CompileOptions(cache=tmp_path)
        computation = program(lambda b, x: sx.exp(x) + 1.0, numbers(10))
        first, second = (sx.compile(computation, target=CHIP, options=options) for _ in range(2))
        assert len(list(tmp_path.iterdir())) == 1
        assert_same(first(numbers(10)), second(numbers(10)))
        sx.compile(computation, target="gpu:sm_75", options=options)
        assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("simulated_gpu")
class TestChips:
    def test_the_gpu_that_is_there(self) -> None:
        executable = sx.compile(program(lambda b, x: sx.exp(x), numbers(5)), target="gpu")
        assert executable.target == sx.gpu.target() == "gpu:sm_90a,ptx80"

    @pytest.mark.parametrize("chip", ["sm_100", "sm_100a"])
    def test_a_program_for_another_gpu(self, chip: str) -> None:
        executable = sx.compile(program(lambda b, x: sx.exp(x), numbers(5)), target=sx.gpu.target(chip=chip))
        with pytest.raises(sx.ExecutionError, match=f"compiled for {chip}, which a GPU of sm_90 cannot run"):
            executable(numbers(5))


@pytest.mark.usefixtures("simulated_gpu")
class TestInspection:
    def test_profile(self) -> None:
        make, arrays = PROGRAMS["counter"]
        executable = sx.compile(program(make, *arrays), target=CHIP)
        profile = executable.profile(list(arrays), runs=2)
        assert [(row.kernel is not None and row.kernel.kind, row.calls) for row in profile.kernels] == [("loop", 80)]
        assert len(profile.slices) == 80
        assert "loop_0" in str(profile)

    def test_a_call_of_several_phases_is_one(self) -> None:
        x = np.ones(1 << 16, np.float32)
        executable = sx.compile(program(lambda b, v: sx.reduce(v, 0.0, sx.add, [0]), x), target=CHIP)
        rows = executable.profile([x], runs=2).kernels
        assert [(row.calls, len(row.kernel.calls)) for row in rows if row.kernel is not None] == [(2, 1)]

    def test_compare(self) -> None:
        make, arrays = PROGRAMS["scalar-for-kernels"]
        executable = sx.compile(program(make, *map(np.asarray, arrays)), target=CHIP)
        assert executable.compare(list(arrays), "interpreter")
        assert executable.compare(list(arrays), "plain")
        assert executable.compare(list(arrays), sx.compile(program(make, *map(np.asarray, arrays))))

    def test_explain(self) -> None:
        make, arrays = PROGRAMS["scalar-for-kernels"]
        executable = sx.compile(program(make, *map(np.asarray, arrays)), target=CHIP)
        explanation = executable.explain()
        assert explanation.arena_bytes == executable.arena_bytes
        assert {"host", "llvm", "ptx"} <= set(explanation.stages)
        assert [kernel.name for kernel in executable.kernels] == [kernel.name for kernel in explanation.kernels]
