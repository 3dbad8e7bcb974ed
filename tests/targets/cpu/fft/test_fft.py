"""Kernels of Fourier transforms, drawn at random. Oracle: numpy, in f64."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.fft.fft import emit_fft
from tests.targets.cpu.harness import compile_kernel
from tests.targets.cpu.one_kernel import kernel_of, program_of

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
# Powers and products of small primes, primes by Rader's and Bluestein's ways, and lengths that are no transform.
LENGTHS = (1, 2, 3, 4, 5, 8, 9, 12, 16, 20, 30, 32, 37, 61, 64, 67, 73, 100, 128, 134, 210, 243, 256)
OUTSIDE = (1, 2, 3, 5, 9, 17)
MOST_ELEMENTS = 20_000
# As a fraction of the largest element. Numbers of f32 are computed in f64.
ALLOWED = {"f32": 3e-7, "f64": 3e-15}


class RandomTransform:
    """Draws a transform: how many dimensions of which lengths, what stands before them, and the width of vectors."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.element = str(self.rng.choice(["f32", "f64"]))
        self.bits = int(self.rng.choice([128, 256, 512]))
        while True:
            self.lengths = tuple(int(n) for n in self.rng.choice(LENGTHS, self.rng.integers(1, 4)))
            outside = tuple(int(n) for n in self.rng.choice(OUTSIDE, self.rng.integers(0, 3)))
            self.shape = (*outside, *self.lengths)
            if np.prod(self.shape) <= MOST_ELEMENTS:
                break
        self.x = self._operand()

    def _operand(self) -> np.ndarray:
        """Complex numbers for all but RFFT; the half of a spectrum for IRFFT."""
        shape = self.shape
        if self.kind == "IRFFT":
            shape = (*shape[:-1], shape[-1] // 2 + 1)
        real = self.rng.normal(size=shape)
        if self.kind == "RFFT":
            return real.astype("f4" if self.element == "f32" else "f8")
        return (real + 1j * self.rng.normal(size=shape)).astype("c8" if self.element == "f32" else "c16")

    def expected(self) -> np.ndarray:
        axes = tuple(range(-len(self.lengths), 0))
        x = self.x.astype("f8" if self.kind == "RFFT" else "c16")
        if self.kind == "IRFFT":
            return np.fft.irfftn(x, self.lengths, axes)
        return {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn}[self.kind](x, axes=axes)


@pytest.mark.parametrize("seed", range(32))
def test_random_kernel(seed: int) -> None:
    drawn = RandomTransform(seed)
    program = program_of(lambda x: sx.fft(x, drawn.kind, drawn.lengths), drawn.x)
    one = kernel_of(program, "fft")
    kernel = compile_kernel(one.text, CpuTarget(vector_bits=drawn.bits), emit_fft)
    (got,) = kernel.in_all_ways(*one.arguments([drawn.x]))
    expected = drawn.expected()
    error = np.abs(got.reshape(expected.shape) - expected).max()
    assert error <= ALLOWED[drawn.element] * np.abs(expected).max(), (drawn.kind, drawn.shape, drawn.lengths)
