"""The parts of comparisons by themselves: places, judgements, changes between pipelines, the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.places import place_of
from stablexla.inspection.comparing.bisection import Ladder, changes_between, minimal_way
from stablexla.inspection.comparing.findings import Difference
from stablexla.inspection.comparing.ways import Compiled
from stablexla.inspection.judging.oracles import Oracle, Refusal, shared_oracle
from stablexla.inspection.judging.verdicts import Judge
from stablexla.inspection.program import FlatProgram
from stablexla.interop.loading import load
from stablexla.tools import run
from tests.inspection.comparing import break_rule, normal

CALL = 'callsite("g"("a.py":3:4 to :9) at "f"("b.py":9:1))'
LOCATIONS = {
    '"a.py":3:4': "a.py:3:4",
    '"f"("a.py":3:4)': "a.py:3:4 in f",
    '"x"("f"("a.py":3:4))': "a.py:3:4 in f (x)",
    CALL: "a.py:3:4 in g",
    f'"jit(f)/add"({CALL})': "a.py:3:4 in g (jit(f)/add)",
    'callsite("max" at "jit(f)/relu"("a.py":3:4))': "a.py:3:4 (jit(f)/relu/max)",
    'callsite("inner"("site-packages/jax/x.py":1:2) at "f"("mine.py":7:8))': "mine.py:7:8 in f",
    'fused["a.py":3:4, "b.py":5:6]': "a.py:3:4",
    '"only a name"': "only a name",
    "unknown": "unknown",
}


def _location(text: str, kind: Any) -> Any:
    module = f"module {{ func.func @main() {{ return loc({text}) }} }}"
    parsed = load(module) if kind is hlo_ir else ir.Module.parse(module, upstream_context())
    block = parsed.body.operations[0].regions[0].blocks[0]
    return block.operations[0].operation.location


class TestPlaces:
    @pytest.mark.parametrize("kind", [hlo_ir, ir], ids=["stablehlo", "upstream"])
    @pytest.mark.parametrize("text", LOCATIONS)
    def test_locations(self, text: str, kind: Any) -> None:
        assert str(place_of(_location(text, kind))) == LOCATIONS[text]

    def test_callers_and_others(self) -> None:
        place = place_of(_location(CALL, hlo_ir))
        assert [str(p) for p in place.callers] == ["b.py:9:1 in f"]
        fused = place_of(_location('fused["a.py":3:4, "b.py":5:6]', hlo_ir))
        assert [str(p) for p in fused.others] == ["b.py:5:6"]

    def test_jax(self) -> None:
        import jax

        def model(x: Any) -> Any:
            return jax.nn.relu(x) * 2

        lowered = jax.jit(model).lower(np.zeros(3, np.float32))
        program = FlatProgram.of(load(lowered.as_text(debug_info=True)))
        places = {unit.operation: unit.place for unit in program.units}
        assert places["multiply"].file == __file__
        assert places["multiply"].text == "return jax.nn.relu(x) * 2"
        assert places["maximum"].file == __file__
        assert places["maximum"].name == "jit(model)/jit(relu)/max"


class TestJudge:
    """The interpreter's own result, changed, is the result that is judged."""

    def wrong(self, text: str, operands: list[np.ndarray], change: Any) -> np.ndarray:
        program = FlatProgram.of(load(text))
        oracle = shared_oracle("interpreter")
        unit = program.units[-1]
        found = oracle.run(program.apart([unit]).module, operands)
        assert not isinstance(found, Refusal), found
        actual = np.asarray(change(found[0])).astype(found[0].dtype)
        return Judge(oracle).wrong(program, unit, operands, 0, actual, found[0])

    SUM = """func.func @main(%x: tensor<4x300xf32>, %z: tensor<f32>) -> tensor<4xf32> {
      %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] :
        (tensor<4x300xf32>, tensor<f32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""

    def test_sums_in_another_order(self) -> None:
        x = normal(4, 300)
        backwards = np.zeros(4, np.float32)
        for i in reversed(range(300)):
            backwards += x[:, i]
        assert not self.wrong(self.SUM, [x, np.float32(0)], lambda _: backwards).any()

    def test_sums_without_one_term(self) -> None:
        x = np.abs(normal(4, 300))
        wrong = self.wrong(self.SUM, [x, np.float32(0)], lambda sums: sums - [0, x[1].mean(), 0, 0])
        assert wrong.tolist() == [False, True, False, False]

    @pytest.mark.parametrize(("ulps", "is_wrong"), [(0, False), (1, True)])
    def test_arithmetic_is_exact(self, ulps: int, is_wrong: bool) -> None:
        text = """func.func @main(%x: tensor<9xf32>, %y: tensor<9xf32>) -> tensor<9xf32> {
          %0 = stablehlo.add %x, %y : tensor<9xf32>
          return %0 : tensor<9xf32>
        }"""
        change = (lambda a: a) if not ulps else (lambda a: np.nextafter(a, np.float32(np.inf)))
        assert self.wrong(text, [normal(9), normal(9, seed=1)], change).any() == is_wrong

    @pytest.mark.parametrize(("ulps", "is_wrong"), [(2, False), (40, True)])
    @pytest.mark.parametrize("name", ["stablehlo.tanh", "chlo.sinh", "chlo.erf"])
    def test_functions(self, name: str, ulps: int, is_wrong: bool) -> None:
        tail = " -> tensor<9xf32>" if name.startswith("chlo") else ""
        text = f"""func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {{
          %0 = {name} %x : tensor<9xf32>{tail}
          return %0 : tensor<9xf32>
        }}"""
        x = normal(9)
        wrong = self.wrong(text, [x], lambda a: a + np.spacing(a) * (ulps - 1))
        assert wrong.any() == is_wrong

    def test_nan_is_nan_and_nothing_else(self) -> None:
        text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %0 = stablehlo.negate %x : tensor<3xf32>
          return %0 : tensor<3xf32>
        }"""
        x = np.float32([np.nan, np.inf, 1])
        assert not self.wrong(text, [x], lambda a: a).any()
        assert self.wrong(text, [x], lambda a: np.float32([0, a[1], a[2]])).tolist() == [True, False, False]

    def test_the_worst_element_is_shown(self) -> None:
        ours, theirs = np.zeros((2, 9), np.float32), np.zeros((2, 9), np.float32)
        ours[1, 3], ours[1, 8] = 1e-38, 2
        found = Difference.of(ours, theirs, (ours != theirs).reshape(-1), [ours, np.float32(7)])
        assert (found.index, found.count, found.size, found.largest) == ((1, 8), 2, 18, 2.0)
        assert (found.ours, found.theirs, found.operands) == ("2.0", "0.0", ("2.0", "7.0"))
        assert (found.start, found.our_excerpt) == ((1, 6), ("0.0", "0.0", "2.0"))


def _way(**steps: str) -> Compiled:
    return Compiled(sx.Pipeline("p", [sx.Step(name, passes) for name, passes in steps.items()]), sx.CompileOptions())


class TestChanges:
    def test_passes_and_steps(self) -> None:
        one = _way(a="cse,canonicalize", b="cse{x=1}")
        other = _way(a="cse,symbol-dce", more="inline,cse", b="cse{x=2}")
        changes = changes_between(one, other)
        assert [(c.step, c.what) for c in changes] == [
            ("a", "the pass symbol-dce is added"),
            ("a", "the pass canonicalize is left out"),
            ("more", "the pass inline is added"),
            ("more", "the pass cse is added"),
            ("b", "cse{x=2} in the place of cse{x=1}"),
        ]
        assert changes[-1].result.pipeline == other.pipeline
        assert changes[0].result.pipeline["a"].passes == "cse,symbol-dce,canonicalize"

    def test_nothing_between_equal_ones(self) -> None:
        assert changes_between(_way(a="cse"), _way(a="cse")) == []

    def test_from_plain_to_the_usual(self) -> None:
        usual = Compiled(sx.pipeline("cpu"), sx.CompileOptions())
        base = minimal_way(usual)
        assert base is not None
        changes = changes_between(base, usual)
        assert [c.step for c in changes] == [
            "tensor",
            "tensor",
            "tensor",
            "kernels",
            "buffers",
            "buffers",
            "buffers",
            "buffers",
            "",
            "",
        ]
        assert changes[-1].result.pipeline.steps == usual.pipeline.steps
        assert changes[-1].result.options == usual.options

    PASSES = ("canonicalize", "inline", "sccp", "symbol-dce", "mem2reg")

    @pytest.mark.parametrize("culprit", range(5))
    @pytest.mark.parametrize("silent", [None, 0, 2])
    def test_the_first_bad_one(self, culprit: int, silent: int | None) -> None:
        """One that does not run just before it leaves open which of the two it is."""

        def goes_wrong(way: Any) -> bool | None:
            number = len(way.pipeline["a"].elements) - 2
            return None if number == silent and number != culprit else number >= culprit

        found = Ladder(_way(a=",".join(("cse", *self.PASSES))), [_way(a="cse")], goes_wrong).first_breaking()
        if silent is not None and silent == culprit - 1:
            assert found is None
        else:
            assert found is not None
            assert found[1].what == f"the pass {self.PASSES[culprit]} is added"

    def test_a_second_way_on(self) -> None:
        """With the second change the fault of the fourth shows, which the other way does not have."""
        ours = _way(a=",".join(self.PASSES[:3]), b="cse{x=1}")
        bases = [_way(a=self.PASSES[0], b="cse{x=1}"), _way(a=self.PASSES[0], b="cse{x=2}")]

        def goes_wrong(way: Any) -> bool:
            return self.PASSES[1] in way.pipeline["a"].passes and "x=1" in way.pipeline["b"].passes

        ladder = Ladder(ours, bases, goes_wrong)
        found = ladder.first_breaking()
        assert found is not None
        assert found[1].what == "cse{x=1} in the place of cse{x=2}"
        assert Ladder(ours, bases[:1], goes_wrong).first_breaking()[1].passes == self.PASSES[1]  # type: ignore[index]

    def test_two_ways_that_say_different_things(self) -> None:
        """Right by one, which cannot go on, and wrong by another: nothing is blamed."""
        ours = _way(a=",".join(self.PASSES[:3]))
        bases = [_way(a=self.PASSES[0]), replace(_way(a=self.PASSES[0]), name="second")]

        def goes_wrong(way: Any) -> bool | None:
            is_base = way.pipeline["a"].passes == self.PASSES[0]
            return (False if is_base else None) if way.name == "second" else True

        assert Ladder(ours, bases, goes_wrong).first_breaking() is None


class TestOracle:
    def test_a_crash_is_an_answer(self) -> None:
        with Oracle("interpreter") as oracle:
            module = load("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
            oracle.start()
            # Bytes that are no module make the child say so; the next program runs.
            assert isinstance(oracle._child.ask((b"nonsense", [])), Refusal)
            (same,) = oracle.run(module, [np.float32([1, 2])])
            assert same.tolist() == [1, 2]


PROGRAM = """func.func public @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
  %2 = stablehlo.sqrt %1 : tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}
"""
PASS = """
from tests.inspection.comparing import subtract_for_add
from stablexla.targets.pipeline.passes import PASSES, module_pass

if "stablexla-test-subtract" not in PASSES:
    module_pass("stablexla-test-subtract", "subtracts")(subtract_for_add)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "model.mlir"
    path.write_text(PROGRAM)
    return str(path)


class TestCommandLine:
    @pytest.mark.parametrize("against", ["interpreter", "reference", "plain"])
    def test_equal(self, against: str, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--compare", against, "--input=random", "--input=random"]) == 0
        captured = capfd.readouterr()
        assert "equal (3 operations judged" in captured.out
        assert captured.err == ""

    def test_different(
        self, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        break_rule(monkeypatch, "stablehlo.sqrt", lambda ctx, x: x)
        small = tmp_path / "small"
        assert run.main([program, "--compare=interpreter", "--compare-dir", str(small), *2 * ["--input=ones"]]) == 1
        out = capfd.readouterr().out
        assert "first wrong operation  %2 = stablehlo.sqrt %1" in out
        assert "model.mlir:4:8:  %2 = stablehlo.sqrt %1" in out
        again = [str(small / "program.mlir"), "--inputs", str(small / "inputs.npz"), "--compare=interpreter"]
        assert run.main(again) == 1
        monkeypatch.undo()
        assert run.main(again) == 0

    def test_json(
        self, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        break_rule(monkeypatch, "stablehlo.sqrt", lambda ctx, x: x)
        assert run.main([program, "--compare=plain", "--json", "--compare-dir", str(tmp_path / "s")]) == 0
        assert json.loads(capfd.readouterr().out)["equal"] is True  # it shares the rule
        assert run.main([program, "--compare=xla", "--json", "--no-cause", "--compare-dir", str(tmp_path / "s")]) == 1
        told = json.loads(capfd.readouterr().out)
        assert told["finding"]["operation"] == "stablehlo.sqrt"
        assert told["finding"]["cause"] is None

    def test_a_pipeline_and_its_passes_from_files(
        self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        script, file, usual = tmp_path / "passes.py", tmp_path / "mine.pipeline", tmp_path / "usual.pipeline"
        script.write_text(PASS)
        cpu = sx.pipeline("cpu")
        usual.write_text(str(cpu))
        file.write_text(str(cpu).replace("canonicalize,cse)", "canonicalize,cse,stablexla-test-subtract)"))
        small = str(tmp_path / "s")
        mine = [program, "--load", str(script), "--pipeline", str(file), "--compare-dir", small]
        for against in ("interpreter", str(usual)):
            assert run.main([*mine, "--compare", against]) == 1
            out = capfd.readouterr().out
            assert "stablehlo.add" in out
            assert "broken by              step 'tensor': the pass stablexla-test-subtract is added" in out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--compare=banana"], "nothing can be compared with 'banana'"),
            (["--compare=missing.pipeline"], "missing.pipeline cannot be read as a pipeline"),
            (["--inputs=missing.npz"], "missing.npz cannot be read"),
            (["--load=missing.py"], "missing.py: is no Python file"),
        ],
    )
    def test_wrong_use(
        self, arguments: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run.main([program, *arguments]) == 1
        assert message in capfd.readouterr().err
