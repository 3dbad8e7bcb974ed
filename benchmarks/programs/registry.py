"""The list of programs, by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import stablexla as sx

Array = npt.NDArray[Any]
Build = Callable[..., sx.XlaOp]
Numpy = Callable[..., Array]


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: as it is chosen on the command line.
        summary: what it computes, in a few words.
        shapes: of its parameters.
        build: the root of the computation, from its parameters.
        numpy: the same on numpy arrays, when there is a natural way to say it.
        operations: floating-point operations, for programs that are bound by them.
        tolerance: of the largest magnitude; results of two engines may differ by that.
        draw: its arguments from a generator of random numbers, where normally distributed ones make no sense.
    """

    name: str
    summary: str
    shapes: tuple[sx.Shape, ...]
    build: Build
    numpy: Numpy | None = None
    operations: float = 0
    tolerance: float = 1e-5
    draw: Callable[[np.random.Generator], Sequence[Array]] | None = None

    def computation(self) -> sx.XlaComputation:
        """The computation."""
        b = sx.XlaBuilder(self.name.replace("-", "_"))
        return b.build(self.build(*(b.parameter(i, shape) for i, shape in enumerate(self.shapes))))

    def arguments(self, seed: int = 0) -> list[Array]:
        """Normally distributed numbers, or what the program draws."""
        rng = np.random.default_rng(seed)
        if self.draw is not None:
            return list(self.draw(rng))
        return [rng.standard_normal(s.dimensions, np.float32).astype(s.element_type.dtype) for s in self.shapes]


PROGRAMS: dict[str, Program] = {}


def add(name: str, summary: str, shapes: Sequence[sx.Shape], build: Build, **more: Any) -> None:
    """Enters a program into the list."""
    assert name not in PROGRAMS, f"two programs are called {name}"
    PROGRAMS[name] = Program(name, summary, tuple(shapes), build, **more)
