"""The programs, by the path under which the table has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Program:
    """A function that libraries made, and its arguments.

    Attributes:
        path: as "programs.flax.mlp".
        about: a line for the table.
        make: gives the function, and its arguments as pytrees of numpy arrays.
    """

    path: str
    about: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


PROGRAMS: dict[str, Program] = {}


def program(library: str, about: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers a function that gives a function and a tuple of arguments."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        path = f"programs.{library}.{make.__name__}"
        assert path not in PROGRAMS, path

        def made() -> tuple[Callable[..., Any], tuple[Any, ...]]:
            function, *arguments = make()
            return function, tuple(map(arrays, arguments))

        PROGRAMS[path] = Program(path, about, made)
        return make

    return register


def arrays(tree: Any) -> Any:
    """A pytree with numpy's arrays in place of JAX's; random keys stay, as constants of the program."""
    import jax

    def plain(leaf: Any) -> Any:
        is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(leaf) if isinstance(leaf, jax.Array) and not is_key else leaf

    return jax.tree.map(plain, tree)


def with_gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The value and the gradient by the first argument."""
    import jax

    gradient: Callable[..., Any] = jax.value_and_grad(loss)
    return gradient
