"""gather, scatter and dynamic slices: any dimension numbers, any element type, any type of indices.

Oracles: the definitions in `index_definitions`, the reference interpreter, and XLA:CPU. Where an update's window lies
partly outside, XLA:CPU leaves all of it out; the specification speaks of single elements, and so does the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import ELEMENT_TYPES, element_type
from stablexla.targets.cpu.indexing.scatter import MANY
from tests.comparison import assert_same
from tests.ops.index_definitions import (
    RNG,
    Gather,
    Scatter,
    as_bytes,
    compute,
    counted,
    draw_dimensions,
    draw_indices,
    draw_scatter,
    gathered,
    placed_among,
    scattered,
)
from tests.ops.samples import COMPLEX, FLOATS, INTEGERS, sample
from tests.programs import run

ALL_TYPES = [t.name for t in ELEMENT_TYPES]


@pytest.mark.parametrize("seed", range(40))
def test_gather_of_any_dimension_numbers(seed: int) -> None:
    rng = RNG(seed)
    shape, batching, collapsed, pointed = draw_dimensions(rng)
    indices, vector_dim, by = draw_indices(rng, shape, batching, pointed)
    one = {*batching, *collapsed}
    sizes = tuple(1 if d in one else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
    in_slice = len(shape) - len(one)
    groups = indices.ndim - (vector_dim < indices.ndim)
    offsets = placed_among(rng, in_slice, groups + in_slice)
    numbers = Gather(offsets, collapsed, pointed, vector_dim, batching, by)
    x = sample("f32", int(np.prod(shape)), seed).reshape(shape)
    expected = gathered(x, indices, numbers, sizes)
    against = ["interpreter", "xla"] if seed % 2 else ["interpreter"]
    run(
        lambda b, v, i: sx.gather(v, i, dimension_numbers=numbers, slice_sizes=sizes),
        x,
        indices,
        against=against,
        expected=[expected],
    )


@pytest.mark.parametrize("seed", range(40))
def test_scatter_of_any_dimension_numbers(seed: int) -> None:
    rng = RNG(seed)
    partly = seed % 2 == 0
    x, indices, updates, numbers = draw_scatter(rng, partly=partly)
    expected = scattered(x, indices, updates, lambda a, u: a - u, numbers)
    run(
        lambda b, v, i, u: sx.scatter(v, i, u, sx.sub, dimension_numbers=numbers),
        *(x, indices, updates),
        # XLA:CPU combines but one of several updates when index vectors have no numbers.
        against=["interpreter"] if partly or not numbers.scatter_dims_to_operand_dims else ["interpreter", "xla"],
        expected=[expected],
    )


# ---- what the specifications print ----------------------------------------------------------------------------------


STARTS = np.array(
    [[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]]
)


def test_the_gather_example_of_stablehlo() -> None:
    numbers = Gather([3, 4], [1], [2, 1], 3, [0], [1])
    expected = [
        [[[[1, 2], [3, 4]], [[3, 4], [5, 6]], [[13, 14], [15, 16]]],
         [[[33, 34], [35, 36]], [[35, 36], [37, 38]], [[41, 42], [43, 44]]]],
        [[[[1, 2], [3, 4]], [[13, 14], [15, 16]], [[21, 22], [23, 24]]],
         [[[43, 44], [45, 46]], [[33, 34], [35, 36]], [[27, 28], [29, 30]]]],
    ]  # fmt: skip
    make = lambda b, x, i: sx.gather(x, i, dimension_numbers=numbers, slice_sizes=(1, 1, 2, 2))  # noqa: E731
    run(make, counted(2, 3, 4, 2), STARTS, expected=[np.int32(expected)])


def test_the_scatter_example_of_stablehlo() -> None:
    numbers = Scatter([3, 4], [1], [2, 1], 3, [0], [1])
    expected = [
        [[[3, 4], [6, 7], [6, 7], [7, 8]],
         [[9, 10], [11, 12], [15, 16], [17, 18]],
         [[17, 18], [19, 20], [22, 23], [24, 25]]],
        [[[25, 26], [28, 29], [30, 31], [31, 32]],
         [[35, 36], [38, 39], [38, 39], [39, 40]],
         [[41, 42], [44, 45], [46, 47], [47, 48]]],
    ]  # fmt: skip
    x, updates = counted(2, 3, 4, 2, dtype=np.int64), np.ones((2, 2, 3, 2, 2), np.int64)
    np.testing.assert_array_equal(scattered(x, STARTS, updates, np.add, numbers), expected)
    make = lambda b, x, i, u: sx.scatter(x, i, u, sx.add, dimension_numbers=numbers)  # noqa: E731
    # XLA:CPU leaves the window at [0, 9] out as well: nothing of it lies inside.
    run(make, x, STARTS, updates, expected=[np.int64(expected)])


@pytest.mark.parametrize("groups", [(5,), (4, 5)])
def test_slices_of_a_matrix_as_the_description_has_them(groups: tuple[int, ...]) -> None:
    """Slices [8,6] of [16,11], one for each of the indices [5,2], or [4,5,2]."""
    x = counted(16, 11)
    indices = RNG(0).integers(0, (9, 6), (*groups, 2))
    rank = len(groups)
    numbers = Gather((rank, rank + 1), (), (0, 1), rank)
    run(
        lambda b, v, i: sx.gather(v, i, dimension_numbers=numbers, slice_sizes=(8, 6)),
        *(x, indices),
        expected=[np.stack([x[i : i + 8, j : j + 6] for i, j in indices.reshape(-1, 2)]).reshape(*groups, 8, 6)],
    )


def test_gather_nd_as_the_description_has_it() -> None:
    """Whole rows [1,11] of [16,11] for indices [4,5,1]: the result is [4,5,11]."""
    x, indices = counted(16, 11), RNG(0).integers(0, 16, (4, 5, 1))
    numbers = Gather((2,), (0,), (0,), 2)
    run(
        lambda b, v, i: sx.gather(v, i, dimension_numbers=numbers, slice_sizes=(1, 11)),
        x,
        indices,
        expected=[x[indices[..., 0]]],
    )


@pytest.mark.parametrize("name", ["s8", "u8", "s32", "u32", "s64"])
@pytest.mark.parametrize("seed", range(4))
def test_gather_at_components_put_together(seed: int, name: str) -> None:
    """Adjacent dimensions in any order; an index outside is clamped by itself, and one may not reach the end."""
    rng = RNG(seed)
    shape = tuple(int(n) for n in (rng.integers(2, 5), *rng.integers(3, 9, 2), 130 + seed, 3))
    first, count = int(rng.integers(0, 3)), int(rng.integers(2, 4))
    pointed = tuple(int(d) for d in rng.permutation(range(first, min(4, first + count))))
    collapsed, vector_dim = tuple(sorted(pointed)), int(rng.integers(0, 3))
    sizes = tuple(1 if d in collapsed else n for d, n in enumerate(shape))
    offsets = placed_among(rng, len(shape) - len(collapsed), len(shape) - len(collapsed) + 2)
    numbers = Gather(offsets, collapsed, pointed, vector_dim)
    dtype = element_type(name).dtype
    low = 0 if name.startswith("u") else -3
    components = [rng.integers(low, min(shape[d] + 4, 128), (2, 5)).astype(dtype) for d in pointed]
    indices = np.stack(components, vector_dim)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, *parts: sx.XlaOp) -> sx.XlaOp:
        one = (*(2, 5)[:vector_dim], 1, *(2, 5)[vector_dim:])
        together = sx.concatenate([sx.reshape(part, one) for part in parts], vector_dim)
        return sx.gather(v, together, dimension_numbers=numbers, slice_sizes=sizes)

    x = sample("f32", int(np.prod(shape)), seed).reshape(shape)
    run(make, x, *components, against=["interpreter", "xla"], expected=[gathered(x, indices, numbers, sizes)])


@pytest.mark.parametrize("choices", ["usual", "eager"])
@pytest.mark.parametrize("shape", [(), (1,), (5,)])
def test_gather_of_single_elements_of_a_small_table(shape: tuple[int, ...], choices: str) -> None:
    """Looked up by selections from `lookup.least-lookups` results on; one element is a scalar, which is not."""
    x, indices = counted(2), RNG(0).integers(-1, 3, (*shape, 1))
    numbers = Gather((), (0,), (0,), len(shape))
    run(
        lambda b, v, i: sx.gather(v, i, dimension_numbers=numbers, slice_sizes=(1,)),
        x,
        indices,
        expected=[x[indices[..., 0].clip(0, 1)]],
        options=sx.CompileOptions(choices=choices),
    )


# ---- element types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_element_type_is_moved_unchanged(name: str) -> None:
    x, updates = sample(name, 24).reshape(6, 4), sample(name, 12, 5).reshape(3, 4)
    rows = np.array([4, -7, 2], np.int32)

    def make(v: sx.XlaOp, u: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        overwrite = lambda there, new: new  # noqa: E731
        return [
            sx.gather(v, i, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 4)),
            sx.dynamic_slice(v, (i[0], i[2]), (3, 2)),
            sx.dynamic_slice(v, (i[0], i[2]), (1, 1)),
            sx.dynamic_update_slice(v, u, (i[2], i[1])),
            sx.scatter(
                v, i, u, overwrite, dimension_numbers=Scatter((1,), (0,), (0,), 1)
            ),  # the interpreter writes over its operand
        ]

    scattered_ = x.copy()
    scattered_[4], scattered_[2] = updates[0], updates[2]
    expected = [x[[4, 0, 2]], x[3:6, 2:4], x[4:5, 2:3], np.concatenate([x[:2], updates, x[5:]]), scattered_]
    results = compute(
        make, (name, x), (name, updates), ("s32", rows), oracle="xla" if name in COMPLEX else "interpreter"
    )
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(as_bytes(result), as_bytes(wanted))


@pytest.mark.parametrize("name", ALL_TYPES)
def test_many_elements_of_a_small_table(name: str) -> None:
    """Selections by the bits of an index instead of loads: of tables of any size, of any index."""
    cases = [(1, "s8"), (5, "u4"), (7, "s64"), (16, "u8"), (16, "s32"), (16, "u64"), (17, "s16")]
    tables = [sample(name, 24)[:count] for count, _ in cases]
    # Of other shapes, so that each has a loop of its own.
    places = [np.resize(hard_indices(indices), (65, 64 + n)) for n, (_, indices) in enumerate(cases)]

    def make(*given: sx.XlaOp) -> list[sx.XlaOp]:
        shape = Gather((), (0,), (0,), 2)
        pairs = zip(given[: len(cases)], given[len(cases) :], strict=True)
        return [sx.gather(v, i, dimension_numbers=shape, slice_sizes=(1,)) for v, i in pairs]

    indexed = [(indices, i) for (_, indices), i in zip(cases, places, strict=True)]
    results = compute(make, *((name, table) for table in tables), *indexed)
    for result, table, i in zip(results, tables, places, strict=True):
        wanted = table[np.clip(i.astype(object), 0, len(table) - 1).astype(np.intp)]
        np.testing.assert_array_equal(as_bytes(result), as_bytes(wanted))


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS, *COMPLEX, "f4e2m1fn", "f8e8m0fnu"])
def test_scatter_combines_in_every_element_type(name: str) -> None:
    """Duplicates are combined in their order, and small floats are rounded after each addition."""
    dtype = element_type(name).dtype
    rng = RNG(3)
    x = (rng.integers(1, 4, 5) if name != "f8e8m0fnu" else np.ones(5)).astype(dtype)
    updates = rng.integers(1, 3, 12).astype(dtype)
    places = rng.integers(0, 5, 12).astype(np.int32)
    numbers = Scatter((), (0,), (0,), 1)
    (result,) = compute(
        lambda v, i, u: sx.scatter(v, i, u, sx.add, dimension_numbers=numbers),
        *((name, x), ("s32", places), (name, updates)),
        oracle="xla" if name in COMPLEX else "interpreter",
    )
    add = np.add if element_type(name).bits >= 32 else lambda a, b: (np.float32(a) + np.float32(b)).astype(dtype)
    if element_type(name).is_integer:
        add = wrapping(name)
    assert_same(result, scattered(x, places, updates, add, numbers))


def wrapping(name: str) -> Callable[[Any, Any], Any]:
    type_ = element_type(name)

    def add(a: Any, b: Any) -> Any:
        total = (int(a) + int(b)) % (1 << type_.bits)
        negative = type_.is_signed and total >= 1 << (type_.bits - 1)
        return np.asarray(total - (1 << type_.bits) if negative else total).astype(type_.dtype)

    return add


def test_scatter_of_pred() -> None:
    x, updates = np.array([True, False, True, False]), np.array([False, True, True])
    places, numbers = np.array([0, 1, 0], np.int32), Scatter((), (0,), (0,), 1)
    make = lambda b, v, i, u: [sx.scatter(v, i, u, f, dimension_numbers=numbers) for f in (sx.and_, sx.or_, sx.xor)]  # noqa: E731
    run(
        make,
        x,
        places,
        updates,
        against=["xla"],
        expected=[[False, False, True, False], [True, True, True, False], [False, True, True, False]],
    )


def test_scatter_into_a_wider_type() -> None:
    """The region's type is the result's, as in a sum of bf16 in f32."""
    b = sx.XlaBuilder("sum")
    total = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
    x, updates = np.ones(3, ml_dtypes.bfloat16), np.full(400, 1.0, ml_dtypes.bfloat16)
    places, numbers = np.arange(400, dtype=np.int32) % 2, Scatter((), (0,), (0,), 1)
    (result,) = compute(
        lambda v, i, u: sx.scatter(v, i, u, total, dimension_numbers=numbers),
        ("bf16", x),
        ("s32", places),
        ("bf16", updates),
    )
    assert_same(result, np.float32([201, 201, 1]))


# ---- index types ----------------------------------------------------------------------------------------------------


def hard_indices(name: str) -> np.ndarray:
    """The type's extremes, numbers around the ends of a dimension of 6, and what wraps around to one inside."""
    type_ = element_type(name)
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = low + (1 << type_.bits) - 1
    wanted = [low, low + 1, low + 2, high, high - 1, -1, 0, 1, 2, 5, 6, 7, high // 2, high // 2 + 1, high // 2 + 3]
    wanted += [(1 << 32) + 2, -(1 << 32) + 1, (1 << 31) + 1, 1 << 63]
    return np.array([n for n in wanted if low <= n <= high], object).astype(type_.dtype)


@pytest.mark.parametrize("name", [t.name for t in ELEMENT_TYPES if t.is_integer])
def test_every_index_type(name: str) -> None:
    """Compared with the definition: the interpreter takes an unsigned index above the signed maximum for a negative
    one, and XLA:CPU has not all of these types."""
    places = hard_indices(name)
    x, updates = np.arange(6, dtype=np.int32), np.arange(1, len(places) + 1, dtype=np.int32) * 100
    pairs = np.stack([updates, updates + 7], 1)
    for_one, for_two = Gather((), (0,), (0,), 1), Gather((1,), (), (0,), 1)
    into_one, into_two = Scatter((), (0,), (0,), 1), Scatter((1,), (), (0,), 1)

    def make(v: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp, p: sx.XlaOp) -> list[sx.XlaOp]:
        table = sx.broadcast_in_dim(v, (3, 6), (1,))
        return [
            sx.gather(v, i, dimension_numbers=for_one, slice_sizes=(1,)),
            sx.gather(v, i, dimension_numbers=for_two, slice_sizes=(2,)),
            sx.gather(table, i, dimension_numbers=Gather((0,), (1,), (1,), 1), slice_sizes=(3, 1)),
            sx.scatter(v, i, u, sx.add, dimension_numbers=into_one),
            sx.scatter(v, i, p, sx.add, dimension_numbers=into_two),
        ]

    results = compute(make, ("s32", x), (name, places), ("s32", updates), ("s32", pairs))
    one, two = gathered(x, places, for_one, (1,)), gathered(x, places, for_two, (2,))
    expected = [one, two, np.stack([one] * 3)]
    expected += [scattered(x, places, u, np.add, n) for u, n in ((updates, into_one), (pairs, into_two))]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("name", ["s2", "u2", "s4", "u4", "s8"])
def test_many_updates_at_short_indices(name: str) -> None:
    """On both sides of where indices are read in vectors."""
    x, numbers = np.arange(6, dtype=np.int32), Scatter((), (0,), (0,), 1)
    places = [np.resize(hard_indices(name), count) for count in (MANY() - 1, MANY(), MANY() + 1)]
    updates = [np.arange(len(p), dtype=np.int32) for p in places]

    def make(v: sx.XlaOp, *given: sx.XlaOp) -> list[sx.XlaOp]:
        pairs = zip(given[:3], given[3:], strict=True)
        return [sx.scatter(v, i, u, sx.add, dimension_numbers=numbers) for i, u in pairs]

    results = compute(make, ("s32", x), *((name, p) for p in places), *(("s32", u) for u in updates))
    for result, p, u in zip(results, places, updates, strict=True):
        np.testing.assert_array_equal(result, scattered(x, p, u, np.add, numbers))


@pytest.mark.parametrize("name", [t.name for t in ELEMENT_TYPES if t.is_integer])
def test_dynamic_slices_with_every_index_type(name: str) -> None:
    x, update = np.arange(6, dtype=np.int32), np.array([-1, -2], np.int32)
    starts = hard_indices(name)

    def make(v: sx.XlaOp, u: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        slices = [sx.dynamic_slice(v, i[k : k + 1], (2,)) for k in range(len(starts))]
        return [sx.concatenate(slices, 0), *(sx.dynamic_update_slice(v, u, i[k : k + 1]) for k in range(len(starts)))]

    read, *written = compute(make, ("s32", x), ("s32", update), (name, starts))
    held = [min(max(int(i), 0), 4) for i in starts]
    np.testing.assert_array_equal(read, np.concatenate([x[i : i + 2] for i in held]))
    for result, i in zip(written, held, strict=True):
        np.testing.assert_array_equal(result, [*x[:i], -1, -2, *x[i + 2 :]])


def test_a_gather_of_many_from_a_small_table_by_batches() -> None:
    """The table's only dimension is a batching dimension: there is nothing to look up."""
    table, indices = np.arange(8, dtype=np.int32), np.zeros((8, 1024, 0), np.int32)
    numbers = Gather((), (), (), 2, (0,), (0,))
    (result,) = compute(
        lambda v, i: [sx.gather(v, i, dimension_numbers=numbers, slice_sizes=(1,))], ("s32", table), ("s32", indices)
    )
    np.testing.assert_array_equal(result, np.repeat(table, 1024).reshape(8, 1024))


def test_slices_of_no_elements_are_read_inside() -> None:
    """A collapsed dimension may have slices of size 0, as which an element is read: the last one at most."""
    x, rows = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([-1, 1, 3, 2], np.int32)
    numbers = Gather((1,), (0,), (0,), 1)
    (result,) = compute(
        lambda v, i: [sx.gather(v, i, dimension_numbers=numbers, slice_sizes=(0, 3))], ("s32", x), ("s32", rows)
    )
    np.testing.assert_array_equal(result, x[[0, 1, 1, 1]])
