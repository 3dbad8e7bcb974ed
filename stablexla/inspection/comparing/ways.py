"""Ways to run a program: pipelines of our own and oracles, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import only
from stablexla.processes.questions import Refusal
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime import set_pool_fill

if TYPE_CHECKING:
    from stablexla.executable.executable import Executable  # whose package imports this one

Array = npt.NDArray[Any]
Arrays = list[Array]
SEED = 1
NOT_A_NUMBER = 0xFF
"""Fill byte of memory, so that elements that are never written do not hold an earlier run's results."""


def results_of(executable: Executable, arguments: Sequence[Array]) -> Arrays:
    """Run an executable on the leaves of its arguments; random numbers repeat."""
    executable.seed(SEED)
    set_pool_fill(NOT_A_NUMBER)
    try:
        return [np.asarray(r) for r in executable.execute(list(arguments))]
    finally:
        set_pool_fill(-1)


class Way(Protocol):
    """Something that runs programs.

    Attributes:
        name: what reports call it.
    """

    @property
    def name(self) -> str:
        """The name in reports."""

    def run(self, module: ir.Module, arguments: Sequence[Array]) -> Arrays | Refusal:
        """Return the results of a module's `main`, or why there are none."""


@dataclass(frozen=True)
class Compiled:
    """A pipeline of ours with its options.

    Attributes:
        pipeline: the steps.
        options: everything else that is said to the compiler.
        target: what it is compiled for.
        name: what reports call it.
    """

    pipeline: Pipeline
    options: CompileOptions
    target: str = "cpu"
    name: str = "stablexla"

    def prepare(self, module: ir.Module) -> Callable[[Sequence[Array]], Arrays] | Refusal:
        """Compile the program for many runs."""
        from stablexla.compiling.compiler import compile  # it makes executables, which import this package

        try:
            with only(self.pipeline.rules):  # one side may lack what the other one was given
                executable = compile(module, target=self.target, options=replace(self.options, pipeline=self.pipeline))
        except StablexlaError as error:
            return Refusal(type(error).__name__, str(error))

        return lambda arguments: results_of(executable, arguments)

    def run(self, module: ir.Module, arguments: Sequence[Array]) -> Arrays | Refusal:
        """Return the results of a module's `main`, or why there are none."""
        prepared = self.prepare(module)
        if isinstance(prepared, Refusal):
            return prepared
        try:
            return prepared(arguments)
        except StablexlaError as error:
            return Refusal(type(error).__name__, str(error))
