"""stablexla itself: numpy arrays in, new numpy arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

import stablexla as sx
from benchmarks.engines.base import Array
from benchmarks.programs.registry import Program


class _Prepared:
    compile_seconds = None

    def __init__(self, text: str) -> None:
        self._executable = sx.compile(text)

    def bind(self, arguments: Sequence[Array]) -> None:
        self._arguments = tuple(arguments)

    def run(self) -> None:
        self._executable(*self._arguments)

    def results(self) -> list[Array]:
        return self._executable.execute(self._arguments)

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        executable = self._executable
        return lambda: executable(*arguments)


class _Engine:
    name = "stablexla"
    version = version("stablexla")

    def prepare(self, program: Program, text: str) -> _Prepared:
        return _Prepared(text)


engine = _Engine
