"""One call of a function: which of its arguments are arrays that are traced, and which belong to the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.interop.proof.values import Array

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "bool": "pred"}


@dataclass(frozen=True)
class Call:
    """Arguments of a function. Numpy arrays, also inside tuples, lists and dictionaries, are traced; all else is fixed.

    Attributes:
        through: what is called instead, with the function before the arguments.
        label: what the call is called; element types and shapes of its arrays, when empty.
    """

    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    through: Callable[..., Any] | None = None
    label: str = ""

    def bind(self, function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Array]]:
        """A function of the arrays alone, and the arrays."""
        import jax

        leaves, tree = jax.tree.flatten((self.arguments, self.keywords))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
        called = function if self.through is None else self.through

        def of_arrays(*arrays: Any) -> Any:
            filled = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                filled[place] = array
            arguments, keywords = jax.tree.unflatten(tree, filled)
            return called(*(() if self.through is None else (function,)), *arguments, **keywords)

        return of_arrays, [leaves[i] for i in places]

    def __str__(self) -> str:
        if self.label:
            return self.label
        import jax

        leaves = jax.tree.leaves((self.arguments, self.keywords))
        arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
        return " ".join(short(array) for array in arrays) or "no arrays"


def call(*arguments: Any, **keywords: Any) -> Call:
    """The function on these arguments."""
    return Call(arguments, keywords)


def through(what: Callable[..., Any], *arguments: Any, **keywords: Any) -> Call:
    """`what(function, *arguments)`, for functions that make functions, or give what is no array."""
    return Call(arguments, keywords, what)


def calls_for(kinds: Sequence[Callable[..., Array]], *shape: int, **keywords: Any) -> list[Call]:
    """The function of one array, for each maker of arrays."""
    return [call(kind(*shape), **keywords) for kind in kinds]


def short(array: Array) -> str:
    """As "f32[3,4]"."""
    name = str(array.dtype)
    name = _SHORT.get(name, name.replace("uint", "u").replace("int", "s"))
    return f"{name}[{','.join(map(str, array.shape))}]"


def leaves_of(results: Any) -> list[Array]:
    """The arrays of a pytree; of random keys, their bits."""
    import jax

    found = []
    for leaf in jax.tree.leaves(results):
        is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found.append(np.asarray(jax.random.key_data(leaf) if is_key else leaf))
    return found
