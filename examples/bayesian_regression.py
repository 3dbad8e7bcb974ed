"""Samples a regression's coefficients by NUTS of numpyro, on scikit-learn's diabetes data; a chain is one program.

How many steps a trajectory has is decided in loops inside the program. What is sampled is held against least squares,
and against the chain of `jax.jit`, which begins equal and drifts apart by rounding. Needs `pip install
'stablexla[examples,real]'`; the exit code is 1 when the means are too far apart.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from beside import are_there, fastest, say_speed, step

MOST_APART = 0.5
"""Of a mean from the other chain's, or from least squares, in standard deviations of the coefficient."""


def load_data() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Four measurements of 442 patients, how their illness went on, and the measurements' names."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    columns = [data.feature_names.index(name) for name in ("sex", "bmi", "bp", "s5")]
    x, y = data.data[:, columns], data.target
    x, y = (each - each.mean(0) for each in (x, y))
    return (x / x.std(0)).astype(np.float32), (y / y.std()).astype(np.float32), ["sex", "bmi", "bp", "s5"]


def model(x: Any, y: Any) -> None:
    """A linear regression in numpyro's words."""
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as d

    weights = numpyro.sample("weights", d.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    noise = numpyro.sample("noise", d.HalfNormal(1.0))
    numpyro.sample("y", d.Normal(x @ weights, noise), obs=y)


def chain_of(warm_up: int, samples: int) -> Any:
    """A function from a key and the data to samples of the weights, and the number of steps for each."""
    import jax
    from numpyro.infer import NUTS

    def chain(key: Any, x: Any, y: Any) -> Any:
        kernel = NUTS(model)
        state = kernel.init(key, warm_up, None, (x, y), {})

        def advance(state: Any, _: None) -> Any:
            state = kernel.sample(state, (x, y), {})
            return state, (state.z["weights"], state.num_steps)

        weights, steps = jax.lax.scan(advance, state, None, warm_up + samples)[1]
        return weights[warm_up:], steps[warm_up:]

    return chain


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(description=first, epilog=rest)
    made.add_argument("--samples", type=int, default=1000, help="that are kept (default: %(default)s)")
    made.add_argument("--warm-up", type=int, default=300, help="samples before these (default: %(default)s)")
    return made


def main() -> int:
    options = parser().parse_args()
    if not are_there("jax", "numpyro", "sklearn"):
        return 2
    import jax

    from stablexla.interop.jax import jit

    x, y, names = load_data()
    chain = chain_of(options.warm_up, options.samples)
    given = jax.random.PRNGKey(0), x, y
    ours, theirs = jit(chain), jax.jit(chain)
    with step("compiling and sampling"):
        weights, steps = (np.asarray(each) for each in ours(*given))
    with step("compiling and sampling by XLA"):
        others = np.asarray(theirs(*given)[0])
    squares = np.linalg.lstsq(x, y)[0]
    print(f"{options.samples} samples, {steps.mean():.1f} leapfrog steps each")
    print("coefficient     mean  deviation  jax.jit's  least squares")
    for name, mine, other, least in zip(names, weights.T, others.T, squares):
        print(f"{name:12} {mine.mean():7.3f} {mine.std():10.3f} {other.mean():10.3f} {least:14.3f}")
    times = [fastest(lambda f=f: jax.block_until_ready(f(*given)), 3) for f in (ours, theirs)]
    say_speed("the chain", *times, "jax.jit")
    apart = np.abs(weights.mean(0) - np.stack([others.mean(0), squares])) / weights.std(0)
    print(f"means are up to {apart.max():.2f} deviations apart")
    return int(not apart.max() <= MOST_APART)


if __name__ == "__main__":
    sys.exit(main())
