"""numpy, where a program has a natural spelling in it; every operation makes an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.engines.base import Array
from benchmarks.programs.registry import Numpy, Program


class _Prepared:
    compile_seconds = None

    def __init__(self, function: Numpy) -> None:
        self._function = function

    def bind(self, arguments: Sequence[Array]) -> None:
        self._arguments = tuple(arguments)

    def run(self) -> None:
        self._function(*self._arguments)

    def results(self) -> list[Array]:
        found = self._function(*self._arguments)
        return [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        function = self._function
        return lambda: function(*arguments)


class _Engine:
    name = "numpy"
    version = np.__version__

    def prepare(self, program: Program, text: str) -> _Prepared | None:
        return _Prepared(program.numpy) if program.numpy else None


engine = _Engine
