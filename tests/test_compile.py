"""Compiling programs that come in every form, what executables can be asked, and how bad input is refused."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from time import monotonic

import jaxlib.mlir.ir as ir
import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

import stablexla as sx
from stablexla.compiling import request
from stablexla.compiling.request import BIG
from stablexla.dialects.contexts import stablehlo_context
from stablexla.interop.loading import load, parse_text
from stablexla.targets.llvm.engine import load as load_machine_code
from stablexla.targets.llvm.entry import take_entry
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.registry import find_target
from stablexla.targets.runtime import pool_stats
from stablexla.targets.signature.signature import signature_of
from tests.threads import in_threads

TEXT = """
module @scaled_sum attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<3x4xf32>, %scale: tensor<f32>) -> (tensor<3xf32>, tensor<3x4xi1>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %weights = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %s = stablehlo.broadcast_in_dim %scale, dims = [] : (tensor<f32>) -> tensor<3x4xf32>
    %w = stablehlo.broadcast_in_dim %weights, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
    %0 = stablehlo.multiply %x, %s : tensor<3x4xf32>
    %1 = func.call @plus(%0, %w) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %3 = stablehlo.compare GT, %1, %w : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xi1>
    return %2, %3 : tensor<3xf32>, tensor<3x4xi1>
  }
  func.func private @plus(%a: tensor<3x4xf32>, %b: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %0 = stablehlo.add %a, %b : tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}
"""
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
SCALE = np.float32(0.5)


def check_scaled_sum(executable: sx.Executable) -> None:
    """Against numpy."""
    total = X * SCALE + np.array([1, 2, 3, 4], np.float32)
    sums, larger = executable(X, SCALE)
    np.testing.assert_allclose(sums, total.sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(larger, X * SCALE > 0)
    assert (sums.dtype, larger.dtype) == (np.float32, np.bool_)


def bytecode(module: ir.Module) -> bytes:
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def affine() -> sx.XlaComputation:
    b = sx.XlaBuilder("affine")
    x = b.parameter(0, sx.Shape("f32", (2, 3)), name="x")
    v = b.parameter(1, sx.Shape("f32", (3,)), name="v")
    return b.build(sx.add(x, v, broadcast_dimensions=(1,)))


class TestPrograms:
    def test_computation(self) -> None:
        computation = affine()
        before = str(computation)
        executable = sx.compile(computation)
        x, v = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
        result = executable(x, v)
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, x + v)
        results = executable.execute([x, v])
        assert isinstance(results, list)
        np.testing.assert_array_equal(results[0], x + v)
        assert str(computation) == before

    def test_text(self) -> None:
        check_scaled_sum(sx.compile(TEXT))

    def test_bytecode(self) -> None:
        check_scaled_sum(sx.compile(bytecode(load(TEXT))))

    def test_portable_artifact(self) -> None:
        artifact = stablehlo.serialize_portable_artifact(load(TEXT), stablehlo.get_current_version())
        check_scaled_sum(sx.compile(artifact))

    @pytest.mark.parametrize("form", ["text", "bytecode", "artifact"])
    def test_path(self, form: str, tmp_path: Path) -> None:
        module = load(TEXT)
        data = {
            "text": TEXT.encode(),
            "bytecode": bytecode(module),
            "artifact": stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version()),
        }
        path = tmp_path / "program"
        path.write_bytes(data[form])
        check_scaled_sum(sx.compile(path))

    def test_module_is_left_as_it_is(self) -> None:
        module = load(TEXT)
        before = str(module)
        check_scaled_sum(sx.compile(module))
        assert str(module) == before

    def test_module_of_another_context(self) -> None:
        jax = pytest.importorskip("jax")
        lowered = jax.jit(lambda x, y: (jax.numpy.tanh(x) @ y).sum(axis=0)).lower(np.ones((2, 3)), np.ones((3, 4)))
        executable = sx.compile(lowered.compiler_ir("stablehlo"))
        x, y = np.full((2, 3), 0.5, np.float32), np.ones((3, 4), np.float32)
        np.testing.assert_allclose(executable(x, y), (np.tanh(x) @ y).sum(axis=0), rtol=1e-6)
        # jax keeps the names of parameters as locations
        with pytest.raises(sx.ExecutionError, match=r"parameter 1 \(y\)"):
            executable(x, x)

    def test_module_may_be_nameless_and_main_unmarked(self) -> None:
        executable = sx.compile("func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> { return %x : tensor<2xi32> }")
        np.testing.assert_array_equal(executable(np.array([3, 4], np.int32)), [3, 4])
        assert executable.name == "main"

    def test_no_results_and_no_parameters(self) -> None:
        assert sx.compile("func.func @main() { return }").execute([]) == []
        assert sx.compile("func.func @main() { return }")() == ()

    def test_tuples_come_back_as_they_were_built(self) -> None:
        b = sx.XlaBuilder("nested")
        pair = b.parameter(0, sx.Shape.tuple((sx.f32[2], sx.f32[2])), name="pair")
        x, y = pair
        executable = sx.compile(b.build(sx.tuple((x + y, sx.tuple((x * y, sx.tuple((x,))))))))
        x_array, y_array = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
        total, (product, (same,)) = executable((x_array, y_array))
        np.testing.assert_array_equal(total, [4, 7])
        np.testing.assert_array_equal(product, [3, 10])
        np.testing.assert_array_equal(same, [1, 2])
        leaves = executable.execute([x_array, y_array])
        assert [leaf.tolist() for leaf in leaves] == [[4, 7], [3, 10], [1, 2]]
        with pytest.raises(sx.ExecutionError, match=r"parameter 0 takes a tuple"):
            executable(x_array)


class TestExecutable:
    def test_every_stage_is_text(self) -> None:
        executable = sx.compile(TEXT)
        assert executable.stages == ("source", "stablehlo", "tensor", "kernels", "buffers", "llvm")
        assert "func.call" not in executable.ir("stablehlo")
        assert "call @plus" in executable.ir("source")
        assert "linalg.generic" in executable.ir("tensor")
        assert "stablexla.kernel" in executable.ir("kernels")
        assert "memref<12xf32>" in executable.ir("buffers")
        assert "llvm.func @main" in executable.ir("llvm")
        assert "loc(" not in executable.ir("tensor")
        assert "loc(" in executable.ir("tensor", debug_info=True)
        with pytest.raises(sx.CompileError, match="no stage 'bufers'") as caught:
            executable.ir("bufers")
        assert caught.value.hint == "buffers"

    def test_source_stage_compiles_again(self) -> None:
        executable = sx.compile(TEXT)
        for stage in ("source", "stablehlo"):
            check_scaled_sum(sx.compile(executable.ir(stage)))

    def test_user_line_reaches_the_last_stages(self) -> None:
        executable = sx.compile(affine())
        assert "test_compile.py" in executable.ir("kernels", debug_info=True)

    def test_kernels_are_listed(self) -> None:
        kernels = sx.compile(TEXT).kernels
        assert kernels
        assert {k.path for k in kernels} <= {"emitted", "general"}
        assert all(k.calls == 1 and k.items >= 1 for k in kernels)

    def test_composites_tell_which_way_they_went(self) -> None:
        text = """
        func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.composite "my.twice" %x {decomposition = @twice, version = 2 : i32}
            : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32> }
        func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.add %x, %x : tensor<2xf32>
          return %0 : tensor<2xf32> }"""
        executable = sx.compile(text)
        assert executable.composites == {"my.twice v2": "decomposition"}
        assert sx.compile(TEXT).composites == {}
        np.testing.assert_array_equal(executable(np.array([1, 2], np.float32)), [2, 4])

    def test_says_what_it_is(self) -> None:
        executable = sx.compile(affine())
        assert repr(executable) == "Executable('affine', (f32[2,3], f32[3]) -> (f32[2,3]), target='cpu')"
        assert "affine" in executable._repr_html_()

    def test_own_pipeline_is_run(self) -> None:
        cpu = find_target("cpu").pipeline(sx.CompileOptions())
        mine = cpu.with_step("kernels", cpu["kernels"].passes + ",cse")
        executable = sx.compile(TEXT, options=sx.CompileOptions(pipeline=mine))
        assert executable.pipeline == mine
        check_scaled_sum(executable)

    def test_replicated_with_one_device(self) -> None:
        executable = sx.compile(affine(), num_replicas=1, num_partitions=1)
        x, v = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
        ((result,),) = executable.execute_replicated([[x, v]])
        np.testing.assert_array_equal(result, x + v)
        with pytest.raises(sx.ExecutionError, match=r"runs on 1 device, but arguments for 2"):
            executable.execute_replicated([[x, v], [x, v]])

    def test_wrong_arguments(self) -> None:
        executable = sx.compile(affine())
        good = np.ones((2, 3), np.float32)
        with pytest.raises(sx.ExecutionError, match=r"affine: parameter 1 \(v\)"):
            executable(good, np.ones(3))
        with pytest.raises(sx.ExecutionError, match="takes 2 arguments"):
            executable(good)


class TestNames:
    """Arguments by the names of parameters."""

    X, V = np.array([10, 20], np.float32), np.array([1, 2], np.float32)

    def subtract(self, **names: str) -> sx.Executable:
        b = sx.XlaBuilder("subtract")
        x, v = b.parameter(0, sx.f32[2], names.get("x", "")), b.parameter(1, sx.f32[2], names.get("v", ""))
        return sx.compile(b.build(x - v))

    def test_order_does_not_matter(self) -> None:
        executable = self.subtract(x="x", v="v")
        for result in (executable(x=self.X, v=self.V), executable(v=self.V, x=self.X), executable(self.X, v=self.V)):
            assert result.tolist() == [9, 18]

    def test_parameters_without_names(self) -> None:
        text = "func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {\n"
        text += "%0 = stablehlo.subtract %a, %b : tensor<f32>\n return %0 : tensor<f32>\n}"
        assert sx.compile(text)(arg1=2.0, arg0=7.0) == 5

    def test_names_of_parameters_with_unknown_extents(self) -> None:
        text = 'func.func @main(%a: tensor<?xf32> loc("x"), %b: tensor<?xf32> loc("v")) -> tensor<?xf32> {\n'
        text += "%0 = stablehlo.subtract %a, %b : tensor<?xf32>\n return %0 : tensor<?xf32>\n}"
        assert sx.compile(text)(v=self.V, x=self.X).tolist() == [9, 18]

    def test_leaves_of_a_tuple(self) -> None:
        b = sx.XlaBuilder("pair")
        pair = b.parameter(0, sx.Shape.tuple((sx.f32[2], sx.f32[2])), "p")
        executable = sx.compile(b.build(pair[0] - pair[1]))
        first, second = (spec.name for spec in executable.parameters)
        assert executable(**{second: self.V, first: self.X}).tolist() == [9, 18]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"x": X, "w": V}, "subtract: w is no parameter; it takes x, v"),
            ({"x": X}, "subtract: no argument is given for v; it takes x, v"),
            (
                {"x": X, "v": V[:1]},
                r"subtract: parameter 1 \(v\) takes float32\[2\], but an array of float32\[1\] came",
            ),
        ],
    )
    def test_refusals(self, given: dict[str, np.ndarray], message: str) -> None:
        with pytest.raises(sx.ExecutionError, match=message):
            self.subtract(x="x", v="v")(**given)

    def test_an_argument_given_twice(self) -> None:
        with pytest.raises(sx.ExecutionError, match="subtract: x is given twice"):
            self.subtract(x="x", v="v")(self.X, x=self.X, v=self.V)


class TestOptions:
    @pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
    def test_every_opt_level(self, opt_level: int) -> None:
        check_scaled_sum(sx.compile(TEXT, options=sx.CompileOptions(opt_level=opt_level)))

    @pytest.mark.parametrize("vector_bits", [128, 256, 512])
    def test_every_vector_width(self, vector_bits: int) -> None:
        check_scaled_sum(sx.compile(TEXT, options=sx.CompileOptions(vector_bits=vector_bits)))

    def test_one_thread(self) -> None:
        executable = sx.compile(TEXT, options=sx.CompileOptions(num_threads=1))
        assert "stablexla_parallel_for" not in executable.ir("llvm")
        check_scaled_sum(executable)

    def test_denormals(self) -> None:
        text = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
          %0 = stablehlo.add %x, %x : tensor<8xf32>
          return %0 : tensor<8xf32> }"""
        tiny = np.full(8, 1e-40, np.float32)
        np.testing.assert_array_equal(sx.compile(text)(tiny), tiny + tiny)
        flushing = sx.compile(text, options=sx.CompileOptions(flush_denormals=True))
        np.testing.assert_array_equal(flushing(tiny), np.zeros(8, np.float32))
        np.testing.assert_array_equal(sx.compile(text)(tiny), tiny + tiny)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"opt_level": 4}, "opt_level must be one of 0, 1, 2, 3, not 4"),
            ({"opt_level": True}, "opt_level"),
            ({"opt_level": "2"}, "opt_level"),
            ({"vector_bits": 1024}, "vector_bits must be one of 128, 256, 512"),
            ({"num_threads": 0}, "num_threads"),
            ({"num_threads": 2.0}, "num_threads"),
            ({"flush_denormals": 1}, "flush_denormals"),
            ({"pipeline": "cse"}, "pipeline must be a Pipeline"),
        ],
    )
    def test_bad_options_are_refused_when_made(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(sx.CompileError, match=message):
            sx.CompileOptions(**options)  # type: ignore[arg-type]

    def test_are_values(self) -> None:
        assert sx.CompileOptions(opt_level=2) == sx.CompileOptions(opt_level=2)
        assert hash(sx.CompileOptions()) == hash(sx.CompileOptions())


class TestRefusals:
    """Each kind of bad input: the right error, nothing on standard error, and the process goes on."""

    @pytest.fixture(autouse=True)
    def quiet_and_alive(self, capfd: pytest.CaptureFixture[str]):
        executable = sx.compile(affine())
        capfd.readouterr()
        yield
        captured = capfd.readouterr()
        assert captured.err == ""
        assert captured.out == ""
        result = executable(np.ones((2, 3), np.float32), np.ones(3, np.float32))
        np.testing.assert_array_equal(result, np.full((2, 3), 2, np.float32))

    @pytest.mark.parametrize(
        ("text", "line", "column"),
        [
            ("module { foo }", 1, 10),
            ("func.func @main() {\n  %0 = stablehlo.nonsense : tensor<f32>\n  return\n}", 2, 8),
            ("func.func @main() {\n  return", 2, 8),
            ("func.func @main() -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}", 2, 10),
            ("", 0, 0),
        ],
    )
    def test_text_that_does_not_parse(self, text: str, line: int, column: int) -> None:
        if not text:
            with pytest.raises(sx.ParseError, match="is empty"):
                sx.compile(text)
            return
        with pytest.raises(sx.ParseError) as caught:
            sx.compile(text)
        assert (caught.value.file, caught.value.line, caught.value.column) == ("<text>", line, column)

    def test_file_that_does_not_parse(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.mlir"
        path.write_text("// a comment\nfunc.func @main( {\n}\n")
        with pytest.raises(sx.ParseError, match=r"bad\.mlir:2:17: expected") as caught:
            sx.compile(path)
        assert caught.value.file == str(path)
        assert "func.func @main( {" in str(caught.value)

    def test_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(sx.ParseError, match="No such file"):
            sx.compile(tmp_path / "missing.mlir")

    def test_file_name_given_as_text(self) -> None:
        with pytest.raises(sx.ParseError) as caught:
            sx.compile("model.mlir")
        assert "pathlib.Path('model.mlir')" in caught.value.hint

    @pytest.mark.parametrize("data", [b"ML\xefRnonsense", b"\xff\xfe\x00", b"ML\xefR\x0dStableHLO_v99.0.0\x00\x01"])
    def test_bytes_that_are_no_module(self, data: bytes) -> None:
        with pytest.raises(sx.ParseError, match="<bytes>"):
            sx.compile(data)

    def test_something_else(self) -> None:
        with pytest.raises(sx.ParseError, match="a int is no program"):
            sx.compile(3)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ('%0 = "stablehlo.add"(%x, %y) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>', "stablehlo.add"),
            ("%0 = stablehlo.reshape %y : (tensor<3xf32>) -> tensor<2xf32>", "number of output elements"),
        ],
    )
    def test_module_that_does_not_verify(self, body: str, message: str) -> None:
        text = f"""func.func @main(%x: tensor<2xf32>, %y: tensor<3xf32>) -> tensor<2xf32> {{
          {body}
          return %0 : tensor<2xf32> }}"""
        with pytest.raises(sx.VerificationError, match=f"<text>:2:.*{message}"):
            sx.compile(text)

    def test_no_main(self) -> None:
        with pytest.raises(sx.VerificationError, match="no function @main; it has @other"):
            sx.compile("func.func @other() { return }")

    def test_operation_without_lowering(self, tmp_path: Path) -> None:
        text = """func.func @main(%x: tensor<5xui64>) -> tensor<2xui32> {
  %0, %1 = stablehlo.rng_bit_generator %x, algorithm = DEFAULT : (tensor<5xui64>) -> (tensor<5xui64>, tensor<2xui32>)
  return %1 : tensor<2xui32>
}"""
        path = tmp_path / "calls.mlir"
        path.write_text(text)
        with pytest.raises(sx.UnsupportedError, match=r"stablehlo\.rng_bit_generator") as caught:
            sx.compile(path)
        assert "calls.mlir" in str(caught.value)
        assert ":2:" in str(caught.value)

    def test_unknown_rank(self) -> None:
        with pytest.raises(sx.UnsupportedError, match="parameter 0 of main"):
            sx.compile("func.func @main(%x: tensor<*xf32>) { return }")

    def test_main_without_a_body(self) -> None:
        with pytest.raises(sx.VerificationError, match="no body"):
            sx.compile("func.func private @main(%x: tensor<4xf32>) -> tensor<4xf32>")

    def test_function_without_a_body(self) -> None:
        text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = func.call @elsewhere(%x) : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32> }
        func.func private @elsewhere(tensor<2xf32>) -> tensor<2xf32>"""
        with pytest.raises(sx.UnsupportedError, match="@elsewhere has no body"):
            sx.compile(text)

    def test_branches_between_blocks(self) -> None:
        text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          cf.br ^end(%x : tensor<4xf32>)
        ^end(%y: tensor<4xf32>):
          return %y : tensor<4xf32> }"""
        x = np.arange(4, dtype=np.float32)
        np.testing.assert_array_equal(sx.compile(text)(x), x)

    @pytest.mark.parametrize(
        "steps", [[], [Step("s", "cse")], [Step("s", "stablexla-inline-calls,stablexla-lower-to-tensor")]]
    )
    def test_pipeline_that_leads_nowhere(self, steps: list[Step]) -> None:
        with pytest.raises(sx.CompileError, match="main"):
            sx.compile(TEXT, options=sx.CompileOptions(pipeline=Pipeline("short", steps)))

    def test_functions_in_a_circle(self) -> None:
        text = """
        func.func @main() { func.call @a() : () -> () return }
        func.func private @a() { func.call @b() : () -> () return }
        func.func private @b() { func.call @a() : () -> () return }"""
        with pytest.raises(sx.UnsupportedError, match="a -> b -> a"):
            sx.compile(text)

    def test_unknown_target(self) -> None:
        with pytest.raises(sx.CompileError, match="no target 'cpux'") as caught:
            sx.compile(TEXT, target="cpux")
        assert caught.value.hint == 'target="cpu"'

    def test_unknown_symbol(self) -> None:
        pipeline = Pipeline("p", [Step("s", "convert-func-to-llvm")])
        text = """
        llvm.func @stablexla_nowhere()
        llvm.func @main(%arena: !llvm.ptr {stablexla.role = "arena"}) {
          llvm.call @stablexla_nowhere() : () -> ()
          llvm.return }"""
        module = parse_text(text, side="upstream")
        signature = signature_of(load("func.func @main() { return }"))
        with pytest.raises(sx.CompileError, match="stablexla_nowhere") as caught:
            load_machine_code(module, signature, sx.CompileOptions(pipeline=pipeline))
        assert caught.value.stage == "machine code"

    def test_pipeline_that_stops_too_early(self) -> None:
        cpu = find_target("cpu").pipeline(sx.CompileOptions())
        with pytest.raises(sx.CompileError, match="main"):
            sx.compile(TEXT, options=sx.CompileOptions(pipeline=cpu.up_to("tensor")))

    def test_entry_of_another_form(self) -> None:
        module = parse_text("llvm.func @main(%x: !llvm.ptr) { llvm.return }", side="upstream")
        with pytest.raises(sx.CompileError, match="main must take"):
            take_entry(module)


class TestThreads:
    @pytest.mark.filterwarnings("ignore:os.fork")
    def test_forked_child_compiles_and_runs(self) -> None:
        check_scaled_sum(sx.compile(TEXT))
        child = os.fork()
        if child == 0:
            try:
                check_scaled_sum(sx.compile(TEXT.replace("4.0]", "4.000]")))
            except BaseException:
                os._exit(1)
            os._exit(0)
        finished = []
        waiting = threading.Thread(target=lambda: finished.append(os.waitpid(child, 0)[1]))
        waiting.start()
        waiting.join(timeout=60)
        if not finished:
            os.kill(child, signal.SIGKILL)
            waiting.join()
        assert finished == [0]

    def test_many_compile_at_once(self) -> None:
        outcomes: dict[int, object] = {}

        def work(number: int) -> None:
            text = TEXT.replace("[1.0, 2.0, 3.0, 4.0]", f"[{number}.0, 0.0, 0.0, 1.0]")
            outcomes[number] = sx.compile(text)

        in_threads(work, range(4))
        gc.collect()
        # The threads, and with them their contexts, are gone; what they compiled works on.
        for number, executable in outcomes.items():
            assert isinstance(executable, sx.Executable)
            sums, _ = executable(X, SCALE)
            np.testing.assert_allclose(sums, (X * SCALE).sum(axis=1) + number + 1, rtol=1e-6)
            assert f"dense<[{float(number):e}," in executable.ir("source")
            assert "llvm.func @main" in executable.ir("llvm")

    def test_computation_of_another_thread(self) -> None:
        computation = affine()
        made: list[sx.Executable] = []
        thread = threading.Thread(target=lambda: made.append(sx.compile(computation)))
        thread.start()
        thread.join()
        x, v = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
        np.testing.assert_array_equal(made[0](x, v), x + v)

    def test_many_call_one(self) -> None:
        executable = sx.compile(TEXT)

        def work(seed: int) -> None:
            x = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
            expected = (x * SCALE + np.array([1, 2, 3, 4], np.float32)).sum(axis=1)
            for _ in range(50):
                sums, _ = executable(x, SCALE)
                np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-7)

        in_threads(work, range(4))


class TestStopping:
    """A compilation ends at the next pass, kernel, operation or part of machine code."""

    @pytest.fixture(autouse=True)
    def _ctrl_c_is_as_on_a_terminal(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.fixture
    def at(self) -> Iterator[Callable[[Callable[[], None]], sx.CompileOptions]]:
        """Return options with a pass after "tensor" that calls a function."""

        def options(function: Callable[[], None], **others: object) -> sx.CompileOptions:
            @sx.module_pass("test-stopping", "calls a function")
            def call(module: ir.Module) -> None:
                function()

            step = Step("stop", "test-stopping")
            return sx.CompileOptions(pipeline=sx.pipeline("cpu").inserting(step, after="tensor"), **others)  # type: ignore[arg-type]

        yield options
        sx.unregister_pass("test-stopping")

    def test_ctrl_c(self, at: Callable[..., sx.CompileOptions], capfd: pytest.CaptureFixture[str]) -> None:
        went_on: list[bool] = []

        def interrupt() -> None:
            signal.raise_signal(signal.SIGINT)
            went_on.append(True)

        with pytest.raises(KeyboardInterrupt):
            sx.compile(TEXT, options=at(interrupt))
        assert went_on == [True]  # it is raised behind the pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert capfd.readouterr().err == ""
        check_scaled_sum(sx.compile(TEXT))

    def test_the_second_one_is_raised_at_once(self, at: Callable[..., sx.CompileOptions]) -> None:
        def hang() -> None:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            raise AssertionError("it went on")

        with pytest.raises(KeyboardInterrupt):
            sx.compile(TEXT, options=at(hang))

    def test_a_handler_of_the_user_s_is_called(self, at: Callable[..., sx.CompileOptions]) -> None:
        seen: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
        try:
            sx.compile(TEXT, options=at(lambda: signal.raise_signal(signal.SIGINT)))
        finally:
            signal.signal(signal.SIGINT, before)
        assert seen == [signal.SIGINT]

    def test_a_time_limit(self, at: Callable[..., sx.CompileOptions]) -> None:
        def take_time() -> None:
            end = monotonic() + 0.02
            while monotonic() < end:
                pass

        with pytest.raises(sx.CompileError, match=r"compiling has taken longer than its time limit of 0\.01 s"):
            sx.compile(TEXT, options=at(take_time, time_limit=0.01))
        check_scaled_sum(sx.compile(TEXT, options=at(take_time, time_limit=600)))

    def test_in_another_thread(self, at: Callable[..., sx.CompileOptions]) -> None:
        def check(_: int) -> None:
            check_scaled_sum(sx.compile(TEXT, options=sx.CompileOptions(time_limit=600)))

        in_threads(check, range(2))


def test_executables_do_not_pile_up() -> None:
    before = pool_stats()
    for _ in range(3):
        check_scaled_sum(sx.compile(TEXT))
    gc.collect()
    after = pool_stats()
    assert set(after) == set(before)


def test_constants_are_not_in_the_machine_code() -> None:
    """A big constant travels as an argument, so that compiling does not depend on its size."""
    b = sx.XlaBuilder("big")
    values = np.arange(1 << 16, dtype=np.float32)
    x = b.parameter(0, sx.f32[1 << 16])
    executable = sx.compile(b.build(x + b.constant(values)))
    np.testing.assert_array_equal(executable(values), 2 * values)
    assert "llvm.mlir.global" not in executable.ir("llvm", large_elements_limit=8)


def test_big_constants_go_with_their_program() -> None:
    """A context never forgets a constant, so programs with much data get contexts of their own."""
    values = np.random.default_rng(0).standard_normal(5 << 19).astype(np.float32)
    size = "tensor<2621440xf32>"
    text = f"""func.func @main(%x: {size}) -> {size} {{
      %c = stablehlo.constant dense<"0x{values.tobytes().hex()}"> : {size}
      %0 = stablehlo.add %x, %c : {size}
      return %0 : {size} }}"""
    before = ir.Context._get_live_count()
    assert len(text) > BIG
    for program in (text, ir.Module.parse(text, stablehlo_context())):
        executable = sx.compile(program)
        assert executable._source.context != stablehlo_context()
        np.testing.assert_array_equal(executable(values), 2 * values)
        assert "arith.constant" in executable.ir("tensor", large_elements_limit=8)
        del executable
    gc.collect()
    assert ir.Context._get_live_count() == before


def test_context_is_the_threads_own() -> None:
    module = load(TEXT)
    assert module.context == stablehlo_context()


def test_constants_are_freed_with_their_programs() -> None:
    """Contexts keep what they have seen: those of a thread, and of its builders, are left before that is much."""
    script = """
import gc
import numpy as np
import stablexla as sx
from stablexla.builder import builder
from stablexla.dialects import contexts
from tests.soak.samples import sample
contexts.MOST_CONSTANT_BYTES = builder.MOST_CONSTANT_BYTES = 8 << 20
def turn(number):
    values = np.full(1 << 18, number, np.float32) + np.arange(1 << 18, dtype=np.float32)
    b = sx.XlaBuilder("table")
    table = b.build(b.parameter(0, sx.f32[1 << 18]) + b.constant(values))
    assert sx.compile(table)(values)[5] == 2 * values[5]
    assert sx.compile(str(table))(values)[7] == 2 * values[7]
for number in range(28):
    if number == 12:
        before = sample().rss
    turn(number)
gc.collect()
print((sample().rss - before) >> 20)
"""
    variables = {**os.environ, "STABLEXLA_KERNEL_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, env=variables)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40  # each turn leaves 4 to 6 MiB where nothing is freed


def test_bytes_of_constants() -> None:
    """Those in loops count; of one number there is one, however large its shape is."""
    b = sx.XlaBuilder("loop")
    table, x = np.arange(1 << 16, dtype=np.float32), b.parameter(0, sx.f32[1 << 16])

    def body(v: sx.XlaOp) -> sx.XlaOp:
        return v + v.builder.constant(table) + v.builder.constant(np.ones(1 << 16, np.float32))

    made = b.build(sx.while_(lambda v: v[0] < 10.0, body, x))
    assert table.nbytes <= request.constant_bytes(made) <= table.nbytes + 100
    assert table.nbytes <= b._cache.taken
    assert request.constant_bytes(memoryview(b"12345")) == 5


def test_functions_of_a_builder_share_its_context() -> None:
    """Also where its constants have filled that."""
    b = sx.XlaBuilder("outer")
    large = b.constant(np.zeros(1 << 20, np.float32))
    b._cache.taken = 1 << 40
    x = b.parameter(0, sx.f32[()])
    inner = sx.XlaBuilder("inner")
    assert inner.context == b.context
    made = b.build(sx.while_(lambda v: v < 10.0, lambda v: v * 2.0, x) + large[0])
    del inner
    assert sx.compile(made)(np.float32(3)) == 12
    assert sx.XlaBuilder("next").context != made.module.context
