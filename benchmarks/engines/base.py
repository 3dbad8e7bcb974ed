"""The face that every engine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from benchmarks.programs.registry import Program

Array = npt.NDArray[Any]


class MissingEngineError(Exception):
    """An engine's package is not there; says how to get it."""


class FailedError(Exception):
    """An engine can't do a program; says why in a line."""


class Prepared(Protocol):
    """A program that is compiled.

    Attributes:
        compile_seconds: what compiling took when that is not the time that the call took; None as a rule.
    """

    compile_seconds: float | None

    def bind(self, arguments: Sequence[Array]) -> None:
        """Puts arguments where the engine likes them; this is not timed."""

    def run(self) -> None:
        """Runs it, and returns when the results are there; they are dropped."""

    def results(self) -> list[Array]:
        """Runs it, and returns the results."""

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        """A call with numpy arrays in and numpy arrays out."""


class Engine(Protocol):
    """An engine."""

    name: str
    version: str

    def prepare(self, program: Program, text: str) -> Prepared | None:
        """Compiles StableHLO text, which is all that most engines look at; None when the engine can't."""
