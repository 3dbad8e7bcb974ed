"""Runs the text tests of tests/filecheck with lit and reports each file as a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once import made_once

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.mlir"))


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
