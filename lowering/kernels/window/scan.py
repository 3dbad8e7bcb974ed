"""Inclusive scans (prefix sums): window reductions from one end of a dimension to each of its elements.

JAX writes cumulative sums, products and extremes so: a window as large as the dimension, padded on one side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.scan.line_scan import LineScan, ScanConfig
from stablexla.lowering.kernels.window.parts import Folding
from stablexla.lowering.math.complex.arithmetic import BINARY
from stablexla.lowering.rules.conversion import convert_value
from stablexla.lowering.rules.shape import reshaped, transposed
from stablexla.lowering.support.generic import elementwise, fill
from stablexla.lowering.support.kernels import Combiner, kernel
from stablexla.lowering.support.loops import add as plus
from stablexla.lowering.support.loops import choose, count, empty_like, get, number, put, smaller, sub
from stablexla.lowering.support.loops import mul as times
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import storage_type, tensor_storage

C64 = BY_NAME["c64"]
# Scans of an unknown combiner shorter than this stay window reductions.
LONG_SCAN = Gate("scan.long-scan", 32, eager=2)
# Lines adjacent in memory that are scanned together, so that their last row stays in cache.
SCAN_PANEL = Gate("scan.line-panel", 1024, eager=1)


@dataclass(frozen=True)
class Axis:
    """The dimension of a scan, and its direction."""

    dimension: int
    backwards: bool


def cumulative(window: Window, shape: tuple[int, ...]) -> Axis | None:
    """Match a window reduction that is a scan; return its axis, or None."""
    wide = [d for d, n in enumerate(window.sizes) if n > 1]
    if len(wide) != 1 or any(n != 1 for n in (*window.strides, *window.base_dilations, *window.window_dilations)):
        return None
    (dimension,) = wide
    size = window.sizes[dimension]
    padding = {d: pair for d, pair in enumerate(window.padding) if pair != (0, 0)}
    if size != shape[dimension] or padding not in ({dimension: (size - 1, 0)}, {dimension: (0, size - 1)}):
        return None
    return Axis(dimension, backwards=padding[dimension][0] == 0)


def scan(
    folding: Folding,
    arrays: Sequence[ir.Value],
    shape: tuple[int, ...],
    axis: Axis,
    windows: Callable[[], Sequence[ir.Value]],
) -> Sequence[ir.Value]:
    """Emit the inclusive scan of arrays.

    Padding holds the initial value, so an element is combined with several copies of it. If these combine to the
    initial value, as for an identity, it is the scan's first value alone.

    Args:
        windows: computes the same as a window reduction.
    """
    if folding.keeps_start:
        return _scan(folding, arrays, shape, axis, start=True)
    if folding.known:
        return _with_copies(folding, arrays, shape, axis)
    if shape[axis.dimension] < LONG_SCAN():
        return windows()
    types = [tensor_storage(folding.type(e, shape)) for e in folding.elements]
    return choose(_keeps_start(folding), types, lambda: _scan(folding, arrays, shape, axis, start=True), windows)


def _with_copies(
    folding: Folding, arrays: Sequence[ir.Value], shape: tuple[int, ...], axis: Axis
) -> Sequence[ir.Value]:
    """Emit a scan, combined with a scan of the initial value's copies in the padding.

    The latter runs in the other direction, since the fewer elements a window has the more padding there is.
    """
    types = [folding.type(e, shape) for e in folding.elements]
    starts = [fill(v, t) for v, t in zip(folding.starts, types, strict=True)]
    copies = _scan(folding, starts, shape, Axis(axis.dimension, not axis.backwards), start=False)
    scanned = _scan(folding, arrays, shape, axis, start=False)
    pairs = [*copies, *scanned]
    return elementwise(pairs, types * 2, types, lambda start, value: folding.apply([start], [value]))


def _keeps_start(folding: Folding) -> ir.Value:
    """Emit whether the initial values combined with themselves are unchanged, bit by bit."""
    twice = folding.apply(folding.starts, folding.starts)
    same = arith.constant(ir.IntegerType.get_signless(1), 1)
    for one, other, element in zip(folding.starts, twice, folding.elements, strict=True):
        for a, b in zip(_bits(one, element), _bits(other, element), strict=True):
            same = arith.andi(same, arith.cmpi(arith.CmpIPredicate.eq, a, b))
    return same


def _bits(value: ir.Value, element: ElementType) -> list[ir.Value]:
    if element.is_complex:
        part = value.type.element_type
        parts = [ir.Operation.create(f"complex.{p}", results=[part], operands=[value]).result for p in ("re", "im")]
        return [bits for p in parts for bits in _bits(p, element.part)]
    if not element.is_float:
        return [value]
    return [arith.bitcast(ir.IntegerType.get_signless(value.type.width), value)]


# --- the kernel ---------------------------------------------------------------------------------------------------


def _scan(
    folding: Folding, arrays: Sequence[ir.Value], shape: tuple[int, ...], axis: Axis, *, start: bool
) -> Sequence[ir.Value]:
    """Emit the scan kernel: one pass over arrays of `outer` times `extent` rows of `inner` elements."""
    d = axis.dimension
    if _rounds(folding) and prod(shape[d + 1 :]) > 1:
        return _scan_turned(folding, arrays, shape, axis, start=start)
    size = prod(shape)
    types = [folding.type(e, shape) for e in folding.elements]
    flat = [t.with_shape((size,)) for t in types]
    operands = [reshaped(array, t, f) for array, t, f in zip(arrays, types, flat, strict=True)]
    writer = _Writer(folding, prod(shape[:d]), shape[d], prod(shape[d + 1 :]), axis.backwards, start)
    starts = folding.starts if start else []
    config = ScanConfig(
        outer=writer.outer,
        extent=writer.extent,
        inner=writer.inner,
        backwards=axis.backwards,
        computation=folding.known,
        unsigned=folding.elements[0].is_unsigned,
        whole_bytes=all(element.bits >= 8 for element in folding.elements),
        start=start,
        associative=writer.associative,
    )
    made = kernel(
        folding.context,
        "scan",
        [*operands, *starts],
        writer.write,
        config=config,
        combiner=Combiner([storage_type(e) for e in folding.elements * 2], writer.combined),
        result_types=flat,
        independent=writer.outer > 1,
    )
    return [reshaped(array, f, t) for array, f, t in zip(made, flat, types, strict=True)]


def _rounds(folding: Folding) -> bool:
    """Whether accumulators are rounded and not vectorized: such scans run along contiguous lines, by blocks."""
    return folding.elements[0].is_complex or (not folding.known and _free(folding))


def _free(folding: Folding) -> bool:
    """Whether the scan may be reassociated: unknown combiners without rounding stay sequential, associative or not."""
    return bool(folding.known) or all(e.is_float or e.is_complex for e in folding.elements)


def _scan_turned(
    folding: Folding, arrays: Sequence[ir.Value], shape: tuple[int, ...], axis: Axis, *, start: bool
) -> Sequence[ir.Value]:
    """Emit a scan with its dimension transposed to the end, and back again."""
    d, rank = axis.dimension, len(shape)
    there = [*(i for i in range(rank) if i != d), d]
    back = [there.index(i) for i in range(rank)]
    turned = tuple(shape[i] for i in there)
    moved = [transposed(a, folding.type(e, shape), there) for a, e in zip(arrays, folding.elements, strict=True)]
    made = _scan(folding, moved, turned, Axis(rank - 1, axis.backwards), start=start)
    return [transposed(a, folding.type(e, turned), back) for a, e in zip(made, folding.elements, strict=True)]


@dataclass(frozen=True)
class _Writer:
    """Emitter of a scan's loop nest."""

    folding: Folding
    outer: int
    extent: int
    inner: int
    backwards: bool
    start: bool

    def write(self, *operands: ir.Value) -> list[ir.Value]:
        """Emit the loop nest; return the scanned arrays. `operands` are flat arrays, and initial values if any."""
        number_of_arrays = len(self.folding.elements)
        arrays, starts = operands[:number_of_arrays], operands[number_of_arrays:]
        scan_rows = self._one_row if self.inner == 1 else self._rows
        made = empty_like(arrays, self.outer * self.extent * self.inner)
        return count(0, self.outer, made, lambda o, *out: scan_rows(arrays, starts, o, out))

    def _place(self, outer: ir.Value, row: ir.Value, column: ir.Value | int) -> ir.Value:
        """Return the linear index of an element of the `row`-th row in scan order."""
        row = sub(number(self.extent - 1), row) if self.backwards else row
        return plus(times(plus(times(outer, self.extent), row), self.inner), column)

    def _values(self, stored: Sequence[ir.Value]) -> list[ir.Value]:
        return [from_storage(v, e) for v, e in zip(stored, self.folding.elements, strict=True)]

    def _stored(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        return [to_storage(v, e) for v, e in zip(values, self.folding.elements, strict=True)]

    def combined(self, both: Sequence[ir.Value]) -> list[ir.Value]:
        """Combine stored accumulators with the next stored elements; the order is kept, also backwards."""
        half = len(both) // 2
        totals, values = self._values(both[:half]), self._values(both[half:])
        return self._stored(self.folding.apply(*((values, totals) if self.backwards else (totals, values))))

    @property
    def associative(self) -> bool:
        return _free(self.folding)

    @cached_property
    def _wide(self) -> ElementType | None:
        """The wider accumulator type, if any: a product accumulates the errors of all its factors."""
        return BY_NAME["c128"] if self.folding.known == "multiply" and self.folding.elements[0] == C64 else None

    def _first(self, starts: Sequence[ir.Value], values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return self.folding.apply(starts, values) if self.start else values

    def _next(self, totals: Sequence[ir.Value], values: Sequence[ir.Value]) -> list[ir.Value]:
        """Combine the accumulators with the next values; the order of elements is kept, also backwards."""
        first, last = (values, totals) if self.backwards else (totals, values)
        if self._wide is not None:
            return [BINARY["multiply"](first[0], last[0], self._wide)]
        return self.folding.apply(first, last)

    def _widened(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        return [*values] if self._wide is None else [convert_value(v, C64, self._wide) for v in values]

    def _narrowed(self, totals: Sequence[ir.Value]) -> list[ir.Value]:
        return [*totals] if self._wide is None else [convert_value(v, self._wide, C64) for v in totals]

    def _one_row(
        self, arrays: Sequence[ir.Value], starts: Sequence[ir.Value], outer: ir.Value, out: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        """Scan a contiguous line; the accumulators are carried from element to element."""

        def place(row: ir.Value) -> ir.Value:
            return self._place(outer, row, 0)

        def read(row: ir.Value) -> list[ir.Value]:
            return self._widened(self._values(get(arrays, place(row))))

        def write(totals: Sequence[ir.Value], out: Sequence[ir.Value], row: ir.Value) -> list[ir.Value]:
            return put(self._stored(self._narrowed(totals)), out, place(row))

        line = LineScan(self.extent, self._next, read, write, in_order=not self.associative)
        return line.run(out, self._widened(starts) if self.start else None)

    def _rows(
        self, arrays: Sequence[ir.Value], starts: Sequence[ir.Value], outer: ir.Value, out: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        """Scan row by row: each is combined with the stored row before it, in panels whose last row stays in cache."""

        def panel(first: ir.Value, *out: ir.Value) -> Sequence[ir.Value]:
            stop = smaller(plus(first, SCAN_PANEL()), self.inner)

            def begin(column: ir.Value, *out: ir.Value) -> Sequence[ir.Value]:
                at = self._place(outer, number(0), column)
                return put(self._stored(self._first(starts, self._values(get(arrays, at)))), out, at)

            def row(iteration: ir.Value, *out: ir.Value) -> Sequence[ir.Value]:
                def element(column: ir.Value, *out: ir.Value) -> Sequence[ir.Value]:
                    at = self._place(outer, iteration, column)
                    before = self._place(outer, sub(iteration, 1), column)
                    totals = self._next(self._values(get(out, before)), self._values(get(arrays, at)))
                    return put(self._stored(totals), out, at)

                return count(first, stop, out, element)

            return count(1, self.extent, count(first, stop, out, begin), row)

        return count(0, self.inner, out, panel, step=SCAN_PANEL())
