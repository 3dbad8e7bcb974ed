"""stablexla itself: numpy arrays in, new numpy arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import stablexla as sx
from benchmarks.engines.base import Array
from benchmarks.programs.registry import Program


class _Prepared:
    def __init__(self, text: str, arguments: Sequence[Array]) -> None:
        self._executable = sx.compile(text)
        self._arguments = tuple(arguments)

    def run(self) -> None:
        self._executable(*self._arguments)

    def results(self) -> list[Array]:
        return self._executable.execute(self._arguments)


class _Engine:
    name = "stablexla"
    version = version("stablexla")

    def prepare(self, program: Program, text: str, arguments: Sequence[Array]) -> _Prepared:
        return _Prepared(text, arguments)


engine = _Engine
