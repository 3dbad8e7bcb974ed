"""Stockham passes over adjacent columns: one transform in each lane of a few vectors, ping-ponged between two buffers.

Stockham's order of the numbers between passes needs no bit reversal at the end: see `fft_plan.Pass`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import cos, pi, sin, sqrt

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Direct, Pass
from stablexla.lowering.kernels.fft.tables import Table
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Value
from stablexla.targets.cpu.fft.numbers import CellArray, PlanarArray, broadcast, zeros

Load = Callable[[Value, int], Complex]
Store = Callable[[Value, int, Complex], None]
Tables = Mapping[Table, PlanarArray]
Read = Callable[[int | Value], Complex]
Write = Callable[[int | Value, Complex], None]


@dataclass(frozen=True)
class FftColumns:
    """Transforms of `lanes` times `vectors` columns.

    Attributes:
        buffers: the ping-pong pair, each of n * vectors cells.
        part: type of the parts of a number.
    """

    plan: Direct
    lanes: int
    vectors: int
    buffers: tuple[CellArray, CellArray]
    tables: Tables
    part: ir.Type
    sign: int

    def run(self, read: Load, write: Store) -> None:
        """Run all passes, the first loading by `read(row, vector)`, the last storing by `write(row, vector, value)`."""
        passes = self.plan.passes
        if not passes:
            for v in range(self.vectors):
                write(cg.index(0), v, read(cg.index(0), v))
        for number, step in enumerate(passes):
            source = None if number == 0 else self.buffers[(number - 1) % 2]
            target = None if number == len(passes) - 1 else self.buffers[number % 2]
            if source is not None and target is not None:
                self._inner(step, source, target)
            else:
                self._outer(step, self._reader(source) or read, self._writer(target) or write)

    def _reader(self, cells: CellArray | None) -> Load | None:
        return None if cells is None else lambda row, v: cells.load(row * self.vectors + v)

    def _writer(self, cells: CellArray | None) -> Store | None:
        return None if cells is None else lambda row, v, value: cells.store(value, row * self.vectors + v)

    def _outer(self, step: Pass, read: Load, write: Store) -> None:
        """Emit a pass that reads the source or writes the target (the first, the last, or both): row by row."""
        with cg.loop(0, step.done) as iteration:
            k = iteration.iv
            factors = self._factors(step, k)
            with cg.loop(0, step.rest) as across:
                q = across.iv
                for v in range(self.vectors):
                    self._one(step, k, factors, *_at(step, k, q, v, read, write))

    def _inner(self, step: Pass, source: CellArray, target: CellArray) -> None:
        """Emit a pass from one ping-pong buffer to the other: cell by cell."""
        width = step.rest * self.vectors
        with cg.loop(0, step.done) as iteration:
            k = iteration.iv
            factors = self._factors(step, k)
            first = k * (step.radix * width)
            with cg.loop(0, width) as across:
                q = across.iv
                self._one(
                    step,
                    k,
                    factors,
                    lambda t: source.load(first + q + t * width),
                    lambda j, value: target.store(value, k * width + q + j * (step.done * width)),
                )

    def _factors(self, step: Pass, k: Value) -> list[Complex]:
        """Return the twiddle factors of a pass's inputs; none in the first pass."""
        if step.twiddles is None or _has_loops(step):
            return []
        table = self.tables[step.twiddles]
        return [broadcast(table, k * step.radix + t, self.lanes) for t in range(1, step.radix)]

    def _one(self, step: Pass, k: Value, factors: list[Complex], read: Read, write: Write) -> None:
        if _has_loops(step):
            self._with_loops(step, k, read, write)
            return
        x = [read(t) for t in range(step.radix)]
        x[1:] = [z * f for z, f in zip(x[1:], factors, strict=True)] if factors else x[1:]
        for j, value in enumerate(butterfly(x, self.sign)):
            write(j, value)

    # ---- large primes ------------------------------------------------------------------------------------------------

    def _with_loops(self, step: Pass, k: Value, read: Read, write: Write) -> None:
        """Emit the butterfly of a large prime radix as loops, with sums and differences of the inputs in memory."""
        n, half = step.radix, step.radix // 2
        memory = cg.alloca(4 * half * self.lanes, self.part)
        sums, differences = (CellArray(memory, cg.index(i * half), self.lanes) for i in (0, 1))

        def factored(t: Value) -> Complex:
            if step.twiddles is None:
                return read(t)
            return read(t) * broadcast(self.tables[step.twiddles], k * n + t, self.lanes)

        first = read(0)
        with cg.loop(0, half, 1, [first.re, first.im]) as pairs:
            a, b = factored(pairs.iv + 1), factored(n - 1 - pairs.iv)
            sums.store(a + b, pairs.iv)
            differences.store((a - b).times_i(1), pairs.iv)
            total = Complex(*pairs.args) + a + b
            pairs.yields(total.re, total.im)
        write(0, Complex(*pairs.results))
        with cg.loop(1, half + 1) as outputs:
            j, zero = outputs.iv, zeros(self.part, self.lanes)
            with cg.loop(0, half, 1, [first.re, first.im, zero.re, zero.im, cg.index(0)]) as terms:
                angle = terms.args[4] + j
                angle = cg.select(angle.ge(n), angle - n, angle)
                root = broadcast(self.tables[step.roots], angle, self.lanes)
                even = Complex(*terms.args[:2]).plus(root.re, sums.load(terms.iv))
                odd = Complex(*terms.args[2:4]).plus(root.im, differences.load(terms.iv))
                terms.yields(even.re, even.im, odd.re, odd.im, angle)
            even, odd = Complex(*terms.results[:2]), Complex(*terms.results[2:4])
            write(j, even + odd)
            write(n - j, even - odd)


def _has_loops(step: Pass) -> bool:
    """Whether a radix is written with loops over pairs of inputs: a large prime."""
    return step.radix > LARGEST_UNROLLED() and step.radix % 2 == 1


def _at(step: Pass, k: Value, q: Value, v: int, read: Load, write: Store) -> tuple[Read, Write]:
    """Return the load and the store of vector v in one butterfly of a pass, at [k, ..., q]."""

    def read_one(t: int | Value) -> Complex:
        return read((k * step.radix + t) * step.rest + q, v)

    def write_one(j: int | Value, value: Complex) -> None:
        row = k + (j * step.done if isinstance(j, Value) else cg.index(j * step.done))
        write(row * step.rest + q, v, value)

    return read_one, write_one


# ---- butterflies -----------------------------------------------------------------------------------------------------


# Larger primes are written with loops.
LARGEST_UNROLLED = Gate("fft.largest-unrolled", 13, eager=2)


def butterfly(x: Sequence[Complex], sign: int) -> list[Complex]:
    """Return the DFT of x: out[j] = sum over t of x[t] * exp(sign * 2 pi i * j * t / n) for n = len(x)."""
    match len(x):
        case 1:
            return list(x)
        case 2:
            return [x[0] + x[1], x[0] - x[1]]
        case 4:
            return _four(x, sign)
        case 8:
            return _eight(x, sign)
    return _odd(x, sign)


def _four(x: Sequence[Complex], sign: int) -> list[Complex]:
    a, b = x[0] + x[2], x[0] - x[2]
    c, d = x[1] + x[3], (x[1] - x[3]).times_i(sign)
    return [a + c, b + d, a - c, b - d]


def _eight(x: Sequence[Complex], sign: int) -> list[Complex]:
    even, odd = _four(x[::2], sign), _four(x[1::2], sign)
    root = cg.constant(sqrt(0.5), x[0].re.type)

    def eighth(z: Complex) -> Complex:
        """Return z * exp(sign * 2 pi i / 8)."""
        turned = z + z.times_i(sign)
        return Complex(turned.re * root, turned.im * root)

    odd = [odd[0], eighth(odd[1]), odd[2].times_i(sign), eighth(odd[3].times_i(sign))]
    return [*(a + b for a, b in zip(even, odd, strict=True)), *(a - b for a, b in zip(even, odd, strict=True))]


def _odd(x: Sequence[Complex], sign: int) -> list[Complex]:
    """Compute a DFT of prime length: of each pair out[j], out[n - j] the sum takes cosines, the difference sines."""
    n, half = len(x), len(x) // 2
    sums = [x[t] + x[n - t] for t in range(1, half + 1)]
    differences = [(x[t] - x[n - t]).times_i(sign) for t in range(1, half + 1)]
    total = x[0]
    for each in sums:
        total = total + each
    out = [total] * n
    for j in range(1, half + 1):
        even, odd = x[0], None
        for t in range(1, half + 1):
            angle = 2 * pi * (j * t % n) / n
            even = even.plus(cg.constant(cos(angle), x[0].re.type), sums[t - 1])
            factor = cg.constant(sin(angle), x[0].re.type)
            if odd is None:
                odd = Complex(differences[0].re * factor, differences[0].im * factor)
            else:
                odd = odd.plus(factor, differences[t - 1])
        assert odd is not None
        out[j], out[n - j] = even + odd, even - odd
    return out
