"""FFT passes in shared memory: a block has some lines, and its threads share the butterflies of a pass.

Passes ping-pong between two buffers, so that one barrier stands between passes. Twiddle factors, index reversal and
zero padding before and after a pass are applied where elements are loaded. Computed in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlir.ir as ir
import numpy as np
from mlir.dialects import gpu

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Bluestein, Direct, Line, Pass, RealLine, Split
from stablexla.lowering.kernels.fft.tables import Powers, Table, roots
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Value
from stablexla.targets.gpu.threads import shared_buffer, thread_index

# (line of the block, position in it) -> element; and the same with the element to be stored.
Read = Callable[[Value, Value], Complex]
Write = Callable[[Value, Value, Complex], None]
LARGEST_RADIX = 13


@dataclass(frozen=True)
class FftLinesShape:
    """Lines of a block, their maximum length, and the threads that work on them.

    Attributes:
        across: neighbouring threads take neighbouring lines, not neighbours of a line.
    """

    lines: int
    length: int
    threads: int
    across: bool

    @property
    def pitch(self) -> int:
        """Leading dimension of the lines, padded: powers of two would conflict in the same banks."""
        return self.length + 1 if self.lines > 1 else self.length

    @property
    def bytes(self) -> int:
        """Shared memory of both buffers."""
        return 4 * 8 * self.lines * self.pitch


class FftLines:
    """The passes of a block's lines inside one function."""

    def __init__(self, shape: FftLinesShape, tables: Mapping[Table, Value]) -> None:
        self.shape, self.tables = shape, tables
        self._f64 = ir.F64Type.get()
        self._side = 0

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _planes(self, side: int) -> list[Value]:
        size = self.shape.lines * self.shape.pitch
        return [shared_buffer(self._f64, size, 8 * size * (2 * side + plane)) for plane in range(2)]

    def _reader(self, side: int) -> Read:
        def read(line: Value, at: Value) -> Complex:
            return Complex(*(cg.load(plane, line * self.shape.pitch + at) for plane in self._planes(side)))

        return read

    def _writer(self, side: int) -> Write:
        def write(line: Value, at: Value, value: Complex) -> None:
            for part, plane in zip(value.parts, self._planes(side), strict=True):
                cg.store(part, plane, line * self.shape.pitch + at)

        return write

    def each(self, count: int, body: Callable[[Value, Value], None]) -> None:
        """Emit `body(line, number)` for so many numbers in every line, shared among threads."""
        lines = self.shape.lines
        with cg.loop(thread_index(), cg.index(lines * count), self.shape.threads) as item:
            if self.shape.across:
                body(item.iv % lines, item.iv // lines)
            else:
                body(item.iv // count, item.iv % count)

    def root(self, table: Table, at: Value) -> Complex:
        """Load an element of a table of twiddle factors."""
        planes = self.tables[table]
        return Complex(cg.load(planes, at), cg.load(planes, at + table.size))

    def _product_of_roots(self, fine: Powers, coarse: Powers | None, row: Value, column: Value) -> Complex:
        if coarse is None:
            return self.root(fine, row * fine.columns + column)
        inside, outside = row % fine.rows, row // fine.rows
        return self.root(fine, inside * fine.columns + column) * self.root(coarse, outside * coarse.columns + column)

    # ---- transforms --------------------------------------------------------------------------------------------------

    def line(self, plan: Line, read: Read) -> Read:
        """Emit a complex transform of the elements read; returns how to read its result."""
        if isinstance(plan, Direct):
            return self._passes(plan, 1, read)
        if isinstance(plan, Split):
            return self._split(plan, read)
        assert isinstance(plan, Bluestein)
        return self._convolution(plan, read)

    def _passes(self, plan: Direct, inner: int, read: Read) -> Read:
        for step in plan.passes:
            read = self._pass(step, step.rest * inner, read)
        return read

    def _pass(self, step: Pass, rest: int, read: Read) -> Read:
        """Emit one pass, from a reader into a buffer."""
        write = self._writer(self._side)

        def group(line: Value, number: Value) -> None:
            k, q = number // rest, number % rest
            given = []
            for t in range(step.radix):
                value = read(line, (k * step.radix + t) * rest + q)
                if t and step.twiddles is not None:
                    value = value * self.root(step.twiddles, k * step.radix + t)
                given.append(value)
            for j, value in enumerate(butterfly(given, step.roots.sign)):
                write(line, (k + j * step.done) * rest + q, value)

        self.each(step.done * rest, group)
        gpu.barrier()
        made = self._reader(self._side)
        self._side = 1 - self._side
        return made

    def _split(self, plan: Split, read: Read) -> Read:
        n, m = plan.columns.n, plan.rows.n
        made = self._passes(plan.columns, m, read)

        def turned(line: Value, at: Value) -> Complex:
            b, a = at // n, at % n
            return made(line, a * m + b) * self._product_of_roots(plan.fine, plan.coarse, a, b)

        return self._passes(plan.rows, n, turned)

    def _convolution(self, plan: Bluestein, read: Read) -> Read:
        zero = cg.constant(0.0, self._f64)

        def chirped(line: Value, at: Value) -> Complex:
            inside = at.lt(plan.n)
            place = cg.select(inside, at, cg.index(0))
            product = read(line, place) * self.root(plan.chirp, place)
            return Complex(*(cg.select(inside, part, zero) for part in product.parts))

        spectrum = self.line(plan.inner, chirped)
        back = self.line(plan.inner, lambda line, at: (spectrum(line, at) * self.root(plan.spectrum, at)).conjugate())
        return lambda line, at: back(line, at).conjugate() * self.root(plan.chirp, at)

    # ---- between real numbers and half a spectrum --------------------------------------------------------------------

    def from_real(self, plan: RealLine, read: Callable[[Value, Value], Value]) -> Read:
        """Emit a real-input FFT: returns the half spectrum."""
        if plan.fine is None:
            return self.line(plan.inner, lambda line, at: Complex(read(line, at), cg.constant(0.0, self._f64)))
        half = plan.n // 2
        made = self.line(plan.inner, lambda line, at: Complex(read(line, at * 2), read(line, at * 2 + 1)))

        def joined(line: Value, k: Value) -> Complex:
            a, b = made(line, k % half), made(line, (cg.index(half) - k) % half).conjugate()
            odd = (a - b) * self._unit(plan, k)
            return (a + b + odd.times_i(-1)).scaled(0.5)

        return joined

    def to_real(self, plan: RealLine, read: Read) -> Read:
        """Emit the inverse real-input FFT of a half spectrum; results of even lengths are packed as complex pairs."""
        if plan.fine is None:
            return self.line(plan.inner, lambda line, at: self._mirrored(plan.n, read, line, at))
        half = plan.n // 2

        def without_edges(line: Value, k: Value) -> Complex:
            value = read(line, k)
            return Complex(value.re, cg.select((k % half).eq(0), cg.constant(0.0, self._f64), value.im))

        def apart(line: Value, k: Value) -> Complex:
            a, b = without_edges(line, k), without_edges(line, cg.index(half) - k).conjugate()
            odd = (a - b) * self._unit(plan, k)
            return a + b + odd.times_i(1)

        return self.line(plan.inner, apart)

    def _unit(self, plan: RealLine, k: Value) -> Complex:
        assert plan.fine is not None
        if plan.coarse is None:
            return self.root(plan.fine, k)
        return self.root(plan.fine, k % plan.fine.columns) * self.root(plan.coarse, k // plan.fine.columns)

    def _mirrored(self, n: int, read: Read, line: Value, k: Value) -> Complex:
        inside = k.lt(n // 2 + 1)
        value = read(line, cg.select(inside, k, cg.index(n) - k))
        imaginary = cg.select(inside, value.im, -value.im)
        return Complex(value.re, cg.select(k.eq(0), cg.constant(0.0, self._f64), imaginary))


def butterfly(given: list[Complex], sign: int) -> list[Complex]:
    """Emit the DFT of a few numbers: radix-2 recursively, and odd lengths by definition."""
    n = len(given)
    if n == 1:
        return given
    units = roots(np.arange(n, dtype=np.int64), n, sign)
    if n % 2:
        made = []
        for j in range(n):
            total = given[0]
            for t in range(1, n):
                total = total + _turned(given[t], complex(units[j * t % n]))
            made.append(total)
        return made
    even, odd = butterfly(given[::2], sign), butterfly(given[1::2], sign)
    turned = [_turned(value, complex(unit)) for value, unit in zip(odd, units, strict=False)]
    pairs = list(zip(even, turned, strict=True))
    return [a + b for a, b in pairs] + [a - b for a, b in pairs]


def _turned(value: Complex, unit: complex) -> Complex:
    """Multiply a number by a root of unity; quarter turns need no products."""
    quarters = {1: value, -1: Complex(-value.re, -value.im), 1j: value.times_i(1), -1j: value.times_i(-1)}
    if unit in quarters:
        return quarters[unit]
    return value * Complex(*(cg.constant(part, value.re.type) for part in (unit.real, unit.imag)))
