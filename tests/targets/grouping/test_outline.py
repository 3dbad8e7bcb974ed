"""Outlining: kernels are functions of what they read, equal ones are one function, main keeps an order that works."""

from __future__ import annotations

import mlir.ir as ir
import pytest

from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import main_of, walk
from stablexla.targets.grouping.loops import is_generic
from tests.fuzz.generate import FOUNDATION, draw
from tests.targets.grouping.stages import outlined


def kernels(module: ir.Module) -> dict[str, ir.Operation]:
    """The kernels' functions by name."""
    found = [view.operation for view in module.body.operations if KIND in view.operation.attributes]
    return {ir.StringAttr(f.attributes["sym_name"]).value: f for f in found}


def calls(module: ir.Module) -> list[str]:
    """The names of the kernels that main calls, in order."""
    return [
        ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in walk(main_of(module)) if op.name == "func.call"
    ]


def arguments_of(function: ir.Operation) -> list[str]:
    """The types of a function's parameters."""
    return [str(a.type) for a in function.regions[0].blocks[0].arguments]


def test_equal_kernels_are_one() -> None:
    layers = "\n".join(
        f"%d{i} = stablehlo.dot %{i}, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>\n"
        f"%{i + 1} = stablehlo.tanh %d{i} : tensor<8x8xf32>"
        for i in range(5)
    )
    text = f"""func.func public @main(%0: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {{
      {layers}
      return %5 : tensor<8x8xf32>
    }}"""
    module = outlined(text)
    assert list(kernels(module)) == ["contraction_0"]
    assert calls(module) == ["contraction_0"] * 5


@pytest.mark.parametrize(
    "other",
    [
        "%1 = stablehlo.exponential %y : tensor<8xf64>",  # another type
        "%1 = stablehlo.negate %y : tensor<8xf64>",  # another operation
    ],
)
def test_others_are_not(other: str) -> None:
    text = f"""func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf64>) -> (tensor<8xf32>, tensor<8xf64>) {{
      %0 = stablehlo.exponential %x : tensor<8xf32>
      {other}
      return %0, %1 : tensor<8xf32>, tensor<8xf64>
    }}"""
    assert calls(outlined(text)) == ["loop_0", "loop_1"]


def test_a_constant_makes_a_difference_but_a_parameter_does_not() -> None:
    """Scalar constants are inside the kernels; scalars that are only known later are given to them."""
    lines = "\n".join(
        f"%b{i} = stablehlo.broadcast_in_dim {scalar}, dims = [] : (tensor<f32>) -> tensor<8xf32>\n"
        f"%r{i} = stablehlo.multiply %x, %b{i} : tensor<8xf32>"
        for i, scalar in enumerate(["%p", "%q", "%two", "%three"])
    )
    text = f"""func.func public @main(%x: tensor<8xf32>, %p: tensor<f32>, %q: tensor<f32>)
        -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {{
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %three = stablehlo.constant dense<3.0> : tensor<f32>
      {lines}
      return %r0, %r1, %r2, %r3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
    }}"""
    module = outlined(text)
    assert calls(module) == ["loop_0", "loop_0", "loop_1", "loop_2"]
    assert [arguments_of(f) for f in kernels(module).values()] == [
        ["tensor<8xf32>", "f32"],
        ["tensor<8xf32>"],
        ["tensor<8xf32>"],
    ]


def test_a_generator_is_made_by_each_kernel_that_reads_it() -> None:
    text = """func.func public @main(%x: tensor<8x4xi32>, %y: tensor<8x4xi32>) -> (tensor<8x4xi32>, tensor<4xi32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %i = stablehlo.iota dim = 0 : tensor<8x4xi32>
      %0 = stablehlo.add %x, %i : tensor<8x4xi32>
      %1 = stablehlo.multiply %y, %i : tensor<8x4xi32>
      %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x4xi32>, tensor<i32>) -> tensor<4xi32>
      return %0, %2 : tensor<8x4xi32>, tensor<4xi32>
    }"""
    module = outlined(text)
    found = kernels(module)
    assert len(found) == 2
    assert all(arguments_of(f) == ["tensor<8x4xi32>"] for f in found.values())
    assert all("linalg.index" in [op.name for op in walk(f)] for f in found.values())


def test_what_nobody_reads_is_gone() -> None:
    text = """func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.exponential %x : tensor<8xf32>
      %1 = stablehlo.transpose %0, dims = [0] : (tensor<8xf32>) -> tensor<8xf32>
      %2 = stablehlo.negate %1 : tensor<8xf32>
      return %x : tensor<8xf32>
    }"""
    module = outlined(text)
    assert not kernels(module)
    assert [op.name for op in walk(main_of(module))] == ["func.func", "func.return"]


def test_what_a_body_uses_from_outside_is_an_argument() -> None:
    text = """func.func public @main(%x: tensor<8xf32>, %s: tensor<f32>) -> tensor<8xf32> {
      %0 = "stablehlo.map"(%x) ({
      ^bb0(%a: tensor<f32>):
        %1 = stablehlo.multiply %a, %s : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    module = outlined(text)
    (kernel,) = kernels(module).values()
    assert sorted(arguments_of(kernel)) == ["f32", "tensor<8xf32>"]


@pytest.mark.parametrize("first", range(2000, 2040, 10))
def test_random_programs_keep_every_loop_once(first: int) -> None:
    """Every kernel is called, and main has no loop of its own left; the module still verifies."""
    for seed in range(first, first + 10):
        text = draw(seed, FOUNDATION, 24).program.text
        module = outlined(text)
        assert module.operation.verify(), text
        assert set(calls(module)) == set(kernels(module)), text
        assert not any(is_generic(op) for op in walk(main_of(module))), text
