"""select_and_scatter: each window of an array selects an element, at whose index a source element is combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.window.axes import Axis, axes_of
from stablexla.lowering.kernels.window.parts import known_operation
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import fill
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import add, count, larger, mul, number, smaller, sub
from stablexla.lowering.support.storage import from_storage, to_storage


@dataclass(frozen=True)
class SelectAndScatterConfig:
    """Windows that select an element, and a combiner for the source at the selected elements.

    Attributes:
        select: direction of the comparison that selects, or "" where it is none.
        scatter: name of the combiner, or "" where it is none that has a name.
        unsigned: the elements are integers without sign.
        plain: operand and result are of one element type, of 8 bits or more.
    """

    axes: tuple[Axis, ...]
    select: str
    scatter: str
    unsigned: bool
    plain: bool


def scatter_selected(ctx: LoweringContext, x: ir.Value, source: ir.Value, start: ir.Value) -> Sequence[ir.Value]:
    """Emit a select_and_scatter."""
    given = zip((source, start), ctx.operand_types[1:], strict=True)
    source, start = (in_element_type(v, t, ctx.result.element) for v, t in given)
    if not ctx.result.rank:  # a window of the one element
        return ctx.inline_region(1, [start, source])
    filled = fill(start, ctx.result)
    shape, positions = ctx.operand_types[0].shape, ctx.operand_types[1].shape
    if not prod(shape) or not prod(positions):
        return [filled]
    writer = _Writer(ctx, axes_of(Window.read(ctx.attributes, len(shape)), shape, positions))
    types = [ctx.operand_types[0], ctx.result.with_shape(positions), ctx.result]
    flat = [t.with_shape((t.size,)) for t in types]
    operands = [reshaped(v, t, f) for v, t, f in zip((x, source, filled), types, flat, strict=True)]
    config = SelectAndScatterConfig(
        axes=tuple(writer.axes),
        select=_direction(ctx.op),
        scatter=known_operation(ctx.op.regions[1]),
        unsigned=ctx.result.element.is_unsigned,
        plain=flat[0].element == flat[2].element and flat[2].element.bits >= 8,
    )
    independent = writer.axes[0].alone and writer.axes[0].positions > 1
    (made,) = kernel(
        ctx,
        "select_and_scatter",
        operands,
        writer.write,
        config=config,
        result_types=[flat[2]],
        independent=independent,
    )
    return [reshaped(made, flat[2], ctx.result)]


def _direction(op: Any) -> str:
    """Match a selection that is one comparison of its two arguments, in order; return its direction, else ""."""
    block = op.regions[0].blocks[0]
    operations = [view.operation for view in block.operations]
    compare = operations[0]
    fits = (
        len(operations) == 2 and compare.name == "stablehlo.compare" and list(compare.operands) == list(block.arguments)
    )
    total = fits and "compare_type" in compare.attributes and word(compare.attributes["compare_type"]) == "TOTALORDER"
    return word(compare.attributes["comparison_direction"]) if fits and not total else ""


@dataclass(frozen=True)
class _Writer:
    """Emitter of the loop nest over all windows, and over the elements of each outside of the padding."""

    ctx: LoweringContext
    axes: list[Axis]

    def write(self, x: ir.Value, source: ir.Value, result: ir.Value) -> Sequence[ir.Value]:
        """Emit the loop nest; return the result with each element of the source combined into it, in order."""

        def window(places: Sequence[ir.Value], result: ir.Value) -> Sequence[ir.Value]:
            at = reduce(add, (mul(p, axis.position_step) for p, axis in zip(places, self.axes, strict=True)))
            return [self._combined(result, self._selected(x, places), tensor.extract(source, [at]))]

        def walk(places: list[ir.Value], result: ir.Value) -> Sequence[ir.Value]:
            if len(places) == len(self.axes):
                return window(places, result)
            return count(0, self.axes[len(places)].positions, [result], lambda p, r: walk([*places, p], r))

        return walk([], result)

    def _selected(self, x: ir.Value, places: Sequence[ir.Value]) -> ir.Value:
        """Return the index in x of the selected element of a window; -1 if the window is all padding."""
        firsts = [sub(mul(p, axis.stride), axis.low) for p, axis in zip(places, self.axes, strict=True)]
        element = self.ctx.operand_types[0].element

        def look(at: ir.Value, value: ir.Value, best: ir.Value) -> Sequence[ir.Value]:
            candidate = tensor.extract(x, [at])
            both = [from_storage(v, element) for v in (value, candidate)]
            (keeps,) = self.ctx.inline_region(0, both)
            keeps = arith.andi(keeps, arith.cmpi(arith.CmpIPredicate.sge, best, number(0)))
            return [arith.select(keeps, value, candidate), arith.select(keeps, best, at)]

        def walk(dimension: int, at: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            if dimension == len(self.axes):
                return look(at, *carried)
            axis, first = self.axes[dimension], firsts[dimension]
            if axis.alone:
                return walk(dimension + 1, add(at, mul(first, axis.step)), carried)
            low, high = larger(first, 0), smaller(add(first, axis.size), axis.extent)
            return count(low, high, carried, _deeper(walk, dimension, at, axis.step))

        start = [tensor.extract(x, [number(0)]), number(-1)]
        return walk(0, number(0), start)[1]

    def _combined(self, result: ir.Value, at: ir.Value, stored: ir.Value) -> ir.Value:
        """Combine an element of the source into the result at an index, unless it is -1."""
        element = self.ctx.result.element
        place = larger(at, 0)
        old = tensor.extract(result, [place])
        both = [from_storage(v, element) for v in (old, stored)]
        (new,) = self.ctx.inline_region(1, both)
        exists = arith.cmpi(arith.CmpIPredicate.sge, at, number(0))
        return tensor.insert(arith.select(exists, to_storage(new, element), old), result, [place])


def _deeper(
    walk: Callable[..., Sequence[ir.Value]], dimension: int, at: ir.Value, step: int
) -> Callable[..., Sequence[ir.Value]]:
    """Return the loop body along one dimension of a window."""
    return lambda place, *carried: walk(dimension + 1, add(at, mul(place, step)), carried)
