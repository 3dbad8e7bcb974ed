"""Elementwise sweeps between transforms: Bluestein's chirps, Rader's permutations, twiddles of real-input FFTs.

A sweep runs along the indices of one line with a vector at a time, or across the cells of many lines, one index at a
time.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Bluestein, Rader, RealLine
from stablexla.lowering.kernels.fft.tables import Table
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.fft.columns import Tables
from stablexla.targets.cpu.fft.numbers import ComplexArray, broadcast, vector_of_numbers, zeros


@dataclass(frozen=True)
class SweepAccess:
    """How a sweep loads numbers and table entries; this one across lines: one number of each of `lanes` lines."""

    tables: Tables
    part: ir.Type
    lanes: int

    def load(self, array: ComplexArray, k: Value) -> Complex:
        """Load the numbers from k on."""
        return array.load(k, self.lanes)

    def mirrored(self, array: ComplexArray, k: Value) -> Complex:
        """Load the numbers from k downwards, in this order."""
        return array.load(k, self.lanes)

    def root(self, table: Table, k: Value) -> Complex:
        """Load the roots of unity of a table from k on."""
        return self.same_root(table, k)

    def same_root(self, table: Table, k: Value) -> Complex:
        """Broadcast the root of unity at k of a table."""
        return broadcast(self.tables[table], k, self.lanes)

    def picked(self, array: ComplexArray, places: Value) -> Complex:
        """Gather the numbers at `places`, which are integers stored as a table's floats."""
        return array.load(_words(places)[0], self.lanes)

    def zero(self) -> Complex:
        """Return zero in all lanes."""
        return zeros(self.part, self.lanes)


class AlongLine(SweepAccess):
    """Vectorize along a line: `lanes` contiguous numbers; one number for 0 lanes."""

    def mirrored(self, array: ComplexArray, k: Value) -> Complex:
        return array.load(k - max(0, self.lanes - 1), self.lanes).reversed()

    def root(self, table: Table, k: Value) -> Complex:
        return self.tables[table].load(k, self.lanes)

    def picked(self, array: ComplexArray, places: Value) -> Complex:
        words = _words(places)
        if not self.lanes:
            return array.load(words[0], 0)
        return vector_of_numbers([array.load(word, 0) for word in words])


def _words(places: Value) -> list[Value]:
    """Convert integers stored as floats, scalar or vector, to indices."""
    words = Value(arith.fptosi(cg.vector_of(places.lanes, ir.IntegerType.get_signless(32)), places.ssa))
    each = [cg.extract(words, lane) for lane in range(words.lanes)] if words.lanes else [words]
    return [cg.cast_index(word, ir.IndexType.get()) for word in each]


Step = Callable[[SweepAccess, Value], None]
# Applies a step to the indices of a half-open range.
Each = Callable[[Index, Index, Step], None]


def along(tables: Tables, part: ir.Type, lanes: int) -> Each:
    """Return a sweep along a line: whole vectors, then a scalar remainder."""

    def each(low: Index, high: Index, step: Step) -> None:
        first, last = cg.index(low), cg.index(high)
        middle = first + (last - first) // lanes * lanes
        with cg.loop(first, middle, lanes) as iteration:
            step(AlongLine(tables, part, lanes), iteration.iv)
        if middle.known is None or middle.known != last.known:
            with cg.loop(middle, last) as iteration:
                step(AlongLine(tables, part, 0), iteration.iv)

    return each


def within(each: Each, start: Value, size: int) -> Each:
    """Restrict a sweep to the indices in [start, start + size)."""

    def part(low: Index, high: Index, step: Step) -> None:
        each(cg.maximum(start, low), cg.maximum(cg.minimum(start + size, high), cg.maximum(start, low)), step)

    return part


def across(tables: Tables, part: ir.Type, lanes: int) -> Each:
    """Return a sweep over cells, vectorized across lines."""

    def each(low: Index, high: Index, step: Step) -> None:
        with cg.loop(low, high) as iteration:
            step(SweepAccess(tables, part, lanes), iteration.iv)

    return each


# ---- convolutions ----------------------------------------------------------------------------------------------------


def chirp(each: Each, plan: Bluestein, source: ComplexArray, target: ComplexArray) -> None:
    """Multiply the line by the chirp and pad with zeros to the length of the convolution (Bluestein)."""
    each(0, plan.n, lambda access, k: target.store(access.load(source, k) * access.root(plan.chirp, k), k))
    each(plan.n, plan.inner.n, lambda access, k: target.store(access.zero(), k))


def convolve(each: Each, plan: Bluestein, source: ComplexArray, target: ComplexArray) -> None:
    """Multiply by the chirp's spectrum and conjugate (Bluestein)."""

    def step(access: SweepAccess, k: Value) -> None:
        target.store((access.load(source, k) * access.root(plan.spectrum, k)).conjugate(), k)

    each(0, plan.inner.n, step)


def unchirp(each: Each, plan: Bluestein, source: ComplexArray, target: ComplexArray) -> None:
    """Multiply the conjugate by the chirp (Bluestein)."""

    def step(access: SweepAccess, k: Value) -> None:
        target.store(access.load(source, k).conjugate() * access.root(plan.chirp, k), k)

    each(0, plan.n, step)


def rader_permute(each: Each, plan: Rader, source: ComplexArray, target: ComplexArray) -> None:
    """Permute all numbers of the line but the first into the order of Rader's convolution."""

    def step(access: SweepAccess, k: Value) -> None:
        target.store(access.picked(source, access.root(plan.places, k).re), k)

    each(0, plan.n - 1, step)


def add_first(plan: Rader, source: ComplexArray, product: ComplexArray, target: ComplexArray, one: SweepAccess) -> None:
    """Add the line's first number to each sum, and store the sum of all numbers as the first result (Rader).

    `product` holds the conjugates of a spectrum's products, whose first number was multiplied by -1 / (n - 1).
    """
    zero = cg.index(0)
    first, sums = one.load(source, zero), one.load(product, zero)
    product.store(sums + first.conjugate(), zero)
    target.store(first + sums.conjugate().scaled(-(plan.n - 1.0)), zero)


def rader_unpermute(each: Each, plan: Rader, source: ComplexArray, target: ComplexArray) -> None:
    """Permute the conjugates into the order of the result, whose first number is already stored (Rader)."""

    def step(access: SweepAccess, k: Value) -> None:
        target.store(access.picked(source, access.root(plan.places, k).im).conjugate(), k + 1)

    each(0, plan.n - 1, step)


# ---- real-input transforms -------------------------------------------------------------------------------------------


def copy(each: Each, count: int, source: ComplexArray, target: ComplexArray) -> None:
    """Copy the first `count` numbers."""
    each(0, count, lambda access, k: target.store(access.load(source, k), k))


def _unit(access: SweepAccess, plan: RealLine, k: Value) -> Complex:
    assert plan.fine is not None
    if plan.coarse is None:
        return access.root(plan.fine, k)
    columns = plan.fine.columns
    return access.root(plan.fine, k % columns) * access.same_root(plan.coarse, k // columns)


def pairs_to_half_spectrum(
    each: Each, plan: RealLine, source: ComplexArray, target: ComplexArray, one: SweepAccess
) -> None:
    """Compute a real-input half spectrum from the transform of adjacent pairs taken as complex numbers.

    `source` has room for one number more than that transform, which is set to the first.
    """
    half = plan.n // 2
    source.store(one.load(source, cg.index(0)), cg.index(half))

    def step(access: SweepAccess, k: Value) -> None:
        a, b = access.load(source, k), access.mirrored(source, half - k).conjugate()
        both = a + b + ((a - b) * _unit(access, plan, k)).times_i(-1)
        target.store(both.scaled(0.5), k)

    each(0, half + 1, step)


def half_spectrum_to_pairs(
    each: Each, plan: RealLine, source: ComplexArray, target: ComplexArray, one: SweepAccess
) -> None:
    """Invert `pairs_to_half_spectrum`, times 2; the first and the last number of `source` are taken to be real."""
    half = plan.n // 2

    def step(access: SweepAccess, k: Value) -> None:
        a, b = access.load(source, k), access.mirrored(source, half - k).conjugate()
        target.store(a + b + ((a - b) * _unit(access, plan, k)).times_i(1), k)

    each(0, half, step)
    first, last = one.load(source, cg.index(0)).re, one.load(source, cg.index(half)).re
    target.store(Complex(first + last, first - last), cg.index(0))


def expand_half_spectrum(
    each: Each, plan: RealLine, source: ComplexArray, target: ComplexArray, one: SweepAccess
) -> None:
    """Expand the half spectrum of an odd number of real numbers by symmetry; its first number is taken to be real."""
    n, kept = plan.n, plan.n // 2 + 1
    copy(each, kept, source, target)
    first = one.load(source, cg.index(0)).re
    target.store(Complex(first, one.zero().re), cg.index(0))
    each(kept, n, lambda access, k: target.store(access.mirrored(source, n - k).conjugate(), k))
