"""Complex numbers as pairs of vectors, and the array layouts that Fourier transforms load and store.

Layouts: interleaved real and imaginary parts (the program's arrays), two planes (tables), or cells: a vector of real
parts and then one of imaginary parts, one transform per lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Index, Value


class ComplexArray(Protocol):
    """A line of complex numbers in some layout, to load from or store to."""

    def load(self, at: Index, lanes: int) -> Complex:
        """Load `lanes` contiguous numbers from `at` on; for 0 lanes one number."""

    def store(self, value: Complex, at: Index) -> None:
        """Store the numbers of all lanes from `at` on."""


@dataclass(frozen=True)
class InterleavedArray:
    """Interleaved layout (re, im, re, im ...), as in the program's arrays, from number `base` of a buffer on.

    Attributes:
        part: the compute type, which may be wider than that of the buffer.
        scale: multiplies each number stored.
    """

    parts: Value
    base: Value
    part: ir.Type
    scale: float = 1.0

    def load(self, at: Index, lanes: int) -> Complex:
        place = (self.base + cg.index(at)) * 2
        if not lanes:
            return Complex(*(cg.to_float(cg.load(self.parts, place + i), self.part) for i in (0, 1)))
        low, high = cg.load(self.parts, place, lanes), cg.load(self.parts, place + lanes, lanes)
        even = list(range(0, 2 * lanes, 2))
        parts = (cg.shuffle(low, high, even), cg.shuffle(low, high, [lane + 1 for lane in even]))
        return Complex(*(cg.to_float(v, self.part) for v in parts))

    def store(self, value: Complex, at: Index) -> None:
        place, value = (self.base + cg.index(at)) * 2, value.scaled(self.scale)
        value = Complex(*(cg.to_float(v, self.parts.element) for v in (value.re, value.im)))
        lanes = value.re.lanes
        if not lanes:
            cg.store(value.re, self.parts, place)
            cg.store(value.im, self.parts, place + 1)
            return
        order = [lane for i in range(lanes) for lane in (i, i + lanes)]
        cg.store(cg.shuffle(value.re, value.im, order[:lanes]), self.parts, place)
        cg.store(cg.shuffle(value.re, value.im, order[lanes:]), self.parts, place + lanes)


@dataclass(frozen=True)
class PlanarArray:
    """Planar layout: real parts from `base` of a buffer on, imaginary parts `apart` elements later."""

    buffer: Value
    base: Value
    apart: int

    def load(self, at: Index, lanes: int) -> Complex:
        place = self.base + cg.index(at)
        return Complex(cg.load(self.buffer, place, lanes), cg.load(self.buffer, place + self.apart, lanes))

    def store(self, value: Complex, at: Index) -> None:
        place = self.base + cg.index(at)
        cg.store(value.re, self.buffer, place)
        cg.store(value.im, self.buffer, place + self.apart)


@dataclass(frozen=True)
class RealArray:
    """Real layout: imaginary parts are loaded as zero and not stored."""

    buffer: Value
    base: Value
    part: ir.Type
    scale: float = 1.0

    def load(self, at: Index, lanes: int) -> Complex:
        re = cg.to_float(cg.load(self.buffer, self.base + cg.index(at), lanes), self.part)
        return Complex(re, cg.constant(0.0, re.type))

    def store(self, value: Complex, at: Index) -> None:
        re = value.re if self.scale == 1.0 else value.re * self.scale
        cg.store(cg.to_float(re, self.buffer.element), self.buffer, self.base + cg.index(at))


@dataclass(frozen=True)
class ConjugateProduct:
    """Fuse a table product into the store: stores the conjugate of each number times the table's."""

    array: ComplexArray
    table: PlanarArray

    def load(self, at: Index, lanes: int) -> Complex:
        return self.array.load(at, lanes)

    def store(self, value: Complex, at: Index) -> None:
        self.array.store((value * self.table.load(at, value.re.lanes)).conjugate(), at)


@dataclass(frozen=True)
class CellArray:
    """Cell layout: one number for each lane at each place, from cell `base` of a buffer on."""

    buffer: Value
    base: Value
    width: int

    def load(self, at: Index, lanes: int = 0) -> Complex:
        place = (self.base + cg.index(at)) * (2 * self.width)
        return Complex(cg.load(self.buffer, place, self.width), cg.load(self.buffer, place + self.width, self.width))

    def store(self, value: Complex, at: Index) -> None:
        place = (self.base + cg.index(at)) * (2 * self.width)
        cg.store(value.re, self.buffer, place)
        cg.store(value.im, self.buffer, place + self.width)


def broadcast(array: ComplexArray, at: Index, lanes: int) -> Complex:
    """Load one number and broadcast it to all lanes."""
    value = array.load(at, 0)
    return Complex(cg.splat(value.re, lanes), cg.splat(value.im, lanes))


def vector_of_numbers(values: Sequence[Complex]) -> Complex:
    """Build a vector from single numbers, one per lane."""
    made = zeros(values[0].re.type, len(values))
    for lane, value in enumerate(values):
        made = Complex(cg.insert(value.re, made.re, lane), cg.insert(value.im, made.im, lane))
    return made


def zeros(part: ir.Type, lanes: int) -> Complex:
    """Return zero in all lanes."""
    zero = cg.constant(0.0, cg.vector_of(lanes, part))
    return Complex(zero, zero)
