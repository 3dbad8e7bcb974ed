"""Writes mlp_jax.mlir, the program that stablehlo_file.py runs. Only this script needs JAX (extra `jax`).

Run as `python examples/make_mlp_jax.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

FILE = Path(__file__).with_name("mlp_jax.mlir")


def mlp(weights: Any, x: jax.Array) -> jax.Array:
    """Probabilities of ten classes: two dense layers with a gelu between, and a softmax."""
    (w1, b1), (w2, b2) = weights
    hidden = jax.nn.gelu(x @ w1 + b1)
    return jax.nn.softmax(hidden @ w2 + b2)


def text() -> str:
    """The file."""

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    weights = (array(64, 32), array(32)), (array(32, 10), array(10))
    head = f"// Written by JAX {jax.__version__}: make_mlp_jax.py, beside this file, says of which Python function.\n"
    return head + str(jax.jit(mlp).lower(weights, array(8, 64)).as_text())


if __name__ == "__main__":
    FILE.write_text(text())
