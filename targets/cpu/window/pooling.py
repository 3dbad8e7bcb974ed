"""Emit windows over the outer dimensions, vectorized along the last one: pooling (reduce_window), and its gradient.

A window that reaches over an edge is clipped there, so nothing is padded in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.window.axes import Axis
from stablexla.lowering.kernels.window.select import SelectAndScatterConfig
from stablexla.lowering.rules.window import PoolConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.combiners import combine_values, compare, identity
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import POOLED, Refusal, refuse
from stablexla.targets.codegen.vector_loops import WorkItems, estimate_ns, grain_of
from stablexla.targets.cpu.emitters import emitter

# Vectors unrolled side by side: accumulators of pooling, and selected elements of select_and_scatter.
MOST_TOTALS, MOST_SELECTED = 8, 4
# Floats of so many bits are compared in 32.
SHORT_BITS = 16
# The body at an element of a window: (index of the element, loop-carried values) -> loop-carried values.
Turn = Callable[[Value, list[Value]], list[Value]]


@dataclass(frozen=True)
class _Windows:
    """Windows over the axes but the last one, which is as long as `width` and of single elements."""

    axes: tuple[Axis, ...]
    lanes: int

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes that windows slide along, or that lie outside."""
        return self.axes[:-1]

    @property
    def width(self) -> int:
        """Extent of the last axis."""
        return self.axes[-1].extent

    @property
    def elements(self) -> int:
        """Elements of a window."""
        return prod(axis.size for axis in self.axes)

    def blocks(self, most: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Split a line into blocks of vectors and a remainder.

        Return the number of whole blocks of at most `most` vectors, their length, and (offset, lanes) of the remainder
        vectors.
        """
        whole = self.width // self.lanes
        vectors = max(1, min(most, whole))
        count = whole // vectors
        left = range(count * vectors * self.lanes, self.width, self.lanes)
        return count, vectors * self.lanes, [(at, min(self.lanes, self.width - at)) for at in left]

    def position(self, places: Sequence[Value]) -> Value:
        """Return the index of a window's element in the smaller array."""
        return cg.total(p * axis.position_step for p, axis in zip(places, self.outer, strict=True))

    def first(self, places: Sequence[Value]) -> Value:
        """Return the index of the first element of a window that is inside the array."""
        return cg.total(r[0] * axis.step for r, axis in zip(self._ranges(places), self.outer, strict=True))

    def _ranges(self, places: Sequence[Value]) -> list[tuple[Value, Value]]:
        ranges = []
        for place, axis in zip(places, self.outer, strict=True):
            first = place * axis.stride - axis.low
            inside = axis.low <= 0 and (axis.positions - 1) * axis.stride - axis.low + axis.size <= axis.extent
            if inside:
                ranges.append((first, first + axis.size))
            else:
                ranges.append((cg.maximum(first, 0), cg.minimum(cg.maximum(first + axis.size, 0), axis.extent)))
        return ranges

    def each(self, places: Sequence[Value], carried: list[Value], turn: Turn) -> list[Value]:
        """Emit loops of `turn(at, carried)` over the elements of a window inside the array, in their order."""
        ranges = self._ranges(places)

        def walk(number: int, at: Value, carried: list[Value]) -> list[Value]:
            if number == len(self.outer):
                return turn(at, carried)
            axis, (low, high) = self.outer[number], ranges[number]
            if axis.alone:
                return walk(number + 1, at + low * axis.step, carried)
            with cg.loop(low, high, 1, carried, most=axis.size) as element:
                element.yields(*walk(number + 1, at + element.iv * axis.step, element.args))
            return element.results

        return walk(0, cg.index(0), carried)

    def all_from(self, number: int, places: list[Value], body: Callable[[list[Value]], None]) -> None:
        """Emit loops of `body` over the windows; the places along the first `number` axes are given."""
        if number == len(self.outer):
            body(places)
            return
        with cg.loop(0, self.outer[number].positions) as turn:
            self.all_from(number + 1, [*places, turn.iv], body)


_LAST = Refusal(
    "its windows reach along the last dimension, or that has one element", "features in the last dimension (NHWC)"
)
_SELECTION = Refusal(
    "emitters take one comparison and one operation, in windows that do not reach over the array's edges",
    "no padding, and a comparison such as ge with an add",
)


def _windows(axes: tuple[Axis, ...], target: CpuTarget, compute: ir.Type) -> _Windows | None:
    """Return the windows of a kernel; None if vectorizing along its last axis does not pay."""
    lanes = target.vector_bits // cg.bits_of(compute)
    if len(axes) < 2 or not axes[-1].alone or axes[-1].extent < 2:
        refuse(_LAST)
        return None
    while lanes > 2 and lanes // 2 >= axes[-1].extent:
        lanes //= 2
    return _Windows(axes, lanes)


# --- pooling ------------------------------------------------------------------------------------------------------


@emitter("pool")
def emit_pool(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit window reductions by one operation: integers, floats of 32 and 64 bits, extremes of those of 16."""
    config = kernel.config(PoolConfig)
    name, unsigned = config.computation, config.unsigned
    element = kernel.inputs[0].type.element_type
    with kernel.func.context:
        wide = ir.F32Type.get() if cg.is_float(element) and cg.bits_of(element) == SHORT_BITS else element
    windows = _windows(config.axes, target, wide)
    exact = wide == element or name in ("maximum", "minimum")
    if windows is None or not exact or identity(name, wide, unsigned=unsigned) is None:
        refuse(POOLED)
        return None
    given = min(2, len(windows.outer))
    items = WorkItems(tuple(range(given)), tuple(axis.positions for axis in windows.outer[:given]))
    fold = partial(combine_values, name, unsigned=unsigned)
    with kernel.phase(target) as arguments, arguments.items(items.count) as item:
        at, _ = items.split(item)
        windows.all_from(given, list(at.values()), lambda places: _write_pool(windows, arguments, places, fold))
    elements = prod(axis.positions for axis in windows.axes) // max(1, items.count)
    time = estimate_ns(2 * windows.elements, elements, elements * windows.elements * cg.bits_of(element) // 32, target)
    return Emitted(items.count, grain_of(time, items.count))


def _write_pool(
    windows: _Windows, arguments: KernelArguments, places: list[Value], fold: Callable[[Value, Value], Value]
) -> None:
    source, result = arguments.inputs[0], arguments.results[0]
    short = cg.is_float(source.element) and cg.bits_of(source.element) == SHORT_BITS
    start, target = cg.splat(arguments.inputs[1], windows.lanes), windows.position(places)
    if short:
        start = _widened(start)

    def block(first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        def turn(at: Value, totals: list[Value]) -> list[Value]:
            read = [cg.load_lanes(source, at + first + offset, windows.lanes, lanes) for offset, lanes in vectors]
            read = [_widened(value) for value in read] if short else read
            return [fold(total, value) for total, value in zip(totals, read, strict=True)]

        totals = windows.each(places, [start] * len(vectors), turn)
        for total, (offset, lanes) in zip(totals, vectors, strict=True):
            if short:
                total = Value(arith.truncf(cg.vector_of(windows.lanes, source.element), total.ssa))
            cg.store_lanes(total, result, target + first + offset, lanes)

    count, length, left = windows.blocks(MOST_TOTALS)
    if count:
        with cg.loop(0, count * length, length) as line:
            block(line.iv, [(offset, windows.lanes) for offset in range(0, length, windows.lanes)])
    if left:
        block(cg.index(0), left)


def _widened(value: Value) -> Value:
    return Value(arith.extf(cg.vector_of(value.lanes, ir.F32Type.get()), value.ssa))


# --- gradient of pooling --------------------------------------------------------------------------------------------


@emitter("select_and_scatter")
def emit_select_and_scatter(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit selections by one comparison, combined by one operation, where no window lies outside the array."""
    config, element = kernel.config(SelectAndScatterConfig), kernel.inputs[0].type.element_type
    windows = _windows(config.axes, target, element)
    known = config.select and identity(config.scatter, element, unsigned=config.unsigned) is not None
    if windows is None or not known or not config.plain or not all(axis.reaches_in for axis in windows.axes):
        refuse(_SELECTION)
        return None
    if prod(kernel.inputs[0].type.shape) >= 1 << 31:
        return None
    # Windows may overlap, except along an outer axis of single elements, and along the last.
    alone = [axis.positions for axis in windows.outer[:1] if axis.alone]
    whole, length, left = windows.blocks(MOST_SELECTED)
    items = WorkItems(tuple(range(len(alone))), tuple(alone), whole + bool(left))
    vectors = [(offset, windows.lanes) for offset in range(0, length, windows.lanes)]
    with kernel.phase(target) as arguments, arguments.items(items.count) as item:
        at, block = items.split(item)
        writer = _Selecting(windows, arguments, config.select, config.scatter, config.unsigned)
        if not left:
            writer.write(list(at.values()), block * length, vectors)
        elif not whole:
            writer.write(list(at.values()), cg.index(0), left)
        else:
            side = cg.branch(block.lt(whole))
            with side.then:
                writer.write(list(at.values()), block * length, vectors)
            with side.otherwise:
                writer.write(list(at.values()), cg.index(0), left)
    elements = prod(axis.positions for axis in windows.axes) // max(1, items.count)
    time = estimate_ns(8 * windows.elements, elements, 0, target)
    return Emitted(items.count, grain_of(time, items.count), updates=((0, 2),))


@dataclass(frozen=True)
class _Selecting:
    """Find the selected elements of adjacent windows, and combine the source into their places."""

    windows: _Windows
    arguments: KernelArguments
    direction: str
    scatter: str
    unsigned: bool

    def write(self, given: list[Value], first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        """Emit all windows of some vectors."""
        self.windows.all_from(len(given), given, lambda places: self._window(places, first, vectors))

    def _window(self, places: list[Value], first: Value, vectors: Sequence[tuple[int, int]]) -> None:
        chosen = self._chosen(places, first, vectors)
        source, result = self.arguments.inputs[1], self.arguments.results[0]
        position = self.windows.position(places) + first
        added = [cg.load_lanes(source, position + offset, self.windows.lanes, lanes) for offset, lanes in vectors]

        def turn(at: Value, _: list[Value]) -> list[Value]:
            here = self._place(at)
            for place, value, (offset, lanes) in zip(chosen, added, vectors, strict=True):
                old = cg.load_lanes(result, at + first + offset, self.windows.lanes, lanes)
                new = combine_values(self.scatter, old, value, unsigned=self.unsigned)
                cg.store_lanes(cg.select(place.eq(here), new, old), result, at + first + offset, lanes)
            return []

        self.windows.each(places, [], turn)

    def _chosen(self, places: list[Value], first: Value, vectors: Sequence[tuple[int, int]]) -> list[Value]:
        """Return the index of the selected element, in each lane. Its comparison with itself changes nothing."""
        source = self.arguments.inputs[0]
        count, start = len(vectors), self.windows.first(places)

        def read(at: Value) -> list[Value]:
            return [cg.load_lanes(source, at + first + offset, self.windows.lanes, lanes) for offset, lanes in vectors]

        def turn(at: Value, carried: list[Value]) -> list[Value]:
            best, chosen, here = carried[:count], carried[count:], self._place(at)
            values = read(at)
            keeps = [compare(self.direction, b, v, unsigned=self.unsigned) for b, v in zip(best, values, strict=True)]
            best = [cg.select(k, b, v) for k, b, v in zip(keeps, best, values, strict=True)]
            return [*best, *(cg.select(k, c, here) for k, c in zip(keeps, chosen, strict=True))]

        return self.windows.each(places, [*read(start), *[self._place(start)] * count], turn)[count:]

    def _place(self, at: Value) -> Value:
        return cg.splat(cg.cast_index(at, ir.IntegerType.get_signless(32)), self.windows.lanes)
