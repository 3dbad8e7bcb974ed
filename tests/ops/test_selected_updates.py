"""Updates that one condition selects or drops. Oracles: the definition of scatter, numpy, the reference interpreter,
XLA:CPU."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.index_definitions import RNG, Scatter, draw_scatter, scattered
from tests.programs import run

ROW = Scatter((), (0,), (0,), 1)


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_scatter_of_any_dimension_numbers(seed: int, holds: bool) -> None:
    x, indices, updates, numbers = draw_scatter(RNG(seed), partly=seed % 2 == 0)
    changed = scattered(x, indices, updates, lambda a, u: a - u, numbers)

    def make(_: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> list[sx.XlaOp]:
        first, second = (sx.scatter(v, i, u, sx.sub, dimension_numbers=numbers) for _ in range(2))
        everywhere = sx.broadcast(p, v.shape.dimensions)
        return [sx.select(p, first, v), sx.select(everywhere, v, second)]

    expected = [changed, x] if holds else [x, changed]
    run(make, np.bool_(holds), x, indices, updates, against=["interpreter"], expected=expected)


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "uint8"])
def test_slices_held_within_the_array(dtype: str, holds: bool) -> None:
    x, part = np.arange(20).reshape(4, 5).astype(dtype), np.full((2, 3), 7).astype(dtype)

    def make(_: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp, u: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        return sx.select(p, sx.dynamic_update_slice(v, u, [i, i]), v)

    changed = x.copy()
    changed[2:, 2:] = part  # begins at [9, 9], as far as it can
    run(make, np.bool_(holds), x, part, np.int32(9), against=["xla"], expected=[changed if holds else x])


@pytest.mark.parametrize("holds", [False, True])
def test_updates_on_both_sides_one_after_the_other(holds: bool) -> None:
    """Each reads what its own side made, also where both change one element."""
    x = np.arange(6, dtype=np.float32)

    def make(b: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp) -> sx.XlaOp:
        def added(a: sx.XlaOp, at: int, by: float) -> sx.XlaOp:
            indices, updates = b.constant(np.full((1, 1), at, np.int32)), b.constant(np.full(1, by, np.float32))
            return sx.scatter(a, indices, updates, sx.add, dimension_numbers=ROW)

        part = b.constant(np.full(2, 9, np.float32))
        this = added(sx.dynamic_update_slice(v, part, [b.constant(np.int32(2))]), 2, 1)
        return sx.select(p, this, added(added(v, 2, 5), 3, 6))

    expected = [0, 1, 10, 9, 4, 5] if holds else [0, 1, 7, 9, 4, 5]
    run(make, np.bool_(holds), x, against=["interpreter"], expected=[np.array(expected, np.float32)])


@pytest.mark.parametrize("extent", [255, 256])
@pytest.mark.parametrize("holds", [False, True])
def test_indices_of_a_byte(holds: bool, extent: int) -> None:
    """No u8 points behind 256 elements. The interpreter takes 254 for a negative number."""
    x = np.arange(extent, dtype=np.int32)

    def make(_: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> sx.XlaOp:
        return sx.select(p, sx.scatter(v, i, u, sx.add, dimension_numbers=ROW), v)

    changed = x.copy()
    changed[254] += 10
    indices, updates = np.array([[254]], np.uint8), np.array([10], np.int32)
    expected = changed if holds else x
    run(make, np.bool_(holds), x, indices, updates, against=["xla"], expected=[expected])


@pytest.mark.parametrize("holds", [False, True])
def test_what_is_used_besides(holds: bool) -> None:
    """The updated array, the old one, and a condition for each element."""
    x, part = np.arange(6, dtype=np.float32), np.full(2, 9, np.float32)

    def make(b: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp, u: sx.XlaOp) -> list[sx.XlaOp]:
        starts = [b.constant(np.int32(2))]
        kept, dropped, mixed = (sx.dynamic_update_slice(v, part, starts) for part in (u, sx.neg(u), sx.add(u, u)))
        chosen, other = sx.select(p, kept, v), sx.select(p, dropped, v)
        return [chosen, kept, sx.add(other, v), sx.select(sx.gt(mixed, v), mixed, v)]

    changed, negated = x.copy(), x.copy()
    changed[2:4], negated[2:4] = 9, -9
    expected = [changed if holds else x, changed, (negated if holds else x) + x, np.maximum(2 * (changed == 9) * 9, x)]
    run(make, np.bool_(holds), x, part, against=["interpreter"], expected=[e.astype(np.float32) for e in expected])
