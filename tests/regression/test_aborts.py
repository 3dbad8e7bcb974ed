"""Inputs for which LLVM or MLIR ends the process, and nothing of ours can know it before: they are errors in isolation.

Values of options that do the same are refused: see `test_pass_options_that_abort.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stablexla as sx
from tests.processes import failing_passes

SCHEDULE = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %pack = transform.structured.match ops{["linalg.pack"]} in %root : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %pack vector_sizes [4, 4, 4, 4, 4, 4] : !transform.any_op
    transform.yield
  }
}
"""
PACK = """func.func @main(%x: tensor<8x16xf32>, %y: tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32> {
  %0 = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [4, 4] into %y : tensor<8x16xf32> -> tensor<2x4x4x4xf32>
  return %0 : tensor<2x4x4x4xf32>
}
"""


def opt(folder: Path, text: str, *arguments: str) -> str:
    """What `stablexla-opt --isolated` says of a program that ends it."""
    (folder / "in.mlir").write_text(text)
    command = [sys.executable, "-m", "stablexla.tools.opt", "in.mlir", *arguments, "--isolated"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the process ended (SIGABRT)\n")
    return done.stderr


def test_a_schedule_with_another_number_of_vector_sizes(tmp_path: Path) -> None:
    (tmp_path / "schedule.mlir").write_text(SCHEDULE)
    assert "Invalid number of input vector sizes" in opt(tmp_path, PACK, "--transform-script=schedule.mlir")


def test_a_pass_for_gpus_on_functions_of_another_dialect(tmp_path: Path) -> None:
    text = "llvm.func @main(%x: !llvm.ptr) { llvm.return }"
    assert "Assertion" in opt(tmp_path, text, "-xegpu-propagate-layout", "--context=upstream")


def test_an_instruction_that_the_processor_does_not_have() -> None:
    assert failing_passes.unselectable
    pipeline = sx.pipeline("cpu")
    pipeline = pipeline.with_step("llvm", f"{pipeline['llvm'].passes},test-unselectable")
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with pytest.raises(sx.CompileError, match=r"cpu: machine code ended the process \(SIGABRT\)") as error:
        sx.compile(text, options=sx.CompileOptions(isolated=True, pipeline=pipeline))
    assert error.value.stage == "machine code"
    assert "Cannot select: intrinsic %llvm.aarch64.hint" in error.value.diagnostics[0]
    assert "llvm.func @main" in Path(error.value.reproducer).read_text()
