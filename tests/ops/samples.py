"""Arguments that find mistakes: every magnitude, both signs, the special values of each element type."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from stablexla.dialects.element_types import element_type

FLOATS = ("f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "bf16", "f16", "f32", "f64")
SIGNED = ("s4", "s8", "s16", "s32", "s64")
UNSIGNED = ("u4", "u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
COMPLEX = ("c64", "c128")
EDGE_SHAPES = ((), (0,), (1,), (3, 0, 2), (2, 1, 3, 1, 2, 2), (17,), (5, 9))


def sample(name: str, size: int, seed: int = 0) -> np.ndarray:
    """`size` elements of a type, special values first."""
    type_ = element_type(name)
    rng = np.random.default_rng([seed, size, len(name)])
    if type_.is_pred:
        return rng.integers(0, 2, size).astype(bool)
    if type_.is_complex:
        part = type_.part.name
        with np.errstate(invalid="ignore"):  # infinity times 1j has a NaN
            return (sample(part, size, seed) + 1j * sample(part, size, seed + 1)).astype(type_.dtype)
    if type_.is_integer:
        return _integers(type_, size, rng)
    return _floats(type_, size, rng)


def _integers(type_: sx.ElementType, size: int, rng: np.random.Generator) -> np.ndarray:
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = low + (1 << type_.bits) - 1
    wide = np.int64 if type_.is_signed else np.uint64
    special = np.array([0, 1, low, high, high // 2, max(low, -1), 2, 3], dtype=wide)
    small = rng.integers(max(low, -9), min(high, 9), size, dtype=wide, endpoint=True)
    any_ = rng.integers(low, high, size, dtype=wide, endpoint=True)
    drawn = np.where(rng.random(size) < 0.5, small, any_)
    rng.shuffle(special)
    drawn[: len(special)] = special[:size]
    return drawn.astype(type_.dtype)


def _floats(type_: sx.ElementType, size: int, rng: np.random.Generator) -> np.ndarray:
    bits = rng.integers(0, 1 << type_.bits, size, dtype=np.uint64, endpoint=False)
    any_ = bits.astype(f"u{type_.bytes}").view(type_.dtype)
    ordinary = (rng.normal(size=size) * 3).astype(type_.dtype)
    drawn = np.where(rng.random(size) < 0.5, any_, ordinary)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5]).astype(type_.dtype)
    drawn[: len(special)] = special[:size]
    return drawn.astype(type_.dtype)
