"""Plan of a Fourier transform: its decomposition, chosen by the length alone, and the tables that it needs.

A length with small prime factors is a sequence of mixed-radix passes; a long one that splits is a four-step FFT, two
such sequences with twiddle factors between them; one with a large prime factor becomes a convolution (Rader,
Bluestein). Bodies and emitters follow the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from math import isqrt

import numpy as np

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.tables import (
    Chirp,
    ChirpSpectrum,
    Places,
    PlacesSpectrum,
    Powers,
    Table,
    factors,
)

# Prime factors above this cost more as a pass than the two longer transforms of a convolution, which are split in two
# along lines: those of primes below 31 would be too short for that.
LARGEST_RADIX = Gate("fft.largest-radix", 61, eager=31)
# A prime n uses Rader's convolution of length n - 1 if no prime factor of n - 1 is above this one.
LARGEST_BEFORE_PRIME = Gate("fft.largest-before-prime", 13, eager=3)
# The longest such prime: its permutation is stored in tables of the elements' type, exact in f32 up to here.
LONGEST_PRIME = 1 << 24
# A transform is split in two when both parts have at least this length.
SHORTEST_PART = Gate("fft.shortest-part", 8, eager=2)
# A second part up to this length is transformed in L1; then the shorter the first part, the better: 1000 lines of 1024
# take 1.24 ms as 16 * 64, and 1.4 to 1.7 ms as 32 * 32; from 512 on a longer second part loses.
LONGEST_ROWS = Gate("fft.longest-rows", 256, eager=4)
# Up to this many elements the twiddle factors between two parts are one table; above, products of two tables.
ONE_TABLE = Gate("fft.one-table", 4096, eager=4)
# Elements of the finer of two tables that replace a long one: whole vectors.
FINE_ROOTS = Gate("fft.fine-roots", 1024, eager=1)
LONGEST_VECTOR = 16


# ---- transforms of one dimension -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """A Stockham radix pass: `done` * `radix` * `rest` is the length of the transform.

    An array [done, radix, rest] becomes [radix, done, rest]: out[j, k, q] is the sum over t of
    in[k, t, q] * twiddles[k * radix + t] * roots[j * t mod radix].
    """

    done: int
    radix: int
    rest: int
    roots: Powers
    twiddles: Powers | None


@dataclass(frozen=True)
class Direct:
    """A transform as a sequence of Stockham passes."""

    n: int
    passes: tuple[Pass, ...]

    @property
    def tables(self) -> Iterator[Table]:
        for step in self.passes:
            yield step.roots
            if step.twiddles is not None:
                yield step.twiddles


@dataclass(frozen=True)
class Split:
    """Four-step FFT of [columns.n, rows.n]: transform columns, multiply by twiddles, transpose, transform rows.

    The twiddle factor at [a, b] is fine[a, b], or with a coarse table
    fine[a % fine.rows, b] * coarse[a // fine.rows, b].
    """

    n: int
    columns: Direct
    rows: Direct
    fine: Powers
    coarse: Powers | None

    @property
    def tables(self) -> Iterator[Table]:
        yield from self.columns.tables
        yield from self.rows.tables
        yield self.fine
        if self.coarse is not None:
            yield self.coarse


@dataclass(frozen=True)
class Bluestein:
    """Bluestein's chirp-z: the product with a chirp, convolved with the conjugate chirp by transforms of `inner.n`."""

    n: int
    chirp: Chirp
    spectrum: ChirpSpectrum
    inner: Direct | Split

    @property
    def tables(self) -> Iterator[Table]:
        yield self.chirp
        yield self.spectrum
        yield from self.inner.tables


@dataclass(frozen=True)
class Rader:
    """Rader's algorithm for a prime n: all elements but the first, permuted by `places`, convolved with the roots.

    The convolution is by transforms of length n - 1.
    """

    n: int
    places: Places
    spectrum: PlacesSpectrum
    inner: Split

    @property
    def tables(self) -> Iterator[Table]:
        yield self.places
        yield self.spectrum
        yield from self.inner.tables


Line = Direct | Split | Bluestein | Rader


@functools.cache
def radices(n: int) -> tuple[int, ...]:
    """Return the radices of the passes: fours and at most one two or eight, then odd primes; none for n = 1."""
    primes = factors(n)
    twos = primes.count(2)
    powers = {0: [], 1: [2], 3: [8]}.get(twos, [4] * (twos // 2) if twos % 2 == 0 else [8] + [4] * ((twos - 3) // 2))
    return (*sorted((p for p in primes if p != 2), reverse=True), *powers)


def direct(n: int, sign: int) -> Direct:
    """Plan the passes of a length without large prime factors."""
    passes, done = [], 1
    for radix in radices(n):
        twiddles = Powers(done * radix, sign, columns=radix, rows=done) if done > 1 else None
        passes.append(Pass(done, radix, n // (done * radix), Powers(radix, sign, columns=radix, first=1), twiddles))
        done *= radix
    return Direct(n, tuple(passes))


def _split(n: int, sign: int) -> Split | None:
    """Split a length in two parts that fill vectors well: the shortest with rows held in cache, else about equal."""
    parts = [part for part in range(isqrt(n), SHORTEST_PART() - 1, -1) if n % part == 0]
    parts = [part for part in reversed(parts) if n // part <= LONGEST_ROWS()] or parts
    best = min(parts, key=lambda part: _padding(part) + _padding(n // part), default=0)
    return _split_at(n, best, n // best, sign) if best else None


def _padding(n: int) -> float:
    """Return the share of lanes computed twice when n numbers are taken in vectors of 8."""
    return -(-n // 8) * 8 / n


def _split_at(n: int, columns: int, rows: int, sign: int) -> Split:
    fine, coarse = Powers(n, sign, columns=rows, rows=columns), None
    if n > ONE_TABLE():
        step = 1 << (columns.bit_length() // 2)
        fine = Powers(n, sign, columns=rows, rows=step)
        coarse = Powers(n, sign, columns=rows, rows=-(-columns // step), step=step)
    return Split(n, direct(columns, sign), direct(rows, sign), fine, coarse)


def _convolution_length(n: int) -> int:
    """Return the smallest convolution length >= 2 n - 1 that is a power of two times 1 or a few small odd numbers."""
    return min(odd << max(4, (-(-(2 * n - 1) // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))


def line(n: int, sign: int, *, split: bool) -> Line:
    """Plan a transform of length n >= 1.

    Args:
        sign: -1 forward, 1 inverse; nothing is divided by n.
        split: whether a long one may be split: along contiguous elements, that is.
    """
    gates = (SHORTEST_PART, ONE_TABLE, LARGEST_RADIX, LARGEST_BEFORE_PRIME, LONGEST_ROWS)
    return _line(n, sign, split, tuple(gate() for gate in gates))


@functools.cache
def _line(n: int, sign: int, split: bool, gates: tuple[int, ...]) -> Line:
    """Plan it; the gates decide, too."""
    largest = max(factors(n), default=1)
    prime = LARGEST_RADIX() < n == largest <= LONGEST_PRIME
    if split and prime and max(factors(n - 1)) <= LARGEST_BEFORE_PRIME():
        before = _split(n - 1, sign)
        if before is not None:
            return Rader(n, Places(n), PlacesSpectrum(n, sign), before)
    if largest > LARGEST_RADIX():
        m = _convolution_length(n)
        inner = line(m, sign, split=split)
        assert isinstance(inner, Direct | Split)
        return Bluestein(n, Chirp(n, sign), ChirpSpectrum(n, m, sign), inner)
    return (_split(n, sign) if split else None) or direct(n, sign)


# ---- whole transforms ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RealLine:
    """Transform between real numbers and their half spectrum, along the last dimension.

    For an even length by a complex transform of half of it; `fine` and `coarse` are the twiddle factors that combine
    the spectra of even and odd elements: fine[k % fine.columns] * coarse[k // fine.columns].
    """

    n: int
    inner: Line
    fine: Powers | None
    coarse: Powers | None

    @property
    def tables(self) -> Iterator[Table]:
        yield from self.inner.tables
        if self.fine is not None:
            yield self.fine
        if self.coarse is not None:
            yield self.coarse


def real_line(n: int, sign: int) -> RealLine:
    """Plan a real transform of length n >= 1."""
    if n % 2:
        return RealLine(n, line(n, sign, split=True), None, None)
    kept = n // 2 + 1
    fine, coarse = Powers(n, sign, columns=kept, first=1), None
    if kept > ONE_TABLE():
        few = -(-FINE_ROOTS() // LONGEST_VECTOR) * LONGEST_VECTOR
        fine = Powers(n, sign, columns=few, first=1)
        coarse = Powers(n, sign, columns=-(-kept // few), first=few)
    return RealLine(n, line(n // 2, sign, split=True), fine, coarse)


@dataclass(frozen=True)
class Axis:
    """A transform along one dimension of an array seen as [outer, n, inner]."""

    outer: int
    inner: int
    plan: Line | RealLine


@dataclass(frozen=True)
class Transform:
    """A transform over one to three dimensions: the axes in their order, and the scale of the result."""

    kind: str
    axes: tuple[Axis, ...]
    scale: float

    @property
    def tables(self) -> list[Table]:
        """All tables, without duplicates."""
        return list(dict.fromkeys(table for axis in self.axes for table in axis.plan.tables))


def plan_transform(kind: str, shape: tuple[int, ...], lengths: tuple[int, ...]) -> Transform:
    """Plan a transform that is not empty.

    Args:
        kind: "FFT", "IFFT", "RFFT" or "IRFFT".
        shape: extents of the array of complex numbers: of the result for "RFFT", else of the operand.
        lengths: the transformed lengths, as `fft_length` has them.
    """
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    real = kind in ("RFFT", "IRFFT")
    axes = []
    for place in range(len(shape) - len(lengths), len(shape)):
        last = place == len(shape) - 1
        outer, inner = int(np.prod(shape[:place])), int(np.prod(shape[place + 1 :]))
        if last and real:
            axes.append(Axis(outer, 1, real_line(lengths[-1], sign)))
        else:
            axes.append(Axis(outer, inner, line(shape[place], sign, split=inner == 1)))
    if kind in ("FFT", "RFFT"):
        axes.reverse()
    scale = 1.0 / float(np.prod([float(n) for n in lengths])) if sign > 0 else 1.0
    return Transform(kind, tuple(axes), scale)
