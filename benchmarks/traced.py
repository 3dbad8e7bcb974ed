"""Programs as JAX users write them: a function on a tree of arrays, lowered once to StableHLO by `jax.jit`.

Their arithmetic is counted on JAX's own form of them: products of matrices and convolutions, as often as they run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from benchmarks.programs.registry import Array, Program, Work, enter

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax

# Large arrays repeat so many numbers: drawing those of a large model would take longer than running it.
POOL = 100_003


class Draw:
    """Makes the arguments of a program: their shapes to trace it with, or numbers when there is a generator."""

    def __init__(self, rng: np.random.Generator | None = None, dtype: Any = np.float32) -> None:
        self._rng = rng
        self.dtype = np.dtype(dtype)

    def normal(self, *shape: int, scale: float = 1.0, dtype: Any = None) -> Any:
        """Normally distributed numbers, multiplied by `scale`."""
        dtype = np.dtype(dtype or self.dtype)
        if self._rng is None:
            return jax.ShapeDtypeStruct(shape, dtype)
        drawn = self._rng.standard_normal(min(prod(shape), POOL)) * scale
        return np.resize(drawn.astype(dtype), shape)

    def turns(self, *shape: int, radius: float = 1.0) -> Any:
        """Complex numbers of an absolute value."""
        angles = self.normal(*shape)
        if self._rng is None:
            return jax.ShapeDtypeStruct(shape, np.complex64)
        return (radius * np.exp(1j * angles)).astype(np.complex64)

    def dense(self, *shape: int) -> Any:
        """Weights that keep a layer's results at the size of its arguments: the last dimension is the results'."""
        return self.normal(*shape, scale=prod(shape[:-1]) ** -0.5)

    def near_one(self, *shape: int) -> Any:
        """Positive numbers about 1, for scales and variances."""
        drawn = self.normal(*shape, scale=0.1)
        return drawn if self._rng is None else (1 + np.abs(drawn)).astype(self.dtype)

    def integers(self, high: int, *shape: int, dtype: Any = np.int32) -> Any:
        """Whole numbers from 0 up to `high`."""
        if self._rng is None:
            return jax.ShapeDtypeStruct(shape, np.dtype(dtype))
        return self._rng.integers(0, high, shape).astype(dtype)

    def fixed(self, value: Any) -> Any:
        """A value that is the same in each run."""
        value = np.asarray(value)
        return jax.ShapeDtypeStruct(value.shape, value.dtype) if self._rng is None else value


@dataclass(frozen=True)
class Traced(Program):
    """A program that JAX lowers.

    Attributes:
        function: from the arguments to a tree of results.
        make: its arguments, from what draws them.
        dtype: of what is drawn without another type.
        wide: whether 64-bit types are kept.
    """

    function: Callable[..., Any]
    make: Callable[[Draw], Sequence[Any]]
    _: KW_ONLY
    dtype: Any = np.float32
    wide: bool = False

    @cached_property
    def _traced(self) -> Any:
        with jax.enable_x64(self.wide):
            return jax.jit(self.function, keep_unused=True).trace(*self.make(Draw(dtype=self.dtype)))

    def text(self) -> str:
        with jax.enable_x64(self.wide):
            return str(self._traced.lower().as_text())

    def arguments(self, seed: int = 0) -> list[Array]:
        drawn = self.make(Draw(np.random.default_rng(seed), self.dtype))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(drawn)]

    def work(self) -> Work:
        jaxpr = self._traced.jaxpr
        read, written = (
            float(sum(prod(a.shape) * a.dtype.itemsize for a in each)) for each in (jaxpr.in_avals, jaxpr.out_avals)
        )
        operations = self.operations or arithmetic(jaxpr.jaxpr)
        return Work(operations, *(self.moved or (read, written)), self.peak)


def arithmetic(jaxpr: Any) -> float:
    """Multiplications and additions of products and convolutions, in loops as often as they run."""
    total = 0.0
    for equation in jaxpr.eqns:
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += _products(equation) + times * sum(arithmetic(inner) for inner in _inner(equation))
    return total


def _inner(equation: Any) -> list[Any]:
    """The bodies that an equation has; of several branches, all."""
    found = []
    for value in equation.params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(each, "jaxpr"):
                found.append(each.jaxpr)
            elif hasattr(each, "eqns"):
                found.append(each)
    return found


def _products(equation: Any) -> float:
    if equation.primitive.name == "dot_general":
        result = prod(equation.outvars[0].aval.shape)
        (contracting, _), _ = equation.params["dimension_numbers"]
        each = 8.0 if np.issubdtype(equation.outvars[0].aval.dtype, np.complexfloating) else 2.0
        return each * result * prod(equation.invars[0].aval.shape[d] for d in contracting)
    if equation.primitive.name == "conv_general_dilated":
        return 2.0 * _window_products(equation)
    return 0.0


def _window_products(equation: Any) -> float:
    """Products of a convolution that are of elements: not of padding, nor of the zeros between dilated ones."""
    parameters, image, kernel = equation.params, equation.invars[0].aval.shape, equation.invars[1].aval.shape
    numbers = parameters["dimension_numbers"]
    taken = 1.0
    for axis in range(len(parameters["window_strides"])):
        taken *= _taken(
            image[numbers.lhs_spec[2 + axis]],
            kernel[numbers.rhs_spec[2 + axis]],
            parameters["window_strides"][axis],
            parameters["padding"][axis],
            parameters["lhs_dilation"][axis],
            parameters["rhs_dilation"][axis],
        )
    outputs, per_group = kernel[numbers.rhs_spec[0]], kernel[numbers.rhs_spec[1]]
    batch = image[numbers.lhs_spec[0]] / parameters["batch_group_count"]
    return taken * outputs * per_group * batch


def _taken(length: int, window: int, stride: int, padding: tuple[int, int], dilation: int, apart: int) -> int:
    """Pairs of a place of a window and an element under it, along one dimension."""
    spread = (length - 1) * dilation + 1
    places = np.arange(0, spread + sum(padding) - (window - 1) * apart, stride)[:, None] - padding[0]
    under = places + np.arange(window)[None, :] * apart
    return int(((under >= 0) & (under < spread) & (under % dilation == 0)).sum())


def trace(
    name: str, summary: str, function: Callable[..., Any], make: Callable[[Draw], Sequence[Any]], **more: Any
) -> None:
    """Enters a function of JAX into the list of programs."""
    enter(Traced(name, summary, function, make, **more))
