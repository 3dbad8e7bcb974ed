"""Map, Reduce and ReduceWindow as loops over elements; each accumulator starts at the initial values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.tensor_types import row_major
from stablexla.targets.stablehlo.computations.element_loops import (
    Values,
    add,
    apply,
    blank,
    element,
    line,
    loop,
    place,
    replaced,
)
from stablexla.targets.stablehlo.computations.registry import expands

Axes = Sequence[tuple[int, int]]


@expands("stablehlo.map")
def map_(op: Any) -> Values:
    """Expand to a loop that applies the computation at each index."""
    lines, (result,) = [line(value) for value in op.operands], op.results

    def turn(at: Any, made: Values) -> Values:
        (value,) = apply(op.regions[0], [element(each, at) for each in lines])
        return [replaced(made[0], at, value)]

    (made,) = loop(prod(result.type.shape), [blank(result.type)], turn)
    return [hlo.reshape(made, result.type.shape)]


@expands("stablehlo.reduce")
def reduce(op: Any) -> Values:
    """Expand to a loop nest that combines the elements of each accumulator in row-major order."""
    count = len(op.results)
    shape, dimensions = op.operands[0].type.shape, integers(op.attributes["dimensions"])
    axes = list(zip(shape, row_major(shape), strict=True))
    kept = [axis for d, axis in enumerate(axes) if d not in dimensions]
    return _folded(op, op.operands[:count], op.operands[count:], kept, [axes[d] for d in dimensions])


@expands("stablehlo.reduce_window")
def reduce_window(op: Any) -> Values:
    """Expand to a loop nest that combines the elements of each window in row-major order, with the padding's."""
    count = len(op.results)
    operands = [hlo.convert(v, r.type.element_type) for v, r in zip(op.operands, [*op.results] * 2, strict=True)]
    starts = operands[count:]
    rank = len(op.results[0].type.shape)
    window = Window.read(op.attributes, rank)
    arrays = [padded(x, start, window) for x, start in zip(operands[:count], starts, strict=True)]
    outer, inner = window_axes(window, arrays[0].type.shape, op.results[0].type.shape)
    return _folded(op, arrays, starts, outer, inner)


def padded(x: Any, start: Any, window: Window) -> Any:
    """Pad and dilate an array as a window demands."""
    low, high = zip(*window.padding, strict=True) if window.rank else ((), ())
    rows = {
        "edge_padding_low": low,
        "edge_padding_high": high,
        "interior_padding": [dilation - 1 for dilation in window.base_dilations],
    }
    if not any(n for row in rows.values() for n in row):
        return x
    attributes = {name: hlo.i64s(row) for name, row in rows.items()}
    return hlo.emit("stablehlo.pad", [x, start], [hlo.tensor(x.type, window.padded(x.type.shape))], attributes)


def window_axes(window: Window, shape: Sequence[int], positions: Sequence[int]) -> tuple[Axes, Axes]:
    """Return the axes over a window's positions in a padded array, and over a window's elements."""
    steps = row_major(shape)
    outer = [(n, step * stride) for n, step, stride in zip(positions, steps, window.strides, strict=True)]
    inner = [(n, step * apart) for n, step, apart in zip(window.sizes, steps, window.window_dilations, strict=True)]
    return outer, inner


def _folded(op: Any, arrays: Sequence[Any], starts: Sequence[Any], outer: Axes, inner: Axes) -> Values:
    """Reduce, for each place of `outer`, the elements at the places of `inner` relative to it."""
    types = [result.type for result in op.results]
    first = [hlo.convert(start, type_.element_type) for start, type_ in zip(starts, types, strict=True)]
    lines = [line(x) for x in arrays]

    def total(number: Any, made: Values) -> Values:
        begin = place(number, outer)

        def more(step: Any, totals: Values) -> Values:
            at = add(begin, place(step, inner))
            return apply(op.regions[0], [*totals, *(element(each, at) for each in lines)])

        totals = loop(prod(extent for extent, _ in inner), first, more)
        return [replaced(each, number, value) for each, value in zip(made, totals, strict=True)]

    made = loop(prod(extent for extent, _ in outer), [blank(type_) for type_ in types], total)
    return [hlo.reshape(each, type_.shape) for each, type_ in zip(made, types, strict=True)]
