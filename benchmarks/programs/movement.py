"""Programs that only move data."""

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import add

add(
    "transpose-4096",
    "of a square matrix",
    [sx.f32[4096, 4096]],
    lambda x: sx.transpose(x, (1, 0)),
    numpy=lambda x: np.ascontiguousarray(x.T),
)
add(
    "transpose-heads",
    "(32,512,16,64) with the middle axes exchanged",
    [sx.f32[32, 512, 16, 64]],
    lambda x: sx.transpose(x, (0, 2, 1, 3)),
    numpy=lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)),
)
