"""The drawn suite: which cases of a test it keeps, and that lines it loses are found."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.suite.__main__ import lost
from tests.suite.drawing import FEW, drawn


class Case:
    def __init__(self, test: str, marked: bool = False, **params: Any) -> None:
        self.nodeid = f"{test}[{'-'.join(map(str, params.values()))}]"
        self.callspec = SimpleNamespace(params=params)
        self.marked = marked

    def get_closest_marker(self, name: str) -> bool:
        return self.marked and name == "whole"


def cross(test: str, marked: bool = False) -> list[Any]:
    return [Case(test, marked, a=a, b=b) for a, b in product(range(7), "xyz")]


def test_of_a_cross_each_value_takes_part() -> None:
    cases = cross("t")
    kept = drawn(cases)
    assert {case.callspec.params["a"] for case in kept} == set(range(7))
    assert {case.callspec.params["b"] for case in kept} == set("xyz")
    assert len(kept) == 7
    assert kept == [case for case in cases if case in kept]
    assert drawn(cases) == kept
    assert drawn(cases, 1) != kept


@pytest.mark.parametrize("number", [FEW - 1, FEW, FEW + 1])
def test_few_cases_are_all_kept(number: int) -> None:
    assert len(drawn([Case("t", a=0, b=str(i)[:0]) for i in range(number)])) == min(number, FEW)


def test_tables_and_marked_crosses_are_whole() -> None:
    rows = [Case("table", row=i, b=i % 2) for i in range(30)]
    assert drawn(rows) == rows
    assert len(drawn(cross("t", marked=True))) == 21


def test_of_random_programs_a_third_is_drawn() -> None:
    cases = [Case("random", seed=seed) for seed in range(30)]
    assert len(drawn(cases)) == 10
    assert drawn(cases) != drawn(cases, 1)
    assert len(drawn(cases[: FEW + 1])) == FEW


def test_lost_lines_are_named_with_the_tests_that_reach_them() -> None:
    lines = {"a:1": frozenset({"p", "q"}), "a:2": frozenset({"q"}), "a:3": frozenset({"r"}), "a:4": frozenset({"p"})}
    assert lost(lines, {"a:4"}) == {"q": 2, "r": 1}
    assert lost(lines, lines) == {}
