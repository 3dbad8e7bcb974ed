"""Tables of a Fourier transform: twiddle factors (roots of unity), chirps, and Rader's permutations.

Each number is computed in extended precision, and rounded once where a table becomes an array.
"""

from __future__ import annotations

import numpy as np

from stablexla.dialects.lazy_dataclass import dataclass

QUARTER_PI = np.longdouble("0.785398163397448309615660845819876")

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.clongdouble]]


@dataclass(frozen=True)
class Powers:
    """Twiddle factors exp(sign * 2 pi i * e / n) for e = (first + row * step) * column, row by row."""

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
    """Bluestein's chirp exp(sign * pi i * j^2 / n) for j < n."""

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
    """The transform of length m of the conjugate chirp, wrapped circularly and divided by m."""

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
    """Rader's permutation for a prime n with primitive root g: the order in which the transform is a convolution.

    Integers, not roots of unity: real parts are g^k mod n for k < n - 1, imaginary parts where j + 1 is, as g^-q.
    """

    n: int

    @property
    def size(self) -> int:
        return self.n - 1

    def powers(self) -> list[int]:
        """Return g^k mod n for k < n - 1."""
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
    """Rader's spectrum: the transform of length n - 1 of exp(sign * 2 pi i * g^-k / n), divided by n - 1."""

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
    """Return roots of unity exp(sign * 2 pi i * e / n), each angle reduced to the first octant in integers."""
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


def primitive_root(n: int) -> int:
    """Return the smallest primitive root of a prime n: its powers modulo n are all numbers from 1 to n - 1."""
    exponents = [(n - 1) // p for p in set(factors(n - 1))]
    return next(g for g in range(1, n) if all(pow(g, e, n) != 1 for e in exponents))


def factors(n: int) -> list[int]:
    """Return the prime factors, smallest first."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found + [n] * (n > 1)
