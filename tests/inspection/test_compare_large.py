"""Comparisons of large operations, and of programs with rules of the user: slices, XLA's part, limits."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from mlir.dialects import arith

import stablexla as sx
from stablexla.__main__ import main
from stablexla.inspection.comparing.compare import CompareOptions, compare
from stablexla.inspection.comparing.operation_search import Search
from stablexla.inspection.judging.suspicion import by_suspicion
from stablexla.inspection.program import SOURCES, FlatProgram
from stablexla.lowering.support.generic import elementwise
from stablexla.lowering.support.registry import RULES
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.pipeline.knobs import knobs
from tests.inspection.comparing import break_emitters, break_rule, normal


def negated(ctx: Any, results: Any) -> Any:
    """A rule's results with the other sign."""
    values = results if isinstance(results, list) else [results]
    return elementwise(values, ctx.result_types, ctx.result_types, arith.negf)


class TestLargeOperations:
    """StableHLO's interpreter takes microseconds for a scalar operation: it judges slices of large operations."""

    @staticmethod
    def network() -> sx.Executable:
        b = sx.XlaBuilder("network")
        x, w = b.parameter(0, sx.f32[256, 300]), b.parameter(1, sx.f32[300, 400])
        y = sx.tanh(sx.dot(x, w))
        return sx.compile(b.build(sx.reduce(sx.transpose(y, (1, 0)), b.constant(np.float32(0)), sx.add, (1,))))

    ARGUMENTS: ClassVar = [normal(256, 300), normal(300, 400)]

    def test_all_is_judged(self) -> None:
        found = self.network().compare(self.ARGUMENTS, "interpreter")
        assert found, found
        assert found.judged == found.operations == 4
        assert "4 large operations were judged by interpreter on slices of their operands" in found.notes
        assert "4 large operations were judged as a whole by xla" in found.notes
        assert found.seconds < 60

    @pytest.mark.parametrize("name", ["tanh", "dot_general", "transpose", "reduce"])
    def test_slices_show_a_wrong_rule(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without XLA, too; the slice is the smallest program."""
        monkeypatch.setattr("stablexla.inspection.comparing.compare._xla", lambda: None)
        self.network()  # the rules are imported with the first program
        rule = RULES[f"stablehlo.{name}"].rule
        break_rule(monkeypatch, f"stablehlo.{name}", lambda ctx, *xs: negated(ctx, rule(ctx, *xs)))
        found = self.network().compare(self.ARGUMENTS, "interpreter")
        assert not found
        assert found.finding is not None
        assert found.finding.operation == f"stablehlo.{name}"
        assert found.finding.program is not None
        assert sum(a.size for a in found.finding.program.arguments) < 50_000

    def test_a_wrong_element_outside_of_the_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """XLA sees all of it."""
        break_emitters(monkeypatch, "loop", lambda kernel: True)
        found = self.network().compare(self.ARGUMENTS, "interpreter")
        assert not found

    def test_what_cannot_be_sliced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        b = sx.XlaBuilder("backwards")
        x = b.parameter(0, sx.f32[100_000])
        executable = sx.compile(b.build(sx.rev(x, (0,))))
        assert "1 large operations were judged as a whole by xla" in executable.compare([normal(100_000)]).notes
        monkeypatch.setattr("stablexla.inspection.comparing.compare._xla", lambda: None)
        found = executable.compare([normal(100_000)])
        assert not found.judged
        assert found.not_judged[0].reason.startswith("interpreter: it would take about ")

    def test_a_part_of_the_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        executable = self.network()
        found = compare(executable, self.ARGUMENTS, "xla", CompareOptions(time_limit=1e-9))
        assert (found.stopped, found.judged, found.whole) == ("the time limit", 0, False)
        assert "NOTHING COULD BE COMPARED" in str(found)
        said: list[str] = []

        def interrupt(what: str, done: int, of: int) -> None:
            said.append(what)
            if len(said) == 2:
                raise KeyboardInterrupt

        found = compare(executable, self.ARGUMENTS, "interpreter", CompareOptions(progress=interrupt))
        assert found.stopped == "Ctrl-C"
        assert "4 operations, " in said[0] or "operations, " in said[0]
        assert "stopped by Ctrl-C: this is a part of the report" in str(found)

    def test_the_most_suspicious_are_judged_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a time limit the user's rule is judged before sums, and sums before data movement."""

        def late_after_one(search: Search) -> bool:
            search.stopped = "the time limit" if search.judged else ""
            return bool(search.stopped)

        b = sx.XlaBuilder("late")
        x = sx.rev(b.parameter(0, sx.f32[300, 200]), (0,))
        y = sx.reduce(sx.tanh(x), b.constant(np.float32(0)), sx.add, (1,))
        computation = b.build(sx.sqrt(sx.abs(y)))
        program = FlatProgram(copy_of(sx.compile(computation)._stablehlo))
        names = [
            unit.operation for unit in by_suspicion(program.units, {"stablehlo.sqrt"}) if unit.op.name not in SOURCES
        ]
        assert names == ["sqrt", "reduce", "tanh", "abs", "reverse"]

        monkeypatch.setattr(Search, "is_late", late_after_one)
        wrong = sx.lowering_rule("stablehlo.sqrt", lambda ctx, x: x)
        found = sx.compile(computation, options=sx.CompileOptions(rules=[wrong])).compare([normal(300, 200)])
        assert found.finding is not None
        assert (found.finding.operation, found.stopped, found.judged) == ("stablehlo.sqrt", "the time limit", 1)

    def test_the_first_of_the_program_is_reported(self) -> None:
        """Though a later one is judged before it."""
        b = sx.XlaBuilder("two")
        computation = b.build(sx.tanh(sx.sqrt(sx.abs(b.parameter(0, sx.f32[9])))))
        rules = [sx.lowering_rule(f"stablehlo.{name}", lambda ctx, x: negated(ctx, x)) for name in ("abs", "tanh")]
        found = sx.compile(computation, options=sx.CompileOptions(rules=rules)).compare([np.ones(9, np.float32)])
        assert found.finding is not None
        assert found.finding.operation == "stablehlo.abs"


class TestRulesOfTheUser:
    def test_a_wrong_rule_is_not_in_the_reference(self) -> None:
        """Registered rules are judged, and no reference has them."""
        b = sx.XlaBuilder("wrong")
        computation = b.build(sx.tanh(b.parameter(0, sx.f32[64])))
        usual = sx.compile(computation)
        with sx.lowering_rules(sx.lowering_rule("stablehlo.tanh", lambda ctx, x: x)):
            executable = sx.compile(computation)
            for against in (usual.pipeline, "plain", "source", "interpreter"):
                found = executable.compare([normal(64)], against)
                assert not found
                assert found.finding is not None
                assert found.finding.operation == "stablehlo.tanh"
                assert any("rules that the program has" in note for note in found.notes)
        assert usual.compare([normal(64)], usual.pipeline).notes == ()

    def test_on_the_command_line(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """`--load` with a wrong rule, against the pipeline as it is without it."""
        program, rules, pipeline = (tmp_path / name for name in ("tanh.mlir", "rule.py", "usual.pipeline"))
        program.write_text(
            "func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {\n"
            "  %0 = stablehlo.tanh %x : tensor<9xf32>\n  return %0 : tensor<9xf32>\n}"
        )
        rules.write_text("import stablexla as sx\n\n@sx.lowers('stablehlo.tanh')\ndef wrong(ctx, x):\n    return x\n")
        pipeline.write_text(str(sx.compile(program).pipeline))
        words = [sys.executable, "-m", "stablexla", "run", str(program), f"--load={rules}", f"--compare={pipeline}"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1
        assert "DIFFERS" in done.stdout
        assert "rules that the program has" in done.stdout
        assert "rule.py:3" in done.stdout
        small = re.search(r"1 operation: (.*)/program.mlir", done.stdout)
        assert small is not None
        again = re.search(r"^  stablexla-run (.*)$", (Path(small[1]) / "README.txt").read_text(), re.MULTILINE)
        assert again is not None
        command = [sys.executable, "-m", "stablexla", "run", *shlex.split(again[1])]
        repeated = subprocess.run(command, capture_output=True, text=True, cwd="/")
        assert repeated.returncode == 1
        assert "first wrong operation  %0 = stablehlo.tanh" in repeated.stdout


class TestStagesOfTheUser:
    """Texts that take the place of what steps make are what is judged, whatever the reference is."""

    PROGRAM = "func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {\n  %0 = stablehlo.tanh %x : tensor<9xf32>\n"
    PROGRAM += "  return %0 : tensor<9xf32>\n}"

    @pytest.mark.parametrize("against", ["interpreter", "plain", "tensor"])
    def test_a_wrong_text_is_named(self, against: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        program, stages = tmp_path / "tanh.mlir", tmp_path / "stages"
        program.write_text(self.PROGRAM)
        assert main(["run", str(program), f"--dump={stages}"]) == 0
        (text,) = stages.glob("*/01.tensor.mlir")
        for other in text.parent.glob("*.mlir"):
            if other != text:
                other.unlink()
        text.write_text(text.read_text().replace("math.tanh", "math.cos"))
        capfd.readouterr()
        with knobs.scoped(override=stages):
            assert main(["run", str(program), "--input=random:0", f"--compare={against}"]) == 1
        told = capfd.readouterr()
        assert told.err == ""
        assert "DIFFERS" in told.out
        assert f"the program runs with STABLEXLA_OVERRIDE's {text}; operations are judged, and the ref" in told.out
        assert f"the difference is in {text}: without it the results are those of {against}" in told.out

    @pytest.mark.parametrize("isolated", [False, True])
    def test_a_right_text(self, isolated: bool, tmp_path: Path) -> None:
        """It is told of, and the knob need not be set any more."""
        with knobs.scoped(dump=tmp_path):
            sx.compile(self.PROGRAM)
        with knobs.scoped(override=tmp_path):
            executable = sx.compile(self.PROGRAM, options=sx.CompileOptions(isolated=isolated))
        found = executable.compare([normal(9)], "plain")
        assert found
        assert ["02.kernels.mlir" in note for note in found.notes] == [True]
