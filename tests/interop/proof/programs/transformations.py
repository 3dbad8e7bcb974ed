"""JAX's transformations of functions, one in the other, and its sparse matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program

_W, _X = v.reals(4, 3), v.reals(5, 4)


def _f(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum() ** 2


@program("jax", "grad of a vmap of a grad")
def grad_of_vmap_of_grad() -> tuple[Any, ...]:
    inner = jax.vmap(jax.grad(_f), (None, 0))
    return jax.grad(lambda w, x: (inner(w, x) ** 2).sum()), _W, _X


@program("jax", "hessian, jacfwd and jacrev")
def hessians() -> tuple[Any, ...]:
    return lambda w, x: (jax.hessian(_f)(w, x), jax.jacfwd(jnp.sin)(x), jax.jacrev(jnp.cos)(x)), _W, _X


@program("jax", "jvp, vjp, linearize and linear_transpose")
def derivatives() -> tuple[Any, ...]:
    def run(w: Any, x: Any) -> Any:
        out, back = jax.vjp(_f, w, x)
        _, forward = jax.linearize(_f, w, x)
        turned = jax.linear_transpose(lambda y: y @ w, x)(jnp.ones((5, 3)))
        return jax.jvp(_f, (w, x), (w, x)), back(jnp.ones_like(out)), forward(w, x), turned

    return run, _W, _X


@program("jax", "checkpoint with a policy, in a scan, and its gradient")
def checkpoints() -> tuple[Any, ...]:
    @jax.checkpoint
    def layer(x: Any, w: Any) -> Any:
        return jnp.sin(x @ w), None

    return jax.grad(lambda w, x: jax.lax.scan(layer, x, w)[0].sum()), v.reals(6, 4, 4), _X


@program("jax", "custom_jvp, custom_vjp and custom_gradient")
def custom_rules() -> tuple[Any, ...]:
    @jax.custom_jvp
    def soft(x: Any) -> Any:
        return jnp.log1p(jnp.exp(x))

    soft.defjvp(lambda primal, tangent: (soft(primal[0]), jax.nn.sigmoid(primal[0]) * tangent[0]))

    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 2

    clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * x,))
    return jax.vmap(jax.value_and_grad(lambda x: (soft(x) * clipped(x)).sum())), _X


@program("jax", "vmap over a while_loop, a cond and a dynamic slice")
def vmap_of_control() -> tuple[Any, ...]:
    def one(x: Any, n: Any) -> Any:
        y = jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.9 + s[0]), (0, x.sum()))[1]
        z = jax.lax.cond(n > 2, lambda: jax.lax.dynamic_slice(x, (n,), (2,)), lambda: x[:2] * y)
        return y, z

    return jax.vmap(one), _X, v.naturals(5, below=5)


@program("jax", "sparse matrices (BCOO): products and their gradient")
def sparse() -> tuple[Any, ...]:
    from jax.experimental import sparse as library

    matrix = library.BCOO.fromdense(v.reals(6, 5) * (v.reals(6, 5, seed=1) > 0.3), nse=14)

    def run(data: Any, indices: Any, x: Any) -> Any:
        def product(data: Any) -> Any:
            m = library.BCOO((data, indices), shape=(6, 5))
            return (m @ x).sum() + (x.T[:2, :5] @ m.T).sum()

        return jax.value_and_grad(product)(data), library.BCOO((data, indices), shape=(6, 5)).todense()

    return run, matrix.data, matrix.indices, v.reals(5, 5)


@program("jax", "jax.experimental.jet: Taylor series")
def taylor() -> tuple[Any, ...]:
    from jax.experimental import jet

    return lambda x: jet.jet(lambda x: jnp.sin(x) * jnp.exp(x), (x,), ([jnp.ones_like(x), 0 * x, 0 * x],)), v.reals(4)


@program("jax", "array methods: at[].set, add, multiply, min, max, get, apply")
def at() -> tuple[Any, ...]:
    def run(x: Any, i: Any, y: Any) -> Any:
        places = x.at[i, 1:3]
        return (
            places.set(y),
            places.add(y),
            places.multiply(2.0),
            places.min(y),
            places.max(y),
            places.get(mode="fill", fill_value=9.0),
            places.apply(jnp.sin),
            places.divide(2.0),
            places.power(2.0),
        )

    return run, v.reals(6, 5), v.np.array([4, 0, 7], v.np.int32), v.reals(3, 2)
