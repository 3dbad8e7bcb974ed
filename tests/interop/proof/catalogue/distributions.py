"""Calls of the distributions of `jax.scipy.stats`: arguments inside and outside of their support."""

from __future__ import annotations

import importlib
import inspect

import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call

_COUNTS = np.array([0, 1, 2, 3, 5, 9], np.int32)
_REALS = np.array([-2.5, -0.5, 0.0, 0.25, 0.75, 1.5, 4.0], np.float32)
_SHAPE = v.positive(1, seed=3)
# The parameters of each distribution, after the argument.
_PARAMETERS: dict[str, tuple[object, ...]] = {
    "bernoulli": (np.array(0.3, np.float32),),
    "beta": (v.positive(7), v.positive(7, seed=1)),
    "betabinom": (np.array(9), np.array(2.0, np.float32), np.array(1.5, np.float32)),
    "binom": (np.array(9), np.array(0.3, np.float32)),
    "cauchy": (),
    "chi2": (v.positive(7),),
    "expon": (),
    "gamma": (v.positive(7),),
    "gennorm": (v.positive(7),),
    "geom": (np.array(0.3, np.float32),),
    "gumbel_l": (),
    "gumbel_r": (),
    "laplace": (),
    "logistic": (),
    "nbinom": (np.array(4.0, np.float32), np.array(0.3, np.float32)),
    "norm": (),
    "pareto": (v.positive(7),),
    "poisson": (np.array(2.5, np.float32),),
    "t": (v.positive(7),),
    "truncnorm": (np.array(-1.0, np.float32), np.array(2.0, np.float32)),
    "uniform": (),
    "vonmises": (v.positive(7),),
    "wrapcauchy": (v.unit(7),),
}
_DISCRETE = ("bernoulli", "betabinom", "binom", "geom", "nbinom", "poisson")
_QUANTILES = ("ppf", "isf")


def _calls(distribution: str, name: str, function: object) -> list[Call]:
    parameters = _PARAMETERS[distribution]
    if name == "entropy":
        return [call(v.between(0.5, 90, 7))]
    if name in _QUANTILES:
        return [call(v.unit(7), *parameters), call(np.array([-0.5, 0, 1, 2], np.float32), *parameters)][
            : 1 + (not any(isinstance(p, np.ndarray) and p.ndim for p in parameters))
        ]
    argument = _COUNTS if distribution in _DISCRETE else _REALS
    calls = [call(argument, *parameters)]
    if "loc" in inspect.signature(function).parameters:  # type: ignore[arg-type]
        calls.append(call(argument, *parameters, loc=1 if distribution in _DISCRETE else 0.5))
    if "scale" in inspect.signature(function).parameters:  # type: ignore[arg-type]
        calls.append(call(argument, *parameters, loc=np.array(-0.5, np.float32), scale=np.array(2.0, np.float32)))
    return calls


def _entries() -> dict[str, list[Call]]:
    found = {}
    for distribution in _PARAMETERS:
        module = importlib.import_module(f"jax.scipy.stats.{distribution}")
        for name, function in vars(module).items():
            if not name.startswith("_") and callable(function):
                found[f"jax.scipy.stats.{distribution}.{name}"] = _calls(distribution, name, function)
    return found


_DIRICHLET = [call(np.ascontiguousarray(v.distribution(6, 4).T), v.positive(4)), call(v.distribution(4), v.positive(4))]
_MULTINOMIAL = [call(np.array([3, 2, 4], np.int32), np.array(9), v.distribution(3))]
_NORMAL = [call(v.reals(7, 4), v.reals(4), v.definite()), call(v.reals(4), np.array(0.5, np.float32), v.definite())]
ENTRIES = {
    **_entries(),
    **{f"jax.scipy.stats.dirichlet.{name}": _DIRICHLET for name in ("logpdf", "pdf")},
    **{f"jax.scipy.stats.multinomial.{name}": _MULTINOMIAL for name in ("logpmf", "pmf")},
    **{f"jax.scipy.stats.multivariate_normal.{name}": _NORMAL for name in ("logpdf", "pdf")},
}
