"""Which cases of a test with many take part in `make test`; `make test-all` runs them all."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

FEW = 4
"""Tests with no more cases than this keep them all."""
ALIKE = ("seed", "first", "part")
"""Parameters whose values stand for cases that are alike: a third of them is drawn."""
ALWAYS = {
    "tests/fuzz/test_programs.py::test_random_programs[0]",
    "tests/ops/test_dynamic_size_places.py::TestIndices::test_updates[-2-5]",
    "tests/ops/test_window.py::test_of_equal_elements_the_order_decides"
    "[(2, 9, 10, 5)-(1, 3, 3, 1)-(1, 2, 2, 1)-SAME-u8]",
    "tests/targets/cpu/convolution/test_convolution.py::test_nothing_else_is_read_or_written[104]",
    "tests/targets/cpu/convolution/test_convolution.py::test_nothing_else_is_read_or_written[1130]",
    "tests/targets/cpu/convolution/test_convolution.py::test_random_convolutions[3-256]",
    "tests/targets/cpu/convolution/test_convolution.py::test_random_convolutions_of_large_weights[203-1]",
    "tests/targets/cpu/convolution/test_convolution.py::test_random_convolutions_of_large_weights[203-1000]",
    "tests/targets/pipeline/test_stages.py::test_files_between_the_steps_change_nothing[11]",
    "tests/targets/pipeline/test_stages.py::test_files_between_the_steps_change_nothing[4]",
    "tests/test_tools.py::TestInputs::test_every_element_type[random-c128]",
    "tests/test_tools.py::TestInputs::test_every_element_type[random-pred]",
}
"""Cases that reach lines of the sources that no other does, as `python -m tests.suite lost` says."""


def drawn(items: Sequence[pytest.Item], seed: int = 0) -> list[pytest.Item]:
    """Of each test's cases enough that each value of each parameter takes part, and all of those marked `whole`.

    A table of rows is kept where each row has a value of its own; of a cross of element types, shapes and
    operations remain as many cases as its longest side has; of random programs, a third.

    Args:
        items: tests as pytest collected them; the order is kept.
        seed: another number draws other cases.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    kept = {item for name, cases in tests.items() for item in _of_one(cases, random.Random(f"{name} {seed}"))}
    return [item for item in items if item in kept]


def _of_one(cases: Sequence[pytest.Item], rng: random.Random) -> Iterable[pytest.Item]:
    if len(cases) <= FEW or any(case.get_closest_marker("whole") for case in cases):
        return cases
    values = {case: _values(case) for case in cases}
    missing = set().union(*values.values())
    order = sorted(cases, key=lambda case: case.nodeid)
    rng.shuffle(order)
    if {name for found in values.values() for name, _ in found} <= {*ALIKE}:
        return [*[case for case in order if case.nodeid in ALWAYS], *order][: max(FEW, len(cases) // 3)]
    kept = [case for case in order if case.nodeid in ALWAYS]
    missing -= set().union(*(values[case] for case in kept))
    while missing:
        best = max(order, key=lambda case: len(values[case] & missing))
        missing -= values[best]
        kept.append(best)
    rest = [case for case in order if case not in kept]
    return kept + rest[: max(0, FEW - len(kept))]


def _values(case: pytest.Item) -> set[tuple[str, str]]:
    """Each of the case's arguments with its value: its text, or the object itself where the text would not tell."""
    given = getattr(case, "callspec").params  # noqa: B009  # pytest's Item does not declare it
    return {(name, f"{value!r}"[:200]) for name, value in given.items()}
