"""Scatter and SelectAndScatter as sequential loops that combine elements into an array."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects import hlo
from stablexla.dialects.attributes.index_numbers import ScatterDimensionNumbers
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.tensor_types import row_major
from stablexla.targets.stablehlo.computations.element_loops import (
    Values,
    add,
    apply,
    arithmetic,
    below,
    element,
    index,
    line,
    loop,
    place,
    replaced,
    select,
    where,
)
from stablexla.targets.stablehlo.computations.folds import padded, window_axes
from stablexla.targets.stablehlo.computations.registry import expands


@expands("stablehlo.scatter")
def scatter(op: Any) -> Values:
    """Expand to a loop over index vectors in row-major order and their windows; out-of-bounds windows are skipped."""
    count = len(op.results)
    lines = [line(hlo.convert(x, r.type.element_type)) for x, r in zip(op.operands, op.results, strict=False)]
    updates = [line(x) for x in op.operands[count + 1 :]]
    walk = _Walk(op)

    def turn(number: Any, carried: Values) -> Values:
        at, inside = walk.target(number)
        given = walk.update(number)
        old = [element(each, at) for each in carried]

        def combine() -> Values:
            return apply(op.regions[0], [*old, *(element(each, given) for each in updates)])

        new = combine() if inside is None else where(inside, combine, old)
        return [replaced(each, at, value) for each, value in zip(carried, new, strict=True)]

    turns = walk.turns if prod(op.results[0].type.shape) else 0
    made = loop(turns, lines, turn)
    return [hlo.reshape(each, r.type.shape) for each, r in zip(made, op.results, strict=True)]


class _Walk:
    """Iteration space of a scatter: the index vectors, and for each its window.

    Attributes:
        turns: the trip count.
    """

    def __init__(self, op: Any) -> None:
        count = len(op.results)
        self._numbers = ScatterDimensionNumbers.read(op.attributes["scatter_dimension_numbers"])
        self._shape = list(op.results[0].type.shape)
        self._updates = list(op.operands[count + 1].type.shape)
        indices = hlo.convert(op.operands[count], hlo_ir.IntegerType.get_signless(64))
        self._indices, self._of_indices = line(indices), [*row_major(indices.type.shape), 0]
        in_window = self._numbers.update_window_dims
        self._over = [d for d in range(len(self._updates)) if d not in in_window]
        self._order = [*self._over, *in_window]
        self.turns = prod(self._updates)

    def update(self, number: Any) -> Any:
        """Compute the place in the updates."""
        return self._place(number, dict(enumerate(row_major(self._updates))))

    def target(self, number: Any) -> tuple[Any, Any]:
        """Compute the place in the array, 0 if out of bounds; and whether it is in bounds, None if it always is."""
        at, inside = index(0), None
        for step, extent, coordinate, moves in self._coordinates(number):
            at = add(at, arithmetic("multiply", coordinate, step))
            if moves:
                fits = hlo.elementwise("and", _from_zero(coordinate), below(coordinate, extent))
                inside = fits if inside is None else hlo.elementwise("and", inside, fits)
        return (at if inside is None else select(inside, at, 0)), inside

    def _coordinates(self, number: Any) -> list[tuple[int, int, Any, bool]]:
        """Return each array dimension's stride and extent, the coordinate, and whether an index shifts it."""
        numbers, vector = self._numbers, self._of_indices[self._numbers.index_vector_dim]
        over_indices = [d for d in range(len(self._of_indices) - 1) if d != numbers.index_vector_dim]
        begin = self._place(number, {d: self._of_indices[of] for d, of in zip(self._over, over_indices, strict=True)})
        in_update = {
            d: self._over[over_indices.index(of)]
            for d, of in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        }
        left_out = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
        in_window = [d for d in range(len(self._shape)) if d not in left_out]
        in_update |= dict(zip(in_window, numbers.update_window_dims, strict=True))
        pointed = numbers.scatter_dims_to_operand_dims
        found = []
        for d, (step, extent) in enumerate(zip(row_major(self._shape), self._shape, strict=True)):
            coordinate = self._place(number, {in_update[d]: 1}) if d in in_update else index(0)
            if d in pointed:
                start = element(self._indices, add(begin, pointed.index(d) * vector))
                coordinate = add(coordinate, start)
            found.append((step, extent, coordinate, d in pointed))
        return found

    def _place(self, number: Any, steps: Mapping[int, int]) -> Any:
        """Compute a place from the stride of each dimension of the updates."""
        return place(number, [(self._updates[d], steps.get(d, 0)) for d in self._order])


def _from_zero(coordinate: Any) -> Any:
    return below(-1, coordinate)


@expands("stablehlo.select_and_scatter")
def select_and_scatter(op: Any) -> Values:
    """Expand to a loop over windows in row-major order; elements of the padding are never selected."""
    x, source, start = op.operands
    type_ = op.results[0].type
    start = hlo.convert(start, type_.element_type)
    window, (select_, combine) = Window.read(op.attributes, len(type_.shape)), op.regions
    places = _places_of(x.type.shape)
    from_where = padded(places, index(-1), window)
    outer, inner = window_axes(window, from_where.type.shape, source.type.shape)
    xs, numbers, sources = line(x), line(from_where), line(source)

    def turn(number: Any, carried: Values) -> Values:
        begin = place(number, outer)

        def look(step: Any, best: Values) -> Values:
            (so_far,) = best
            candidate = element(numbers, add(begin, place(step, inner)))
            both = [element(xs, arithmetic("maximum", at, 0)) for at in (so_far, candidate)]
            (keeps,) = apply(select_, both)
            found = select(below(so_far, 0), candidate, select(keeps, so_far, candidate))
            return [select(below(candidate, 0), so_far, found)]

        (best,) = loop(prod(window.sizes), [index(-1)], look)
        at = arithmetic("maximum", best, 0)
        old, given = element(carried[0], at), element(sources, number)
        new = where(below(-1, best), lambda: apply(combine, [old, given]), [old])
        return [replaced(carried[0], at, new[0])]

    turns = prod(source.type.shape) if prod(type_.shape) else 0
    (made,) = loop(turns, [hlo.broadcast(start, [prod(type_.shape)])], turn)
    return [hlo.reshape(made, type_.shape)]


def _places_of(shape: Any) -> Any:
    """Create an array of the places of its own elements."""
    return hlo.reshape(hlo.iota(hlo.integer_tensor(64, [prod(shape)]), 0), shape)
