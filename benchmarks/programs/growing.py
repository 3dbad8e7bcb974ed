"""Programs at two sizes, with the law that their algorithm's cost follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from benchmarks.programs.registry import Program

LAWS: dict[str, Callable[[float], float]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * log2(n),
    "n^3": lambda n: n**3,
}


@dataclass(frozen=True)
class Growing:
    """A program that can be made at any size.

    Attributes:
        name: as it is chosen on the command line.
        summary: what it computes, and what its size counts.
        law: its cost, a key of `LAWS`.
        sizes: a small and a large one.
        at: the program of a size.
    """

    name: str
    summary: str
    law: str
    sizes: tuple[int, int]
    at: Callable[[int], Program]

    @property
    def expected(self) -> float:
        """How many times as much work the larger one is."""
        small, large = (LAWS[self.law](n) for n in self.sizes)
        return large / small


GROWING: dict[str, Growing] = {}


def grows(name: str, summary: str, law: str, sizes: tuple[int, int]) -> Callable[[Callable[[int], Program]], None]:
    """Registers a function from a size to a program."""

    def register(at: Callable[[int], Program]) -> None:
        assert name not in GROWING, f"two programs are called {name}"
        GROWING[name] = Growing(name, summary, law, sizes, at)

    return register
