"""Random programs (`python -m tests.fuzz --target gpu:sm_80`) on the simulated driver, and what they have shown."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.fuzz.check import Checker
from tests.fuzz.generate import draw
from tests.fuzz.workers import Workers

Array = np.ndarray[Any, Any]
SHIFTS = """func.func @main(%x: tensor<8xi64>, %n: tensor<8xi64>) -> (tensor<8xi64>, tensor<8xi64>, tensor<8xi64>) {
  %0 = stablehlo.shift_left %x, %n : tensor<8xi64>
  %1 = stablehlo.shift_right_logical %x, %n : tensor<8xi64>
  %2 = stablehlo.shift_right_arithmetic %x, %n : tensor<8xi64>
  return %0, %1, %2 : tensor<8xi64>, tensor<8xi64>, tensor<8xi64>
}"""
NO_ARRAYS = """func.func @main(%x: tensor<2xf64>) -> (tensor<f64>, tensor<2xf64>) {
  %0 = stablehlo.iota dim = 1 : tensor<2x9x17xf64>
  %1 = stablehlo.iota dim = 0 : tensor<2x9x17xf64>
  %2 = stablehlo.add %0, %1 : tensor<2x9x17xf64>
  %3 = stablehlo.constant dense<0.0> : tensor<f64>
  %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.add across dimensions = [0, 1, 2]
    : (tensor<2x9x17xf64>, tensor<f64>) -> tensor<f64>
  return %4, %x : tensor<f64>, tensor<2xf64>
}"""
COLUMNS = """func.func @main(%x: tensor<16x6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %0) applies stablehlo.maximum across dimensions = [0]
    : (tensor<16x6xf32>, tensor<f32>) -> tensor<6xf32>
  %2 = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%x init: %2) applies stablehlo.add across dimensions = [0]
    : (tensor<16x6xf32>, tensor<f32>) -> tensor<6xf32>
  return %1, %3 : tensor<6xf32>, tensor<6xf32>
}"""
ANGLES = """func.func @main() -> (tensor<9xf64>, tensor<9xf32>) {
  %0 = stablehlo.constant dense<0.0> : tensor<9xf64>
  %1 = stablehlo.atan2 %0, %0 : tensor<9xf64>
  %2 = stablehlo.constant dense<0.0> : tensor<9xf32>
  %3 = stablehlo.atan2 %2, %2 : tensor<9xf32>
  return %1, %3 : tensor<9xf64>, tensor<9xf32>
}"""
HALVES = """func.func @main(%x: tensor<12xf16>) -> tensor<12xi1> {
  %0 = stablehlo.is_finite %x : (tensor<12xf16>) -> tensor<12xi1>
  return %0 : tensor<12xi1>
}"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, with which the simulator is built")
def test_random_programs() -> None:
    """Short ones, each operation against the interpreter."""
    with Workers() as workers:
        checker = Checker(workers)
        for seed in range(6):
            target = ("gpu:sm_80", "gpu:sm_90a")[seed % 2]
            drawn = draw(seed, ("elementwise", "reduction", "shape"), statements=4, target=target)
            found = checker.check(drawn.program, drawn.arguments, drawn.plan)
            assert found is None, f"program {seed} for {target}: {found}\n{drawn.program.text}"
        assert checker.compared


def as_on_the_cpu(text: str, arguments: Sequence[Array], chip: str = "sm_80") -> None:
    wanted = sx.compile(text).execute(list(arguments))
    results = sx.compile(text, target=sx.gpu.target(chip=chip)).execute(list(arguments))
    for result, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, right)


@pytest.mark.usefixtures("simulated_gpu")
def test_shifts_by_more_than_32_bits() -> None:
    """LLVM leaves the distance's upper half out when it thinks that PTX clamps it."""
    distances = np.array([0, 1, 63, 64, 1 << 32, (1 << 32) + 3, -1, -(1 << 63)])
    as_on_the_cpu(SHIFTS, [np.array([-7, 5, 3, 3, 3, -3, 9, -9]), distances])


@pytest.mark.usefixtures("simulated_gpu")
def test_rows_that_read_no_array() -> None:
    as_on_the_cpu(NO_ARRAYS, [np.ones(2)])


@pytest.mark.usefixtures("simulated_gpu")
def test_parts_of_columns_that_threads_have_to_themselves() -> None:
    """16 steps for few columns are two blocks' work."""
    as_on_the_cpu(COLUMNS, [np.arange(96, dtype=np.float32).reshape(16, 6)])


@pytest.mark.usefixtures("simulated_gpu")
def test_angles_of_constants() -> None:
    """0 and 0 have the angle 0; upstream's folding says NaN."""
    as_on_the_cpu(ANGLES, [])


@pytest.mark.usefixtures("simulated_gpu")
def test_comparisons_of_halves() -> None:
    special = np.array([np.inf, -np.inf, np.nan, 65504, 0, -0.0] * 2, np.float16)
    as_on_the_cpu(HALVES, [special])
