"""What the tests of gather and scatter share: the definitions written out in numpy, and programs drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from tests.programs import check

Gather, Scatter = sx.GatherDimensionNumbers, sx.ScatterDimensionNumbers
RNG = np.random.default_rng


def counted(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape).astype(dtype)


def compute(make: Callable[..., Any], *arguments: tuple[str, np.ndarray], oracle: str = "") -> list[np.ndarray]:
    """Runs a program on arrays of named element types; the oracle must give the same."""
    b = sx.XlaBuilder("test")
    parameters = [b.parameter(i, sx.Shape(name, a.shape)) for i, (name, a) in enumerate(arguments)]
    root = make(*parameters)
    program = b.build(sx.tuple(root) if isinstance(root, list) else root)
    return check(program, [a for _, a in arguments], against=[oracle] if oracle else [])


def as_bytes(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array)
    return flat.reshape(*flat.shape, 1).view(np.uint8)


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


# ---- drawn at random -------------------------------------------------------------------------------------------------


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
