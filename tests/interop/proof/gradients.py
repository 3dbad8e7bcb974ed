"""The gradient of a call as a further call: of all results together, each element with a weight of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.interop.proof.calls import Call
from tests.interop.proof.judge import is_float, real_of


def gradient_of(function: Callable[..., Any], calls: Sequence[Call]) -> Call | None:
    """That of the first of the calls which has floats of 32 bits and of which JAX can take it."""
    import jax

    for call in calls:
        of_arrays, arrays = call.bind(function)
        places = tuple(i for i, a in enumerate(arrays) if is_float(a.dtype) and real_of(a.dtype).itemsize == 4)
        if not places:
            continue
        gradient = jax.grad(_weighted(of_arrays), places)
        try:
            jax.eval_shape(gradient, *arrays)
        except Exception:
            continue
        return Call(tuple(arrays), {}, lambda _, *a, g=gradient: g(*a), f"gradient, {call}")
    return None


def _weighted(function: Callable[..., Any]) -> Callable[..., Any]:
    def total(*arrays: Any) -> Any:
        import jax
        import jax.numpy as jnp

        sums = []
        for leaf in jax.tree.leaves(function(*arrays)):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                part = (jnp.abs(leaf) if jnp.iscomplexobj(leaf) else leaf).reshape(-1)
                weights = np.linspace(0.5, 1.5, part.size).astype(np.float32)
                sums.append((part * weights).sum())
        if not sums:
            raise TypeError("no floats among the results")
        return sum(sums)

    return total
