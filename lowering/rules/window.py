"""Lowering of reduce_window (pooling) and select_and_scatter: selects the algorithm of a window reduction.

Small windows are unrolled into one pass over shifted copies. Windows that extend from an end of the array become
scans (kernels/window/scan.py). Large windows of a known combiner are combined from windows of 4, 16, 64 ... elements,
one dimension after the other; the remaining ones are loops over each window (kernels/window/parts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir

from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.window.axes import Axis, axes_of
from stablexla.lowering.kernels.window.parts import (
    Folding,
    Pieces,
    folded_in_loops,
    folded_pieces,
    offsets_of,
    positions,
)
from stablexla.lowering.kernels.window.scan import cumulative, scan
from stablexla.lowering.kernels.window.select import scatter_selected
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.shape import padded, reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import empty
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.registry import lowers

# Long windows of one dimension are combined from parts, this many at a time.
RADIX = 4
# Windows up to so many elements are written out as one pass over shifted copies, if their combiners together are at
# most so many operations.
WRITTEN_WINDOW = Gate("window.written-window", 16, eager=1)
WRITTEN_OPERATIONS = Gate("window.written-operations", 192, eager=1)
# Windows up to so many elements become a pooling kernel, where one applies.
POOLED_WINDOW = Gate("window.pooled-window", 25, eager=1)
# Windows of one dimension up to this length are not split into parts.
SHORT_WINDOW = Gate("window.short-window", 8, eager=1)


@dataclass(frozen=True)
class PoolConfig:
    """A window reduction by the combiner of a name, of integers without sign if `unsigned`."""

    axes: tuple[Axis, ...]
    computation: str
    unsigned: bool


@lowers("stablehlo.reduce_window")
def reduce_window(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """Each window reduced with the region, from the initial values, which also are the padding."""
    rank = ctx.operand_types[0].rank
    arrays, starts = _in_wider_types(ctx, operands)
    folding = Folding(ctx, starts)
    if not rank:
        return folding.apply(starts, arrays)
    if not ctx.result_types[0].size:
        return [empty(t) for t in ctx.result_types]
    window, shape = Window.read(ctx.attributes, rank), ctx.operand_types[0].shape
    axis = cumulative(window, shape)
    if axis is not None:
        return scan(folding, arrays, shape, axis, lambda: _windows(folding, window, arrays, shape))
    return _windows(folding, window, arrays, shape)


@lowers("stablehlo.select_and_scatter")
def select_and_scatter(ctx: LoweringContext, x: ir.Value, source: ir.Value, start: ir.Value) -> Sequence[ir.Value]:
    """Each element of the source combined into the element that its window selects."""
    return scatter_selected(ctx, x, source, start)


def _in_wider_types(ctx: LoweringContext, operands: Sequence[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
    """Promote the arrays and initial values to the region's types, which may be wider than their own."""
    count = len(operands) // 2
    types = zip(operands, ctx.operand_types, ctx.result_types * 2, strict=True)
    made = [in_element_type(operand, type_, result.element) for operand, type_, result in types]
    return made[:count], made[count:]


def _windows(
    folding: Folding, window: Window, arrays: Sequence[ir.Value], shape: tuple[int, ...]
) -> Sequence[ir.Value]:
    """Emit the window reduction by the cheapest of the algorithms."""
    if _pools(folding, window, shape):
        return _pool(folding, window, arrays[0], shape)
    arrays, shape = _padded(folding, window, arrays, shape)
    pieces = prod(window.sizes)
    if pieces == 1 or (pieces <= WRITTEN_WINDOW() and pieces * folding.weight <= WRITTEN_OPERATIONS()):
        return _written_out(folding, window, arrays, shape)
    if folding.known and _Plan(window, shape, SHORT_WINDOW()).cost < pieces * prod(positions(window, shape)):
        return _by_dimensions(folding, window, arrays, shape)
    return folded_in_loops(folding, window, arrays, shape)


def _pools(folding: Folding, window: Window, shape: tuple[int, ...]) -> bool:
    """Whether the loops over a small window can be clipped at the edges, so that no padding is materialized.

    The last dimension must be contiguous channels. Without padding one pass over shifted copies is as good, and can be
    fused with its consumers.
    """
    element, dilations = folding.elements[0], (*window.base_dilations, *window.window_dilations)
    # The maximum of 16-bit floats is computed in f32 without rounding.
    wide = element.is_integer or element.bits >= 32 or (element.bits == 16 and folding.repeats)
    known = folding.keeps_start and wide and element.bits >= 8
    large = prod(window.sizes) > POOLED_WINDOW()
    if not known or element.is_complex or any(d != 1 for d in dilations) or large:
        return False
    if all(pair == (0, 0) for pair in window.padding):
        return False
    last = axes_of(window, shape, window.positions(shape))[-1]
    return last.alone and last.extent > 1


def _pool(folding: Folding, window: Window, array: ir.Value, shape: tuple[int, ...]) -> Sequence[ir.Value]:
    """Emit a pooling kernel of loops over windows; its body on tensors pads instead."""
    positions_ = window.positions(shape)
    source, result = (folding.type(folding.elements[0], extents) for extents in (shape, positions_))
    flat = [t.with_shape((t.size,)) for t in (source, result)]

    def body(x: ir.Value, start: ir.Value) -> ir.Value:
        inside = folding.starting_from([start])
        arrays, extents = _padded(inside, window, [reshaped(x, flat[0], source)], shape)
        (made,) = _written_out(inside, window, arrays, extents)
        return reshaped(made, result, flat[1])

    config = PoolConfig(tuple(axes_of(window, shape, positions_)), folding.known, folding.elements[0].is_unsigned)
    operands = [reshaped(array, source, flat[0]), *folding.starts]
    (made,) = kernel(folding.context, "pool", operands, body, config=config, result_types=[flat[1]])
    return [reshaped(made, flat[1], result)]


def _padded(
    folding: Folding, window: Window, arrays: Sequence[ir.Value], shape: tuple[int, ...]
) -> tuple[Sequence[ir.Value], tuple[int, ...]]:
    """Pad the arrays around and between their elements."""
    extents = window.padded(shape)
    if all(pair == (0, 0) for pair in window.padding) and extents == shape:
        return arrays, shape
    low = [before for before, _ in window.padding]
    made = []
    for array, start, element in zip(arrays, folding.starts, folding.elements, strict=True):
        source, result = folding.type(element, shape), folding.type(element, extents)
        made.append(padded(array, source, start, result, low, window.base_dilations))
    return made, extents


def _written_out(
    folding: Folding, window: Window, arrays: Sequence[ir.Value], shape: tuple[int, ...]
) -> Sequence[ir.Value]:
    """Unroll the window: one pass that loads all elements of a window."""
    pieces = [Pieces(arrays, shape, offsets) for offsets in offsets_of(window.sizes, window.window_dilations)]
    return folded_pieces(folding, pieces, window.strides, positions(window, shape), start=True)


# --- one dimension after the other --------------------------------------------------------------------------------


class _Step:
    """The window reduction along one dimension, and its cost, roughly the number of elements read."""

    def __init__(
        self, window: Window, shape: Sequence[int], dimension: int, strides: tuple[int, ...], short: int
    ) -> None:
        self.dimension, self.strides = dimension, strides
        self.size, self.dilation = window.sizes[dimension], window.window_dilations[dimension]
        reach = (self.size - 1) * self.dilation
        self.shape = tuple(
            (n - (reach if d == dimension else 0) - 1) // stride + 1
            for d, (n, stride) in enumerate(zip(shape, strides, strict=True))
        )
        self.levels = _levels(self.size) if self.size > short else 0
        read = min(self.size, 2 * RADIX) * prod(self.shape)
        self.cost = read + self.levels * (RADIX + 1) * prod(shape)
        self.in_loops = self.levels > 0 and self.size * prod(self.shape) < self.cost
        if self.in_loops:
            self.cost = self.size * prod(self.shape)


class _Plan:
    """The steps of a separable reduction of large windows, innermost dimension first: elements stay in order."""

    def __init__(self, window: Window, shape: tuple[int, ...], short: int) -> None:
        self.steps: list[_Step] = []
        wide = [d for d, n in enumerate(window.sizes) if n > 1]
        for dimension in reversed(wide):
            # Dimensions of window size 1 are strided in the first step, which drops the elements between windows.
            alone = () if self.steps else [d for d in range(window.rank) if d not in wide]
            strides = tuple(s if d == dimension or d in alone else 1 for d, s in enumerate(window.strides))
            self.steps.append(_Step(window, shape, dimension, strides, short))
            shape = self.steps[-1].shape
        self.cost = sum(step.cost + 2 * prod(step.shape) for step in self.steps)


def _levels(size: int) -> int:
    """Return how many times parts are combined, four at a time, until they have more than a quarter of `size`."""
    levels, part = 0, 1
    while part * RADIX <= size:
        levels, part = levels + 1, part * RADIX
    return levels


def _by_dimensions(
    folding: Folding, window: Window, arrays: Sequence[ir.Value], shape: tuple[int, ...]
) -> Sequence[ir.Value]:
    steps = _Plan(window, shape, SHORT_WINDOW()).steps
    for step in steps:
        arrays = _along(folding, step, arrays, shape, start=step is steps[-1])
        shape = step.shape
    return arrays


def _along(
    folding: Folding, step: _Step, arrays: Sequence[ir.Value], shape: tuple[int, ...], *, start: bool
) -> Sequence[ir.Value]:
    """Reduce the windows along one dimension."""
    rank, place = len(shape), step.dimension
    if step.in_loops:
        ones = (1,) * rank
        sizes = tuple(step.size if d == place else 1 for d in range(rank))
        dilations = tuple(step.dilation if d == place else 1 for d in range(rank))
        window = Window(sizes, step.strides, ones, dilations, ((0, 0),) * rank)
        return folded_in_loops(folding, window, arrays, shape, start=start)

    def at(part: Sequence[ir.Value], extents: tuple[int, ...], element: int) -> Pieces:
        return Pieces(part, extents, tuple(element * step.dilation if d == place else 0 for d in range(rank)))

    if not step.levels:
        pieces = [at(arrays, shape, i) for i in range(step.size)]
        return folded_pieces(folding, pieces, step.strides, step.shape, start=start)
    parts = [(1, arrays, shape)]
    while parts[-1][0] * RADIX <= step.size:
        size, part, extents = parts[-1]
        reach = (RADIX - 1) * size * step.dilation
        shorter = tuple(n - reach if d == place else n for d, n in enumerate(extents))
        pieces = [at(part, extents, i * size) for i in range(RADIX)]
        parts.append((size * RADIX, folded_pieces(folding, pieces, (1,) * rank, shorter, start=False), shorter))
    pieces = [at(parts[level][1], parts[level][2], first) for level, first in _cover(step.size, folding.repeats)]
    return folded_pieces(folding, pieces, step.strides, step.shape, start=start)


def _cover(size: int, repeats: bool) -> list[tuple[int, int]]:
    """Return (level, first element) of parts of RADIX^level elements that cover `size` elements in order.

    With `repeats` parts may overlap: the combiner is idempotent.

    >>> _cover(22, False)
    [(2, 0), (1, 16), (0, 20), (0, 21)]
    >>> _cover(22, True)
    [(2, 0), (2, 6)]
    """
    found, first, level = [], 0, _levels(size)
    while first < size:
        part = RADIX**level
        if size - first >= part:
            found.append((level, first))
            first += part
        elif repeats:
            found.append((level, size - part))
            break
        else:
            level -= 1
    return found
