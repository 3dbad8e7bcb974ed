"""The list of programs, by name, in the order of the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import stablexla as sx

Array = npt.NDArray[Any]
Build = Callable[..., sx.XlaOp]
Numpy = Callable[..., Array]


@dataclass(frozen=True)
class Work:
    """What a program cannot avoid: arithmetic of a type, and bytes read and written."""

    operations: float
    read: float
    written: float
    peak: str = "f32"


@dataclass(frozen=True)
class Program(ABC):
    """One program.

    Attributes:
        name: as it is chosen on the command line.
        summary: what it computes, in a few words.
        numpy: the same on numpy arrays, when there is a natural way to say it.
        operations: arithmetic that cannot be avoided, for programs that are bound by it.
        tolerance: of the largest magnitude; results of two engines may differ by that.
        moved: bytes that have to be read and written; all arguments and results when nothing else is said.
        peak: whose peak bounds its arithmetic, a key of `benchmarks.limits.PEAKS`.
        family: the section of the page that it stands in.
        group: `kernels`, `models` or `real`.
        needs: packages that it cannot do without, by the name that is imported.
    """

    name: str
    summary: str
    _: KW_ONLY
    numpy: Numpy | None = None
    operations: float = 0
    tolerance: float = 1e-5
    moved: tuple[float, float] | None = None
    peak: str = "f32"
    family: str = ""
    group: str = "kernels"
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """The packages among `needs` that are not installed."""
        return [name for name in self.needs if not _is_installed(name)]

    @abstractmethod
    def text(self) -> str | bytes:
        """The StableHLO that every engine compiles, as MLIR text or bytecode."""

    @abstractmethod
    def arguments(self, seed: int = 0) -> list[Array]:
        """What it is run on."""

    @abstractmethod
    def work(self) -> Work:
        """What cannot be avoided."""


def _is_installed(name: str) -> bool:
    parents = name.rpartition(".")[0]
    return (not parents or _is_installed(parents)) and find_spec(name) is not None


@dataclass(frozen=True)
class Built(Program):
    """A program of the builder's.

    Attributes:
        shapes: of its parameters.
        build: the root of the computation, from its parameters.
        draw: its arguments from a generator of random numbers, where normally distributed ones make no sense.
    """

    shapes: tuple[sx.Shape, ...]
    build: Build
    _: KW_ONLY
    draw: Callable[[np.random.Generator], Sequence[Array]] | None = None

    def computation(self) -> sx.XlaComputation:
        """The computation."""
        b = sx.XlaBuilder(self.name.replace("-", "_"))
        return b.build(self.build(*(b.parameter(i, shape) for i, shape in enumerate(self.shapes))))

    def text(self) -> str:
        return str(self.computation())

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        if self.draw is not None:
            return list(self.draw(rng))
        return [normal(rng, s) for s in self.shapes]

    def work(self) -> Work:
        if self.moved is not None:
            return Work(self.operations, *self.moved, self.peak)
        made = leaves(self.computation().result_shape)
        return Work(self.operations, float(sum(map(size, self.shapes))), float(sum(map(size, made))), self.peak)


def normal(rng: np.random.Generator, shape: sx.Shape) -> Array:
    """Normally distributed numbers; of complex ones both parts are."""
    values: Array = rng.standard_normal(shape.dimensions, np.float32)
    if shape.element_type.is_complex:
        values = values + 1j * rng.standard_normal(shape.dimensions)
    return values.astype(shape.element_type.dtype)


def size(shape: sx.Shape) -> int:
    """Bytes of an array."""
    return prod(shape.dimensions) * shape.element_type.dtype.itemsize


def leaves(shape: sx.Shape) -> list[sx.Shape]:
    """The arrays of a shape, which may be a tuple."""
    return [part for each in shape.tuple_shapes for part in leaves(each)] if shape.is_tuple else [shape]


PROGRAMS: dict[str, Program] = {}


def enter(program: Program) -> None:
    """Puts a program into the list."""
    assert program.name not in PROGRAMS, f"two programs are called {program.name}"
    PROGRAMS[program.name] = program


def add(name: str, summary: str, shapes: Sequence[sx.Shape], build: Build, **more: Any) -> None:
    """Makes a program and puts it into the list."""
    enter(Built(name, summary, tuple(shapes), build, **more))


def file_under(family: str, group: str = "kernels") -> None:
    """All programs that have no family yet belong to this one."""
    for name, program in PROGRAMS.items():
        if not program.family:
            PROGRAMS[name] = replace(program, family=family, group=group)
