"""Pipelines as values, how they run, and what the knobs make of a run."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.interop.loading import load, parse_text
from stablexla.targets.pipeline import driver
from stablexla.targets.pipeline.driver import Watcher, check_leaves, copy_of, run_pipeline
from stablexla.targets.pipeline.dump import Header
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.passes import PASSES, module_pass
from stablexla.targets.pipeline.pipelines import LOWER, Pipeline, Step, split
from stablexla.targets.registry import find_target

PROGRAM = """
module @chain {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    %1 = stablehlo.tanh %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
"""
UPSTREAM = """
func.func public @main(%x: f32, %y: i1) -> f32 {
  %0 = arith.addf %x, %x : f32 loc("model.py":7:3)
  return %0 : f32
}
"""


def cpu() -> Pipeline:
    return find_target("cpu").pipeline(sx.CompileOptions())


@pytest.fixture
def broken_pass():
    """A pass that fails, for the length of a test."""
    name = "stablexla-test-fails"

    @module_pass(name, "fails")
    def fails(module: object, *, how: str = "bug") -> None:
        if how == "bug":
            raise IndexError("no such thing")
        raise sx.UnsupportedError("not this", operation="test.op")

    yield name
    del PASSES[name]


class TestValue:
    def test_a_change_makes_another_one(self) -> None:
        before = cpu()
        after = before.with_step("kernels", "cse")
        assert before == cpu()
        assert after != before
        assert after["kernels"].passes == "cse"
        assert after["kernels"].leaves == before["kernels"].leaves
        assert hash(before) == hash(cpu())

    def test_is_cut_anywhere(self) -> None:
        p = cpu()
        assert p.names == ("stablehlo", "tensor", "kernels", "buffers", "llvm")
        assert p.up_to("kernels").names == ("stablehlo", "tensor", "kernels")
        assert p.after("kernels").names == ("buffers", "llvm")
        assert p.from_step("buffers") == p.after("kernels")
        assert p.without("kernels").names == ("stablehlo", "tensor", "buffers", "llvm")
        assert p.inserting(Step("more", "cse"), after="tensor").names[2] == "more"

    def test_prints_as_text_that_reads_back(self) -> None:
        assert Pipeline.parse(str(cpu())) == cpu()
        lines = str(cpu()).splitlines()
        assert lines[0] == "// cpu"
        assert len(lines) == 6
        assert lines[2].startswith(f"tensor: builtin.module(stablexla-find-repeats,{LOWER}")

    def test_unknown_step_names_the_nearest(self) -> None:
        with pytest.raises(sx.CompileError, match="no step 'kernel'") as caught:
            cpu().with_step("kernel", "cse")
        assert caught.value.hint == "kernels"

    def test_two_steps_of_one_name_are_refused(self) -> None:
        with pytest.raises(sx.CompileError, match="two steps"):
            Pipeline("p", [Step("a", "cse"), Step("a", "cse")])

    @pytest.mark.parametrize("text", ["a(b", "a)b", "a{b)", "a(b}"])
    def test_brackets_must_match(self, text: str) -> None:
        with pytest.raises(sx.CompileError, match=r"brackets|ends before"):
            split(text)

    def test_python_passes_are_runs_of_their_own(self) -> None:
        step = Step("s", "cse, func.func(cse,canonicalize), stablexla-group, builtin.module(cse),cse{}")
        runs = [(is_python, [e.text for e in elements]) for is_python, elements in step.runs()]
        assert runs == [
            (False, ["cse", "func.func(cse,canonicalize)"]),
            (True, ["stablexla-group"]),
            (False, ["builtin.module(cse)", "cse{}"]),
        ]

    def test_the_outer_nest_may_be_written_or_not(self) -> None:
        assert Step("s", "builtin.module(cse,canonicalize)") == Step("s", "cse, canonicalize")


class TestPasses:
    def test_options_are_read_by_their_types(self) -> None:
        seen: list[object] = []

        @module_pass("stablexla-test-options", "keeps its options")
        def keeps(module: object, *, count: int = 1, deep: bool = False, factor: float = 1.0, name: str = "") -> None:
            seen.append((count, deep, factor, name))

        try:
            module = parse_text(UPSTREAM, side="upstream")
            run_pipeline(module, Pipeline("p", [Step("s", "stablexla-test-options{count=3 deep factor=0.5 name=a/b}")]))
            run_pipeline(module, Pipeline("p", [Step("s", "stablexla-test-options")]))
            assert seen == [(3, True, 0.5, "a/b"), (1, False, 1.0, "")]
            with pytest.raises(sx.CompileError, match="count=x is not of type int"):
                run_pipeline(module, Pipeline("p", [Step("s", "stablexla-test-options{count=x}")]))
            with pytest.raises(sx.CompileError, match="has no option 'cuont'") as caught:
                run_pipeline(module, Pipeline("p", [Step("s", "stablexla-test-options{cuont=1}")]))
            assert caught.value.hint == "count"
        finally:
            del PASSES["stablexla-test-options"]

    @pytest.mark.parametrize(
        ("passes", "name", "near"),
        [
            ("canonicalise", "canonicalise", "canonicalize"),
            ("func.func(convert-linalg-to-lopos)", "convert-linalg-to-lopos", "convert-linalg-to-loops"),
            ("stablexla-gruop", "stablexla-gruop", "stablexla-group"),
        ],
    )
    def test_misspelt_pass_is_named_with_the_nearest(self, passes: str, name: str, near: str) -> None:
        pipeline = cpu().with_step("kernels", passes)
        with pytest.raises(sx.CompileError, match=f"'{name}'") as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=pipeline))
        assert caught.value.stage == "kernels"
        assert near in caught.value.hint

    def test_pass_of_the_other_side_is_refused(self) -> None:
        with pytest.raises(sx.CompileError, match="step 2 'tensor': stablexla-group works on a module of upstream's"):
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=cpu().with_step("tensor", "cse,stablexla-group")))
        with pytest.raises(sx.CompileError, match="works on a module of upstream's context"):
            run_pipeline(load(PROGRAM), Pipeline("p", [Step("s", "stablexla-group")]))


class TestFailures:
    def test_names_the_pass_and_writes_a_reproducer(self, broken_pass: str) -> None:
        pipeline = cpu().with_step("kernels", f"canonicalize,{broken_pass},cse")
        with pytest.raises(sx.CompileError) as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=pipeline))
        error = caught.value
        assert error.stage == "kernels"
        assert f"cpu: step 3 'kernels' failed in {broken_pass}" in str(error)
        assert "IndexError: no such thing" in error.diagnostics[-1]
        assert error.reproducer in str(error)
        assert Path(error.reproducer).parent.stat().st_mode & 0o077 == 0, "nobody else may read it"
        text = Path(error.reproducer).read_text()
        header = Header.read(text)
        assert header is not None
        assert header.stage == "tensor"
        assert f"--pass-pipeline='builtin.module(canonicalize,{broken_pass},cse)'" in header.command
        assert "linalg.generic" in text

    def test_mlir_pass_that_fails_is_found_in_its_run(self) -> None:
        # one-shot-bufferize refuses an operation on tensors that it does not know how to put into memory
        pipeline = cpu().with_step(
            "kernels", "canonicalize,cse,one-shot-bufferize{bufferize-function-boundaries=3},cse"
        )
        with pytest.raises(sx.CompileError) as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=pipeline))
        assert "bufferize-function-boundaries" in str(caught.value)
        text = """func.func @main(%t: tensor<?xf32>) -> tensor<?xf32> {
          %0 = "test.unknown"(%t) : (tensor<?xf32>) -> tensor<?xf32> loc("model.py":3:4)
          return %0 : tensor<?xf32> }"""
        context = upstream_context()
        context.allow_unregistered_dialects = True
        try:
            module = parse_text(text, side="upstream")
            steps = Pipeline("p", [Step("s", "canonicalize,one-shot-bufferize,cse")])
            with pytest.raises(sx.CompileError, match="step 1 's' failed in one-shot-bufferize") as caught:
                run_pipeline(copy_of(module), steps, again=lambda: copy_of(module))
        finally:
            context.allow_unregistered_dialects = False
        assert "model.py:3" in str(caught.value)

    def test_errors_of_our_own_come_through(self, broken_pass: str) -> None:
        pipeline = cpu().with_step("kernels", f"{broken_pass}{{how=unsupported}}")
        with pytest.raises(sx.UnsupportedError, match=r"test\.op: not this"):
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=pipeline))

    def test_left_over_operation_is_reported_with_its_origin(self) -> None:
        module = parse_text(UPSTREAM, side="upstream")
        with pytest.raises(sx.CompileError, match=r"left over: arith\.addf") as caught:
            check_leaves(Step("s", "cse", frozenset({"func"})), module)
        assert "model.py" in caught.value.diagnostics[0]
        check_leaves(Step("s", "cse", frozenset({"func", "arith.addf"})), module)

    def test_pass_that_breaks_the_module_is_caught(self) -> None:
        @module_pass("stablexla-test-breaks", "takes an operand's type away")
        def breaks(module: Any) -> None:
            main = module.body.operations[0]
            main.regions[0].blocks[0].operations[1].operation.operands[0] = main.regions[0].blocks[0].arguments[1]

        try:
            module = parse_text(UPSTREAM, side="upstream")
            pipeline = Pipeline("p", [Step("s", "stablexla-test-breaks")])
            with pytest.raises(sx.CompileError, match="does not verify"):
                run_pipeline(module, pipeline)
        finally:
            del PASSES["stablexla-test-breaks"]

    def test_what_a_step_leaves_is_checked_where_the_pipeline_is_not_trusted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipeline = Pipeline("p", [Step("s", "cse", frozenset({"func"}))])
        with pytest.raises(sx.CompileError, match="left over"):
            run_pipeline(parse_text(UPSTREAM, side="upstream"), pipeline)
        monkeypatch.setattr(driver, "VERIFIES_ALL", False)
        with pytest.raises(sx.CompileError, match="left over"):
            run_pipeline(parse_text(UPSTREAM, side="upstream"), pipeline)
        run_pipeline(parse_text(UPSTREAM, side="upstream"), pipeline, is_trusted=True)

    @pytest.mark.parametrize("rest", ["", ",canonicalize"])
    def test_broken_pass_of_the_package_is_caught_in_a_trusted_pipeline(
        self, rest: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(module: Any) -> None:
            main = module.body.operations[0]
            main.regions[0].blocks[0].operations[0].operation.operands[0] = main.regions[0].blocks[0].arguments[1]

        breaks.__module__ = "stablexla.targets.breaks"
        name = "stablexla-drop-unused"
        monkeypatch.setitem(PASSES, name, replace(PASSES[name], function=breaks))
        monkeypatch.setattr(driver, "VERIFIES_ALL", False)
        pipeline = Pipeline("p", [Step("s", f"{name}{rest}")])
        with pytest.raises(sx.CompileError, match=f"{name} left a module that does not verify"):
            run_pipeline(parse_text(UPSTREAM, side="upstream"), pipeline, is_trusted=True)


class TestKnobs:
    def test_every_knob_is_described(self) -> None:
        for knob in knobs.table().values():
            assert knob.variable.startswith("STABLEXLA_") or knob.variable == "XLA_FLAGS"
            assert knob.summary.endswith(".")
            assert f"`{knob.variable}=" in (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()

    def test_environment_is_read_when_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STABLEXLA_NUM_THREADS", "3")
        assert knobs.num_threads == 3
        monkeypatch.setenv("STABLEXLA_NUM_THREADS", "many")
        with pytest.raises(sx.StablexlaError, match=r"NUM_THREADS=many: it is .*\n  STABLEXLA_NUM_THREADS: Threads"):
            _ = knobs.num_threads
        monkeypatch.delenv("STABLEXLA_NUM_THREADS")
        assert knobs.num_threads is None

    def test_code_wins_over_the_environment_in_its_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STABLEXLA_TIME", "1")
        with knobs.scoped(time=False):
            assert knobs.time is False
            with knobs.scoped(num_threads=2):
                assert (knobs.time, knobs.num_threads) == (False, 2)
        assert knobs.time is True

    def test_nothing_else_reads_the_environment(self) -> None:
        root = Path(__file__).parents[3]
        reads = ("os.environ", "os.getenv", "environ[")
        # The other hands the environment on to a process of its own.
        allowed = {"knobs.py", "process.py"}
        found = [
            str(path)
            for folder in (root / "targets", root / "lowering", root / "stablexla")
            for path in folder.rglob("*.py")
            if path.name not in allowed and any(r in path.read_text() for r in reads)
        ]
        assert found == []


class TestDump:
    def test_writes_every_stage_with_its_command(self, tmp_path: Path) -> None:
        with knobs.scoped(dump=tmp_path):
            sx.compile(PROGRAM)
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("chain-")
        names = [
            "00.stablehlo.mlir",
            "01.tensor.mlir",
            "02.kernels.mlir",
            "03.buffers.mlir",
            "04.llvm.mlir",
            "source.mlir",
        ]
        assert sorted(p.name for p in folder.iterdir()) == names
        header = Header.read((folder / "01.tensor.mlir").read_text())
        assert header is not None
        assert header.stage == "tensor"
        assert header.command.startswith(
            f"stablexla-opt 00.stablehlo.mlir --pass-pipeline='builtin.module(stablexla-find-repeats,{LOWER}"
        )

    def test_folder_depends_on_the_source_alone(self, tmp_path: Path) -> None:
        with knobs.scoped(dump=tmp_path):
            sx.compile(PROGRAM)
            sx.compile(PROGRAM, options=sx.CompileOptions(vector_bits=128))
            sx.compile(PROGRAM.replace("tanh", "cosine"))
        assert len(list(tmp_path.iterdir())) == 2

    def test_command_in_a_file_makes_the_file(self, tmp_path: Path) -> None:
        with knobs.scoped(dump=tmp_path):
            sx.compile(PROGRAM)
        (folder,) = tmp_path.iterdir()
        passes = cpu()["kernels"].text
        command = [sys.executable, "-m", "stablexla.tools.opt", "01.tensor.mlir", f"--pass-pipeline={passes}"]
        done = subprocess.run([*command, "--mlir-print-debuginfo"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert strip_locations(done.stdout) == strip_locations((folder / "02.kernels.mlir").read_text())

    def test_edited_stage_is_read_back(self, tmp_path: Path) -> None:
        x = np.array([0.5, 1, 2, 4], np.float32)
        with knobs.scoped(dump=tmp_path / "dump"):
            sx.compile(PROGRAM)
        (folder,) = (tmp_path / "dump").iterdir()
        edited = tmp_path / "edited" / folder.name
        edited.mkdir(parents=True)
        text = (folder / "01.tensor.mlir").read_text()
        assert "math.tanh" in text
        (edited / "01.tensor.mlir").write_text(text.replace("math.tanh", "math.absf"))
        with knobs.scoped(override=tmp_path / "edited"):
            changed = sx.compile(PROGRAM)
        np.testing.assert_array_equal(changed(x), 2 * x)
        (edited / "01.tensor.mlir").write_text("module { nonsense }")
        with knobs.scoped(override=tmp_path / "edited"), pytest.raises(sx.CompileError, match=r"01\.tensor\.mlir"):
            sx.compile(PROGRAM)

    def test_reproducer_goes_into_the_dump_and_runs(self, tmp_path: Path) -> None:
        pipeline = cpu().with_step("kernels", "cse", leaves=frozenset({"func"}))
        with knobs.scoped(dump=tmp_path), pytest.raises(sx.CompileError, match="left over") as caught:
            sx.compile(PROGRAM, options=sx.CompileOptions(pipeline=pipeline))
        path = Path(caught.value.reproducer)
        assert path.parent.parent == tmp_path
        assert path.name == "02.kernels.repro.mlir"
        command = [sys.executable, "-m", "stablexla.tools.opt", "--run-reproducer", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout
        assert "step 1 'passes': left over: tensor.empty" in done.stderr

    def test_prints_and_times_on_standard_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        with knobs.scoped(print_after_all=True, time=True):
            sx.compile(PROGRAM)
        captured = capfd.readouterr()
        assert captured.out == ""
        for element in cpu()["kernels"].elements:
            assert f"// -----// IR Dump After {element.text} (chain: kernels) //----- //" in captured.err
        assert "machine code" in captured.err

    def test_times_of_passes(self, capfd: pytest.CaptureFixture[str]) -> None:
        with knobs.scoped(time="passes"):
            sx.compile(PROGRAM)
        rows = [line.split() for line in capfd.readouterr().err.splitlines()]
        names = [row[0] for row in rows if len(row) == 2]
        for step in cpu():
            at = names.index(step.name) + 1
            expected = [re.sub(r"{.*?}", "", part.text) for part in step.parts]
            assert names[at : at + len(expected)] == expected
        with knobs.scoped(time=True):
            sx.compile(PROGRAM)
        brief = capfd.readouterr().err
        assert "buffers" in brief
        assert "stablexla-emit-kernels" not in brief


def strip_locations(text: str) -> str:
    """A text without its first lines and without the numbers of its locations."""
    lines = [
        line.split(" loc(")[0] for line in text.splitlines() if not line.startswith(("#loc", "// stage", "// program"))
    ]
    return "\n".join(lines)


def test_watcher_sees_the_steps_in_order() -> None:
    class Notes(Watcher):
        seen: list[tuple[int, str]]

        def after_step(self, number: int, step: Step, module: object, seconds: float) -> None:
            self.seen.append((number, step.name))

    notes = Notes()
    notes.seen = []
    run_pipeline(load(PROGRAM), cpu().up_to("kernels"), watcher=notes)
    assert notes.seen == [(0, "stablehlo"), (1, "tensor"), (2, "kernels")]
