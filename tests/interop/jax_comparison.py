"""A function through `stablexla.interop.jax.jit` beside the same through `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from stablexla.interop.jax import JitFunction, jit
from tests.comparison import assert_same


def assert_as_jax(
    function: Callable[..., Any], *args: Any, ulp: float = 0, scale: float = 0, settings: Any = None, **kwargs: Any
) -> JitFunction:
    """Compiles and runs `function` both ways; the trees, types and values of the results are the same.

    Args:
        ulp, scale: what floats may differ by, as for `assert_same`.
        settings: what both `jit` are called with.
    """
    compiled: JitFunction = jit(function, **(settings or {}))
    assert_same_trees(compiled(*args, **kwargs), jax.jit(function, **(settings or {}))(*args, **kwargs), ulp, scale)
    return compiled


def assert_same_trees(actual: Any, expected: Any, ulp: float = 0, scale: float = 0) -> None:
    """The same structure, with the same types (weak ones too) and values at the leaves."""
    leaves, tree = jax.tree.flatten(actual)
    wanted, wanted_tree = jax.tree.flatten(expected)
    assert tree == wanted_tree
    for leaf, right in zip(leaves, wanted, strict=True):
        assert (leaf.dtype, leaf.shape) == (right.dtype, right.shape)
        if right.dtype == jax.dtypes.float0:
            continue
        assert type(leaf) is type(right)
        assert getattr(leaf, "weak_type", None) == getattr(right, "weak_type", None)
        if jax.dtypes.issubdtype(right.dtype, jax.dtypes.prng_key):
            leaf, right = jax.random.key_data(leaf), jax.random.key_data(right)
        assert_same(leaf, right, ulp=ulp, scale=scale)
