"""Butterflies: Fourier transforms of a few numbers, all in registers, the innermost step of every longer one."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin, sqrt

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.cpu.fft.numbers import Complex

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
