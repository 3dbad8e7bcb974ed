"""ragged_dot and scaled_dot. Oracles: numpy, group by group; the reference interpreter and XLA:CPU; JAX's functions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla import DotDimensionNumbers, RaggedDotDimensionNumbers
from tests.ops.building import refused
from tests.programs import run

RNG = np.random.default_rng(0)
ROWS = RaggedDotDimensionNumbers(DotDimensionNumbers((1,), (1,)), (0,), (0,))


def whole(*shape: int) -> np.ndarray:
    """Small whole numbers, whose sums are exact."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def bounds(sizes: np.ndarray) -> list[tuple[int, int]]:
    ends = np.cumsum(sizes)
    return list(zip(ends - sizes, ends, strict=True))


@pytest.mark.parametrize("sizes", [(2, 0, 3), (0, 0, 0), (7, 0, 0), (1, 9, 2)], ids=str)
@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64])
def test_groups_of_rows(sizes: tuple[int, ...], kind: Any) -> None:
    """Rows behind all groups give zeros; groups may reach beyond the rows."""
    x, w = whole(7, 4), whole(3, 4, 5)
    wanted = np.zeros((7, 5), np.float32)
    for part, (start, end) in zip(w, bounds(np.array(sizes)), strict=True):
        wanted[start:end] = x[start:end] @ part
    run(lambda b, v, y, n: sx.ragged_dot(v, y, n, ROWS), x, w, np.array(sizes, kind), expected=[wanted])


def test_groups_of_rows_in_batches() -> None:
    """Group sizes of their own for each entry of a batch, with dimensions in any order."""
    x, w, sizes = whole(4, 3, 7), whole(4, 5, 2, 3), np.array([[2, 5], [3, 1], [0, 7]], np.int32)
    wanted = np.zeros((3, 7, 5), np.float32)
    for batch in range(3):
        for group, (start, end) in enumerate(bounds(sizes[batch])):
            wanted[batch, start:end] = x[:, batch, start:end].T @ w[:, :, group, batch]
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers((0,), (0,), (1,), (3,)), (2,), (2,))
    run(lambda b, v, y, n: sx.ragged_dot(v, y, n, numbers), x, w, sizes, expected=[wanted])


def test_groups_along_the_sum() -> None:
    """A product for each group; what other groups have, be it NaN, has no part in it."""
    x, y, sizes = whole(6, 7), whole(7, 4), np.array([2, 0, 3], np.int32)
    x[:, 6] = np.nan
    wanted = np.stack([x[:, start:end] @ y[start:end] for start, end in bounds(sizes)])
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers((1,), (0,)), (1,))
    run(lambda b, v, w, n: sx.ragged_dot(v, w, n, numbers), x, y, sizes, expected=[wanted])


def test_groups_of_a_batch() -> None:
    x, y = whole(5, 2, 3), whole(5, 3, 4)
    numbers = RaggedDotDimensionNumbers(DotDimensionNumbers((2,), (1,), (0,), (0,)), (0,))
    sizes = np.array([2, 3], np.int32)
    run(lambda b, v, w, n: sx.ragged_dot(v, w, n, numbers), x, y, sizes, expected=[x @ y])


def test_ragged_dot_as_jax_has_it() -> None:
    import jax

    x, w, sizes = whole(9, 4), whole(3, 4, 5), np.array([4, 1, 3], np.int32)
    wanted = jax.lax.ragged_dot(x, w, sizes)
    options = {"precision_config": "HIGHEST", "preferred_element_type": "f32"}
    run(lambda b, v, y, n: sx.ragged_dot(v, y, n, ROWS, **options), x, w, sizes, against=[], expected=[wanted])


def test_what_ragged_dot_refuses() -> None:
    def dot(numbers: Any) -> Any:
        return lambda x, y, n: sx.ragged_dot(x, y, n, numbers)

    plain = DotDimensionNumbers((1,), (1,))
    shapes = (sx.f32[7, 4], sx.f32[3, 4, 5], sx.s32[3])
    for numbers, words in (
        (plain, "must be RaggedDotDimensionNumbers"),
        (RaggedDotDimensionNumbers(plain, (), (0,)), "must name one dimension, not 0"),
        (RaggedDotDimensionNumbers(plain, (2,), (0,)), "2 is no dimension of lhs"),
        (RaggedDotDimensionNumbers(plain, (0,), (3,)), "3 is no dimension of rhs"),
        (RaggedDotDimensionNumbers(plain, (0,), (1,)), "1 is a batch or contracting dimension already"),
        (RaggedDotDimensionNumbers(plain, (0,)), "rhs must have 1 group dimensions"),
        (RaggedDotDimensionNumbers(plain, (1,), (0,)), "rhs must have 0 group dimensions"),
    ):
        assert words in refused("", lambda *ops, n=numbers: dot(n)(*ops), *shapes).summary
    assert "integers" in refused("", lambda x, y, n: sx.ragged_dot(x, y, n, ROWS), *shapes[:2], sx.f32[3]).summary
    error = refused("", lambda x, y, n: sx.ragged_dot(x, y, n, ROWS), *shapes[:2], sx.s32[2])
    assert error.summary == "dimension 0 of rhs has size 3, and there are 2 groups"
    refused("", lambda x, y, n: sx.ragged_dot(x, y, n, ROWS), *shapes[:2], sx.s32[2, 3])
    refused("C10", lambda x, y, n: sx.ragged_dot(x, y, n, ROWS), sx.f32[7, 5], *shapes[1:])


def scaled(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Elements times the scales of their blocks along the last dimension, in bf16."""
    spread = np.repeat(scale.astype(ml_dtypes.bfloat16), x.shape[-1] // scale.shape[-1], -1)
    return (x.astype(ml_dtypes.bfloat16) * spread).astype(np.float64)


@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2", "f4e2m1fn", "bf16"])
@pytest.mark.parametrize("blocks", [1, 2, 64])
def test_scaled_dot(name: str, blocks: int) -> None:
    dtype = sx.element_type(name).dtype
    x, y = (RNG.normal(size=(3, n, 64)).astype(dtype) for n in (2, 4))
    s, t = ((2.0 ** RNG.integers(-3, 4, (3, n, blocks))).astype(ml_dtypes.float8_e8m0fnu) for n in (2, 4))
    numbers = DotDimensionNumbers((2,), (2,), (0,), (0,))
    wanted = np.einsum("bmk,bnk->bmn", scaled(x, s), scaled(y, t))
    run(
        lambda b, *ops: sx.scaled_dot(*ops, numbers, preferred_element_type="f32"),
        *(x, y, s, t),
        against=[],
        expected=[wanted.astype(np.float32)],
        scale=1e-6,
    )


def test_scaled_dot_as_jax_has_it() -> None:
    import jax

    x, y = (RNG.normal(size=(n, 64)).astype(ml_dtypes.float8_e4m3fn) for n in (2, 4))
    s, t = ((2.0 ** RNG.integers(-3, 4, (n, 2))).astype(ml_dtypes.float8_e8m0fnu) for n in (2, 4))
    wanted = jax.lax.scaled_dot(x, y, lhs_scale=s, rhs_scale=t, dimension_numbers=(((1,), (1,)), ((), ())))
    numbers = DotDimensionNumbers((1,), (1,))
    result = run(lambda b, *ops: sx.scaled_dot(*ops, numbers), x, y, s, t, against=[], expected=[wanted], ulp=1)
    assert result[0].dtype == ml_dtypes.bfloat16


def test_what_scaled_dot_refuses() -> None:
    numbers = DotDimensionNumbers((1,), (1,))
    shapes = (sx.f8e4m3fn[2, 64], sx.f8e4m3fn[4, 64], sx.f8e8m0fnu[2, 2], sx.f8e8m0fnu[4, 2])

    def product(*ops: sx.XlaOp) -> sx.XlaOp:
        return sx.scaled_dot(*ops, numbers)

    refused("I1", product, sx.s8[2, 64], *shapes[1:])
    refused("I4", product, *shapes[:3], sx.u8[4, 2])
    assert "must divide its size 64" in refused("", product, *shapes[:2], sx.f8e8m0fnu[2, 3], shapes[3]).summary
    assert "must have size 4" in refused("", product, *shapes[:3], sx.f8e8m0fnu[2, 2]).summary
    refused("", product, *shapes[:3], sx.f8e8m0fnu[2])
    refused("", lambda *ops: sx.scaled_dot(*ops, (1, 1)), *shapes)
    refused("C10", product, sx.f8e4m3fn[2, 32], *shapes[1:])
