"""Gathers and scatters with every kind of dimension numbers; indices may be out of bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tests.fuzz.program import Dims, Value, tensor
from tests.fuzz.writer import COARSE, Writer, family

indexing = family("indexing")


@dataclass(frozen=True)
class Numbers:
    """How slices of an array and an array of indices go together.

    Attributes:
        indices: the array of indices.
        mapped: the operand's dimensions that the parts of an index vector are for.
        batch: pairs of batching dimensions, of the operand and of the indices.
        vector: the dimension of the indices that holds a vector; their rank where it is left out.
        sizes: the size of a slice in each dimension of the operand.
        collapsed: its dimensions that are left out of the result.
        batches: the extents of the indices without the vectors.
    """

    indices: Value
    mapped: list[int]
    batch: list[tuple[int, int]]
    vector: int
    sizes: list[int]
    collapsed: list[int]
    batches: list[int]


def draw_numbers(w: Writer, x: Value) -> Numbers | None:
    """Dimension numbers for slices of x, with indices that are drawn to fit."""
    rank = len(x.shape)
    places = list(range(rank))
    w.random.shuffle(places)
    batch_dims = places[: w.chance(0.25)] if rank > 1 else []
    mapped = places[len(batch_dims) :][: w.random.randint(1, 2)]
    extents = [w.random.randint(1, 4) for _ in range(w.random.randint(0, 2))]
    for place in batch_dims:
        extents.insert(w.random.randint(0, len(extents)), x.shape[place])
    batch = [(place, extents.index(x.shape[place])) for place in batch_dims]
    vector = w.random.randint(0, len(extents))
    shape = (*extents[:vector], len(mapped), *extents[vector:])
    if len(mapped) == 1 and vector == len(extents) and w.chance(0.4):
        shape = tuple(extents)
    batch = [(p, i + (i >= vector and len(shape) > len(extents))) for p, i in batch]
    sizes = [1 if i in batch_dims else w.random.randint(min(1, d), d) for i, d in enumerate(x.shape)]
    if any(not x.shape[i] for i in batch_dims):
        return None
    collapsed = [i for i in range(rank) if sizes[i] == 1 and i not in batch_dims and w.chance(0.6)]
    element = w.random.choice(["i32", "i32", "i64", "ui8"])
    indices = _indices(w, shape, element)
    return Numbers(indices, mapped, batch, vector, sizes, collapsed, extents)


def _indices(w: Writer, shape: Dims, element: str) -> Value:
    """A value of that type, or numbers some of which are out of bounds."""
    found = w.pick(lambda v: v.shape == shape and v.element == element)
    if found is not None:
        return found
    count = prod(shape)
    numbers = [w.random.randint(0 if element == "ui8" else -1, 6) for _ in range(count)]
    flat = f"stablehlo.constant dense<{numbers}> : {tensor((count,), element)}"
    made = w.emit(flat, (count,), element)
    return w.emit(f"stablehlo.reshape {made.name} : ({made.type}) -> {tensor(shape, element)}", shape, element)


def _interleaved(w: Writer, batches: list[int], offsets: list[int]) -> tuple[list[int], list[int]]:
    """A shape that holds both in their orders, and where the offsets stand."""
    rank = len(batches) + len(offsets)
    places = sorted(w.random.sample(range(rank), len(offsets)))
    left, right = iter(offsets), iter(batches)
    return [next(left) if i in places else next(right) for i in range(rank)], places


@indexing.statement(1.2)
def gather(w: Writer) -> Value | None:
    x = w.pick(lambda v: prod(v.shape) > 0, least_rank=1)
    n = draw_numbers(w, x) if x is not None else None
    if x is None or n is None:
        return None
    skipped = [*n.collapsed, *(p for p, _ in n.batch)]
    made, offset = _interleaved(w, n.batches, [s for i, s in enumerate(n.sizes) if i not in skipped])
    if prod(made) > 4000 or len(made) > 6:
        return None
    batching = ""
    if n.batch:
        operand, indices = [p for p, _ in n.batch], [i for _, i in n.batch]
        batching = f"operand_batching_dims = {operand}, start_indices_batching_dims = {indices}, "
    numbers = (
        f"offset_dims = {offset}, collapsed_slice_dims = {n.collapsed}, {batching}start_index_map = {n.mapped},"
        f" index_vector_dim = {n.vector}"
    )
    return w.emit(
        f'"stablehlo.gather"({x.name}, {n.indices.name}) {{dimension_numbers = #stablehlo.gather<{numbers}>,'
        f" slice_sizes = array<i64: {', '.join(map(str, n.sizes))}>, indices_are_sorted = false}}"
        f" : ({x.type}, {n.indices.type}) -> {tensor(tuple(made), x.element)}",
        tuple(made),
        x.element,
    )


@indexing.statement(1.2)
def scatter(w: Writer) -> Value | None:
    """Several updates of one element are combined by an operation for which their order does not matter."""
    x = w.pick(lambda v: prod(v.shape) > 0 and not v.is_complex, least_rank=1)
    n = draw_numbers(w, x) if x is not None else None
    if x is None or n is None:
        return None
    names = _combiners(w, x)
    if not names:
        return None
    skipped = [*n.collapsed, *(p for p, _ in n.batch)]
    shape, window = _interleaved(w, n.batches, [s for i, s in enumerate(n.sizes) if i not in skipped])
    if prod(shape) > 4000 or len(shape) > 6:
        return None
    updates = w.ready(w.of_type(tuple(shape), x.element))
    x = w.ready(x)
    batching = ""
    if n.batch:
        operand, indices = [p for p, _ in n.batch], [i for _, i in n.batch]
        batching = f"input_batching_dims = {operand}, scatter_indices_batching_dims = {indices}, "
    region = w.scalar_region(w.random.choice(names), x.element)
    return w.emit(
        f'"stablehlo.scatter"({x.name}, {n.indices.name}, {updates.name}) {region}'
        f" {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {window},"
        f" inserted_window_dims = {n.collapsed}, {batching}scatter_dims_to_operand_dims = {n.mapped},"
        f" index_vector_dim = {n.vector}>, indices_are_sorted = false, unique_indices = false}}"
        f" : ({x.type}, {n.indices.type}, {updates.type}) -> {x.type}",
        x.shape,
        x.element,
    )


def _combiners(w: Writer, x: Value) -> list[str]:
    if x.element == "i1":
        return ["and", "or"]
    if not x.is_float:
        return ["add", "maximum", "minimum", "multiply", "or"]
    return ["maximum", "minimum", "add"] if not (w.whole and x.element in COARSE) else ["maximum", "minimum"]
