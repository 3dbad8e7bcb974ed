"""Control flow, derivatives, mapping and random numbers of JAX, each traced by JAX and run here.

The oracle is `jax.jit`: the same bits for integers, a few units in the last place for floats. Where numpy or the
mathematics says what is right in a line, that is compared too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from stablexla.interop.jax import jit
from tests.interop.jax_comparison import assert_as_jax

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
V = X[0]


class TestLoops:
    def test_scan(self) -> None:
        def function(x: Any) -> Any:
            def body(carry: Any, row: Any) -> Any:
                total, count = carry
                return (total + row, count + 1), {"total": total, "row": row * count}

            init = (jnp.zeros(4), 0)
            return lax.scan(body, init, x), lax.scan(body, init, x, reverse=True), lax.scan(body, init, x, unroll=3)

        assert_as_jax(function, X, ulp=1)

    def test_scan_without_sequences_and_without_rounds(self) -> None:
        def function(x: Any) -> Any:
            return lax.scan(lambda c, _: (c * 2, c), x, None, length=3), lax.scan(lambda c, v: (c + v, c), 0.0, x[:0])

        assert_as_jax(function, V)

    def test_scans_inside_scans(self) -> None:
        def function(x: Any) -> Any:
            def outer(carry: Any, row: Any) -> Any:
                return lax.scan(lambda c, v: (c + v, c * v), carry, row)

            return lax.scan(outer, 1.0, x)

        assert_as_jax(function, X, ulp=1)

    def test_while(self) -> None:
        def collatz(n: Any) -> Any:
            def step(state: Any) -> Any:
                value, count = state
                return jnp.where(value % 2 == 0, value // 2, 3 * value + 1), count + 1

            return lax.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

        assert_as_jax(collatz, 27)
        counts = assert_as_jax(jax.vmap(collatz), np.arange(1, 8))
        assert int(counts(np.full(7, 27))[0]) == 111

    def test_fori(self) -> None:
        def function(x: Any, n: Any) -> Any:
            static = lax.fori_loop(0, 3, lambda i, y: y.at[i].set(i * 10.0), x)
            return static, lax.fori_loop(1, n, lambda i, y: y * i, 1)

        assert_as_jax(function, V, 6)
        assert_as_jax(jax.grad(lambda x: lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) * x, x)), 0.5, ulp=4)

    def test_map_and_reduce(self) -> None:
        assert_as_jax(lambda x: (lax.map(jnp.sum, x), lax.map(lambda v: v * 2, x, batch_size=2)), X, ulp=1)
        numbers = np.array([[3, 1, 2], [5, 4, 6]], np.int32)
        assert_as_jax(lambda n: lax.reduce(n, jnp.int32(1), lax.mul, (1,)), numbers)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_associative_scan(self, reverse: bool) -> None:
        def function(n: Any) -> Any:
            return lax.associative_scan(jnp.maximum, n, reverse=reverse), lax.cumsum(n, reverse=reverse)

        assert_as_jax(function, np.array([3, 1, 4, 1, 5, 9, 2], np.int32))

    def test_associative_scan_of_matrices(self) -> None:
        rng = np.random.default_rng(0)
        matrices = rng.normal(size=(5, 2, 2)).astype(np.float32)
        scan = assert_as_jax(lambda m: lax.associative_scan(jnp.matmul, m), matrices, scale=1e-6)
        np.testing.assert_allclose(scan(matrices)[-1], np.linalg.multi_dot(matrices), rtol=1e-4, atol=1e-6)


class TestBranches:
    def test_cond(self) -> None:
        def function(p: Any, x: Any) -> Any:
            return lax.cond(p, lambda x: (x * 2, x.sum()), lambda x: (x + 1, x.max()), x)

        cond = assert_as_jax(function, True, V)
        np.testing.assert_array_equal(cond(False, V)[0], V + 1)
        assert_as_jax(jax.vmap(function), np.array([True, False, True]), X, ulp=1)

    def test_switch(self) -> None:
        branches = [jnp.sin, lambda x: x[::-1], jnp.zeros_like]
        switch = assert_as_jax(lambda i, x: lax.switch(i, branches, x), 0, V, ulp=2)
        for i in (-1, 1, 2, 7):  # those that are none are the nearest
            np.testing.assert_allclose(switch(i, V), branches[min(max(i, 0), 2)](V), rtol=1e-6)
        assert_as_jax(jax.vmap(lambda i, x: lax.switch(i, branches, x)), np.array([2, 0, 1]), X, ulp=2)

    def test_gradient_of_branches(self) -> None:
        def function(x: Any) -> Any:
            return lax.cond(x > 0, lambda: x**3, lambda: lax.switch(1, [lambda: x, lambda: -x]))

        slope = assert_as_jax(jax.grad(function), 2.0, ulp=1)
        assert float(slope(-2.0)) == -1.0

    def test_platforms(self) -> None:
        def function(x: Any) -> Any:
            return lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x + 2)

        np.testing.assert_array_equal(jit(function)(V), V + 1)


class TestDerivatives:
    def test_grad_and_higher(self) -> None:
        def function(x: Any) -> Any:
            return jnp.sum(jnp.tanh(x) * x**2)

        def all_of_them(x: Any) -> Any:
            return jax.value_and_grad(function)(x), jax.hessian(function)(x), jax.jacrev(lambda v: v[::-1] * v)(x)

        assert_as_jax(all_of_them, V, scale=1e-6)

    def test_jvp_vjp_linearize(self) -> None:
        def function(x: Any, t: Any) -> Any:
            product, pullback = jax.vjp(lambda v: v @ X.T, x)
            return jax.jvp(jnp.exp, (x,), (t,)), product, pullback(jnp.ones(3)), jax.linearize(jnp.square, x)[1](t)

        assert_as_jax(function, V, V + 1, ulp=4, scale=1e-6)

    def test_custom_rules(self) -> None:
        @jax.custom_jvp
        def softplus(x: Any) -> Any:
            return jnp.log1p(jnp.exp(x))

        @softplus.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            return softplus(x), t * jax.nn.sigmoid(x)

        @partial(jax.custom_vjp, nondiff_argnums=(1,))
        def clipped(x: Any, limit: Any) -> Any:
            return x

        clipped.defvjp(lambda x, limit: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))
        assert_as_jax(jax.grad(lambda x: softplus(x).sum()), V, ulp=4)
        assert_as_jax(jax.grad(lambda x: (clipped(x, 0.5) * 3).sum()), V)

    def test_checkpoint(self) -> None:
        def layer(x: Any, w: Any) -> Any:
            return jnp.sin(x @ w)

        def loss(w: Any) -> Any:
            inner = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)
            return jax.checkpoint(layer)(inner(X, w), w).sum()

        assert_as_jax(jax.grad(loss), np.eye(4, dtype=np.float32) * 0.5, ulp=8, scale=1e-6)

    def test_through_scans(self) -> None:
        def loss(w: Any, x: Any) -> Any:
            body = jax.checkpoint(lambda h, v: (jnp.tanh(w @ h + v), h.sum()))
            state, sums = lax.scan(body, jnp.zeros(4), x)
            return state.sum() + sums.sum()

        assert_as_jax(jax.grad(loss), np.eye(4, dtype=np.float32), X, ulp=8, scale=1e-6)


class TestMapping:
    def test_vmap(self) -> None:
        def function(x: Any, y: Any) -> Any:
            pairs = jax.vmap(jax.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x[:, 0], y)
            return pairs, jax.vmap(lambda v: v.sum(), in_axes=1)(x), jax.vmap(jnp.outer, (0, None), 2)(x, y)

        assert_as_jax(function, X, V[:3], ulp=1)

    def test_collectives_over_mapped_axes(self) -> None:
        def function(v: Any) -> Any:
            return v - lax.pmean(v, "rows"), lax.axis_index("rows"), lax.all_gather(v[0], "rows")

        assert_as_jax(jax.vmap(function, axis_name="rows"), X, ulp=1, scale=1e-6)


class TestRandom:
    """Bits are those of JAX; what is made of them in floats differs by rounding."""

    def test_bits(self) -> None:
        def function(key: Any) -> Any:
            return jax.random.bits(key, (5,)), jax.random.uniform(key, (5,)), jax.random.bernoulli(key, 0.3, (9,))

        assert_as_jax(function, jax.random.key(42))

    def test_normal(self) -> None:
        assert_as_jax(lambda key: jax.random.normal(key, (8,)), jax.random.PRNGKey(0), ulp=4)

    def test_keys_through_a_loop(self) -> None:
        def function(key: Any) -> Any:
            def body(key: Any, _: Any) -> Any:
                key, used = jax.random.split(key)
                return key, jax.random.bits(used)

            return lax.scan(body, key, length=4)

        assert_as_jax(function, jax.random.key(1))
