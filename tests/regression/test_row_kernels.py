"""Kernels of rows: a result of each row overwrote an operand that another result was still to be made of, and a
reduction with a body of its own over short rows could not be compiled. The oracle is the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import check

# The place of the largest element; %i may be any array.
BODY = """reducer(%a: tensor<i32>, %c: tensor<i32>) (%b: tensor<i32>, %d: tensor<i32>) {
      %p = stablehlo.compare GE, %a, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %q = stablehlo.select %p, %a, %c : tensor<i1>, tensor<i32>
      %r = stablehlo.select %p, %b, %d : tensor<i1>, tensor<i32>
      stablehlo.return %q, %r : tensor<i32>, tensor<i32>
    }"""


def best(shape: str, rows: str) -> str:
    return f"""stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1]
      : (tensor<{shape}xi32>, tensor<{shape}xi32>, tensor<i32>, tensor<i32>) -> (tensor<{rows}xi32>, tensor<{rows}xi32>)
      {BODY}"""


CONSTANTS = """
    %low = stablehlo.constant dense<-1000000> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
"""


@pytest.mark.parametrize("shape", [(4, 3), (5, 9), (33, 70)])
def test_an_operand_of_a_later_result_is_left_alone(shape: tuple[int, int]) -> None:
    """%n is dead after the kernel, so that a result may take its place; but not the first one."""
    m, n = shape
    text = f"""func.func public @main(%x: tensor<{m}x{n}xi32>, %y: tensor<{m}x{n}xi32>)
        -> (tensor<{m}xi32>, tensor<{m}xi32>) {{
      {CONSTANTS}
      %n = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<{m}x{n}xi32>, tensor<i32>) -> tensor<{m}xi32>
      %i = stablehlo.iota dim = 1 : tensor<{m}x{n}xi32>
      %0:2 = {best(f"{m}x{n}", f"{m}")}
      %1 = stablehlo.multiply %0#0, %n : tensor<{m}xi32>
      return %0#0, %1 : tensor<{m}xi32>, tensor<{m}xi32>
    }}"""
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, shape).astype(np.int32) for _ in range(2)]
    check(text, args, against=["interpreter"])


@pytest.mark.parametrize("shape", [(4, 1), (4, 3), (5, 9)])
def test_a_body_of_its_own_over_short_rows(shape: tuple[int, int]) -> None:
    m, n = shape
    text = f"""func.func public @main(%x: tensor<{m}x{n}xi32>, %i: tensor<{m}x{n}xi32>)
        -> (tensor<{m}xi32>, tensor<{m}xi32>) {{
      {CONSTANTS}
      %0:2 = {best(f"{m}x{n}", f"{m}")}
      return %0#0, %0#1 : tensor<{m}xi32>, tensor<{m}xi32>
    }}"""
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, shape).astype(np.int32) for _ in range(2)]
    check(text, args, against=["interpreter"])
