"""Runs the text tests of tests/filecheck with lit and reports each file as a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.mlir"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """What lit says of every file, by its path below the folder."""
    made = tmp_path_factory.mktemp("lit")
    command = [sys.executable, "-c", "from lit.main import main; main()", "-q", "-j2", "--no-progress-bar"]
    command += ["--output", str(made / "results.json"), "--path", str(made), str(FOLDER)]
    # lit keeps the outputs of tests beside them, unless it is told another place.
    command[-1:-1] = ["-D", f"exec_root={made}"]
    subprocess.run(command, capture_output=True, text=True, check=False)
    results = json.loads((made / "results.json").read_text())
    yield {test["name"].split(" :: ", 1)[1]: test for test in results["tests"]}


@pytest.mark.xdist_group("lit")
@pytest.mark.parametrize("file", FILES)
def test_text_of(file: str, outcomes: dict[str, dict[str, str]]) -> None:
    outcome = outcomes[file]
    assert outcome["code"] in ("PASS", "XFAIL"), outcome["output"]


def test_there_are_files() -> None:
    assert FILES
