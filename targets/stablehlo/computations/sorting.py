"""Sort as a merge sort in loops: stable, with n log n comparisons, for any comparator."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import sort_dimension
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
)
from stablexla.targets.stablehlo.computations.registry import expands


@expands("stablehlo.sort")
def sort(op: Any) -> Sequence[Any]:
    """Merge runs of 1, 2, 4 ... elements along the dimension in pairs."""
    shape = op.operands[0].type.shape
    dimension = sort_dimension(op)
    length = shape[dimension]
    if length < 2 or not prod(shape):
        return list(op.operands)
    arrays = [line(x) for x in op.operands]
    rows = _Rows(op, shape, dimension)

    def level(_: Any, carried: Values) -> Values:
        width, *given = carried
        _, _, *made = loop(prod(shape), [index(0), index(0), *given], rows.merging(width, given))
        return [add(width, width), *made]

    _, *made = loop((length - 1).bit_length(), [index(1), *arrays], level)
    return [hlo.reshape(each, shape) for each in made]


class _Rows:
    """The independent rows of elements to sort."""

    def __init__(self, op: Any, shape: Sequence[int], dimension: int) -> None:
        self._op, self._length, self._step = op, shape[dimension], row_major(shape)[dimension]
        steps = zip(shape, row_major(shape), strict=True)
        self._others = [axis for d, axis in enumerate(steps) if d != dimension]

    def merging(self, width: Any, given: Values) -> Any:
        """Return the loop body that merges pairs of runs of a width: one element of the result in each iteration.

        It carries the heads of both runs, and the results.
        """
        length = self._length

        def turn(number: Any, carried: Values) -> Values:
            left, right, *made = carried
            row, rank = (arithmetic(name, number, length) for name in ("divide", "remainder"))
            base, pair = place(row, self._others), add(width, width)
            begin = arithmetic("multiply", arithmetic("divide", rank, pair), pair)
            middle = arithmetic("minimum", add(begin, width), length)
            end = arithmetic("minimum", add(begin, pair), length)
            goes_on = below(begin, rank)
            left, right = select(goes_on, left, begin), select(goes_on, right, middle)
            mine, other = ([element(x, self._at(base, at)) for x in given] for at in (left, right))
            (before,) = apply(self._op.regions[0], [v for pair in zip(other, mine, strict=True) for v in pair])
            takes = _either(_both(below(right, end), before), _both(below(right, end), below(middle, add(left, 1))))
            one = select(takes, 1, 0)
            at = self._at(base, rank)
            new = [select(takes, b, a) for a, b in zip(mine, other, strict=True)]
            lines = [replaced(x, at, value) for x, value in zip(made, new, strict=True)]
            return [add(left, arithmetic("subtract", 1, one)), add(right, one), *lines]

        return turn

    def _at(self, base: Any, rank: Any) -> Any:
        """Compute the place of a row's element; ranks past the end are clamped to the last one."""
        rank = arithmetic("minimum", rank, self._length - 1)
        return add(base, arithmetic("multiply", rank, self._step))


def _both(this: Any, that: Any) -> Any:
    return hlo.elementwise("and", this, that)


def _either(this: Any, that: Any) -> Any:
    return hlo.elementwise("or", this, that)
