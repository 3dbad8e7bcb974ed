"""gather, scatter and their like, and dynamic slices with hard indices.

Oracles: the definitions written out in numpy below, the reference interpreter, and XLA:CPU. Where an update's window
lies partly outside, XLA:CPU leaves all of it out; the specification speaks of single elements, and so does the
interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import ELEMENT_TYPES, element_type
from tests.comparison import assert_same
from tests.ops.samples import COMPLEX, FLOATS, INTEGERS, sample
from tests.programs import check, run

Gather, Scatter = sx.GatherDimensionNumbers, sx.ScatterDimensionNumbers
ALL_TYPES = [t.name for t in ELEMENT_TYPES]
RNG = np.random.default_rng


# ---- the definitions ------------------------------------------------------------------------------------------------


def index_vector(indices: np.ndarray, at: tuple[int, ...], vector_dim: int) -> list[int]:
    if vector_dim == indices.ndim:
        return [int(indices[at])]
    place = (*at[:vector_dim], slice(None), *at[vector_dim:])
    return [int(i) for i in indices[place]]


def batching_index(at: tuple[int, ...], vector_dim: int, operand_dims: Any, index_dims: Any) -> dict[int, int]:
    return {d: at[by - (by > vector_dim)] for d, by in zip(operand_dims, index_dims, strict=True)}


def gathered(operand: np.ndarray, indices: np.ndarray, numbers: Gather, sizes: tuple[int, ...]) -> np.ndarray:
    """Gather, element by element."""
    left_out = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    in_slice = [d for d in range(operand.ndim) if d not in left_out]
    others = [n for d, n in enumerate(indices.shape) if d != numbers.index_vector_dim]
    rank = len(others) + len(in_slice)
    batch = [d for d in range(rank) if d not in numbers.offset_dims]
    shape = [0] * rank
    for d, n in zip(batch, others, strict=True):
        shape[d] = n
    for d, by in zip(numbers.offset_dims, in_slice, strict=True):
        shape[d] = sizes[by]
    result = np.zeros(shape, operand.dtype)
    for at in np.ndindex(*shape):
        group = tuple(at[d] for d in batch)
        place = [0] * operand.ndim
        vector = index_vector(indices, group, numbers.index_vector_dim)
        for number, d in zip(vector, numbers.start_index_map, strict=True):
            place[d] = min(max(number, 0), operand.shape[d] - sizes[d])
        together = (numbers.operand_batching_dims, numbers.start_indices_batching_dims)
        for d, i in batching_index(group, numbers.index_vector_dim, *together).items():
            place[d] += i
        for d, by in zip(numbers.offset_dims, in_slice, strict=True):
            place[by] += at[d]
        result[at] = operand[tuple(place)]
    return result


def scattered(
    operand: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    combine: Callable[[Any, Any], Any],
    numbers: Scatter,
) -> np.ndarray:
    """Scatter, update by update in their order."""
    result = operand.copy()
    left_out = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    in_window = [d for d in range(operand.ndim) if d not in left_out]
    for at in np.ndindex(*updates.shape):
        group = tuple(i for d, i in enumerate(at) if d not in numbers.update_window_dims)
        place = [0] * operand.ndim
        vector = index_vector(indices, group, numbers.index_vector_dim)
        for number, d in zip(vector, numbers.scatter_dims_to_operand_dims, strict=True):
            place[d] = number
        together = (numbers.input_batching_dims, numbers.scatter_indices_batching_dims)
        for d, i in batching_index(group, numbers.index_vector_dim, *together).items():
            place[d] += i
        for d, by in zip(numbers.update_window_dims, in_window, strict=True):
            place[by] += at[d]
        if all(0 <= i < n for i, n in zip(place, operand.shape, strict=True)):
            result[tuple(place)] = combine(result[tuple(place)], updates[at])
    return result


# ---- any dimension numbers ------------------------------------------------------------------------------------------


def draw_dimensions(rng: np.random.Generator) -> tuple[tuple[int, ...], list[int], list[int], list[int]]:
    """Operand sizes, and its dimensions as batching ones, ones left out of slices, and ones that indices point into."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, 6, rank))
    order = [int(d) for d in rng.permutation(rank)]
    batching = sorted(order[: rng.integers(0, 2)])
    rest = [d for d in order if d not in batching]
    left_out = sorted(d for d in rest if rng.random() < 0.4)
    pointed = [d for d in rest if rng.random() < 0.7]
    return shape, batching, left_out, pointed


def draw_indices(
    rng: np.random.Generator, shape: tuple[int, ...], batching: list[int], pointed: list[int]
) -> tuple[np.ndarray, int, tuple[int, ...]]:
    """Indices of some of which point outside, the dimension of the vectors, and the indices' batching dimensions."""
    others = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))]
    sizes = others + [shape[d] for d in batching]
    order = rng.permutation(len(sizes))
    sizes = [sizes[i] for i in order]
    by = [int(np.flatnonzero(order == len(others) + i)[0]) for i in range(len(batching))]
    vector_dim = int(rng.integers(0, len(sizes) + 1))
    if len(pointed) == 1 and rng.random() < 0.5:
        return rng.integers(-3, 8, sizes), len(sizes), tuple(by)
    sizes.insert(vector_dim, len(pointed))
    return rng.integers(-3, 8, sizes), vector_dim, tuple(d + (d >= vector_dim) for d in by)


def placed_among(rng: np.random.Generator, count: int, total: int) -> tuple[int, ...]:
    return tuple(sorted(int(d) for d in rng.permutation(total)[:count]))


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
    run(lambda b, v, i: sx.gather(v, i, numbers, sizes), x, indices, against=against, expected=[expected])


def draw_scatter(rng: np.random.Generator, *, partly: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, Scatter]:
    shape, batching, inserted, pointed = draw_dimensions(rng)
    indices, vector_dim, by = draw_indices(rng, shape, batching, pointed)
    one = {*batching, *inserted}
    in_window = [d for d in range(len(shape)) if d not in one]
    # A window that no index moves may have any size; one that is moved lies partly outside sometimes.
    limits = [shape[d] if partly or d not in pointed else 1 for d in in_window]
    window = [int(rng.integers(1, n + 1)) for n in limits]
    groups = [n for d, n in enumerate(indices.shape) if d != vector_dim]
    dims = placed_among(rng, len(window), len(groups) + len(window))
    sizes, of_window = iter(groups), iter(window)
    update_shape = [next(of_window) if d in dims else next(sizes) for d in range(len(groups) + len(window))]
    numbers = Scatter(dims, inserted, pointed, vector_dim, batching, by)
    x = rng.integers(-50, 50, shape).astype(np.int32)
    return x, indices, rng.integers(-50, 50, update_shape).astype(np.int32), numbers


@pytest.mark.parametrize("seed", range(40))
def test_scatter_of_any_dimension_numbers(seed: int) -> None:
    rng = RNG(seed)
    partly = seed % 2 == 0
    x, indices, updates, numbers = draw_scatter(rng, partly=partly)
    expected = scattered(x, indices, updates, lambda a, u: a - u, numbers)
    run(
        lambda b, v, i, u: sx.scatter(v, i, u, sx.sub, numbers),
        *(x, indices, updates),
        # XLA:CPU combines but one of several updates when index vectors have no numbers.
        against=["interpreter"] if partly or not numbers.scatter_dims_to_operand_dims else ["interpreter", "xla"],
        expected=[expected],
    )


# ---- what the specifications print ----------------------------------------------------------------------------------


def counted(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape).astype(dtype)


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
    make = lambda b, x, i: sx.gather(x, i, numbers, (1, 1, 2, 2))  # noqa: E731
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
    make = lambda b, x, i, u: sx.scatter(x, i, u, sx.add, numbers)  # noqa: E731
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
        lambda b, v, i: sx.gather(v, i, numbers, (8, 6)),
        *(x, indices),
        expected=[np.stack([x[i : i + 8, j : j + 6] for i, j in indices.reshape(-1, 2)]).reshape(*groups, 8, 6)],
    )


def test_gather_nd_as_the_description_has_it() -> None:
    """Whole rows [1,11] of [16,11] for indices [4,5,1]: the result is [4,5,11]."""
    x, indices = counted(16, 11), RNG(0).integers(0, 16, (4, 5, 1))
    numbers = Gather((2,), (0,), (0,), 2)
    run(lambda b, v, i: sx.gather(v, i, numbers, (1, 11)), x, indices, expected=[x[indices[..., 0]]])


# ---- element types --------------------------------------------------------------------------------------------------


def compute(make: Callable[..., Any], *arguments: tuple[str, np.ndarray]) -> list[np.ndarray]:
    """Runs a program on arrays of named element types."""
    b = sx.XlaBuilder("test")
    parameters = [b.parameter(i, sx.Shape(name, a.shape)) for i, (name, a) in enumerate(arguments)]
    root = make(*parameters)
    program = b.build(sx.tuple(root) if isinstance(root, list) else root)
    return sx.compile(program).execute([a for _, a in arguments])


def as_bytes(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array)
    return flat.reshape(*flat.shape, 1).view(np.uint8)


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_element_type_is_gathered_and_scattered_unchanged(name: str) -> None:
    x, updates = sample(name, 24).reshape(6, 4), sample(name, 12, 5).reshape(3, 4)
    rows = np.array([4, -7, 2], np.int32)

    def make(v: sx.XlaOp, u: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        overwrite = lambda there, new: new  # noqa: E731
        return [
            sx.gather(v, i, Gather((1,), (0,), (0,), 1), (1, 4)),
            sx.scatter(v, i, u, overwrite, Scatter((1,), (0,), (0,), 1)),
        ]

    read, written = compute(make, (name, x), (name, updates), ("s32", rows))
    np.testing.assert_array_equal(as_bytes(read), as_bytes(x[[4, 0, 2]]))
    expected = x.copy()
    expected[4], expected[2] = updates[0], updates[2]
    np.testing.assert_array_equal(as_bytes(written), as_bytes(expected))


ADDED = [name for name in (*INTEGERS, *FLOATS, *COMPLEX) if name != "u4"]


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
        lambda v, i, u: sx.scatter(v, i, u, sx.add, numbers), (name, x), ("s32", places), (name, updates)
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
    make = lambda b, v, i, u: [sx.scatter(v, i, u, f, numbers) for f in (sx.and_, sx.or_, sx.xor)]  # noqa: E731
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
        lambda v, i, u: sx.scatter(v, i, u, total, numbers), ("bf16", x), ("s32", places), ("bf16", updates)
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
            sx.gather(v, i, for_one, (1,)),
            sx.gather(v, i, for_two, (2,)),
            sx.gather(table, i, Gather((0,), (1,), (1,), 1), (3, 1)),
            sx.scatter(v, i, u, sx.add, into_one),
            sx.scatter(v, i, p, sx.add, into_two),
        ]

    results = compute(make, ("s32", x), (name, places), ("s32", updates), ("s32", pairs))
    one, two = gathered(x, places, for_one, (1,)), gathered(x, places, for_two, (2,))
    expected = [one, two, np.stack([one] * 3)]
    expected += [scattered(x, places, u, np.add, n) for u, n in ((updates, into_one), (pairs, into_two))]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


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


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_no_indices() -> None:
    x, none = counted(4, 3), np.zeros((0, 1), np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, Gather((1,), (0,), (0,), 1), (1, 3)),
        sx.scatter(v, i, u, sx.add, Scatter((1,), (0,), (0,), 1)),
    ]
    run(make, x, none, np.zeros((0, 3), np.int32), expected=[np.zeros((0, 3), np.int32), x])


def test_index_vectors_of_no_numbers() -> None:
    """Every slice starts at 0, and every update too."""
    x, none, updates = counted(3), np.zeros((2, 0), np.int32), np.array([[10, 20], [30, 40]], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, Gather((1,), (), (), 1), (2,)),
        sx.scatter(v, i, u, sx.add, Scatter((1,), (), (), 1)),
    ]
    run(make, x, none, updates, against=["interpreter"], expected=[np.int32([[1, 2], [1, 2]]), np.int32([41, 62, 3])])


def test_slices_of_nothing() -> None:
    x, places = counted(4, 3), np.array([1, 9], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, Gather((1,), (0,), (0,), 1), (1, 0)),
        sx.gather(v, i, Gather((1, 2), (), (0,), 1), (0, 3)),
        sx.scatter(v, i, u, sx.add, Scatter((1,), (0,), (0,), 1)),
    ]
    expected = [np.zeros((2, 0), np.int32), np.zeros((2, 0, 3), np.int32), x]
    run(make, x, places, np.zeros((2, 0), np.int32), against=["interpreter"], expected=expected)


def test_operands_of_nothing() -> None:
    x, places = np.zeros((0, 3), np.int32), np.array([[0], [1]], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, Gather((1, 2), (), (0,), 1), (0, 3)),
        sx.scatter(v, i, u, sx.add, Scatter((1,), (0,), (0,), 1)),
    ]
    run(make, x, places, counted(2, 3), against=[], expected=[np.zeros((2, 0, 3), np.int32), x])


def test_scalars() -> None:
    """A scalar as the operand, the index, the result, the update."""
    x, place, update = counted(4), np.int32(2), np.int32(50)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> list[sx.XlaOp]:
        none = b.constant(np.zeros((3, 0), np.int32))
        return [
            sx.gather(v, i, Gather((), (0,), (0,), 0), (1,)),
            sx.gather(v, i, Gather((0,), (), (0,), 0), (2,)),
            sx.gather(u, none, Gather((), (), (), 1), ()),
            sx.scatter(v, i, u, sx.add, Scatter((), (0,), (0,), 0)),
            sx.scatter(u, none, sx.broadcast(i, (3,)), sx.add, Scatter((), (), (), 1)),
        ]

    expected = [np.int32(3), np.int32([3, 4]), np.int32([50] * 3), np.int32([1, 2, 53, 4]), np.int32(56)]
    run(make, x, place, update, against=["interpreter"], expected=expected)


def test_rank_six() -> None:
    x, indices = counted(2, 1, 3, 2, 2, 3), RNG(0).integers(-1, 4, (2, 2, 3))
    gather_numbers = Gather((1, 2, 4, 5), (1, 3), (0, 2, 4), 2)
    sizes = (1, 1, 2, 1, 2, 3)
    scatter_numbers = Scatter((1, 2, 4, 5), (1, 3), (0, 2, 4), 2)
    updates = counted(2, 2, 2, 2, 1, 3)
    expected = [
        gathered(x, indices, gather_numbers, sizes),
        scattered(x, indices, updates, np.add, scatter_numbers),
    ]
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, gather_numbers, sizes),
        sx.scatter(v, i, u, sx.add, scatter_numbers),
    ]
    run(make, x, indices, updates, against=["interpreter"], expected=expected)


def test_repeated_scalars_as_operands() -> None:
    """A splat of indices, of updates and of what is changed."""

    def make(b: sx.XlaBuilder, s: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        places, zeros = sx.broadcast(i, (5, 1)), sx.broadcast(b.constant(0), (4, 2))
        rows = sx.gather(zeros + 3, places, Gather((1,), (0,), (0,), 1), (1, 2))
        return [rows, sx.scatter(zeros, places, sx.broadcast(s, (5, 2)), sx.add, Scatter((1,), (0,), (0,), 1))]

    expected = np.zeros((4, 2), np.int32)
    expected[1] = 35
    run(make, np.int32(7), np.int32(1), expected=[np.full((5, 2), 3, np.int32), expected])


def test_two_operands() -> None:
    """The largest value that met each place, and who brought it."""

    def larger(best: sx.XlaOp, who: sx.XlaOp, value: sx.XlaOp, number: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
        better = value > best
        return sx.select(better, value, best), sx.select(better, number, who)

    rng = RNG(1)
    values, places = rng.normal(size=40).astype(np.float32), rng.integers(-1, 6, 40).astype(np.int64)
    numbers = Scatter((), (0,), (0,), 1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        start = sx.broadcast(b.constant(-np.inf, "f32"), (5,)), sx.broadcast(b.constant(-1), (5,))
        best, who = sx.scatter(start, i, (v, b.iota(sx.s32[40], 0)), larger, numbers)
        return [best, who]

    who = [max((k for k in range(40) if places[k] == p), key=lambda k: values[k]) for p in range(5)]
    run(make, values, places, expected=[values[who], np.int32(who)])


def test_computations_that_look_at_one_argument() -> None:
    x, places, updates = counted(5), np.array([3, 3, 0, 9], np.int32), np.array([10, 20, 30, 40], np.int32)
    numbers = Scatter((), (0,), (0,), 1)
    results = [lambda a, u: u, lambda a, u: a, lambda a, u: a.builder.constant(7)]
    make = lambda b, v, i, u: [sx.scatter(v, i, u, f, numbers) for f in results]  # noqa: E731
    # The last of several updates stays: XLA:CPU and the interpreter take them in their order, too.
    expected = [[30, 2, 3, 20, 5], [1, 2, 3, 4, 5], [7, 2, 3, 7, 5]]
    run(make, x, places, updates, against=["xla"], expected=np.int32(expected))
    run(
        lambda b, v, i, u: sx.scatter(v, i, u, results[0], numbers), x, places, updates, expected=np.int32(expected[:1])
    )


def test_an_operand_that_is_used_again_keeps_its_elements() -> None:
    x, places = counted(5), np.array([1, 1], np.int32)
    numbers = Scatter((), (0,), (0,), 1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        y = v * 2
        changed = sx.scatter(y, i, y[0:2], sx.add, numbers)
        return [changed, y, sx.gather(changed, i, Gather((), (0,), (0,), 1), (1,))]

    expected = [[2, 10, 6, 8, 10], [2, 4, 6, 8, 10], [10, 10]]
    run(make, x, places, against=["xla"], expected=[np.int32(e) for e in expected])


def test_the_flags_change_nothing_that_holds_to_them() -> None:
    x, places, updates = counted(6, 2), np.array([0, 2, 5], np.int32), counted(3, 2) * 10
    g, s = Gather((1,), (0,), (0,), 1), Scatter((1,), (0,), (0,), 1)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, g, (1, 2), indices_are_sorted=True),
        sx.scatter(v, i, u, sx.add, s, indices_are_sorted=True, unique_indices=True),
    ]
    run(make, x, places, updates, expected=[x[places], scattered(x, places, updates, np.add, s)])


# ---- large ones, which several threads share ------------------------------------------------------------------------


def test_many_rows() -> None:
    rng = RNG(2)
    x, places = rng.normal(size=(500, 33)).astype(np.float32), rng.integers(-5, 505, 20_000).astype(np.int32)
    rows = np.clip(places, 0, 499)
    run(
        lambda b, v, i: [
            sx.gather(v, i, Gather((1,), (0,), (0,), 1), (1, 33)),
            sx.gather(v, i, Gather((0,), (0,), (0,), 1), (1, 33)),
        ],
        *(x, places),
        against=["xla"],
        expected=[x[rows], x[rows].T],
    )


def test_many_updates() -> None:
    """Batched and unique ones are shared between threads; others are not, and come in their order."""
    rng = RNG(4)
    x = rng.normal(size=(8, 4000)).astype(np.float32)
    updates = rng.normal(size=(8, 5000)).astype(np.float32)
    places = rng.integers(0, 4000, (8, 5000)).astype(np.int32)
    order = rng.permutation(4000).astype(np.int32)
    batched, single = Scatter((), (1,), (1,), 2, (0,), (0,)), Scatter((), (0,), (0,), 1)
    expected = x.copy()
    for row, i, u in zip(expected, places, updates, strict=True):
        np.add.at(row, i, u)
    run(
        lambda b, v, i, u, o: [
            sx.scatter(v, i, u, sx.add, batched),
            sx.scatter(v[0], o, v[1], lambda a, n: n, single, unique_indices=True),
            sx.scatter(v[0], i[0], u[0], sx.add, single),
        ],
        *(x, places, updates, order),
        against=["xla"],
        expected=[expected, x[1][np.argsort(order)], expected[0]],
    )


def test_a_loop_changes_what_it_carries_in_place() -> None:
    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, x, rows = state
        place = sx.reshape(number, (1, 1))
        x = sx.scatter(x, place, rows, sx.add, Scatter((1,), (0,), (0,), 1))
        x = sx.dynamic_update_slice(x, rows * 2.0, (number + 1, 0))
        return sx.tuple((number + 1, x, rows))

    b = sx.XlaBuilder("test")
    x, rows = b.parameter(0, sx.f32[64, 8]), b.parameter(1, sx.f32[1, 8])
    loop = sx.while_(lambda s: s[0] < 63, step, sx.tuple((b.constant(0), x, rows)))
    executable = sx.compile(b.build(loop[1]))
    text = executable.ir("buffers")
    main = text[text.index("func.func public @main") :]
    assert "memref.copy" not in main[main.index("scf.while") :]
    given, row = counted(64, 8, dtype=np.float32), counted(1, 8, dtype=np.float32)
    np.testing.assert_array_equal(executable(given, row), np.concatenate([given[:1] + row, *[row * 3] * 62, row * 2]))


# ---- other ways to say it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
def test_torch_index_select(dim: int, batch: int) -> None:
    x = counted(2, 3, 4, dtype=np.float32)
    places = RNG(0).integers(0, x.shape[dim], (*x.shape[:batch], 5)).astype(np.int32)
    expected = (
        np.take(x, places, dim)
        if not batch
        else np.stack([np.take(x[at], places[at], dim - batch) for at in np.ndindex(*x.shape[:batch])])
    )
    expected = expected.reshape(*x.shape[:dim], 5, *x.shape[dim + 1 :])
    run(lambda b, v, i: sx.torch_index_select(v, i, dim, batch), x, places, against=[], expected=[expected])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_torch_gather(dim: int) -> None:
    x = counted(3, 4, 5, dtype=np.float32)
    places = RNG(0).integers(0, x.shape[dim], (2, 3, 4))
    small = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(places.shape))]
    expected = np.take_along_axis(small, places, dim)
    run(lambda b, v, i: sx.torch_gather(v, i, dim), x, places, expected=[expected])


def test_a_dynamic_gather_of_known_sizes() -> None:
    text = """
    func.func public @main(%x: tensor<4x6xf32>, %i: tensor<3x1xi32>) -> tensor<3x2x6xf32> {
      %sizes = stablehlo.constant dense<[2, 6]> : tensor<2xi32>
      %0 = "stablehlo.dynamic_gather"(%x, %i, %sizes) {
        dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1>
      } : (tensor<4x6xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x2x6xf32>
      return %0 : tensor<3x2x6xf32>
    }
    """
    x, places = counted(4, 6, dtype=np.float32), np.array([[1], [9], [-1]], np.int32)
    expected = np.stack([x[i : i + 2] for i in (1, 2, 0)])
    check(text, [x, places], against=["interpreter"], expected=[expected])


def test_gathers_in_reductions_of_their_results() -> None:
    """What reads a gather, and what makes its operand, are kernels of their own."""
    x, places = RNG(0).normal(size=(9, 5)).astype(np.float32), np.array([8, 0, 3, 3], np.int32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        rows = sx.gather(sx.exp(v), i + 1, Gather((1,), (0,), (0,), 1), (1, 5))
        return sx.reduce(rows * 2.0, b.constant(0.0), sx.add, (1,))

    expected = (np.exp(x.astype(np.float64))[[8, 1, 4, 4]] * 2).sum(1).astype(np.float32)
    run(make, x, places, against=[], expected=[expected], ulp=4)
