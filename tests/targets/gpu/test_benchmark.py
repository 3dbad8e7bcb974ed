"""`python -m benchmarks.gpu`: its programs mean the same to everybody, and compile; no time is asserted.

Oracle of the programs: PyTorch, on the CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import stablexla as sx
from benchmarks.engines.base import MissingEngineError
from benchmarks.gpu.__main__ import describe
from benchmarks.gpu.compiling import compile_all
from benchmarks.gpu.engines import Ours, Torch
from benchmarks.gpu.limits import GpuLimits, measure_limits
from benchmarks.gpu.page import BEGIN, END, all_cells, write_page
from benchmarks.gpu.programs import programs
from benchmarks.measuring import Effort, Measured, Row, measure
from benchmarks.programs.registry import Work
from benchmarks.report import Report

SMALL = programs(small=True)


@pytest.mark.parametrize("name", SMALL)
def test_a_program_is_what_pytorch_computes(name: str) -> None:
    pytest.importorskip("torch")
    program = SMALL[name]
    prepared = Torch("cpu").prepare(program, program.text())
    assert prepared is not None
    arguments = program.arguments()
    prepared.bind(arguments)
    (wanted,), (actual,) = prepared.results(), sx.compile(program.text()).execute(arguments)
    assert wanted.dtype == actual.dtype
    largest = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(
        actual.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=program.tolerance * largest
    )


def test_programs_are_measured_on_a_gpu(simulated_gpu: None) -> None:
    """A simulated one; PyTorch takes part on the CPU."""
    pytest.importorskip("torch")
    engines = [Ours(), Torch("cpu")]
    limits = measure_limits(small=True)
    assert limits.bandwidth > 0
    assert describe(engines, limits)["GPU"].startswith("Simulated")
    for name in ("layer-norm-bf16", "sum-columns", "dense-bf16"):
        row = measure(SMALL[name], engines, Effort(1e-4, 1e-3, 1, 1), limits)
        assert not row.failures
        assert not row.differing
        assert set(row.engines) == {"stablexla", "torch"}
        assert row.ratio("torch") is not None
        assert row.share is not None


def test_full_sizes_are_much_larger_than_caches() -> None:
    for program in programs().values():
        work = program.work()
        assert work.operations > 1e8 or work.read >= 1 << 27, program.name


def test_compiling_needs_no_gpu() -> None:
    console = Console(record=True, width=200)
    names = ["softmax", "matmul-bf16"]
    assert compile_all({name: SMALL[name] for name in names}, "sm_90", console) == 0
    text = console.export_text()
    assert all(name in text for name in names)
    assert compile_all({"softmax": SMALL["softmax"]}, "sm_1", console) == 1
    assert "there is no chip 'sm_1'" in console.export_text()


def test_an_engine_without_a_gpu_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MissingEngineError, match="torch sees no GPU"):
        Torch()


def test_the_limit_is_the_larger_of_bytes_and_operations() -> None:
    limits = GpuLimits(1e12, {"bf16": 1e15})
    assert limits.of(Work(0, 6e11, 4e11)) == 1.0
    assert limits.of(Work(4e15, 6e11, 4e11, "bf16")) == 4.0
    assert limits.of(Work(4e15, 6e11, 4e11, "f64")) == 1.0


def test_the_page_tells_rates_shares_and_ratios(tmp_path: Path) -> None:
    program = SMALL["matmul-bf16"]
    engines = {"stablexla": Measured(0.1, [1e-3, 3e-3]), "torch": Measured(0.0, [5e-4])}
    row = Row(program.name, program.summary, "gpu", program.family, 1e-2, engines, limit=4e-4)
    report = Report({"GPU": "one"}, ["stablexla", "torch"], "the command", [row])
    (cells,) = all_cells(report, SMALL)
    assert cells.lines == [["matmul-bf16", "1 (2) ms", "500 (500) us", "0.000524 TFLOP/s", "40%", "0.50", "0.50"]]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(report, SMALL, page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\nA cell is")
    assert "| matmul-bf16 | 1 (2) ms | 500 (500) us | 0.000524 TFLOP/s | 40% | **0.50** | **0.50** |" in text
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
