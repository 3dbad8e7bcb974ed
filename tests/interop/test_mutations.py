"""Two hundred damaged files, loaded in a child process: each gives a program or an error, and the process lives.

`python -m tests.fuzz.mutations` does the same with ten thousand.
"""

from __future__ import annotations

from collections import Counter

from tests.fuzz.damage import Kept, damaged, make_file
from tests.fuzz.mutations import FINE, check, outcome_of, outcome_of_kept

FILES = 24


def test_two_hundred() -> None:
    found = list(check(200, FILES, seed=300))
    assert [(seed, outcome) for _, outcome, seed, _ in found if outcome not in FINE] == []
    outcomes = {outcome for _, outcome, _, _ in found}
    # Most damage is seen before MLIR, some by MLIR, and some is none.
    assert {"refused by the tables", "refused by MLIR or XLA", "program"} <= outcomes
    counts = Counter(outcome for _, outcome, _, _ in found)
    assert counts["refused by the tables"] > counts["refused by MLIR or XLA"]


def test_damage_is_the_same_for_the_same_number() -> None:
    file = make_file(3)
    assert make_file(3) == file
    assert damaged(file.data, 7) == damaged(file.data, 7)
    assert len({damaged(file.data, seed) for seed in range(50)}) > 40


def test_files_are_of_all_forms_and_good() -> None:
    files = [make_file(number) for number in range(FILES)]
    assert len({file.form for file in files}) == 7
    assert len({file.data for file in files}) == FILES
    for file in files:
        kept = isinstance(file.form, Kept)
        outcome = outcome_of_kept(file, file.data) if kept else outcome_of(file.data, in_process=True, compiling=False)
        assert outcome == "program", file.name
