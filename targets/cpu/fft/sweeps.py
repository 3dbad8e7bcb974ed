"""What is done to each number between transforms: chirps, and the factors between half spectra and real numbers.

A sweep goes over the indices of one line with a vector at a time, or over the cells of many lines, one index at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.lowering.kernels.fft.plan import Bluestein, Rader, RealLine
from stablexla.lowering.kernels.fft.tables import Table
from stablexla.targets.codegen.emission import (
    Index,
    Value,
    cast_index,
    extract,
    index,
    loop,
    maximum,
    minimum,
    vector_of,
)
from stablexla.targets.cpu.fft.columns import Tables
from stablexla.targets.cpu.fft.numbers import Array, Complex, broadcast, collected, zeros


class Access(Protocol):
    """How the numbers at some indices are reached."""

    def load(self, array: Array, k: Value) -> Complex:
        """The numbers at k and after it."""

    def mirrored(self, array: Array, k: Value) -> Complex:
        """The numbers at k and before it, in this order."""

    def root(self, table: Table, k: Value) -> Complex:
        """The roots of a table at k and after it."""

    def same_root(self, table: Table, k: Value) -> Complex:
        """The root of a table at k for all of them."""

    def picked(self, array: Array, places: Value) -> Complex:
        """The numbers at places, which are whole numbers as a table has them."""

    def zero(self) -> Complex:
        """Zero."""


@dataclass(frozen=True)
class AlongLine:
    """`lanes` neighbours of one line; one number for 0 lanes."""

    tables: Tables
    part: ir.Type
    lanes: int

    def load(self, array: Array, k: Value) -> Complex:
        return array.load(k, self.lanes)

    def mirrored(self, array: Array, k: Value) -> Complex:
        return array.load(k - max(0, self.lanes - 1), self.lanes).reversed()

    def root(self, table: Table, k: Value) -> Complex:
        return self.tables[table].load(k, self.lanes)

    def same_root(self, table: Table, k: Value) -> Complex:
        return broadcast(self.tables[table], k, self.lanes)

    def picked(self, array: Array, places: Value) -> Complex:
        words = _words(places)
        if not self.lanes:
            return array.load(words[0], 0)
        return collected([array.load(word, 0) for word in words])

    def zero(self) -> Complex:
        return zeros(self.part, self.lanes)


@dataclass(frozen=True)
class AcrossLines:
    """One number of each of `lanes` lines."""

    tables: Tables
    part: ir.Type
    lanes: int

    def load(self, array: Array, k: Value) -> Complex:
        return array.load(k, self.lanes)

    def mirrored(self, array: Array, k: Value) -> Complex:
        return array.load(k, self.lanes)

    def root(self, table: Table, k: Value) -> Complex:
        return broadcast(self.tables[table], k, self.lanes)

    def same_root(self, table: Table, k: Value) -> Complex:
        return self.root(table, k)

    def picked(self, array: Array, places: Value) -> Complex:
        return array.load(_words(places)[0], self.lanes)

    def zero(self) -> Complex:
        return zeros(self.part, self.lanes)


def _words(places: Value) -> list[Value]:
    """Whole numbers, one or one in each lane, as indices."""
    words = Value(arith.fptosi(vector_of(places.lanes, ir.IntegerType.get_signless(32)), places.ssa))
    each = [extract(words, lane) for lane in range(words.lanes)] if words.lanes else [words]
    return [cast_index(word, ir.IndexType.get()) for word in each]


Step = Callable[[Access, Value], None]
# Does a step for the indices from one on to another, which is not reached.
Each = Callable[[Index, Index, Step], None]


def along(tables: Tables, part: ir.Type, lanes: int) -> Each:
    """Sweeps along a line: whole vectors, then one by one."""

    def each(low: Index, high: Index, step: Step) -> None:
        first, last = index(low), index(high)
        middle = first + (last - first) // lanes * lanes
        with loop(first, middle, lanes) as turn:
            step(AlongLine(tables, part, lanes), turn.iv)
        if middle.known is None or middle.known != last.known:
            with loop(middle, last) as turn:
                step(AlongLine(tables, part, 0), turn.iv)

    return each


def within(each: Each, start: Value, size: int) -> Each:
    """The part of a sweep whose indices are in [start, start + size)."""

    def part(low: Index, high: Index, step: Step) -> None:
        each(maximum(start, low), maximum(minimum(start + size, high), maximum(start, low)), step)

    return part


def across(tables: Tables, part: ir.Type, lanes: int) -> Each:
    """Sweeps over cells."""

    def each(low: Index, high: Index, step: Step) -> None:
        with loop(low, high) as turn:
            step(AcrossLines(tables, part, lanes), turn.iv)

    return each


# ---- convolutions ----------------------------------------------------------------------------------------------------


def chirp(each: Each, plan: Bluestein, source: Array, target: Array) -> None:
    """The line times the chirp, and zeros up to the length of the convolution."""
    each(0, plan.n, lambda access, k: target.store(access.load(source, k) * access.root(plan.chirp, k), k))
    each(plan.n, plan.inner.n, lambda access, k: target.store(access.zero(), k))


def convolve(each: Each, plan: Bluestein, source: Array, target: Array) -> None:
    """The conjugate of the product with the chirp's spectrum."""

    def step(access: Access, k: Value) -> None:
        target.store((access.load(source, k) * access.root(plan.spectrum, k)).conjugate(), k)

    each(0, plan.inner.n, step)


def unchirp(each: Each, plan: Bluestein, source: Array, target: Array) -> None:
    """The conjugate times the chirp."""

    def step(access: Access, k: Value) -> None:
        target.store(access.load(source, k).conjugate() * access.root(plan.chirp, k), k)

    each(0, plan.n, step)


def reorder(each: Each, plan: Rader, source: Array, target: Array) -> None:
    """All numbers of the line but the first, in the order in which they are convolved."""

    def step(access: Access, k: Value) -> None:
        target.store(access.picked(source, access.root(plan.places, k).re), k)

    each(0, plan.n - 1, step)


def add_first(plan: Rader, source: Array, product: Array, target: Array, one: Access) -> None:
    """Puts the first number of the line into each sum, and the sum of all numbers into the result.

    `product` holds the conjugates of a spectrum's products, whose first number was multiplied by -1 / (n - 1).
    """
    zero = index(0)
    first, sums = one.load(source, zero), one.load(product, zero)
    product.store(sums + first.conjugate(), zero)
    target.store(first + sums.conjugate().scaled(-(plan.n - 1.0)), zero)


def reorder_back(each: Each, plan: Rader, source: Array, target: Array) -> None:
    """The conjugates, in the order of the result, whose first number is there already."""

    def step(access: Access, k: Value) -> None:
        target.store(access.picked(source, access.root(plan.places, k).im).conjugate(), k + 1)

    each(0, plan.n - 1, step)


# ---- real numbers ----------------------------------------------------------------------------------------------------


def copy(each: Each, count: int, source: Array, target: Array) -> None:
    """The first `count` numbers."""
    each(0, count, lambda access, k: target.store(access.load(source, k), k))


def _unit(access: Access, plan: RealLine, k: Value) -> Complex:
    assert plan.fine is not None
    if plan.coarse is None:
        return access.root(plan.fine, k)
    columns = plan.fine.columns
    return access.root(plan.fine, k % columns) * access.same_root(plan.coarse, k // columns)


def join_halves(each: Each, plan: RealLine, source: Array, target: Array, one: Access) -> None:
    """From the transform of neighbours taken as complex numbers to that of the real numbers.

    `source` has room for one number more than that transform, which is set to the first.
    """
    half = plan.n // 2
    source.store(one.load(source, index(0)), index(half))

    def step(access: Access, k: Value) -> None:
        a, b = access.load(source, k), access.mirrored(source, half - k).conjugate()
        both = a + b + ((a - b) * _unit(access, plan, k)).times_i(-1)
        target.store(both.scaled(0.5), k)

    each(0, half + 1, step)


def part_halves(each: Each, plan: RealLine, source: Array, target: Array, one: Access) -> None:
    """The inverse of `join_halves`, times 2; the first and the last number of `source` are taken to be real."""
    half = plan.n // 2

    def step(access: Access, k: Value) -> None:
        a, b = access.load(source, k), access.mirrored(source, half - k).conjugate()
        target.store(a + b + ((a - b) * _unit(access, plan, k)).times_i(1), k)

    each(0, half, step)
    first, last = one.load(source, index(0)).re, one.load(source, index(half)).re
    target.store(Complex(first + last, first - last), index(0))


def mirror(each: Each, plan: RealLine, source: Array, target: Array, one: Access) -> None:
    """The whole spectrum of an odd number of real numbers; its first number is taken to be real."""
    n, kept = plan.n, plan.n // 2 + 1
    copy(each, kept, source, target)
    first = one.load(source, index(0)).re
    target.store(Complex(first, one.zero().re), index(0))
    each(kept, n, lambda access, k: target.store(access.mirrored(source, n - k).conjugate(), k))
