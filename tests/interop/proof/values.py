"""Arguments for calls: numpy arrays that are the same in every run, and say by their maker's name what is in them."""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


def _generator(*seed: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


def reals(*shape: int, seed: int = 0, of: Any = np.float32) -> Array:
    """Of both signs, most of them smaller than 2."""
    return np.asarray(_generator("reals", shape, seed).normal(size=shape), dtype=of)


def between(low: float, high: float, *shape: int, seed: int = 0, of: Any = np.float32) -> Array:
    """Spread evenly over an interval."""
    return np.asarray(_generator("between", low, high, shape, seed).uniform(low, high, size=shape), dtype=of)


def unit(*shape: int, seed: int = 0, of: Any = np.float32) -> Array:
    """Between 0.05 and 0.95: what probabilities, quantiles and most special functions take."""
    return between(0.05, 0.95, *shape, seed=seed, of=of)


def positive(*shape: int, seed: int = 0, of: Any = np.float32) -> Array:
    """Between 0.2 and 4."""
    return between(0.2, 4.0, *shape, seed=seed, of=of)


def increasing(count: int, low: float = 0.0, high: float = 3.0, of: Any = np.float32) -> Array:
    """Sorted numbers with unequal steps."""
    return np.sort(between(low, high, count, seed=7, of=np.float64)).astype(of)


def distribution(*shape: int, seed: int = 0) -> Array:
    """Positive numbers that add up to 1 along the last dimension."""
    weights = between(0.2, 1.0, *shape, seed=seed, of=np.float64)
    return np.asarray(weights / weights.sum(-1, keepdims=True), np.float32)


def complexes(*shape: int, seed: int = 0) -> Array:
    return np.asarray(reals(*shape, seed=seed) + 1j * reals(*shape, seed=seed + 1000), np.complex64)


def integers(*shape: int, low: int = -9, high: int = 10, seed: int = 0, of: Any = np.int32) -> Array:
    return np.asarray(_generator("integers", low, high, shape, seed).integers(low, high, size=shape), dtype=of)


def naturals(*shape: int, below: int = 9, seed: int = 0, of: Any = np.int32) -> Array:
    return integers(*shape, low=0, high=below, seed=seed, of=of)


def booleans(*shape: int, seed: int = 0) -> Array:
    return integers(*shape, low=0, high=2, seed=seed, of=np.bool_)


def permutation(count: int, seed: int = 0) -> Array:
    return _generator("permutation", count, seed).permutation(count).astype(np.int32)


def square(n: int = 4, *batch: int, seed: int = 0, of: Any = np.float32) -> Array:
    """A matrix far from singular."""
    return np.asarray(reals(*batch, n, n, seed=seed, of=np.float64) + 3 * np.eye(n), dtype=of)


def complex_square(n: int = 4, seed: int = 0) -> Array:
    return np.asarray(complexes(n, n, seed=seed) + 3 * np.eye(n), np.complex64)


def symmetric(n: int = 4, *batch: int, seed: int = 0) -> Array:
    a = reals(*batch, n, n, seed=seed, of=np.float64)
    return np.asarray(a + np.swapaxes(a, -1, -2), np.float32)


def definite(n: int = 4, *batch: int, seed: int = 0) -> Array:
    """A symmetric positive definite matrix."""
    a = reals(*batch, n, n, seed=seed, of=np.float64)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + n * np.eye(n), np.float32)


def hermitian(n: int = 4, seed: int = 0) -> Array:
    a = complexes(n, n, seed=seed).astype(np.complex128)
    return np.asarray(a @ a.conj().T + n * np.eye(n), np.complex64)


def lower(n: int = 4, *batch: int, seed: int = 0) -> Array:
    return np.tril(square(n, *batch, seed=seed))


def key_data(seed: int = 42) -> Array:
    """A raw key of the default generator, as `jax.random.PRNGKey` gives it."""
    return np.asarray([0, seed], np.uint32)
