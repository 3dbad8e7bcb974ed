"""Calls that are guessed from a function's signature: what JAX's own tracing accepts of a few kinds of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call
from tests.interop.proof.inventory import Public

# What a parameter of this name is given; all others are arrays.
_FIXED: dict[str, Any] = {
    "axis": 0,
    "axis1": 0,
    "axis2": 1,
    "dimension": 0,
    "shape": (3, 4),
    "newshape": (4, 3),
    "new_shape": (2, 4, 3),
    "dtype": "float32",
    "new_dtype": "float32",
    "decimals": 1,
    "k": 1,
    "n": 3,
    "N": 4,
    "M": 5,
    "num": 5,
    "repeats": 2,
    "reps": (2, 1),
    "shift": 1,
    "fill_value": 1.5,
}
_INDICES = ("indices", "index", "idx", "segment_ids")
_SQUARE = ("linalg", "schur", "eig")

Kind = tuple[str, Callable[..., v.Array]]
KINDS: tuple[Kind, ...] = (
    ("reals", v.reals),
    ("unit", v.unit),
    ("s32", v.integers),
    ("c64", v.complexes),
    ("pred", v.booleans),
    ("bf16", lambda *shape, seed=0: v.unit(*shape, seed=seed, of=v.BF16)),
)


def required(function: Any) -> list[str]:
    """Names of the parameters that have to be given."""
    count = getattr(function, "nin", None)
    if isinstance(count, int):
        return [f"x{i + 1}" for i in range(count)]
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.kind in kinds and p.default is inspect.Parameter.empty]


def guesses(public: Public) -> Iterator[Call]:
    """Calls with one kind of elements for all arrays: of rank 2, or square matrices, or of rank 1."""
    try:
        names = required(public.value)
    except (TypeError, ValueError):
        return
    square = any(word in public.path for word in _SQUARE)
    for kind, maker in KINDS:
        for shape in ((4, 4),) if square else ((3, 4), (4,)):
            array = _square(maker) if square else maker
            found = [_argument(name, position, array, shape) for position, name in enumerate(names)]
            guess = Call(tuple(found), label=kind)
            if accepted(public.value, guess):
                yield guess
                break


def accepted(function: Any, guess: Call) -> bool:
    """Whether JAX can trace it, and something comes out."""
    import jax

    of_arrays, arrays = guess.bind(function)
    if not arrays:
        return False
    try:
        shapes = jax.tree.leaves(jax.eval_shape(of_arrays, *arrays))
    except Exception:
        return False
    return bool(shapes) and all(hasattr(shape, "dtype") for shape in shapes)


def _argument(name: str, seed: int, maker: Callable[..., v.Array], shape: tuple[int, ...]) -> Any:
    if name in _INDICES:
        return v.naturals(*shape, below=3, seed=seed)
    return _FIXED[name] if name in _FIXED else maker(*shape, seed=seed)


def _square(maker: Callable[..., v.Array]) -> Callable[..., v.Array]:
    def made(*shape: int, seed: int = 0) -> v.Array:
        array = maker(*shape, seed=seed)
        return (
            array if array.dtype == bool else (array + 3 * v.np.eye(shape[-1], dtype=array.dtype)).astype(array.dtype)
        )

    return made
