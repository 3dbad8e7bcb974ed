"""Samplers and variational inference: numpyro and blackjax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.real.registry import Made, of_jax

ROWS, COLUMNS = 1000, 20


def observed() -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers, and what a logistic regression should say to each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS), np.float32)
    chances = 1 / (1 + np.exp(-x @ rng.standard_normal(COLUMNS, np.float32)))
    return x, (rng.random(ROWS) < chances).astype(np.int32)


def regression(x: Any, y: Any) -> None:
    """Logistic regression, in numpyro's words."""
    import numpyro
    from numpyro import distributions as d

    scale = numpyro.sample("scale", d.HalfNormal(2.0))
    weights = numpyro.sample("weights", d.Normal(jnp.zeros(COLUMNS), scale).to_event(1))
    bias = numpyro.sample("bias", d.Normal(0.0, 2.0))
    numpyro.sample("y", d.Bernoulli(logits=x @ weights + bias), obs=y)


@of_jax("numpyro-nuts", "10 samples of NUTS, logistic regression of 1,000 rows", "numpyro", tolerance=1e-2)
def no_u_turn() -> Made:
    """As many leapfrog steps as the trajectory asks for: loops whose trips are not known before."""
    from numpyro.infer import NUTS

    def sample(key: Any, x: Any, y: Any) -> Any:
        kernel = NUTS(regression, step_size=0.1, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=5)
        state = kernel.init(jax.random.wrap_key_data(key), 0, None, (x, y), {})

        def step(state: Any, _: None) -> Any:
            state = kernel.sample(state, (x, y), {})
            return state, (state.z, state.num_steps, state.accept_prob)

        return jax.lax.scan(step, state, None, 10)[1]

    return sample, (np.array([0, 1], np.uint32), *observed())


@of_jax("numpyro-svi-100", "100 steps of stochastic variational inference", "numpyro", "optax", tolerance=1e-3)
def variational() -> Made:
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    def fit(key: Any, x: Any, y: Any) -> Any:
        svi = SVI(regression, AutoNormal(regression), Adam(1e-2), Trace_ELBO(num_particles=4))
        state = svi.init(jax.random.wrap_key_data(key), x, y)
        state, losses = jax.lax.scan(lambda s, _: svi.update(s, x, y), state, None, 100)
        return svi.get_params(state), losses

    return fit, (np.array([0, 1], np.uint32), *observed())


@of_jax("blackjax-hmc-64-chains", "5 steps of Hamiltonian Monte Carlo of 64 chains", "blackjax", tolerance=1e-3)
def hamiltonian() -> Made:
    import blackjax

    def sample(key: Any, start: Any, x: Any, y: Any) -> Any:
        def log_density(weights: Any) -> Any:
            logits = x @ weights
            return (y * logits - jnp.logaddexp(0.0, logits)).sum() - 0.5 * (weights**2).sum()

        kernel = blackjax.hmc(log_density, 0.02, jnp.ones(COLUMNS), num_integration_steps=10)

        def chain(key: Any, start: Any) -> Any:
            def step(state: Any, key: Any) -> Any:
                state, info = kernel.step(key, state)
                return state, (state.position, info.acceptance_rate)

            return jax.lax.scan(step, kernel.init(start), jax.random.split(key, 5))[1]

        return jax.vmap(chain)(jax.random.split(jax.random.wrap_key_data(key), len(start)), start)

    start = np.random.default_rng(1).standard_normal((64, COLUMNS), np.float32) / 10
    return sample, (np.array([0, 2], np.uint32), start, *observed())
