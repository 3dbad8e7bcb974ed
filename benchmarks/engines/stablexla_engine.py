"""stablexla itself: numpy arrays in, new numpy arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import ClassVar

from benchmarks.engines.base import Array
from benchmarks.programs.registry import Program
from stablexla.compiling.core import compile_watched
from stablexla.compiling.request import Request
from stablexla.targets.pipeline.dump import KnobWatcher


class _Timed(KnobWatcher):
    """Remembers the seconds of each step of the last program."""

    last: ClassVar[dict[str, float]] = {}

    def finish(self) -> None:
        super().finish()
        _Timed.last = dict(self.times)


class _Prepared:
    compile_seconds = None

    def __init__(self, text: str) -> None:
        self._executable = compile_watched(Request(text), _Timed)
        self.stages = _Timed.last

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
