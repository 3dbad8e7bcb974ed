"""Computations that hold arrays, as loops of the host around kernels of the device."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.test_computations import WORKS
from tests.targets.gpu.simulation import check_simulated


@pytest.mark.parametrize("work", ["iota", "sort", "loop_over_arrays"])
def test_array_work(work: str) -> None:
    function = WORKS[work]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        return [
            sx.map((x,), lambda a: function(a) * 2),
            sx.reduce(x, b.constant(0.0), lambda a, c: a + function(c), (0,)),
            sx.sort(y, lambda p, q: function(p) < q, 0),
        ]

    check_simulated(program, np.arange(6, dtype=np.float32).reshape(3, 2), np.array([3, 1, 2], np.float32))
