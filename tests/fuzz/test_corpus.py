"""Programs that once disagreed, each shrunk to what shows it; `python -m tests.fuzz` adds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.check import Checker, Plan
from tests.fuzz.program import read_file
from tests.fuzz.workers import Workers

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.mlir"))


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as started:
        yield started


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_it_agrees_now(path: Path, workers: Workers) -> None:
    """By the emitters and by the general path; with XLA:CPU too where that had been the other side."""
    program, arguments, notes = read_file(path)
    oracles = ("interpreter", "xla") if any(n.startswith("ways:") and "xla" in n for n in notes) else ("interpreter",)
    plan = Plan("numbers: whole" in notes, ("emitters", "general"), oracles)
    found = Checker(workers).check(program, arguments, plan)
    assert found is None, str(found)
