"""A slice of nothing that begins behind the last element was refused by MLIR's verifier."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import check


@pytest.mark.parametrize(("shape", "limits"), [((0, 4), "0:0, 0:4"), ((3, 4), "3:3, 0:2"), ((3, 4), "1:1:2, 4:4")])
def test_a_slice_of_nothing(shape: tuple[int, int], limits: str) -> None:
    """The oracle is the reference interpreter."""
    source = f"tensor<{shape[0]}x{shape[1]}xi32>"
    made = {"0:0, 0:4": "tensor<0x4xi32>", "3:3, 0:2": "tensor<0x2xi32>", "1:1:2, 4:4": "tensor<0x0xi32>"}[limits]
    text = f"""func.func public @main(%x: {source}) -> ({made}, tensor<i32>) {{
      %zero = stablehlo.constant dense<7> : tensor<i32>
      %0 = stablehlo.slice %x [{limits}] : ({source}) -> {made}
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : ({made}, tensor<i32>) -> tensor<i32>
      return %0, %1 : {made}, tensor<i32>
    }}"""
    check(text, [np.zeros(shape, np.int32)], against=["interpreter"])
