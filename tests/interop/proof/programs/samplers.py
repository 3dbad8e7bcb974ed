"""Samplers of numpyro and blackjax: a few steps, all of them random, from a key that is traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program

_X, _Y = v.reals(20, 3), v.booleans(20).astype("int32")


def _logdensity(position: Any) -> Any:
    return -0.5 * jnp.sum((position["a"] - 1.0) ** 2) - jnp.sum(jnp.exp(position["b"]) - position["b"])


_POSITION = {"a": v.reals(3), "b": v.reals(2) * 0.1}


def _chain(kernel: Any, steps: int) -> Any:
    def run(position: Any, key: Any) -> Any:
        keys = jax.random.split(jax.random.wrap_key_data(key), steps)
        state, infos = jax.lax.scan(lambda s, k: kernel.step(k, s), kernel.init(position), keys)
        return state.position, infos.acceptance_rate

    return run


@program("blackjax", "Hamiltonian Monte Carlo, five steps")
def hmc() -> tuple[Any, ...]:
    import blackjax

    kernel = blackjax.hmc(_logdensity, step_size=0.2, inverse_mass_matrix=jnp.ones(5), num_integration_steps=5)
    return _chain(kernel, 5), _POSITION, v.key_data()


@program("blackjax", "the no-U-turn sampler, four steps")
def nuts() -> tuple[Any, ...]:
    import blackjax

    return _chain(blackjax.nuts(_logdensity, 0.3, jnp.ones(5)), 4), _POSITION, v.key_data()


@program("blackjax", "MALA, five steps")
def mala() -> tuple[Any, ...]:
    import blackjax

    return _chain(blackjax.mala(_logdensity, 0.05), 5), _POSITION, v.key_data()


def _model(x: Any, y: Any = None) -> None:
    import numpyro
    from numpyro import distributions

    weights = numpyro.sample("weights", distributions.Normal(jnp.zeros(3), 1.0))
    bias = numpyro.sample("bias", distributions.StudentT(4.0))
    numpyro.sample("y", distributions.Bernoulli(logits=x @ weights + bias), obs=y)


@program("numpyro", "the no-U-turn sampler on a logistic regression: its start and four steps")
def logistic_regression() -> tuple[Any, ...]:
    from numpyro.infer import NUTS

    def run(key: Any, x: Any, y: Any) -> Any:
        sampler = NUTS(_model, step_size=0.2, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=4)
        first = sampler.init(jax.random.wrap_key_data(key), 0, None, (x, y), {})
        last, seen = jax.lax.scan(
            lambda s, _: (sampler.sample(s, (x, y), {}), s.potential_energy), first, None, length=4
        )
        return last.z, seen

    return run, v.key_data(), _X, _Y


@program("numpyro", "variational inference: three steps")
def variational() -> tuple[Any, ...]:
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def run(key: Any, x: Any, y: Any) -> Any:
        svi = SVI(_model, AutoNormal(_model), numpyro.optim.Adam(1e-2), Trace_ELBO())
        state = svi.init(jax.random.wrap_key_data(key), x, y)
        values = []
        for _ in range(3):
            state, loss = svi.update(state, x, y)
            values.append(loss)
        return svi.get_params(state), values

    return run, v.key_data(), _X, _Y


@program("numpyro", "densities and samples of its distributions")
def distributions() -> tuple[Any, ...]:
    from numpyro import distributions as d

    def run(key: Any, x: Any) -> Any:
        key = jax.random.wrap_key_data(key)
        kinds = (
            d.Gamma(2.0, 1.5),
            d.Beta(2.0, 3.0),
            d.LogNormal(0.1, 0.5),
            d.StudentT(3.0),
            d.Weibull(1.5, 2.0),
            d.Gumbel(0.0, 1.0),
            d.Pareto(1.0, 3.0),
            d.Poisson(3.0),
            d.NegativeBinomial2(3.0, 2.0),
            d.Kumaraswamy(2.0, 2.0),
        )
        return [(k.sample(key, (5,)), k.log_prob(k.sample(key, (5,)))) for k in kinds], d.Normal(x, 1.0).cdf(x + 0.5)

    return run, v.key_data(), v.reals(7)
