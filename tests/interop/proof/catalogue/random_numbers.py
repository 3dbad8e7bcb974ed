"""Calls of `jax.random`: a key that is traced, and parameters of the distributions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, through

KEY = v.key_data()
SHAPE = (3, 40)
_A, _B = v.positive(3, 40), v.positive(3, 40, seed=1)


def _drawn(*parameters: Any, **keywords: Any) -> Call:
    """With a key of the old style: two unsigned numbers."""
    return call(KEY, *parameters, **keywords)


def _with_typed_key(*parameters: Any, impl: str = "threefry2x32", **keywords: Any) -> Call:
    words = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}[impl]
    return through(
        lambda f, data: f(jax.random.wrap_key_data(data, impl=impl), *parameters, **keywords),
        np.arange(7, 7 + words, dtype=np.uint32),
    )


def _of_shape(name: str) -> list[Call]:
    bf16 = [] if name in ("bits", "rademacher") else [_drawn(SHAPE, dtype=v.BF16)]
    return [_drawn(SHAPE), _with_typed_key(SHAPE), *bf16]


_BY_NAME: dict[str, list[Call]] = {
    **{
        name: _of_shape(name)
        for name in (
            *("bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "maxwell", "normal", "rademacher"),
            "uniform",
        )
    },
    "PRNGKey": [call(np.array(42, np.int32))],
    "ball": [_drawn(3, shape=(20,)), _drawn(2, p=1, shape=(20,))],
    "bernoulli": [_drawn(v.unit(3, 40)), _drawn(0.3, SHAPE, mode="high")],
    "beta": [_drawn(_A, _B)],
    "binomial": [_drawn(np.float32(20), v.unit(3, 40)), _drawn(np.float32(200), v.unit(3, 40))],
    "categorical": [_drawn(v.reals(3, 5), shape=(40, 3)), _drawn(v.reals(5), shape=(3,), replace=False)],
    "chisquare": [_drawn(_A)],
    "choice": [
        _drawn(9, SHAPE),
        _drawn(v.reals(9), (5,), replace=False),
        _drawn(v.reals(9, 2), (5,), p=v.distribution(9)),
        _drawn(9, (5,), replace=False, p=v.distribution(9)),
    ],
    "clone": [_with_typed_key()],
    "dirichlet": [_drawn(v.positive(5), (20,))],
    "double_sided_maxwell": [_drawn(0.5, 2.0, SHAPE)],
    "f": [_drawn(_A, _B)],
    "fold_in": [_drawn(np.array(7, np.int32)), _with_typed_key(7)],
    "gamma": [_drawn(_A), _drawn(v.unit(3, 40))],
    "generalized_normal": [_drawn(1.5, SHAPE)],
    "geometric": [_drawn(v.unit(3, 40))],
    "key": [call(np.array(42, np.int32)), call(np.array(42, np.int32), impl="rbg")],
    "key_data": [_with_typed_key()],
    "loggamma": [_drawn(_A)],
    "lognormal": [_drawn(_A)],
    "multinomial": [_drawn(np.float32(20), v.distribution(3, 5))],
    "multivariate_normal": [
        _drawn(v.reals(4), v.definite(), (20,)),
        _drawn(v.reals(4), v.definite(), (20,), method="eigh"),
        _drawn(v.reals(4), v.definite(), (20,), method="svd"),
    ],
    "orthogonal": [_drawn(4), _drawn(3, (2,), m=5)],
    "pareto": [_drawn(_A)],
    "permutation": [_drawn(20), _drawn(v.reals(9, 2)), _drawn(v.reals(3, 9), axis=1, independent=True)],
    "poisson": [_drawn(_A), _drawn(v.between(10, 50, 3, 40))],
    "randint": [
        _drawn(SHAPE, np.array(-5), np.array(9)),
        _drawn(SHAPE, 0, 256, np.uint8),
        _drawn(SHAPE, v.naturals(40), 100),
    ],
    "rayleigh": [_drawn(_A)],
    "split": [_drawn(3), _with_typed_key((2, 2)), _with_typed_key(3, impl="rbg")],
    "t": [_drawn(_A)],
    "triangular": [_drawn(-_A, np.float32(0.1), _B)],
    "truncated_normal": [_drawn(-1.0, 2.0, SHAPE), _drawn(-1.0, 2.0, SHAPE, dtype=v.BF16)],
    "wald": [_drawn(_A)],
    "weibull_min": [_drawn(2.0, 1.5, SHAPE)],
    "wrap_key_data": [call(KEY)],
}
_BY_NAME["bits"] += [_drawn(SHAPE, dtype=t) for t in (np.uint8, np.uint16)] + [_with_typed_key(SHAPE, impl="rbg")]
_BY_NAME["uniform"] += [_drawn(SHAPE, np.float32, np.array(-2.0), np.array(3.0)), _with_typed_key(SHAPE, impl="rbg")]
ENTRIES = {f"jax.random.{name}": calls for name, calls in _BY_NAME.items() if hasattr(jax.random, name)}
