"""numpy, where a program has a natural spelling in it; every operation makes an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.engines.base import Array
from benchmarks.programs.registry import Numpy, Program


class _Prepared:
    def __init__(self, function: Numpy, arguments: Sequence[Array]) -> None:
        self._function = function
        self._arguments = tuple(arguments)

    def run(self) -> None:
        self._function(*self._arguments)

    def results(self) -> list[Array]:
        return [np.asarray(self._function(*self._arguments))]


class _Engine:
    name = "numpy"
    version = np.__version__

    def prepare(self, program: Program, text: str, arguments: Sequence[Array]) -> _Prepared | None:
        return _Prepared(program.numpy, arguments) if program.numpy else None


engine = _Engine
