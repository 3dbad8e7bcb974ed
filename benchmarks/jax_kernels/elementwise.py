"""One elementwise function over many numbers, over as many as a cache holds, and in other element types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from scipy import special

from benchmarks.traced import trace

MANY, SOME = (1 << 24, "16M"), (1 << 17, "128K")


def chain(x: Any, exp: Any = jnp.exp) -> Any:
    return exp(-exp(-x * x)) * x


def positive(draw: Any, count: int) -> list[Any]:
    return [draw.near_one(count)]


def enter(name: str, text: str, function: Any, count: int, numpy: Any = None, **more: Any) -> None:
    defaults = {"numpy": numpy, "tolerance": 1e-5}
    trace(name, text, function, more.pop("make", lambda draw: [draw.normal(count)]), **defaults | more)


for count, size in (MANY, SOME):
    enter(f"add-constant-{size}", f"x + 1.5 of {size}", lambda x: x + 1.5, count, lambda x: x + np.float32(1.5))
    enter(f"tanh-{size}", f"of {size}", jnp.tanh, count, np.tanh)
    enter(f"exp-{size}", f"of {size}", jnp.exp, count, np.exp)
    enter(f"exp-chain-{size}", f"exp(-exp(-x*x)) * x of {size}", chain, count, lambda x: chain(x, np.exp))
    enter(f"erf-{size}", f"of {size}", jax.lax.erf, count, special.erf)
    enter(f"log-{size}", f"of {size}", jnp.log, count, np.log, make=lambda draw, count=count: positive(draw, count))
enter("gelu-1m", "of 1000003", lambda x: jax.nn.gelu(x, approximate=False), 1_000_003)
enter("sin-1m", "of 1000003", jnp.sin, 1_000_003, np.sin)
enter("sigmoid-1m", "of 1000003", jax.nn.sigmoid, 1_000_003, special.expit)
enter("power-1m", "x to the 2.5 of 1000003", lambda x: x**2.5, 1_000_003, make=lambda draw: positive(draw, 1_000_003))
enter("exp-f64-1m", "of 1000003 f64", jnp.exp, 1_000_003, np.exp, dtype=np.float64, wide=True)
enter("tanh-bf16-16M", "of 16M bf16", jnp.tanh, 1 << 24, dtype=ml_dtypes.bfloat16, tolerance=1e-2)
enter("add-bf16-16M", "x + x * x of 16M bf16", lambda x: x + x * x, 1 << 24, dtype=ml_dtypes.bfloat16, tolerance=2e-2)


def convert(name: str, source: Any, target: Any) -> None:
    def in_numpy(x: Any) -> Any:
        return x.astype(target)

    enter(name, f"16M {np.dtype(source).name} made {np.dtype(target).name}", in_numpy, 1 << 24, in_numpy, dtype=source)


convert("f32-to-bf16-16M", np.float32, ml_dtypes.bfloat16)
convert("bf16-to-f32-16M", ml_dtypes.bfloat16, np.float32)
convert("f32-to-f16-16M", np.float32, np.float16)
trace(
    "select-16M",
    "x where it is above y, else 0, of 16M",
    lambda x, y: jnp.where(x > y, x, 0.0),
    lambda draw: [draw.normal(1 << 24), draw.normal(1 << 24)],
    numpy=lambda x, y: np.where(x > y, x, np.float32(0)),
)
trace(
    "add-row-4096",
    "a row of 4096 added to 4096 rows",
    lambda x, y: x + y,
    lambda draw: [draw.normal(4096, 4096), draw.normal(4096)],
    numpy=np.add,
)
trace(
    "add-column-1000x1003",
    "a column added to 1000x1003",
    lambda x, y: x + y[:, None],
    lambda draw: [draw.normal(1000, 1003), draw.normal(1000)],
    numpy=lambda x, y: x + y[:, None],
)
trace(
    "add-mixed-s32-16M",
    "x * 3 + y of 16M whole numbers",
    lambda x, y: x * 3 + y,
    lambda draw: [draw.integers(1000, 1 << 24), draw.integers(1000, 1 << 24)],
    numpy=lambda x, y: x * np.int32(3) + y,
)
trace(
    "ten-in-ten-out",
    "ten small arrays, each plus one",
    lambda *xs: tuple(x + 1 for x in xs),
    lambda draw: [draw.normal(8, 8) for _ in range(10)],
    numpy=lambda *xs: tuple(x + 1 for x in xs),
)
