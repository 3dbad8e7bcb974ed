"""Fourier transforms: one long line, many short ones, several dimensions, a prime length, real numbers."""

from __future__ import annotations

from math import log2, prod

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import PROGRAMS, Array, Built, Program


def program(name: str, shape: sx.Shape, rank: int = 1) -> Program:
    """The transform over the last `rank` dimensions: of complex numbers, or of real ones."""
    real = not shape.element_type.is_complex
    lengths, axes = shape.dimensions[-rank:], tuple(range(-rank, 0))
    kind = "RFFT" if real else "FFT"

    def in_numpy(x: Array) -> Array:
        return np.fft.rfftn(x, axes=axes) if real else np.fft.fftn(x, axes=axes)

    operations = (2.5 if real else 5.0) * prod(shape.dimensions) * log2(prod(lengths))
    text = f"{kind} of {shape} over {'its last dimension' if rank == 1 else f'{rank} dimensions'}"
    return Built(
        name,
        text,
        (shape,),
        lambda x: sx.fft(x, kind, lengths),
        numpy=in_numpy,
        operations=operations,
    )


def line(length: int) -> Program:
    return program(f"fft-{length}", sx.c64[length])


for made in (
    line(1 << 10),
    line(1 << 20),
    line(1009),
    program("fft-double-262144", sx.c128[1 << 18]),
    program("fft-1000x1024", sx.c64[1000, 1024]),
    program("fft-1000x1000", sx.c64[1000, 1000]),
    program("fft-1000x1009", sx.c64[1000, 1009]),
    program("fft-2d-2048x2048", sx.c64[2048, 2048], 2),
    program("fft-3d-64x64x64", sx.c64[64, 64, 64], 3),
    program("rfft-1048576", sx.f32[1 << 20]),
):
    PROGRAMS[made.name] = made

grows("fft", "a line of n numbers, a power of two", "n log n", (1 << 16, 1 << 20))(line)
# A million is no prime, but a million and three is.
grows("fft-prime", "a line of n numbers, a prime", "n log n", (100_003, 1_000_003))(line)
