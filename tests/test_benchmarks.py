"""The benchmarks command: engines are compared before they are timed, a wrong one is told of; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import run
from benchmarks.engines import ENGINES, find_engine, iree_engine
from benchmarks.measuring import Effort, Measured, Row, measure
from benchmarks.programs import PROGRAMS
from benchmarks.real.registry import JaxProgram, TorchProgram
from benchmarks.report import in_words, read_report
from benchmarks.tables import of_times

ROOT = Path(__file__).parents[1]
ONCE = Effort(seconds=1e-6, budget=0, least=1, most=1)
KERNELS = [name for name, program in PROGRAMS.items() if program.group == "kernels"]
REAL = [name for name, program in PROGRAMS.items() if program.group == "real"]
MODELS = [name for name, program in PROGRAMS.items() if program.group == "models"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.run", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The command in this process, which does not start anew for its settings of memory."""
    for name, value in run.KEEP_MEMORY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["run", *arguments])
    return run.main()


def test_the_command_writes_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = ["--programs", "add-2x2,matmul-128", "--engines", "stablexla,numpy", "--repeats", "2"]
    files = ["--json", str(tmp_path / "out.json"), "--markdown", str(tmp_path / "out.md")]
    done = command(*arguments, "--seconds", "0.001", *files)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["program"] for row in rows} == {"add-2x2", "matmul-128"}
    assert all(len(row["engines"]["numpy"]["rounds"]) == 2 for row in rows)
    page = (tmp_path / "out.md").read_text()
    assert "| program | stablexla | numpy | limit | share | numpy / | best / |" in page
    assert "](out.png)" in page
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "numpy /" in done.stdout
    again = ["--programs", "exp-128K", "--engines", "stablexla", "--repeats", "1", "--merge", *files[:2]]
    assert main(monkeypatch, *again) == 0
    report = read_report(tmp_path / "out.json")
    assert {row.program for row in report.rows} == {"add-2x2", "matmul-128", "exp-128K"}
    assert report.engines == ["stablexla", "numpy"]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_can_be_written_down(name: str):
    program = PROGRAMS[name]
    assert "stablehlo" in program.text() or "chlo" in program.text()
    work = program.work()
    assert work.operations >= 0
    assert work.written > 0
    assert work.read + work.written < 1e10


@pytest.mark.parametrize(
    "name", ["bert-37-tokens", "gpt2-decode", "resnet-18", "unet-step", "lstm-step", "mlp-step-adam"]
)
def test_models_can_be_written_down(name: str):
    program = PROGRAMS[name]
    assert "func.func public @main" in program.text()
    assert program.work().operations > 1e6


def test_models_are_complete():
    families = ("bert-base", "gpt2-decode", "gpt2-prefill", "resnet-18", "resnet-50", "unet-step", "lstm-128")
    for beginning in (*families, "mlp-step", "scan-60-scalars"):
        assert any(name.startswith(beginning) for name in MODELS), beginning
    assert all(PROGRAMS[name].family for name in PROGRAMS)


def test_real_programs_are_complete():
    """Listing them imports no library."""
    assert len(REAL) >= 18
    assert {package for name in REAL for package in PROGRAMS[name].needs} >= {"flax", "equinox", "transformers", "brax"}


@pytest.mark.parametrize("name", ["flax-greedy-decode", "equinox-pinn-step"])
def test_real_programs_can_be_written_down(name: str):
    program = PROGRAMS[name]
    if program.missing:
        pytest.skip(f"needs {', '.join(program.missing)}")
    row = measure(program, [find_engine(engine) for engine in ("stablexla", "xla", "torch")], ONCE)
    assert set(row.engines) == {"stablexla", "xla"}
    assert row.failures == {}
    assert row.differing == []
    assert program.work().operations > 1e6


def test_a_real_program_of_pytorch():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    program = TorchProgram("small", "", lambda: (module, (torch.ones(2, 8),)))
    row = measure(program, [find_engine(engine) for engine in ("stablexla", "xla", "torch")], ONCE)
    assert set(row.engines) == {"stablexla", "xla", "torch"}
    assert row.failures == {}
    assert row.differing == []
    work = program.work()
    assert (work.operations, work.written) == (2 * 2 * 8 * 16 + 2 * 2 * 16 * 4, 2 * 4 * 4)


def test_models_of_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks import pytorch

    row = pytorch.Row("graph network")
    for what in ("training", "stablexla", "frozen"):
        row.take(pytorch.measure(row.name, what))
    assert row.outcomes == dict.fromkeys(("training", "stablexla", "frozen"), "right")
    assert {*row.compile} == {*row.run} == {"stablexla", "frozen"}
    others = pytorch.Row(row.name, run={"eager": 3 * row.run["stablexla"], "openvino": 2 * row.run["stablexla"]})
    file = tmp_path / "rows.json"
    pytorch.merged(file, [row])
    (both,) = pytorch.merged(file, [others])
    assert both.outcomes == row.outcomes
    text = pytorch.page([both, pytorch.Row("vae", {"training": "losses [2.0], not [1.0]"})])
    assert "1 of 2 models are right" in text
    assert "eager 3.00, openvino 2.00, best 2.00" in text
    assert "- vae, training: losses [2.0], not [1.0]" in text
    assert text.startswith("# PyTorch's models\n")
    frozen = pytorch.page([pytorch.Row("vae, bf16", {"frozen": "right", "openvino": "right"})])
    assert frozen.startswith("# PyTorch's models in bf16, with frozen weights\n")


def test_a_program_without_its_library_is_left_out(capsys: Any):
    here, gone = PROGRAMS["add-2x2"], replace(PROGRAMS["equinox-pinn-step"], needs=("jax", "no.such_package"))
    assert gone.missing == ["no.such_package"]
    assert run.found_here([here, gone], ["real"], Console()) == [here]
    assert "left out: equinox-pinn-step needs no.such_package" in capsys.readouterr().out


def test_a_library_that_cannot_write_its_program_is_told_of():
    def make() -> Any:
        raise AttributeError("of another version")

    row = measure(JaxProgram("wrong", "", make), [find_engine("stablexla")], ONCE)
    assert row.failures == {"stablexla": "no StableHLO: AttributeError: of another version"}
    assert row.engines == {}


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("lstm-128", 128 * 2 * 2.0 * 16 * 512 * 2048),
        ("conv-1x1-14x1024", 2.0 * 14 * 14 * 1024 * 256),
        ("conv-grouped", 2.0 * 256 * 8 * (3 * 28 - 2) ** 2),
        ("conv-transposed", 2.0 * 28 * 28 * 4 * 64 * 32),
        ("attention-7x37x50", 2 * 2.0 * 7 * 37 * 37 * 50),
    ],
)
def test_operations_are_counted(name: str, operations: float):
    """Those of loops as often as they run; of windows only the elements, without padding or the zeros of dilation."""
    assert PROGRAMS[name].work().operations == operations


@pytest.mark.parametrize(
    "name",
    ["add-2x2", "matmul-128", "mlp-256", "loop-1000", "softmax-37x1001", "argmax-1m", "ten-in-ten-out", "mlp-1"],
)
def test_engines_agree(name: str):
    """The first engine's results are the oracle of the others': numpy's where there is a natural way to say it."""
    wanted = {"numpy", "stablexla", "xla"} if PROGRAMS[name].numpy else {"stablexla", "xla"}
    row = measure(PROGRAMS[name], [find_engine(engine) for engine in ("numpy", "stablexla", "xla")], ONCE)
    assert set(row.engines) == wanted
    assert row.failures == {}
    assert row.differing == []


class Wrong:
    """An engine whose results are zero."""

    name = "wrong"
    version = "0"
    compile_seconds = None

    def prepare(self, program: Any, text: str) -> Wrong:
        return self

    def bind(self, arguments: Sequence[Any]) -> None:
        pass

    def run(self) -> None:
        pass

    def results(self) -> list[Any]:
        return [np.zeros((2, 2))]

    def from_numpy(self, arguments: Sequence[Any]) -> Callable[[], object]:
        return self.results


class Broken(Wrong):
    name = "broken"

    def prepare(self, program: Any, text: str) -> Wrong:
        raise ValueError("out of order\nand more")


class Crashing(Wrong):
    name = "crashing"

    def results(self) -> list[Any]:
        raise RuntimeError("")


def test_a_wrong_engine_is_told_of():
    row = measure(PROGRAMS["add-2x2"], [find_engine("numpy"), Wrong(), Broken(), Crashing()], ONCE)
    assert row.differing == ["wrong"]
    assert row.failures == {"broken": "ValueError: out of order", "crashing": "RuntimeError: "}
    line = of_times("", [row], ["numpy", "wrong", "broken", "absent"]).lines[0]
    assert line[3:5] == ["failed", "-"]


def test_a_slow_peer_has_one_round():
    """With no time at all everything is slow; the engine that is measured has all its rounds."""
    effort = Effort(seconds=1e-12, budget=0, least=3, most=3)
    row = measure(PROGRAMS["add-2x2"], [find_engine("stablexla"), find_engine("numpy")], effort)
    assert {name: len(found.rounds) for name, found in row.engines.items()} == {"stablexla": 3, "numpy": 1}


def test_an_engine_may_not_write_over_its_arguments():
    class OnDevice:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array.copy()

        def to_host(self) -> np.ndarray:
            return self.array

    def in_place(x: OnDevice) -> OnDevice:
        x.array[0] = 7
        return x

    prepared = object.__new__(iree_engine._Prepared)  # without IREE's packages
    prepared._on_device = lambda arguments: [OnDevice(a) for a in arguments]  # type: ignore[method-assign]
    prepared._function = lambda x: OnDevice(x.array)
    prepared.bind([np.zeros(2)])
    assert [each.tolist() for each in prepared.results()] == [[0, 0]]
    prepared._function = in_place
    with pytest.raises(iree_engine.FailedError, match="writes over argument 0"):
        prepared.results()


def test_what_compiled_too_slowly_is_tried_again_with_more_patience(tmp_path: Path, monkeypatch: Any):
    asked: list[float] = []

    class Slow:
        def ask(self, text: str, flags: object, patience: float) -> tuple[bytes, float]:
            asked.append(patience)
            raise iree_engine.FailedError(f"{iree_engine.SLOW} {patience:.0f} s")

    monkeypatch.setattr(iree_engine, "KEPT", tmp_path)
    engine = object.__new__(iree_engine.engine)  # without IREE's packages
    engine.version, engine._child = "1", Slow()  # type: ignore[assignment]
    for engine.patience in (2.0, 2.0, 1.0, 3.0):
        with pytest.raises(iree_engine.FailedError, match="not done after"):
            engine.prepare(PROGRAMS["add-2x2"], "text")
    assert asked == [2.0, 3.0]


def test_the_ratio_is_the_others_time_over_ours():
    row = timed("p", stablexla=2.0, xla=3.0, numpy=1.0)
    assert row.ratio("xla") == 1.5
    assert row.ratio("iree") is None
    assert row.best_peer == "numpy"
    row.limit = 0.5
    assert row.share == 0.25


def timed(program: str, **seconds: float) -> Row:
    engines = {name: Measured(0.0, [2 * time, time]) for name, time in seconds.items()}
    return Row(program, "", "kernels", "some", 1e-5, engines)


@pytest.mark.parametrize(
    ("seconds", "words"), [((1.5,), "1.5 s"), ((0.0123, 0.5), "12.3 (500) ms"), ((2e-7,), "0.2 us"), ((0.0,), "0 us")]
)
def test_times_in_words(seconds: tuple[float, ...], words: str):
    assert in_words(*seconds) == words


def test_programs_are_chosen_by_name_and_by_beginning():
    known = ["matmul-128", "matmul-1", "add"]
    assert run.chosen("", known) == known
    assert run.chosen("matmul", known) == ["matmul-128", "matmul-1"]
    assert run.chosen("matmul-1,add", known) == ["matmul-1", "add"]


@pytest.mark.parametrize(
    "arguments", [["--programs", "nothing"], ["--engines", "nothing"], ["--group", "kernels,nothing"]]
)
def test_unknown_names_are_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SystemExit, match="there is no"):
        main(monkeypatch, *arguments)


def test_every_engine_has_a_file():
    files = {file.stem.removesuffix("_engine") for file in (ROOT / "benchmarks/engines").glob("*_engine.py")}
    assert files == set(ENGINES)


def test_operations_without_results_count_nothing() -> None:
    import jax

    from benchmarks.traced import arithmetic

    def function(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x)
        return x @ x

    assert arithmetic(jax.make_jaxpr(function)(np.ones((4, 4), np.float32)).jaxpr) == 128


def test_the_page_is_not_written_from_some_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"performance\.md has all programs"):
        main(monkeypatch, "--programs=add-2x2", "--markdown")
