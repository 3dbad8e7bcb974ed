"""Running JAX's functions here: what JAX makes of them for CPUs is compiled as text, and run on the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import stablexla as sx

Arrays = list[np.ndarray]


def compiled(function: Callable[..., Any], *arguments: Any) -> sx.Executable:
    """The function for arguments of these shapes."""
    return sx.compile(jax.jit(function).lower(*arguments).as_text())


def run_both(function: Callable[..., Any], *arguments: Any) -> tuple[Arrays, Arrays]:
    """The results of the function here, and in JAX."""
    here = compiled(function, *arguments).execute(list(jax.tree.leaves(arguments)))
    return here, [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]


def random_array(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of a normal distribution, real or complex."""
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)
