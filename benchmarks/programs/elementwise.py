"""Elementwise programs: what a call costs at least, and a chain of functions over 16M elements."""

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import add

add("add-2x2", "a call of next to nothing", [sx.f32[2, 2], sx.f32[2, 2]], lambda x, y: x + y, numpy=np.add)
add(
    "chain-16M",
    "tanh(x) * exp(-x) + x",
    [sx.f32[4096, 4096]],
    lambda x: sx.tanh(x) * sx.exp(-x) + x,
    numpy=lambda x: np.tanh(x) * np.exp(-x) + x,
)
