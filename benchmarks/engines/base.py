"""The face that every engine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from benchmarks.programs.registry import Program

Array = npt.NDArray[Any]


class MissingEngineError(Exception):
    """An engine's package is not there; says how to get it."""


class Prepared(Protocol):
    """A program that is compiled, with arguments where the engine likes them."""

    def run(self) -> None:
        """Runs it, and returns when the results are there; they are dropped."""

    def results(self) -> list[Array]:
        """Runs it, and returns the results."""


class Engine(Protocol):
    """An engine."""

    name: str
    version: str

    def prepare(self, program: Program, text: str, arguments: Sequence[Array]) -> Prepared | None:
        """Compiles StableHLO text, which is all that most engines look at; None when the engine can't."""
