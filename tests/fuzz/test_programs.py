"""A hundred random programs, as `python -m tests.fuzz` runs thousands; the generator and the shrinker themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.fuzz.check import Checker, Plan
from tests.fuzz.generate import draw
from tests.fuzz.program import Program, Statement
from tests.fuzz.shrink import Shrinker
from tests.fuzz.workers import Failure, Workers

PROGRAMS, BATCH = 100, 10
# Operations that apply a computation to elements.
APPLYING = ("map", "reduce", "reduce_window", "scatter", "select_and_scatter", "sort")


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as started:
        yield started


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs(first: int, workers: Workers) -> None:
    checker = Checker(workers)
    for seed in range(first, first + BATCH):
        drawn = draw(seed, statements=3 + seed % 5)  # short ones: compiling takes the time
        found = checker.check(drawn.program, drawn.arguments, drawn.plan)
        assert found is None, f"program {seed}: {found}\n{drawn.program.text}"


def test_equal_numbers_give_equal_programs() -> None:
    first, second = draw(77), draw(77)
    assert first.program == second.program
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first.arguments, second.arguments, strict=True))


def _has_arrays(statement: Statement) -> bool:
    """Whether the computation that an operation applies holds an array."""
    return "broadcast_in_dim" in statement.operations


def test_programs_hold_what_they_should() -> None:
    """Of every kind something: operations, element types, ranks, arrays without elements, computations with arrays."""
    operations: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    ranks: Counter[int] = Counter()
    sizes, holding_arrays = [], Counter[str]()
    for seed in range(200):
        program = draw(seed).program
        sizes.append(program.size)
        operations.update(name for s in program.statements for name in s.operations)
        holding_arrays.update(s.operation for s in program.statements if s.operation in APPLYING and _has_arrays(s))
        elements.update(v.element for v in program.values.values())
        ranks.update(len(v.shape) for v in program.values.values())
        ranks[-1] += any(0 in v.shape for v in program.values.values())
    assert len(operations) > 60
    assert len(elements) >= 18
    assert all(holding_arrays[name] for name in APPLYING)
    assert all(ranks[rank] > 20 for rank in (-1, 0, 1, 2, 3, 4, 6))
    assert np.percentile(sizes, 10) >= 5
    assert np.percentile(sizes, 75) <= 80


class Mistaken(Workers):
    """An oracle that is wrong about minus."""

    def run(self, way: str, text: str, arguments: list[np.ndarray]) -> list[np.ndarray] | Failure:  # type: ignore[override]
        wrong = text.replace("stablehlo.subtract", "stablehlo.add") if way == "interpreter" else text
        return super().run(way, wrong, arguments)


def test_a_mistake_is_found_and_shrunk() -> None:
    """To the operation itself, on one element that shows it."""
    with Mistaken() as workers:
        text = """
func.func public @main(%p0: tensor<4x5xi32>, %p1: tensor<5xi32>) -> (tensor<4x5xi32>, tensor<4x5xi32>) {
%v1 = stablehlo.broadcast_in_dim %p1, dims = [1] : (tensor<5xi32>) -> tensor<4x5xi32>
%v2 = stablehlo.add %p0, %v1 : tensor<4x5xi32>
%v3 = stablehlo.subtract %v2, %v1 : tensor<4x5xi32>
%v4 = stablehlo.multiply %v3, %v2 : tensor<4x5xi32>
return %v2, %v4 : tensor<4x5xi32>, tensor<4x5xi32>
}"""
        program = Program.parse(text)
        arguments = [np.arange(20, dtype=np.int32).reshape(4, 5), np.arange(5, dtype=np.int32)]
        for whole in (True, False):
            plan, checker = Plan(whole), Checker(workers)
            found = checker.check(program, arguments, plan)
            assert found is not None
            small = Shrinker(checker, plan).shrink(found)
            assert [s.operation for s in small.program.statements] == ["subtract"]
            assert small.program.statements[0].results[0].shape == (1, 1)
            assert sum(int(np.count_nonzero(a)) for a in small.arguments) == 1
