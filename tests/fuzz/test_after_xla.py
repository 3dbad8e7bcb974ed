"""Random programs through XLA:CPU's passes: stablexla runs what these leave, and the numbers stay the same.

Oracles: stablexla on the program itself, and XLA:CPU, whose faults are not ours (`known_faults.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.comparison import assert_same
from tests.fuzz.generate import draw
from tests.fuzz.workers import Failure, Workers

PROGRAMS, BATCH = 15, 5


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as started:
        yield started


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs(first: int, workers: Workers) -> None:
    ran = 0
    for seed in range(first, first + BATCH):
        drawn = draw(seed, statements=3 + seed % 5)
        text, arguments = drawn.program.text, drawn.arguments
        wanted = workers.run("xla", text, arguments)
        if isinstance(wanted, Failure):  # it lacks some operations and element types
            continue
        found = workers.run("hlo", text, arguments)
        assert not isinstance(found, Failure), f"program {seed}: {found}\n{text}"
        plain = workers.run("emitters", text, arguments)
        assert _agree(found, wanted) or _agree(found, plain), f"program {seed}:\n{text}"
        ran += 1
    assert ran


def _agree(results: Sequence[Any], others: Sequence[Any] | Failure) -> bool:
    """XLA's passes may reorder sums, and write a division as a product."""
    try:
        for actual, right in zip(results, () if isinstance(others, Failure) else others, strict=True):
            assert_same(actual, right, ulp=16, scale=1e-5)
    except (AssertionError, ValueError):
        return False
    return True
