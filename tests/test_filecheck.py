"""Runs the text tests of tests/filecheck with lit and reports each file as a test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stablexla.targets.pipeline.passes import PASSES, PREFIX, import_passes
from tests.once import made_once

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.mlir"))
OF_PASSES = FOLDER / "passes"


def own_passes() -> list[str]:
    """The names of all passes of the package, for whatever target."""
    import_passes()
    return sorted(name for name, known in PASSES.items() if not known.is_users)


def runs_alone(first_line: str, name: str) -> bool:
    """Whether a line is a command that runs one pass, with any options, and nothing else."""
    text = re.search(r"RUN: .*--pass-pipeline=(?P<quote>['\"])builtin\.module\((?P<passes>.*?)\)(?P=quote)", first_line)
    return text is not None and re.fullmatch(rf"{name}(\{{.*\}})?", text["passes"]) is not None


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What lit says of every file, by its path below the folder."""
    made = made_once(tmp_path_factory, "lit", _run_lit)
    results = json.loads((made / "results.json").read_text())
    return {test["name"].split(" :: ", 1)[1]: test for test in results["tests"]}


def _run_lit(made: Path) -> None:
    command = [sys.executable, "-c", "from lit.main import main; main()", "--quiet", "--workers=2"]
    command += ["-D", f"outputs={made}", "--output", str(made / "results.json"), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (made / "results.json").exists(), done.stderr


@pytest.mark.parametrize("file", FILES)
def test_text_of(file: str, outcomes: dict[str, dict[str, str]]) -> None:
    outcome = outcomes[file]
    assert outcome["code"] in ("PASS", "XFAIL"), outcome["output"]


def test_there_are_files() -> None:
    assert FILES


@pytest.mark.parametrize("name", own_passes())
def test_pass_has_a_text_test(name: str) -> None:
    file = OF_PASSES / f"{name.removeprefix(PREFIX)}.mlir"
    assert file.exists(), f"{name}: no tests/filecheck/passes/{file.name}"
    first = file.read_text().splitlines()[0]
    assert runs_alone(first, name), f"{name}: the first line of {file.name} does not run it alone: {first}"


def test_text_tests_of_passes_are_of_passes() -> None:
    known = {name.removeprefix(PREFIX) for name in own_passes()}
    files = {file.stem.split("_reject_")[0] for file in OF_PASSES.glob("*.mlir")}
    assert files <= known, f"no such pass: {', '.join(sorted(files - known))}"


def test_text_tests_of_refusals_run_the_pass_alone() -> None:
    for file in OF_PASSES.glob("*_reject_*.mlir"):
        name = PREFIX + file.stem.split("_reject_")[0]
        first = file.read_text().splitlines()[0]
        assert first.startswith("// RUN: not "), f"{file.name}: it does not expect a failure"
        assert runs_alone(first, name), f"{file.name}: the first line does not run {name} alone: {first}"
