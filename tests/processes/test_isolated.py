"""Compiling in another process: the same programs and errors come out, and no end of that process harms this one."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.rules import LoweringRule
from stablexla.processes import worker
from tests.processes import failing_passes
from tests.threads import in_threads

ISOLATED = sx.CompileOptions(isolated=True)


def doubled() -> sx.XlaComputation:
    b = sx.XlaBuilder("doubled")
    return b.build(b.parameter(0, sx.f32[3], name="x") * 2)


def with_pass(text: str, *, step: str = "kernels", **options: Any) -> sx.CompileOptions:
    """The pipeline with one more pass at the end of a step."""
    pipeline = sx.pipeline("cpu")
    pipeline = pipeline.with_step(step, f"{pipeline[step].passes},{text}")
    return sx.CompileOptions(isolated=True, pipeline=pipeline, **options)


# ---- what comes out is the same --------------------------------------------------------------------------------------


def test_a_computation() -> None:
    here, apart = sx.compile(doubled()), sx.compile(doubled(), options=ISOLATED)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(apart(x), here(x))
    assert repr(apart) == repr(here)
    assert str(apart.parameters[0]) == str(here.parameters[0])
    assert apart.ir("source", debug_info=True) == here.ir("source", debug_info=True)
    assert apart.ir("llvm") == here.ir("llvm")


TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"


def test_text_bytes_paths_and_modules(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    for program in (TEXT, TEXT.encode(), path, sx.load(TEXT)):
        assert sx.compile(program, options=ISOLATED)(np.ones(2, np.float32)).tolist() == [1, 1]
    with pytest.raises(sx.ParseError, match="is no program"):
        sx.compile(3, options=ISOLATED)  # type: ignore[arg-type]


def test_tuples_counts_and_options() -> None:
    b = sx.XlaBuilder("pair")
    p = b.parameter(0, sx.Shape.tuple((sx.f32[2], sx.s32[()])))
    made = b.build(sx.tuple((sx.tuple((sx.get_tuple_element(p, 1),)), sx.get_tuple_element(p, 0))))
    executable = sx.compile(
        made, num_replicas=1, options=sx.CompileOptions(isolated=True, flush_denormals=True, vector_bits=128)
    )
    (number,), array = executable((np.ones(2, np.float32), 4))
    assert (number, array.tolist()) == (4, [1, 1])
    assert executable._function.flush_denormals


def test_shapes_that_only_the_arguments_have() -> None:
    text = """func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      %0 = stablehlo.add %x, %x : tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    }"""
    executable = sx.compile(text, options=ISOLATED)
    assert executable(np.ones((3, 2), np.float32)).tolist() == [[2, 2]] * 3
    assert "tensor<?x2xf32>" in executable.specialize([(3, 2)]).ir("source")  # type: ignore[attr-defined]


def test_functions_of_this_process_are_called_here() -> None:
    sx.register_custom_call("isolated.mine", lambda x: x + os.getpid())
    sx.register_composite_kernel("isolated.twice", 1, lambda x: 2 * x)
    b = sx.XlaBuilder("calls")
    x = sx.custom_call("isolated.mine", b.parameter(0, sx.f64[1]), sx.f64[1])
    twice = sx.composite_call(x, "isolated.twice", {}, lambda v: v * 2, version=1)
    try:
        executable = sx.compile(b.build(twice), options=ISOLATED)
        assert executable(np.zeros(1)) == [2 * os.getpid()]
        assert executable.composites == {"isolated.twice v1": "kernel"}
    finally:
        sx.unregister_composite_kernel("isolated.twice", 1)


def test_rules_of_a_module_go_along() -> None:
    b = sx.XlaBuilder("ruled")
    computation = b.build(sx.tanh(b.parameter(0, sx.f32[2])))
    rules = [sx.lowering_rule("stablehlo.tanh", failing_passes.unchanged)]
    executable = sx.compile(computation, options=sx.CompileOptions(isolated=True, rules=rules))
    assert executable(np.array([2, 3], np.float32)).tolist() == [2, 3]
    assert "tanh" not in executable.ir("tensor")  # the rules are known here
    rules = [sx.lowering_rule("stablehlo.tanh", lambda ctx, x: [x])]
    with pytest.raises(sx.UnsupportedError, match=r"the lowering rule for stablehlo\.tanh is .* cannot import"):
        sx.compile(computation, options=sx.CompileOptions(isolated=True, rules=rules))


def test_a_rule_is_for_what_this_process_says() -> None:
    b = sx.XlaBuilder("ruled")
    computation = b.build(sx.exp(b.parameter(0, sx.f32[2])))
    rules = [LoweringRule("stablehlo.exponential", failing_passes.replaced.function)]
    executable = sx.compile(computation, options=sx.CompileOptions(isolated=True, rules=rules))
    assert executable(np.array([2, 3], np.float32)).tolist() == [2, 3]


def test_what_a_module_registers_there_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registering_rules.py").write_text("""
import stablexla as sx

@sx.lowers("stablehlo.tanh")
def nothing(ctx, x):
    return [x]
""")
    monkeypatch.syspath_prepend(tmp_path)
    worker.close_all()  # so that the next one knows of the folder
    rule: Any = importlib.import_module("registering_rules").nothing
    sx.unregister_lowering("stablehlo.tanh")
    b = sx.XlaBuilder("ruled")
    x = b.parameter(0, sx.f32[1])
    computation = b.build(sx.tanh(x) + sx.exp(x))
    rules = [sx.lowering_rule("stablehlo.exponential", rule)]
    for given, wanted in ((rules, np.tanh(1) + 1), ([], np.tanh(1) + np.e)):
        executable = sx.compile(computation, options=sx.CompileOptions(isolated=True, rules=given))
        np.testing.assert_allclose(executable(np.ones(1, np.float32)), [wanted], rtol=1e-6)
    # The reproducer of a crash knows of the rule.
    with pytest.raises(sx.CompileError) as error:
        sx.compile(computation, options=with_pass("test-abort", step="tensor", rules=rules))
    command = Path(error.value.reproducer).read_text().split("\n", 1)[0]
    assert f"--load={tmp_path / 'registering_rules.py'}" in command
    assert "--rule=stablehlo.exponential=registering_rules:nothing" in command
    assert "--leaves=" in command
    worker.close_all()


def test_a_name_that_leads_to_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [sx.lowering_rule("stablehlo.tanh", failing_passes.unchanged)]
    monkeypatch.setattr(failing_passes, "unchanged", failing_passes.slow)
    with pytest.raises(sx.UnsupportedError, match=r"tanh is not what .*\.unchanged is now"):
        sx.compile(TEXT, options=sx.CompileOptions(isolated=True, rules=rules))


def test_a_kernel_for_an_operation_of_chlo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytecode holds `chlo` and `erf` apart."""
    b = sx.XlaBuilder("error")
    computation = b.build(sx.erf(b.parameter(0, sx.f32[2])))
    sx.register_composite_kernel("chlo.erf", 0, lambda x: x, accepts=lambda shapes, attributes: True)
    try:
        with pytest.raises(sx.UnsupportedError, match=r"the kernel that is registered for 'chlo\.erf'"):
            sx.compile(computation, options=ISOLATED)
    finally:
        sx.unregister_composite_kernel("chlo.erf", 0)


def test_many_open_files() -> None:
    """Those of the next process have numbers above 1023, which `select` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    worker.close_all()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        assert sx.compile(TEXT, options=ISOLATED)(np.ones(2, np.float32)).tolist() == [1, 1]
    finally:
        for number in taken:
            os.close(number)
        worker.close_all()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_processes_are_kept() -> None:
    sx.compile(TEXT, options=ISOLATED)
    before = [each._process.pid for each in worker._idle]
    sx.compile(TEXT, options=ISOLATED)
    assert [each._process.pid for each in worker._idle] == before


def test_from_many_threads() -> None:
    made: list[Any] = []
    in_threads(lambda _: made.append(sx.compile(doubled(), options=ISOLATED)), range(3))
    assert [each(np.ones(3, np.float32)).tolist() for each in made] == [[2, 2, 2]] * 3
    assert len(worker._idle) <= worker.KEPT
    assert not worker._busy


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        "nonsense",
        "func.func @other() { return }",
        'func.func @main() {\n  %0 = "stablehlo.add"() : () -> tensor<2xf32>\n  return\n}',
        'func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %0 = "tosa.abs"(%x) : (tensor<f32>) -> tensor<f32>\n}',
        "func.func @main(%x: memref<2xf32>) { return }",
        Path("/nowhere/program.mlir"),
    ],
)
def test_errors_are_the_same(program: Any) -> None:
    with pytest.raises(sx.StablexlaError) as here:
        sx.compile(program)
    with pytest.raises(type(here.value)) as apart:
        sx.compile(program, options=ISOLATED)
    assert str(apart.value) == str(here.value)
    assert vars(apart.value) == vars(here.value)


def test_errors_have_all_their_parts() -> None:
    with pytest.raises(sx.ShapeError) as error:
        sx.compile(TEXT, options=with_pass("test-refuse"))
    assert error.value.source == sx.SourceLine("model.py", 17, "normalize", "y = x + 1")
    assert error.value.operands == {"x": "f32[2]", "y": "f32[3]"}
    assert (error.value.operation, error.value.rule, error.value.hint) == ("add", "C1", "another shape")
    assert str(error.value).startswith("add: does not fit (C1)\n  x  f32[2]\n")


def test_other_exceptions_of_a_pass() -> None:
    with pytest.raises(sx.CompileError, match="step 3 'kernels' failed in test-raise") as error:
        sx.compile(TEXT, options=with_pass("test-raise"))
    assert "ZeroDivisionError: one over nothing" in str(error.value)
    assert Path(error.value.reproducer).exists()


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(status[1]) == pid:
                found.add(int(entry.name))
    return found


def test_a_crash_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker.close_all()
    before = children_of(os.getpid()), len(os.listdir("/proc/self/fd"))
    with pytest.raises(sx.CompileError) as error:
        sx.compile(doubled(), options=with_pass("cse,test-abort"))
    assert "cpu: step 3 'kernels' ended the process (SIGABRT) in test-abort" in str(error.value)
    assert error.value.stage == "kernels"
    assert error.value.diagnostics == ("driver.cpp:7: void run(): Assertion `the test is not running' failed.",)
    # the file shows the crash again, and nothing else is left
    reproducer = Path(error.value.reproducer)
    header, text = reproducer.read_text().split("\n", 1)
    assert header.startswith(f"// stage tensor: stablexla-opt {reproducer} --load={failing_passes.__file__} ")
    assert "linalg.generic" in text
    passes = sx.Step("again", header.split("--pass-pipeline='")[1].split("'")[0])
    assert [e.text for e in passes.elements][-1] == "test-abort"
    assert [p.name for p in tmp_path.iterdir()] == [reproducer.parent.name]
    assert (children_of(os.getpid()), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.parametrize(("text", "how"), [("test-segfault", "SIGSEGV"), ("test-exit{code=3}", "exit code 3")])
def test_other_ends_of_the_process(text: str, how: str) -> None:
    with pytest.raises(sx.CompileError) as error:
        sx.compile(doubled(), options=with_pass(text))
    assert f"cpu: step 3 'kernels' ended the process ({how}) in {text}" in str(error.value)
    assert sx.compile(doubled(), options=ISOLATED)(np.ones(3, np.float32)).tolist() == [2, 2, 2]


def test_a_crash_while_a_program_is_read(tmp_path: Path) -> None:
    """The other process reads the file; here it is one that never ends."""
    os.mkfifo(fifo := tmp_path / "program.mlir")
    with pytest.raises(sx.CompileError, match=r"reading the program took more than 1 s") as error:
        sx.compile(fifo, options=sx.CompileOptions(isolated=True, time_limit=1))
    assert (error.value.stage, error.value.reproducer) == ("source", "")


def test_a_time_limit() -> None:
    with pytest.raises(sx.CompileError, match=r"cpu: step 2 'tensor' took more than 2 s in test-hang") as error:
        sx.compile(doubled(), options=with_pass("test-hang", step="tensor", time_limit=2))
    assert (error.value.stage, Path(error.value.reproducer).exists()) == ("tensor", True)
    assert sx.compile(TEXT, options=sx.CompileOptions(isolated=True, time_limit=60)).name == "main"


def test_wrong_options() -> None:
    for limit in (0, -1, True, "long", float("inf")):
        with pytest.raises(sx.CompileError, match="time_limit must be a number of seconds"):
            sx.CompileOptions(isolated=True, time_limit=limit)  # type: ignore[arg-type]
    with pytest.raises(sx.CompileError, match="isolated must be True or False"):
        sx.CompileOptions(isolated=1)  # type: ignore[arg-type]


def test_functions_that_cannot_go_along() -> None:
    pipeline = sx.pipeline("cpu").with_step("kernels", [sx.pipeline("cpu")["kernels"].passes, lambda module: None])
    with pytest.raises(sx.UnsupportedError, match="which that process cannot import"):
        sx.compile(TEXT, options=sx.CompileOptions(isolated=True, pipeline=pipeline))
    b = sx.XlaBuilder("accepts")
    sx.register_composite_kernel("isolated.picky", 1, lambda x: x, accepts=lambda shapes, attributes: True)
    try:
        x = sx.composite_call(b.parameter(0, sx.f32[2]), "isolated.picky", {}, lambda v: v, version=1)
        with pytest.raises(sx.UnsupportedError, match=r"the kernel that is registered for 'isolated\.picky'"):
            sx.compile(b.build(x), options=ISOLATED)
        sx.compile(TEXT, options=ISOLATED)  # which does not use it
    finally:
        sx.unregister_composite_kernel("isolated.picky", 1)


def test_what_is_written_on_standard_error_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    sx.compile(TEXT, options=with_pass("test-print"))
    assert capfd.readouterr().err == "a word from the pass\n"


# ---- the life of the processes ---------------------------------------------------------------------------------------


def gone(pid: int) -> bool:
    """Whether the process ends within some seconds; one that nobody waits for counts as ended."""
    for _ in range(200):
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


STARTS = """
import os, signal, sys, threading
sys.path.insert(0, {root!r})
import stablexla as sx
from stablexla.processes import worker
from tests.processes import failing_passes
pipeline = sx.pipeline("cpu")
options = sx.CompileOptions(isolated=True, pipeline=pipeline.with_step("tensor", pipeline["tensor"].passes + ",{what}"))
TEXT = {text!r}
"""
ROOT = str(Path(__file__).parents[2])


def script(what: str, rest: str, **more: Any) -> subprocess.Popen[str]:
    text = STARTS.format(root=ROOT, what=what, text=TEXT) + rest
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen([sys.executable, "-c", text], text=True, **pipes)


HANGING = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, it is ignored

def tell():
    while not os.path.exists(os.environ["TEST_HANGS"]):
        pass
    print(*(w._process.pid for w in worker._busy), flush=True)

threading.Thread(target=tell).start()
try:
    sx.compile(TEXT, options=options)
except KeyboardInterrupt:
    print("interrupted", len(worker._busy), flush=True)
"""


def test_ctrl_c_ends_the_process_that_compiles(tmp_path: Path) -> None:
    started = script("test-hang", HANGING, env={**os.environ, "TEST_HANGS": str(tmp_path / "hangs")})
    assert started.stdout is not None
    child = int(started.stdout.readline())
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=60) == ("interrupted 0\n", "")
    assert gone(child)


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    started = script("test-hang", HANGING, env={**os.environ, "TEST_HANGS": str(tmp_path / "hangs")})
    assert started.stdout is not None
    child = int(started.stdout.readline())
    started.kill()
    started.communicate(timeout=60)
    assert gone(child)


def test_the_end_of_python_ends_it() -> None:
    rest = """
threading.Thread(target=lambda: sx.compile(TEXT, options=options), daemon=True).start()
while not worker._busy:
    pass
print(*(w._process.pid for w in worker._busy), flush=True)
"""
    started = script("test-hang", rest)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    assert gone(int(out))


def test_closed_standard_streams(tmp_path: Path) -> None:
    rest = f"""
import numpy as np
result = sx.compile(TEXT, options=options)(np.ones(2, np.float32)).tolist()
open({str(tmp_path / "result")!r}, "w").write(repr(result))
"""
    text = STARTS.format(root=ROOT, what="test-print", text=TEXT) + rest
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, text]
    subprocess.run(command, timeout=60, check=True)
    assert (tmp_path / "result").read_text() == "[1.0, 1.0]"


def test_after_a_fork() -> None:
    sx.compile(TEXT, options=ISOLATED)
    mine = [each._process.pid for each in worker._idle]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sx.compile(TEXT, options=ISOLATED)
            code = 0 if [each._process.pid for each in worker._idle] != mine else 2
            worker.close_all()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sx.compile(TEXT, options=ISOLATED)(np.ones(2, np.float32)).tolist() == [1, 1]
    assert [each._process.pid for each in worker._idle] == mine


def test_the_passes_are_registered_here() -> None:
    assert failing_passes.abort.__module__ == "tests.processes.failing_passes"
