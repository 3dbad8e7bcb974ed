"""Calls of `jax.lax`'s collectives along an axis of `jax.vmap`, where they are operations on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, through

F, S = v.reals, v.integers


def _along(change: Callable[..., Any], *arrays: v.Array) -> Call:
    """`change(function, *parts)` for each part along the first dimension, which is the axis "i"."""
    return through(lambda f, *xs: jax.vmap(lambda *parts: change(f, *parts), axis_name="i")(*xs), *arrays)


_PERMUTATION = [(0, 1), (1, 2), (2, 3), (3, 0)]
_BY_NAME: dict[str, list[Call]] = {
    **{name: [_along(lambda f, x: f(x, "i"), F(4, 3))] for name in ("pmax", "pmin", "pmean", "psum")},
    "all_gather": [
        _along(lambda f, x: f(x, "i"), F(4, 3)),
        _along(lambda f, x: f(x, "i", axis=0, tiled=True), S(4, 3)),
    ],
    "all_to_all": [_along(lambda f, x: f(x, "i", 0, 1), F(4, 4, 3))],
    "axis_index": [_along(lambda f, x: x * f("i"), F(4, 3))],
    "ppermute": [_along(lambda f, x: f(x, "i", _PERMUTATION), F(4, 3))],
    "pshuffle": [_along(lambda f, x: f(x, "i", [1, 2, 3, 0]), F(4, 3))],
    "psum_scatter": [_along(lambda f, x: f(x, "i"), F(4, 4)), _along(lambda f, x: f(x, "i", tiled=True), F(4, 8))],
    "pswapaxes": [_along(lambda f, x: f(x, "i", 0), F(4, 4, 3))],
}
ENTRIES = {f"jax.lax.{name}": calls for name, calls in _BY_NAME.items()}
