"""How executables take and give arrays of sizes at run time, and programs with bounded types that come as text."""

from __future__ import annotations

import jaxlib.mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.loading import load
from tests.ops.building import build

ROWS = sx.f32["<=8", 3]


@pytest.fixture(scope="module")
def double() -> sx.Executable:
    b = sx.XlaBuilder("double")
    x, scale = b.parameter(0, ROWS, "x"), b.parameter(1, sx.f32[()], "scale")
    return sx.compile(b.build(x * scale))


class TestExecutables:
    def test_what_it_says(self, double):
        assert "(f32[<=8,3], f32[]) -> (f32[<=8,3])" in repr(double)
        assert [(p.name, p.shape) for p in double.parameters] == [("x", (8, 3)), ("scale", ())]
        assert [r.shape for r in double.results] == [(8, 3)]

    @pytest.mark.parametrize("size", [0, 1, 7, 8])
    def test_arrays_up_to_the_bound(self, double, size):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], memoryview(x) if size == 8 else x):
            made = double(given, 2)
            np.testing.assert_array_equal(made, 2 * x)
            assert made.flags.c_contiguous
        (made,) = double.execute([x, np.float32(3)])
        np.testing.assert_array_equal(made, 3 * x)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                np.zeros((9, 3), np.float32),
                r"parameter 0 \(x\) takes float32\[<=8,3\], but an array of the shape \[9,3\]",
            ),
            (np.zeros((8, 2), np.float32), r"takes float32\[<=8,3\], but an array of the shape \[8,2\]"),
            (np.zeros(3, np.float32), r"takes float32\[<=8,3\], but an array of the shape \[3\]"),
            (1.5, r"takes float32\[<=8,3\], but an array of the shape \[\]"),
            (np.zeros((4, 3), np.float64), r"float64\[4,3\] came"),
            ([[1.0]], "a list came"),
        ],
    )
    def test_arguments_that_do_not_fit(self, double, given, message):
        with pytest.raises(sx.ExecutionError, match=message):
            double(given, 1)

    def test_a_wrong_number_of_arguments(self, double):
        with pytest.raises(sx.ExecutionError, match="takes 2 arguments"):
            double(np.zeros((2, 3), np.float32))

    def test_tuples(self):
        b = sx.XlaBuilder("tuples")
        p = b.parameter(0, sx.Shape.tuple((ROWS, sx.Shape.tuple((sx.f32[2], sx.s32["<=4"])))))
        first, (_, last) = p
        compiled = sx.compile(b.build(sx.tuple((sx.tuple((last,)), first))))
        x, n = np.ones((2, 3), np.float32), np.arange(3, dtype=np.int32)
        (got,), whole = compiled((x, (np.zeros(2, np.float32), n)))
        np.testing.assert_array_equal(got, n)
        np.testing.assert_array_equal(whole, x)

    def test_a_program_that_only_passes_on(self):
        b = sx.XlaBuilder("same")
        x = np.ones((5, 3), np.float32)
        np.testing.assert_array_equal(sx.compile(b.build(b.parameter(0, ROWS)))(x), x)

    def test_on_the_command_line(self, tmp_path, capsys):
        from stablexla.tools.run import main

        program = tmp_path / "program.mlir"
        program.write_text(build(lambda x: x + x, sx.s32["<=4"]).text())
        assert main([str(program), "--input", "[1, 2]", "--print"]) == 0
        assert "[2 4]" in capsys.readouterr().out
        assert main([str(program), "--print"]) == 0
        assert main([str(program), "--input", "[1, 2, 3, 4, 5]"]) == 1
        assert main([str(program), "--compare", "xla"]) == 0
        assert "operations are judged in the program for these sizes" in capsys.readouterr().out

    def test_composites_become_their_decompositions(self):
        def double(x: sx.XlaOp) -> sx.XlaOp:
            return x + x

        def make(x: sx.XlaOp) -> list[sx.XlaOp]:
            called = sx.composite_call(x, "test.double", None, double)
            return [called, sx.erf(called), sx.erf(x[:, :1]), sx.erf(sx.set_dimension_size(x, 8, 0))]

        compiled = sx.compile(build(make, ROWS))
        assert compiled.composites == {"test.double v0": "decomposition", "chlo.erf v0": "kernel"}

    def test_many_threads(self, double):
        from concurrent.futures import ThreadPoolExecutor

        arrays = [np.full((n % 9, 3), n, np.float32) for n in range(64)]
        with ThreadPoolExecutor(4) as pool:
            for x, made in zip(arrays, pool.map(lambda x: double(x, 2), arrays), strict=True):
                np.testing.assert_array_equal(made, 2 * x)


class TestModules:
    """Programs that come as text."""

    def test_bounds_in_the_signature(self):
        text = """
        func.func public @main(%x: tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> (tensor<f32>, tensor<i32>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
            : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<f32>) -> tensor<f32>
          %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
          return %sum, %size : tensor<f32>, tensor<i32>
        }"""
        total, size = sx.compile(text)(np.full((5, 3), 2.0, np.float32))
        assert (float(total), int(size)) == (30.0, 5)

    def test_static_types_forget_no_size(self):
        """As XLA's semantics print their example; StableHLO's verifier takes it."""
        text = """
        func.func public @main(%v: tensor<10xf32>, %n: tensor<i32>) -> (tensor<f32>, tensor<10xf32>, tensor<i32>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %padded = stablehlo.set_dimension_size %v, %n, dim = 0 : (tensor<10xf32>, tensor<i32>) -> tensor<10xf32>
          %twice = stablehlo.add %padded, %v : tensor<10xf32>
          %sum = stablehlo.reduce(%twice init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<10xf32>, tensor<f32>) -> tensor<f32>
          %size = stablehlo.get_dimension_size %twice, dim = 0 : (tensor<10xf32>) -> tensor<i32>
          return %sum, %twice, %size : tensor<f32>, tensor<10xf32>, tensor<i32>
        }"""
        v = np.arange(1, 11, dtype=np.float32)
        total, whole, size = sx.compile(text)(v, 5)
        assert (float(total), int(size)) == (30.0, 5)
        np.testing.assert_array_equal(whole, 2 * v)

    def test_attributes_of_parameters_stay_with_them(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>> {my.note = "x"}, %y: tensor<4xf32>)
            -> (tensor<?xf32, #stablehlo.bounds<4>> {my.note = "result"}) {
          %z = stablehlo.add %x, %y : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<4xf32>)
            -> tensor<?xf32, #stablehlo.bounds<4>>
          return %z : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        np.testing.assert_array_equal(sx.compile(text)(np.ones(2, np.float32), np.ones(4, np.float32)), [2, 2])

    def test_different_bounds_are_refused(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>, %y: tensor<?xf32, #stablehlo.bounds<6>>)
            -> tensor<?xf32, #stablehlo.bounds<4>> {
          %z = stablehlo.add %x, %y : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<?xf32, #stablehlo.bounds<6>>)
            -> tensor<?xf32, #stablehlo.bounds<4>>
          return %z : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        with pytest.raises(sx.UnsupportedError, match="the bounds of the operands differ"):
            sx.compile(text)

    def test_an_operation_without_a_rule_says_where_it_stands(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>> {
          %y = stablehlo.custom_call @mine(%x)
            : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>>
          return %y : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        with pytest.raises(sx.UnsupportedError, match="custom_call: it takes no array") as raised:
            sx.compile(text)
        assert "operand 0  [<=4]" in str(raised.value)
        assert ":3:" in str(raised.value)

    @pytest.mark.parametrize("size", [0, 2, 4, 9])
    def test_sizes_that_are_an_operand(self, size):
        text = """
        func.func public @main(%shape: tensor<2xi64>, %v: tensor<3xf32>, %w: tensor<?xf32, #stablehlo.bounds<12>>)
            -> (tensor<?x3xi32, #stablehlo.bounds<4, ?>>, tensor<?x3xf32, #stablehlo.bounds<4, ?>>,
                tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<?x3xf32, #stablehlo.bounds<6, ?>>) {
          %count = stablehlo.dynamic_iota %shape, dim = 0
            : (tensor<2xi64>) -> tensor<?x3xi32, #stablehlo.bounds<4, ?>>
          %rows = stablehlo.dynamic_broadcast_in_dim %v, %shape, dims = [1]
            : (tensor<3xf32>, tensor<2xi64>) -> tensor<?x3xf32, #stablehlo.bounds<4, ?>>
          %same = stablehlo.dynamic_reshape %w, %shape
            : (tensor<?xf32, #stablehlo.bounds<12>>, tensor<2xi64>) -> tensor<?x3xf32, #stablehlo.bounds<4, ?>>
          %wide = stablehlo.dynamic_reshape %w, %shape
            : (tensor<?xf32, #stablehlo.bounds<12>>, tensor<2xi64>) -> tensor<?x3xf32, #stablehlo.bounds<6, ?>>
          return %count, %rows, %same, %wide : tensor<?x3xi32, #stablehlo.bounds<4, ?>>,
            tensor<?x3xf32, #stablehlo.bounds<4, ?>>, tensor<?x3xf32, #stablehlo.bounds<4, ?>>,
            tensor<?x3xf32, #stablehlo.bounds<6, ?>>
        }"""
        held = min(size, 4)
        v, w = np.float32([1, 2, 3]), np.arange(3 * held, dtype=np.float32)
        count, rows, same, wide = sx.compile(text)(np.array([size, 3]), v, w)
        np.testing.assert_array_equal(count, np.arange(held)[:, None].repeat(3, 1))
        np.testing.assert_array_equal(rows, np.tile(v, (held, 1)))
        np.testing.assert_array_equal(same, w.reshape(held, 3))
        np.testing.assert_array_equal(wide[:held], w.reshape(held, 3))
        assert len(wide) == min(size, 6)

    def test_a_bound_that_goes_lost_on_the_way(self):
        bounded, lost = "tensor<?xf32, #stablehlo.bounds<4>>", "tensor<?xf32>"
        text = f"""func.func public @main(%x: {bounded}) -> {lost} {{
          %y = "stablehlo.add"(%x, %x) : ({bounded}, {bounded}) -> {lost}
          return %y : {lost}
        }}"""
        with pytest.raises(sx.UnsupportedError, match="dimension 0 of the result cannot be told"):
            sx.compile(text)(np.float32([1, 2, 3]))

    def test_a_portable_artifact(self):
        from jaxlib.mlir.dialects import stablehlo

        computation = build(lambda x: x + x, ROWS)
        artifact = stablehlo.serialize_portable_artifact_str(str(computation), stablehlo.get_current_version())
        x = np.ones((4, 3), np.float32)
        np.testing.assert_array_equal(sx.compile(artifact)(x), x + x)

    def test_a_program_without_such_dimensions_is_not_touched(self):
        from stablexla.targets.stablehlo.bounded import expand_bounded

        module = load(build(lambda x: sx.while_(lambda s: s[0] < 1, lambda s: s + 1, x), sx.f32[3]))
        before = str(module)
        with module.context, ir.Location.unknown():
            expand_bounded(module)
        assert str(module) == before
