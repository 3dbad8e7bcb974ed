"""Attention in one kernel: simulated, against the CPU's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers, program, softmax
from tests.targets.gpu.simulation import check_simulated

Array = np.ndarray[Any, Any]


def attention(
    *, causal: bool = False, bias: bool = False, heads_last: bool = False, element: str = "f32"
) -> Callable[..., Any]:
    """softmax(q k / sqrt(depth)) v over [batch, head, query, depth], scores and softmax in 32 bits or more."""
    wide = "f64" if element == "f64" else "f32"

    def make(b: sx.XlaBuilder, q: sx.XlaOp, k: sx.XlaOp, v: sx.XlaOp, *rest: sx.XlaOp) -> sx.XlaOp:
        if heads_last:
            q, k, v = (sx.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        numbers_ = sx.DotDimensionNumbers((3,), (3,), (0, 1), (0, 1))
        scores = sx.dot_general(q, k, numbers_, preferred_element_type=wide) * 0.3
        if bias:
            scores = scores + rest[0]
        if causal:
            shape = sx.Shape("s32", scores.shape.dimensions)
            seen = sx.ge(b.iota(shape, 2), b.iota(shape, 3))
            lowest = sx.broadcast(b.constant(-np.inf, wide), scores.shape.dimensions)
            scores = sx.select(seen, scores, lowest)
        weights = sx.convert_element_type(softmax(b, scores), element) if element != wide else softmax(b, scores)
        products = sx.DotDimensionNumbers((3,), (2,), (0, 1), (0, 1))
        out = sx.dot_general(weights, v, products, preferred_element_type=wide)
        out = sx.convert_element_type(out, element) if element != wide else out
        return sx.transpose(out, (0, 2, 1, 3)) if heads_last else out

    return make


def factors(queries: int, keys: int, depth: int, width: int, *, dtype: Any = np.float32, batch: Any = (1, 2)) -> Any:
    shapes = [(*batch, queries, depth), (*batch, keys, depth), (*batch, keys, width)]
    return tuple(numbers(*shape, seed=n).astype(dtype) for n, shape in enumerate(shapes))


ON_TENSOR_CORES = ("bf16", "f16")
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "plain": (attention(), factors(70, 66, 16, 24)),
    "causal": (attention(causal=True), factors(40, 40, 8, 8)),
    "odd-bias": (attention(bias=True), (*factors(9, 13, 5, 7), numbers(1, 2, 9, 13, seed=7))),
    "heads-last": (attention(heads_last=True), tuple(np.swapaxes(x, 1, 2).copy() for x in factors(20, 70, 8, 8))),
    "bf16": (attention(element="bf16", causal=True), factors(40, 70, 16, 24, dtype=ml_dtypes.bfloat16, batch=(1, 1))),
    "f16": (
        attention(element="f16", bias=True),
        (*factors(9, 65, 72, 8, dtype=np.float16, batch=(1, 1)), numbers(1, 1, 9, 65)),
    ),
    "f64": (attention(element="f64"), factors(10, 17, 8, 8, dtype=np.float64)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated(name: str) -> None:
    make, arrays = PROGRAMS[name]
    executable = check_simulated(make, *arrays, ulp=8, scale=1e-6)
    assert [k.path for k in executable.kernels if k.kind == "attention"] == ["emitted"]
    if name in ON_TENSOR_CORES:
        assert f"mma.sync.aligned.m16n8k16.row.col.f32.{name}" in executable.ir("ptx")


def test_blocks_share_no_more_than_the_chip_has() -> None:
    """A block of sm_75 has 64 KiB; of sm_80 it takes more."""
    make, arrays = attention(), factors(64, 64, 64, 64, batch=(1, 1))
    for chip in ("sm_75", "sm_80"):
        executable = sx.compile(program(make, *arrays), target=sx.gpu.target(chip=chip))
        assert [k.path for k in executable.kernels if k.kind == "attention"] == ["emitted"]


def test_what_no_block_of_the_chip_can_hold_is_left_in_parts() -> None:
    """Not found, as a kernel that no emitter takes would run in few threads."""
    make, arrays = attention(), factors(64, 64, 192, 192, batch=(1, 1))
    for chip, is_found in (("sm_75", False), ("sm_80", True)):
        kernels = sx.compile(program(make, *arrays), target=sx.gpu.target(chip=chip)).kernels
        assert ("attention" in [k.kind for k in kernels]) == is_found
        assert {k.path for k in kernels} == {"emitted"}
