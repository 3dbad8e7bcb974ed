"""A type without a lowering was refused without a word on which operation has it, and where; a module without `main`
ended in a KeyError."""

from __future__ import annotations

import jaxlib.mlir.ir as hlo_ir
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from stablexla.targets.pipeline.lowering_passes import to_tensor


def lowered(text: str) -> None:
    to_tensor(hlo_ir.Module.parse(text, stablehlo_context()))


def test_an_operation_of_a_dynamic_shape() -> None:
    text = """
    func.func public @main(%x: tensor<2xf32>, %n: tensor<i32>) -> tensor<f32> {
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0
        : (tensor<2xf32>, tensor<i32>) -> tensor<?xf32> loc("model.py":7:3)
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }"""
    with pytest.raises(sx.UnsupportedError, match="dynamic shape") as caught:
        lowered(text)
    assert caught.value.operation == "stablehlo.set_dimension_size"
    assert '"model.py":7:3' in str(caught.value)


def test_a_parameter_of_a_dynamic_shape() -> None:
    with pytest.raises(sx.UnsupportedError, match=r"parameters of main: a dynamic shape .* tensor<\?xf32>"):
        lowered("func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }")


def test_no_main() -> None:
    with pytest.raises(sx.VerificationError, match="no function main"):
        lowered("func.func public @other(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
