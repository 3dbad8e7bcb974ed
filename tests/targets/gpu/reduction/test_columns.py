"""Reductions along other dimensions than the last: simulated, against the CPU's kernels, and how they read memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers, program, total
from tests.targets.gpu.simulation import check_simulated

Program = tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]


def argmax_of_columns(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
    def better(a: sx.XlaOp, i: sx.XlaOp, c: sx.XlaOp, j: sx.XlaOp) -> Any:
        take = sx.gt(a, c) | sx.ne(a, a)
        take = take | (sx.eq(a, c) & sx.lt(i, j))
        return sx.select(sx.gt(a, c) | sx.ne(a, a), a, c), sx.select(take, i, j)

    indices = b.iota(sx.Shape("s32", x.shape.dimensions), 0)
    return list(sx.reduce((x, indices), (b.constant(-np.inf, "f32"), b.constant(0, "s32")), better, (0,)))


def normalised(*dimensions: int) -> Callable[..., Any]:
    """Mean and variance over some dimensions, and what they make of the array: the pattern of batch norm."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
        shape = x.shape.dimensions
        kept = tuple(d for d in range(len(shape)) if d not in dimensions)
        count = float(np.prod([shape[d] for d in dimensions]))
        mean = sx.reduce(x, b.constant(0.0), sx.add, dimensions) / count
        centred = x - sx.broadcast_in_dim(mean, shape, kept)
        variance = sx.reduce(centred * centred, b.constant(0.0), sx.add, dimensions) / count
        return centred * sx.broadcast_in_dim(sx.rsqrt(variance + 1e-5), shape, kept)

    return make


def in_order(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    """A body that nothing is known of."""
    return sx.reduce(x, b.constant(1.0), lambda a, c: a * 0.5 + c, (0,))


PROGRAMS: dict[str, Program] = {
    "columns": (total(0), (numbers(50, 128),)),
    "narrow": (total(0), (numbers(700, 3),)),
    "wide-clamped": (total(0), (numbers(40, 4 * 75),)),
    "short": (total(1), (numbers(30, 5, 12),)),
    "middle": (total(1), (numbers(4, 30, 20),)),
    "first-and-last": (total(0, 2), (numbers(6, 5, 36),)),
    "first-and-last-odd": (total(0, 2), (numbers(6, 3, 35),)),
    "in-parts": (total(0), ((4 * numbers(4200, 4)).round(),)),
    "narrow-in-parts": (total(0), ((4 * numbers(6000, 3)).round(),)),
    "both-in-parts": (total(0, 2), ((4 * numbers(20, 2, 1200)).round(),)),
    "produced": (
        lambda b, x, y: sx.reduce(sx.exp(x) * y, b.constant(1.0), sx.add, (0,)),
        (numbers(40, 36), numbers(40, 36, seed=1)),
    ),
    "used": (lambda b, x: sx.sqrt(sx.reduce(x * x, b.constant(0.0), sx.add, (0,))), (numbers(70, 33),)),
    "f64-max": (
        lambda b, x: sx.reduce(x, b.constant(-np.inf, "f64"), sx.max, (0,)),
        (numbers(40, 10, dtype=np.float64),),
    ),
    "bf16": (
        lambda b, x: sx.reduce(sx.convert_element_type(x, "bf16"), b.constant(0.0, "bf16"), sx.add, (0,)),
        (numbers(40, 24),),
    ),
    "pred": (
        lambda b, x: sx.reduce(sx.gt(x, x * 0.0 + 2.0), b.constant(False, "pred"), lambda a, c: a | c, (0,)),
        (numbers(40, 24),),
    ),
    "s8": (
        lambda b, x: sx.reduce(x, b.constant(0, "s8"), sx.add, (0,)),
        (np.arange(40 * 32).reshape(40, 32).astype(np.int8),),
    ),
    "argmax": (argmax_of_columns, (numbers(70, 20).round(),)),
    "argmax-in-parts": (argmax_of_columns, (numbers(5000, 4).round(1),)),
    "in-order": (in_order, (numbers(30, 20),)),
    "batch-norm": (normalised(0, 1, 2), (numbers(2, 5, 6, 8),)),
    "batch-norm-channels-first": (normalised(0, 2), (numbers(3, 4, 50),)),
    "batch-norm-in-parts": (normalised(0, 1), (numbers(3, 1400, 4),)),
    "layer-norm-in-parts": (normalised(0, 1), (numbers(3, 7000),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated(name: str) -> None:
    make, arrays = PROGRAMS[name]
    executable = check_simulated(make, *arrays, ulp=8, scale=1e-6)
    paths = {k.path for k in executable.kernels if k.kind in ("row", "reduce", "general")}
    assert paths <= {"emitted"}


@pytest.mark.parametrize("name", ["narrow-in-parts", "both-in-parts"])
def test_few_totals_are_made_by_many_blocks(name: str) -> None:
    make, arrays = PROGRAMS[name]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).ir("ptx")
    assert ptx.count(".entry") == 2


@pytest.mark.parametrize(("name", "kind"), [("batch-norm", "reduce"), ("batch-norm-channels-first", "general")])
def test_nothing_is_written_for_a_variance(name: str, kind: str) -> None:
    """Both statistics read the array itself: their launches, two of few numbers, and one that writes the result."""
    make, arrays = PROGRAMS[name]
    kernels = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).kernels
    assert sorted(k.kind for k in kernels) == sorted([kind, kind, "loop", "loop", "loop"])


def test_16_bytes_at_a_time() -> None:
    make, arrays = PROGRAMS["columns"]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).ir("ptx")
    loads = re.findall(r"ld\.global\.\S+", ptx)
    assert loads
    assert all(name.endswith(("v2.b64", "v4.b32", "v4.f32")) for name in loads)
