"""Finding the first wrong operation: deliberate mistakes in lowering rules, passes, emitters and pipelines are named.

The oracles are what programs are compared with; what is tested is that nothing but the mistake is reported.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import stablexla as sx
from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.inspection.comparing.compare import CompareOptions, compare
from stablexla.inspection.comparing.report import show
from stablexla.targets.pipeline.passes import PASSES
from tests.inspection.comparing import (
    AFFINE_ARGUMENTS,
    affine,
    break_emitters,
    break_rule,
    line_of,
    multiply_for_add,
    normal,
    subtract_for_add,
)

HERE = "tests/inspection/comparing.py"


def chain() -> sx.XlaComputation:
    b = sx.XlaBuilder("chain")
    x = b.parameter(0, sx.f32[6, 137], name="x")
    y = sx.tanh(x)
    z = sx.exp(y) + y
    total = sx.reduce(z, b.constant(np.float32(0)), sx.add, (1,))
    return b.build(sx.sub(z, total, broadcast_dimensions=(0,)))


class TestNothingIsWrong:
    @pytest.mark.parametrize("against", ["interpreter", "xla", "plain", "tensor"])
    def test_equal(self, against: str) -> None:
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, against)
        assert found, found
        assert found.judged == found.operations == 5
        assert str(found).startswith(f"affine against {found.against}: equal")

    def test_sums_of_many_terms_may_be_in_another_order(self) -> None:
        b = sx.XlaBuilder("sums")
        x, y = b.parameter(0, sx.f32[6, 500]), b.parameter(1, sx.f32[500, 5])
        zero = b.constant(np.float32(0))
        both = sx.tuple((sx.dot(x, y), sx.reduce(x, zero, sx.add, (0,)), sx.reduce(x, zero, sx.add, (1,))))
        found = sx.compile(b.build(both)).compare([normal(6, 500), normal(500, 5)], "interpreter")
        assert found, found

    def test_little_memory_makes_more_parts(self) -> None:
        found = compare(sx.compile(chain()), [normal(6, 137)], "plain", CompareOptions(byte_limit=1 << 12))
        assert found, found
        assert found.judged >= 6

    def test_shapes_that_come_with_the_arguments(self) -> None:
        text = """func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
          %0 = stablehlo.tanh %x : tensor<?x3xf32>
          %1 = stablehlo.add %0, %x : tensor<?x3xf32>
          return %1 : tensor<?x3xf32>
        }"""
        assert sx.compile(text).compare([normal(5, 3)], "interpreter")


class TestOperations:
    def test_a_broken_lowering_rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        break_rule(monkeypatch, "stablehlo.tanh", lambda ctx, x: x)
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, "interpreter")
        assert not found
        assert found.finding is not None
        assert (found.finding.operation, found.finding.method) == ("stablehlo.tanh", "operation")
        place = found.finding.place
        assert place.file.endswith(HERE)
        assert (place.line, place.function) == (line_of(affine, "sx.tanh(y)"), "affine")
        assert place.text == "z = sx.tanh(y)"
        difference = found.finding.difference
        (x,) = difference.operands
        assert difference.ours == x
        assert np.float32(difference.theirs) == pytest.approx(np.tanh(np.float32(x)), rel=1e-6)
        assert found.finding.cause is not None
        assert "test_compare.py" in found.finding.cause.rule
        assert found.finding.program is not None
        assert found.finding.program.operations == 1

    def test_a_single_element(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def almost_negate(ctx: Any, x: Any) -> Any:
            from mlir.dialects import arith

            def body(v: Any) -> Any:
                odd = arith.constant(v.type, 0.625)
                return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, v, odd), v, arith.negf(v))

            return ctx.elementwise(body, x)

        break_rule(monkeypatch, "stablehlo.negate", almost_negate)
        b = sx.XlaBuilder("one")
        computation = b.build(sx.neg(b.parameter(0, sx.f32[3, 50])) + 1.0)
        x = normal(3, 50)
        x[1, 42] = 0.625
        found = sx.compile(computation).compare([x], "interpreter").finding
        assert found is not None
        assert (found.operation, found.difference.count, found.difference.index) == ("stablehlo.negate", 1, (1, 42))
        assert (found.difference.ours, found.difference.theirs) == ("0.625", "-0.625")
        assert found.difference.start == (1, 40)
        assert found.difference.our_excerpt[2] == "0.625"

    def test_one_missing_term_of_a_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One of 300 terms is far less than any order of summation explains."""
        b = sx.XlaBuilder("dots")
        x, y = b.parameter(0, sx.f32[3, 300]), b.parameter(1, sx.f32[300, 3])
        computation = b.build(sx.dot(x, y))
        executable = sx.compile(computation)
        left, right = np.abs(normal(3, 300)), np.abs(normal(300, 3))
        assert executable.compare([left, right], "interpreter")
        right_rule = sx.lowering_rule("stablehlo.dot_general", _dot_without_the_last_term)
        broken = sx.compile(computation, options=sx.CompileOptions(rules=[right_rule]))
        found = broken.compare([left, right], "interpreter").finding
        assert found is not None
        assert found.operation == "stablehlo.dot_general"
        assert found.cause is not None
        assert "_dot_without_the_last_term" in found.cause.rule

    def test_units_in_the_last_place_can_be_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        executable = sx.compile(affine())
        found = executable.compare(AFFINE_ARGUMENTS, "xla", ulp=0)
        assert found.finding is not None
        assert found.finding.operation == "stablehlo.tanh"
        assert 1 <= found.finding.difference.ulp <= 8
        assert executable.compare(AFFINE_ARGUMENTS, "xla", ulp=8)

    def test_operations_of_called_functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = """module @calls {
          func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("model.py":7:5)
            return %0 : tensor<4xf32>
          }
          func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = stablehlo.cosine %x : tensor<4xf32> loc("layers.py":3:9)
            %1 = stablehlo.add %0, %0 : tensor<4xf32> loc("layers.py":4:9)
            return %1 : tensor<4xf32>
          }
        }"""
        break_rule(monkeypatch, "stablehlo.cosine", lambda ctx, x: x)
        found = sx.compile(text).compare([normal(4)], "interpreter").finding
        assert found is not None
        assert (found.place.file, found.place.line) == ("layers.py", 3)
        assert [(p.file, p.line) for p in found.place.callers] == [("model.py", 7)]


def _dot_without_the_last_term(ctx: Any, x: Any, y: Any) -> Any:
    """A sum of products that ends one term early."""
    import mlir.ir as ir
    from mlir.dialects import arith, linalg, tensor

    f32 = ir.F32Type.get()
    (rows, terms), (_, columns) = x.type.shape, y.type.shape
    parts = [_cut(tensor, x, [rows, terms - 1]), _cut(tensor, y, [terms - 1, columns])]
    zero = arith.constant(f32, 0.0)
    start = linalg.fill(zero, outs=[tensor.empty([rows, columns], f32)])
    return linalg.matmul(*parts, outs=[start])


def _cut(tensor: Any, value: Any, shape: list[int]) -> Any:
    import mlir.ir as ir

    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    return tensor.extract_slice(type_, value, [], [], [], [0, 0], shape, [1, 1])


LOOP = """func.func public @main(%x: tensor<16xf32>, %n: tensor<i32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %y = stablehlo.exponential %x : tensor<16xf32>
  %r:2 = stablehlo.while(%i = %c0, %a = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %t = stablehlo.tanh %a : tensor<16xf32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %is = stablehlo.compare GT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %s = "stablehlo.if"(%is) ({
      %q = stablehlo.sqrt %t : tensor<16xf32> loc("model.py":12:7)
      stablehlo.return %q : tensor<16xf32>
    }, {
      stablehlo.return %t : tensor<16xf32>
    }) : (tensor<i1>) -> tensor<16xf32>
    %b = stablehlo.add %s, %y : tensor<16xf32>
    stablehlo.return %j, %b : tensor<i32>, tensor<16xf32>
  }
  return %r#1 : tensor<16xf32>
}"""
LOOP_ARGUMENTS = [np.abs(normal(16)), np.int32(20)]


class TestRegions:
    def test_a_branch_in_a_turn_of_a_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        break_rule(monkeypatch, "stablehlo.sqrt", lambda ctx, x: x)
        found = sx.compile(LOOP).compare(LOOP_ARGUMENTS, "interpreter").finding
        assert found is not None
        assert (found.operation, found.place.file, found.place.line) == ("stablehlo.sqrt", "model.py", 12)
        turns = [(turn.operation, turn.what) for turn in found.turns]
        assert turns == [("stablehlo.while", "turn 6"), ("stablehlo.if", "branch 0")]

    def test_the_loop_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The body is right, and the loop forgets what one of its values was made: it gives the first again."""
        from stablexla.lowering.rules import control

        rule = control.while_
        break_rule(monkeypatch, "stablehlo.while", lambda ctx, *inits: [*rule(ctx, *inits)[:1], *inits[1:]])
        text = LOOP.replace("return %r#1", "return %r#1")
        found = sx.compile(text).compare(LOOP_ARGUMENTS, "interpreter").finding
        assert found is not None
        assert found.operation == "stablehlo.while"
        assert [turn.what for turn in found.turns] in ([], ["turn 0"])

    def test_a_loop_that_is_right(self) -> None:
        assert sx.compile(LOOP).compare(LOOP_ARGUMENTS, "xla")


class TestSteps:
    def test_a_pass_of_the_user(self) -> None:
        cpu = sx.pipeline("cpu")
        mine = cpu.with_step("tensor", [cpu["tensor"].passes, subtract_for_add])
        executable = sx.compile(affine(), options=sx.CompileOptions(pipeline=mine))
        found = executable.compare(AFFINE_ARGUMENTS, "interpreter").finding
        assert found is not None
        assert found.operation == "stablehlo.add"
        assert found.place.line == line_of(affine, "sx.add(x, v")
        assert found.cause is not None
        assert found.cause.step == "tensor"
        assert "subtract_for_add" in found.cause.change
        assert "is added" in found.cause.change

    def test_a_step_of_the_user_against_the_pipeline_without_it(self) -> None:
        cpu = sx.pipeline("cpu")
        mine = cpu.inserting(sx.Step("polish", ["canonicalize", subtract_for_add]), after="tensor")
        executable = sx.compile(affine(), options=sx.CompileOptions(pipeline=mine))
        found = executable.compare(AFFINE_ARGUMENTS, cpu).finding
        assert found is not None
        assert found.operation == "stablehlo.add"
        assert found.cause is not None
        assert found.cause.step == "polish"

    def test_the_stage_after_which_it_breaks(self) -> None:
        cpu = sx.pipeline("cpu")
        mine = cpu.inserting(sx.Step("polish", [subtract_for_add]), after="tensor")
        executable = sx.compile(affine(), options=sx.CompileOptions(pipeline=mine))
        equal = {stage: bool(executable.compare(AFFINE_ARGUMENTS, stage)) for stage in ("tensor", "polish")}
        assert equal == {"tensor": False, "polish": True}

    def test_an_option(self) -> None:
        b = sx.XlaBuilder("flush")
        computation = b.build(b.parameter(0, sx.f32[3]) * np.float32(1.5))
        flushing = sx.compile(computation, options=sx.CompileOptions(flush_denormals=True))
        tiny = np.array([1e-40, 1.0, -2e-41], np.float32)
        found = flushing.compare([tiny], sx.CompileOptions()).finding
        assert found is not None
        assert found.operation == "stablehlo.multiply"
        assert found.cause is not None
        assert (found.cause.step, found.cause.change) == ("", "flush_denormals=True in the place of False")

    def test_a_pass_on_stablehlo_that_all_pipelines_share(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The oracle runs what the pass leaves, so that it is not taken for a mistake in lowering."""
        name = "stablexla-expand-bounded"
        monkeypatch.setitem(PASSES, name, replace(PASSES[name], function=multiply_for_add, acts_on=None))
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, "interpreter").finding
        assert found is not None
        assert found.operation == "stablehlo.add"
        assert found.cause is not None
        assert (found.cause.step, found.cause.rule) == ("stablehlo", "")
        assert found.cause.change == f"the pass {name} changes what the program means"


class TestKernels:
    def test_an_emitter_that_forgets_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        break_emitters(monkeypatch, "transpose", lambda kernel: True)
        b = sx.XlaBuilder("turned")
        x = b.parameter(0, sx.f32[33, 290])
        computation = b.build(sx.exp(sx.transpose(sx.neg(x), (1, 0))))
        found = sx.compile(computation).compare([normal(33, 290)], "interpreter").finding
        assert found is not None
        assert found.operation == "stablehlo.transpose"
        assert found.cause is not None
        assert found.cause.step == "buffers"
        assert found.cause.kernel is not None
        assert (found.cause.kernel.kind, found.cause.kernel.path) == ("transpose", "emitted")
        assert "test_compare.py" in found.cause.kernel.operations[0]

    def test_one_that_is_wrong_only_where_more_is_fused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each operation by itself is right, and so is the program that returns all of its values."""

        def is_fused(kernel: Any) -> bool:
            return len(kernel.results) == 1 and sum(op.name == "linalg.generic" for op in kernel.ops) > 2

        break_emitters(monkeypatch, "row", is_fused)
        found = sx.compile(chain()).compare([normal(6, 137)], "interpreter").finding
        assert found is not None
        assert found.method == "prefix"
        assert found.operation == "stablehlo.subtract"
        assert found.difference.ours == "nan"  # memory that nobody wrote
        assert found.difference.index[0] == 5
        assert found.program is not None
        assert found.program.operations <= 7
        assert found.cause is not None
        assert found.cause.step == "buffers"
        assert found.cause.kernel is not None
        assert found.cause.kernel.kind == "row"

    def test_one_that_is_wrong_only_among_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrong where values are returned, and right by itself."""
        break_emitters(monkeypatch, "row", lambda kernel: True)
        found = sx.compile(chain()).compare([normal(6, 137)], "interpreter")
        assert found.finding is not None
        assert found.finding.method == "operation"
        assert found.finding.program is not None
        assert found.finding.program.operations > 1
        assert any("by itself is right" in note for note in found.notes)
        assert found.finding.cause is not None
        assert found.finding.cause.kernel is not None


class TestOtherSide:
    def test_what_xla_is_known_to_do_otherwise(self) -> None:
        """XLA:CPU flushes denormals, which StableHLO keeps."""
        b = sx.XlaBuilder("denormals")
        x = b.parameter(0, sx.f32[4])
        found = sx.compile(b.build(sx.exp(x * np.float32(0.5)))).compare([np.float32([1e-39, 1, 2, 3])], "xla")
        assert found, found
        assert found.excused == {"xla: denormals are zeros": 1}
        assert "denormals are zeros" in str(found)

    def test_what_the_interpreter_overwrites(self) -> None:
        """It writes over the operand of a scatter, which another operation then reads."""
        text = """func.func @main(%x: tensor<4xf32>, %i: tensor<1x1xi32>, %u: tensor<1xf32>) -> tensor<4xf32> {
          %y = stablehlo.negate %x : tensor<4xf32>
          %0 = "stablehlo.scatter"(%y, %i, %u) ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            stablehlo.return %b : tensor<f32>
          }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims=[0], scatter_dims_to_operand_dims=[0],
              index_vector_dim=1>} : (tensor<4xf32>, tensor<1x1xi32>, tensor<1xf32>) -> tensor<4xf32>
          %1 = stablehlo.add %0, %y : tensor<4xf32>
          return %1 : tensor<4xf32>
        }"""
        assert sx.compile(text).compare([normal(4), np.int32([[2]]), np.float32([9])], "interpreter")

    def test_what_it_cannot_do_is_told(self) -> None:
        b = sx.XlaBuilder("mixed")
        x = b.parameter(0, sx.f32[3, 3])
        low = sx.cholesky(x, True)
        noise = sx.rng_uniform(b.constant(np.float32(0)), b.constant(np.float32(1)), sx.f32[3, 3])
        found = sx.compile(b.build(sx.add(low * 2.0, noise))).compare([np.eye(3, dtype=np.float32)], "interpreter")
        missed = {m.operation: m.reason for m in found.not_judged}
        assert missed["stablehlo.rng"] == "its numbers are drawn anew each time"
        assert "stablehlo.cholesky" in missed
        assert found.finding is None
        assert "not judged" in str(found)

    def test_nothing_that_could_be_compared_is_not_equal(self) -> None:
        b = sx.XlaBuilder("waves")
        found = sx.compile(b.build(sx.fft(b.parameter(0, sx.c64[8]), "FFT", (8,)))).compare(
            [np.zeros(8, np.complex64)], "interpreter"
        )
        if not found.judged:  # as long as the interpreter has no transforms
            assert not found
            assert "NOTHING COULD BE COMPARED" in str(found)

    def test_algorithms_that_the_interpreter_does_not_follow(self) -> None:
        text = """func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x6xf32>) -> tensor<4x6xf32> {
          %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16,
            rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
            num_primitive_operations = 1, allow_imprecise_accumulation = false>
            : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
          return %0 : tensor<4x6xf32>
        }"""
        found = sx.compile(text).compare([normal(4, 8), normal(8, 6)], "interpreter")
        assert found.finding is None
        assert found.excused == {"interpreter: algorithms of products": 1}

    def test_complex_numbers(self) -> None:
        """The interpreter aborts on complex results; their parts are asked for."""
        b = sx.XlaBuilder("complex")
        x = b.parameter(0, sx.c64[5])
        z = (normal(5) + 1j * normal(5, seed=1)).astype(np.complex64)
        assert sx.compile(b.build(sx.exp(x) * x)).compare([z], "interpreter")

    def test_rounding(self) -> None:
        """Every operation is right, and not a bit of the result may be another."""
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, "xla", tolerance=0)
        assert not found
        assert found.finding is not None
        assert (found.finding.method, found.finding.operation) == ("rounding", "stablehlo.tanh")
        assert any("every operation is right" in note for note in found.notes)

    def test_another_program(self) -> None:
        """Programs that have nothing in common are compared by their results."""
        b = sx.XlaBuilder("other")
        x, v = b.parameter(0, sx.f32[4, 37]), b.parameter(1, sx.f32[37])
        y = sx.tanh(sx.add(x, v, broadcast_dimensions=(1,)))
        same, other = sx.compile(b.build(y + y)), sx.compile(b.build(y))
        executable = sx.compile(affine())
        assert executable.compare(AFFINE_ARGUMENTS, same)
        found = executable.compare(AFFINE_ARGUMENTS, other)
        assert not found
        assert list(found.results) == [0]
        assert "no operation was found" in str(found)

    def test_an_infeed_is_refused(self) -> None:
        b = sx.XlaBuilder("fed")
        executable = sx.compile(b.build(b.infeed(sx.f32[2]) * 2.0))
        with pytest.raises(ExecutionError, match="reads what the caller sends"):
            executable.compare([], "plain")


class TestWhatItIs:
    def test_values(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        break_rule(monkeypatch, "stablehlo.tanh", lambda ctx, x: x)
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, "interpreter")
        assert repr(found) == "Comparison('affine' against 'interpreter': first wrong: stablehlo.tanh)"
        assert "<table>" in found._repr_html_()
        told = json.loads(json.dumps(found.as_dict()))
        assert told["finding"]["operation"] == "stablehlo.tanh"
        assert told["finding"]["program"]["arguments"] == ["float32[4, 37]"]
        path = found.save(tmp_path / "small")
        assert path is not None
        with np.load(path.parent / "inputs.npz") as inputs, np.load(path.parent / "expected.npz") as expected:
            small = sx.compile(path)
            assert not np.allclose(small(inputs["arr_0"]), expected["arr_0"])
            monkeypatch.undo()
            assert np.allclose(sx.compile(path)(inputs["arr_0"]), expected["arr_0"])
        assert "--compare=interpreter" in (path.parent / "README.txt").read_text()

    def test_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        break_rule(monkeypatch, "stablehlo.tanh", lambda ctx, x: x)
        found = sx.compile(affine()).compare(AFFINE_ARGUMENTS, "interpreter", cause=False)
        console = Console(file=io.StringIO(), force_terminal=True, width=100)
        show(found, console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "DIFFERS" in text
        assert "\x1b[" in text
        assert found.finding is not None
        assert found.finding.cause is None

    def test_nothing_to_save(self, tmp_path: Path) -> None:
        assert sx.compile(affine()).compare(AFFINE_ARGUMENTS, "plain").save(tmp_path) is None

    def test_refusals(self) -> None:
        executable = sx.compile(affine())
        with pytest.raises(CompileError, match="nothing can be compared with 'tensr'"):
            executable.compare(AFFINE_ARGUMENTS, "tensr")
        with pytest.raises(ExecutionError, match="takes 2 argument"):
            executable.compare(AFFINE_ARGUMENTS[:1], "plain")
