"""How a Fourier transform is taken apart, decided from its length alone, and the tables of roots of unity it needs.

A length with small prime factors is a row of passes; a long one that splits is two rows of passes with a multiplication
between them; one with a large prime factor becomes a convolution (Rader, Bluestein). Bodies and emitters follow one plan.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

# Prime factors above this cost more as a pass than the two longer transforms of a convolution.
LARGEST_RADIX = 61
# A prime is taken down to the length before it (Rader) where no prime factor of that is above this one.
LARGEST_BEFORE_PRIME = 13
# A transform is split in two when both parts have at least this length.
SHORTEST_PART = 8
# Up to this many elements the factors between two parts stand in one table; above in two, of which they are products.
ONE_TABLE = 4096
# Elements of the finer of two tables that take the place of a long one.
FINE_ROOTS = 1024
QUARTER_PI = np.longdouble("0.785398163397448309615660845819876")

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.clongdouble]]


# ---- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Powers:
    """exp(sign * 2 pi i * e / n) for e = (first + row * step) * column, row by row."""

    n: int
    sign: int
    columns: int
    rows: int = 1
    first: int = 0
    step: int = 1

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def values(self) -> Numbers:
        rows = self.first + self.step * np.arange(self.rows, dtype=np.int64)
        return roots(np.multiply.outer(rows, np.arange(self.columns, dtype=np.int64)).reshape(-1), self.n, self.sign)


@dataclass(frozen=True)
class Chirp:
    """exp(sign * pi i * j^2 / n) for j < n."""

    n: int
    sign: int

    @property
    def size(self) -> int:
        return self.n

    def values(self) -> Numbers:
        places = np.arange(self.n, dtype=np.int64)
        return roots(places * places, 2 * self.n, self.sign)


@dataclass(frozen=True)
class ChirpSpectrum:
    """The transform of length m of the conjugate chirp, laid around in a circle and divided by m."""

    n: int
    m: int
    sign: int

    @property
    def size(self) -> int:
        return self.m

    def values(self) -> Numbers:
        chirp = Chirp(self.n, -self.sign).values().astype(np.complex128)
        circle = np.zeros(self.m, np.complex128)
        circle[: self.n] = chirp
        circle[self.m - self.n + 1 :] = chirp[:0:-1]
        made = np.fft.fft(circle) / self.m if self.sign < 0 else np.fft.ifft(circle)
        return made.astype(np.clongdouble)


@dataclass(frozen=True)
class Places:
    """For a prime n with the root g: real parts are g^k mod n for k < n - 1, imaginary parts where j + 1 is, as g^-q.

    Whole numbers, not roots of unity: the order in which a transform of a prime length is a convolution.
    """

    n: int

    @property
    def size(self) -> int:
        return self.n - 1

    def powers(self) -> list[int]:
        """g^k mod n."""
        g, found = primitive_root(self.n), [1]
        while len(found) < self.n - 1:
            found.append(found[-1] * g % self.n)
        return found

    def values(self) -> Numbers:
        forward = np.array(self.powers(), np.int64)
        backward = np.empty(self.n - 1, np.int64)
        backward[forward - 1] = -np.arange(self.n - 1) % (self.n - 1)
        made: Numbers = forward + np.clongdouble(1j) * backward
        return made


@dataclass(frozen=True)
class PlacesSpectrum:
    """The transform of length n - 1 of the roots exp(sign * 2 pi i * g^-k / n), divided by n - 1."""

    n: int
    sign: int

    @property
    def size(self) -> int:
        return self.n - 1

    def values(self) -> Numbers:
        exponents = np.roll(np.array(Places(self.n).powers(), np.int64)[::-1], 1)
        units = roots(exponents, self.n, self.sign).astype(np.complex128)
        made = np.fft.fft(units) / (self.n - 1) if self.sign < 0 else np.fft.ifft(units)
        made[0] = -1 / (self.n - 1)
        return made.astype(np.clongdouble)


Table = Powers | Chirp | ChirpSpectrum | Places | PlacesSpectrum


def roots(exponents: np.ndarray[tuple[int, ...], np.dtype[np.int64]], n: int, sign: int) -> Numbers:
    """exp(sign * 2 pi i * e / n): each angle is brought into the first eighth of the circle by whole numbers."""
    eighth, rest = np.divmod(8 * (exponents % n), n)
    odd = eighth % 2 == 1
    angle = np.where(odd, n - rest, rest).astype(np.longdouble) * (QUARTER_PI / n)
    near, far = np.cos(angle), np.sin(angle)
    flip = (eighth + 1) // 2 % 2 == 1
    real, imaginary = np.where(flip, far, near), np.where(flip, near, far)
    real = np.where((eighth >= 2) & (eighth < 6), -real, real)
    imaginary = np.where(eighth >= 4, -imaginary, imaginary)
    made: Numbers = real + np.clongdouble(1j) * (sign * imaginary)
    return made


# ---- transforms of one dimension -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """One step of a row of passes: `done` * `radix` * `rest` is the length of the transform.

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
    """A row of passes."""

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
    """First over the columns of [columns.n, rows.n], then times the factors, turned around, and over the rows.

    The factor at [a, b] is fine[a, b], or with a coarse table fine[a % fine.rows, b] * coarse[a // fine.rows, b].
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
    """The product with a chirp, convolved with the conjugate chirp through transforms of length `inner.n`."""

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
    """For a prime: all but the first number, in the order of `places`, convolved with roots in that order, through
    transforms of length n - 1."""

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


def primitive_root(n: int) -> int:
    """The smallest number whose powers modulo a prime n are all numbers from 1 to n - 1."""
    exponents = [(n - 1) // p for p in set(factors(n - 1))]
    return next(g for g in range(1, n) if all(pow(g, e, n) != 1 for e in exponents))


def factors(n: int) -> list[int]:
    """The prime factors, smallest first."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found + [n] * (n > 1)


@functools.cache
def radices(n: int) -> tuple[int, ...]:
    """The radices of a row of passes: fours and at most one two or eight, then odd primes; none for n = 1."""
    primes = factors(n)
    twos = primes.count(2)
    powers = {0: [], 1: [2], 3: [8]}.get(twos, [4] * (twos // 2) if twos % 2 == 0 else [8] + [4] * ((twos - 3) // 2))
    return (*sorted((p for p in primes if p != 2), reverse=True), *powers)


def direct(n: int, sign: int) -> Direct:
    """The passes of a length that has no large prime factor."""
    passes, done = [], 1
    for radix in radices(n):
        twiddles = Powers(done * radix, sign, columns=radix, rows=done) if done > 1 else None
        passes.append(Pass(done, radix, n // (done * radix), Powers(radix, sign, columns=radix, first=1), twiddles))
        done *= radix
    return Direct(n, tuple(passes))


def _split(n: int, sign: int) -> Split | None:
    """In two parts that fill vectors well, and of these two of nearly the same length."""
    parts = [part for part in range(isqrt(n), SHORTEST_PART - 1, -1) if n % part == 0]
    best = min(parts, key=lambda part: _padding(part) + _padding(n // part), default=0)
    return _split_at(n, best, n // best, sign) if best else None


def _padding(n: int) -> float:
    """How much of vectors of 8 numbers is used twice when n of them are taken."""
    return -(-n // 8) * 8 / n


def _split_at(n: int, columns: int, rows: int, sign: int) -> Split:
    fine, coarse = Powers(n, sign, columns=rows, rows=columns), None
    if n > ONE_TABLE:
        step = 1 << (columns.bit_length() // 2)
        fine = Powers(n, sign, columns=rows, rows=step)
        coarse = Powers(n, sign, columns=rows, rows=-(-columns // step), step=step)
    return Split(n, direct(columns, sign), direct(rows, sign), fine, coarse)


def _convolution_length(n: int) -> int:
    """The smallest length of at least 2 n - 1 that is a power of two, or one of a few small odd numbers times that."""
    return min(odd << max(4, (-(-(2 * n - 1) // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))


@functools.cache
def line(n: int, sign: int, *, split: bool) -> Line:
    """The plan of a transform of length n >= 1.

    Args:
        sign: -1 forward, 1 inverse; nothing is divided by n.
        split: whether a long one may be split: along contiguous elements, that is.
    """
    largest = max(factors(n), default=1)
    if split and largest == n > LARGEST_RADIX and max(factors(n - 1)) <= LARGEST_BEFORE_PRIME:
        before = _split(n - 1, sign)
        if before is not None:
            return Rader(n, Places(n), PlacesSpectrum(n, sign), before)
    if largest > LARGEST_RADIX:
        m = _convolution_length(n)
        inner = line(m, sign, split=split)
        assert isinstance(inner, Direct | Split)
        return Bluestein(n, Chirp(n, sign), ChirpSpectrum(n, m, sign), inner)
    return (_split(n, sign) if split else None) or direct(n, sign)


# ---- whole transforms ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RealLine:
    """Between real numbers and the kept half of their spectrum, along the last dimension.

    For an even length by a complex transform of half of it; `fine` and `coarse` are the factors that take the spectra
    of even and odd elements together: fine[k % fine.columns] * coarse[k // fine.columns].
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
    """The plan of a real transform of length n >= 1."""
    if n % 2:
        return RealLine(n, line(n, sign, split=True), None, None)
    kept = n // 2 + 1
    fine, coarse = Powers(n, sign, columns=kept, first=1), None
    if kept > ONE_TABLE:
        fine = Powers(n, sign, columns=FINE_ROOTS, first=1)
        coarse = Powers(n, sign, columns=-(-kept // FINE_ROOTS), first=FINE_ROOTS)
    return RealLine(n, line(n // 2, sign, split=True), fine, coarse)


@dataclass(frozen=True)
class Axis:
    """A transform along one dimension of an array seen as [outer, n, inner]."""

    outer: int
    inner: int
    plan: Line | RealLine


@dataclass(frozen=True)
class Transform:
    """A transform over one to three dimensions: the axes in their order, and what the result is multiplied by."""

    kind: str
    axes: tuple[Axis, ...]
    scale: float

    @property
    def tables(self) -> list[Table]:
        """Every table once."""
        return list(dict.fromkeys(table for axis in self.axes for table in axis.plan.tables))


def plan_transform(kind: str, shape: tuple[int, ...], lengths: tuple[int, ...]) -> Transform:
    """The plan of a transform that is not empty.

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
