"""Pooling: simulated, against the CPU's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers, program
from tests.targets.gpu.simulation import check_simulated


def pooled(
    fold: Callable[..., Any], start: float, size: tuple[int, ...], stride: tuple[int, ...], pad: Any
) -> Callable[..., Any]:
    """`reduce_window` with a window of that size."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_window(x, b.constant(start, x.shape.element_type), fold, size, stride, pad)

    return make


AROUND = ((0, 0), (1, 1), (1, 1), (0, 0))
BEFORE = ((0, 0), (1, 0), (0, 1), (0, 0))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "max": (pooled(sx.max, -np.inf, (1, 3, 3, 1), (1, 2, 2, 1), AROUND), (numbers(2, 7, 8, 8),)),
    "sum": (pooled(sx.add, 0.0, (1, 3, 3, 1), (1, 1, 1, 1), AROUND), (numbers(1, 5, 6, 5),)),
    "uneven": (pooled(sx.min, 3.0, (1, 2, 4, 1), (1, 3, 1, 1), BEFORE), (numbers(2, 8, 9, 6),)),
    "bf16": (
        lambda b, x: pooled(sx.max, -9.0, (1, 2, 2, 1), (1, 2, 2, 1), AROUND)(b, sx.convert_element_type(x, "bf16")),
        (numbers(1, 4, 4, 16),),
    ),
    "s32": (
        pooled(sx.add, 0, (1, 2, 2, 1), (1, 1, 1, 1), AROUND),
        (np.arange(1 * 4 * 5 * 4, dtype=np.int32).reshape(1, 4, 5, 4),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated(name: str) -> None:
    make, arrays = PROGRAMS[name]
    executable = check_simulated(make, *arrays)
    assert [k.path for k in executable.kernels if k.kind == "pool"] == ["emitted"]


def test_16_bytes_at_a_time() -> None:
    make, arrays = PROGRAMS["max"]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).ir("ptx")
    assert ptx.count("ld.global.nc.v") == 9
