"""Sums are held against those of a wider type. Oracle: sums written out in numpy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from stablexla.inspection.judging.exact_sums import exact_sums
from stablexla.inspection.judging.tolerances import Case, differing

ROWS = "%2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [1] : (tensor<2x5xf32>"
PRODUCT = "%2 = stablehlo.dot_general %0, %1, batching_dims = [0] x [2], contracting_dims = [2] x [0] : (tensor"


@dataclass(frozen=True)
class Statement:
    """What is known of an operation."""

    text: str
    operation: str
    operations: frozenset[str] = field(default_factory=frozenset)


def test_running_sum_is_found() -> None:
    """A running sum, by the oracle too, is within what any order of additions explains, and wrong."""
    x = np.full((1, 1 << 20), 0.1, np.float32)
    running, exact = np.cumsum(x, dtype=np.float32)[-1:], x.astype("f8").sum(1).astype("f4")
    statement = Statement(ROWS, "reduce", frozenset(("reduce", "add")))
    operands = [x, np.float32(0)]
    assert not differing(Case(statement, operands, exact, running, "xla")).any()
    assert differing(Case(statement, operands, running, running, "xla")).all()


def test_products() -> None:
    x, y = (np.random.default_rng(k).standard_normal(s).astype("f4") for k, s in enumerate([(3, 2, 5), (5, 4, 3)]))
    sums = exact_sums(PRODUCT, [x, y])
    assert sums is not None
    assert sums.terms == 5
    np.testing.assert_allclose(sums.values, np.einsum("bik,kjb->bij", x.astype("f8"), y), rtol=1e-13)


@pytest.mark.parametrize("text", ["%2 = stablehlo.add %0, %1", ROWS.replace("add", "maximum")])
def test_other_operations(text: str) -> None:
    assert exact_sums(text, [np.ones((2, 5), "f4"), np.ones((), "f4")]) is None
