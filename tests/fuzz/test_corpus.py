"""Programs that once disagreed, each shrunk to what shows it; `python -m tests.fuzz` and `tests.campaign` add them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.examine import Examiner
from tests.campaign.watched import Watched
from tests.fuzz.check import Plan
from tests.fuzz.program import read_file

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.mlir"))


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Watched() as started:
        yield started


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_it_agrees_now(path: Path, watched: Watched) -> None:
    """By the emitters and by the general path; with XLA:CPU, on a GPU or in another form where that had shown it."""
    program, arguments, notes = read_file(path)
    (ways,) = (note for note in notes if note.startswith("ways:"))
    oracles = ("interpreter", "xla") if "xla" in ways else ("interpreter",)
    others = re.findall(r"form \w+|gpu:\w+", ways)
    plan = Plan("numbers: whole" in notes, ("emitters", "general", *others), oracles)
    found = Examiner(watched).check(program, arguments, plan)
    assert found is None, str(found)
