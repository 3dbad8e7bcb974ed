"""Calls of `jax.lax`'s control flow, and of what takes functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, through

F, S, B = v.reals, v.integers, v.booleans
_TRUE, _FALSE = np.array(True), np.array(False)


def _recurrence(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    carry = jnp.tanh(carry * 0.5 + x)
    return carry, carry * 2


def _pair(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return a[0] * b[0], b[0] * a[1] + b[1]


def _until(x: jax.Array) -> jax.Array:
    return jnp.sum(x * x) > 0.1


def _newton(f: object, x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 20, lambda _, y: y - f(y) / jax.grad(f)(y), x)  # type: ignore[operator,arg-type]


_BY_NAME: dict[str, list[Call]] = {
    "scan": [
        call(_recurrence, F(4), F(7, 4)),
        call(_recurrence, F(4), F(7, 4), reverse=True, unroll=3),
        call(lambda c, _: (c * 2 + 1, c), S(3), None, length=5),
        through(lambda f, c, xs: jax.grad(lambda c, xs: f(_recurrence, c, xs)[1].sum(), (0, 1))(c, xs), F(4), F(7, 4)),
        through(lambda f, c, xs: jax.vmap(lambda c: f(_recurrence, c, xs))(c), F(3, 4), F(7, 4)),
    ],
    "while_loop": [
        call(_until, lambda x: x * 0.75, F(5)),
        call(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * s[0]), (np.array(1, np.int32), np.array(1, np.int32))),
        through(lambda f, x: jax.vmap(lambda x: f(_until, lambda x: x * 0.75, x))(x), F(3, 5)),
        through(lambda f, x: jax.jvp(lambda x: f(_until, lambda x: x * 0.75, x), (x,), (x * 2,)), F(5)),
    ],
    "fori_loop": [
        call(0, 10, lambda i, x: x + jnp.sin(x * i), F(4)),
        call(np.array(2), np.array(7), lambda i, x: x.at[i].set(i * i), S(9)),
        through(lambda f, x: jax.grad(lambda x: f(0, 5, lambda i, x: jnp.sin(x), x).sum())(x), F(4)),
    ],
    "cond": [
        *[call(p, lambda x: x * 2, lambda x: x - 1, F(3, 4)) for p in (_TRUE, _FALSE)],
        call(_TRUE, lambda x, y: (x, y), lambda x, y: (y, x), F(3), F(3, seed=1)),
        through(lambda f, p, x: jax.vmap(lambda p, x: f(p, jnp.sin, jnp.cos, x))(p, x), B(5), F(5)),
        through(lambda f, p, x: jax.grad(lambda x: f(p, jnp.sin, jnp.cos, x))(x), _TRUE, np.array(0.5, np.float32)),
    ],
    "switch": [call(np.array(i), [lambda x: x * 2, lambda x: x - 1, jnp.sin], F(3, 4)) for i in (-1, 0, 1, 2, 5)],
    "associative_scan": [
        call(jnp.add, F(9)),
        call(jnp.maximum, S(3, 8), axis=1),
        call(_pair, (F(7), F(7, seed=1))),
        call(jnp.matmul, v.reals(5, 3, 3), reverse=True),
    ],
    "map": [call(lambda x: x * x.sum(), F(5, 4)), call(lambda x: jnp.sin(x), F(5, 4), batch_size=2)],
    "custom_root": [
        through(lambda f, a: f(lambda x: x**3 - a, 1.0, _newton, lambda g, y: y / g(1.0)), np.array(5.0, np.float32))
    ],
    "custom_linear_solve": [
        through(
            lambda f, a, b: f(lambda x: a @ x, b, lambda _, b: jnp.stack([b[0] / a[0, 0], b[1] / a[1, 1]])),
            np.diag(v.positive(2)),
            F(2),
        )
    ],
    "composite": [
        through(lambda f, x: f(lambda x: jnp.sin(x) * 2, "proof.twice_sin")(x), F(3, 4)),
        through(lambda f, x: f(lambda x, k: x**k, "proof.power", version=2)(x, k=np.int32(3)), F(3, 4)),
    ],
    "platform_dependent": [call(F(3), cpu=lambda x: x * 2, default=lambda x: x * 3)],
    "stop_gradient": [call(F(3, 4)), through(lambda f, x: jax.grad(lambda x: (f(x) * x).sum())(x), F(3, 4))],
}
ENTRIES = {f"jax.lax.{name}": calls for name, calls in _BY_NAME.items()}
