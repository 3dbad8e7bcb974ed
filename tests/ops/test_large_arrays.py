"""Positions that 32 bits do not hold, on arrays without memory; `python -m tests.large_arrays` has all families."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.large_arrays import CASES, run


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_cheap])
def test_positions_beyond_32_bits(name: str) -> None:
    run(name)


def test_top_k_of_rows_whose_indices_are_no_s32() -> None:
    b = sx.XlaBuilder("best")
    values, _ = sx.top_k(b.parameter(0, sx.s8[2**31 + 1]), 2)
    with pytest.raises(sx.UnsupportedError, match="top-k of rows of 2147483649 elements, whose indices are no s32"):
        sx.compile(b.build(values))


def test_a_sharded_dimension_has_offsets_of_64_bits() -> None:
    """The part of the second device begins beyond 32 bits."""
    size = 2**32 + 8
    text = f"""module attributes {{mhlo.num_partitions = 2 : i32}} {{
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%i: tensor<i64>) -> (tensor<2xi64>) {{
        %0 = stablehlo.iota dim = 0 : tensor<{size}xi64>
        %1 = sdy.sharding_constraint %0 <@mesh, [{{"x"}}]> : tensor<{size}xi64>
        %2 = stablehlo.slice %1 [{size - 4}:{size}:2] : (tensor<{size}xi64>) -> tensor<2xi64>
        return %2 : tensor<2xi64>
      }}
    }}"""
    with pytest.warns(sx.ReplicationWarning):
        executable = sx.compile(text)
    assert f"dense<[0, {size // 2}]> : tensor<2xi64>" in executable.ir("stablehlo")
