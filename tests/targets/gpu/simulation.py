"""Running a program's PTX under the real runtime on the simulated driver, and comparing with the CPU's kernels.

The simulator also finds races between threads, addresses outside of arrays, and reads of what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from tests.comparison import assert_same
from tests.targets.gpu.programs import program
from tests.targets.gpu.runtime import simulated

Array = np.ndarray[Any, Any]


def run_simulated(program: Any, *arrays: Array, chip: str = "sm_80") -> tuple[sx.Executable, list[Array]]:
    """Compiles a program for a chip and runs it on the simulated driver; the program and its results."""
    with simulated(chip=int("".join(filter(str.isdigit, chip)))):
        executable = sx.compile(program, target=sx.gpu.target(chip=chip))
        return executable, [np.asarray(result) for result in executable.execute(list(arrays))]


def check_simulated(
    make: Callable[..., Any], *arrays: Array, chip: str = "sm_80", ulp: float = 0, scale: float = 0
) -> sx.Executable:
    """The simulated kernels give what the CPU's give. Returns the program."""
    computation = program(make, *arrays)
    executable, results = run_simulated(computation, *arrays, chip=chip)
    for actual, wanted in zip(results, sx.compile(computation).execute(list(arrays)), strict=True):
        assert_same(actual, wanted, ulp=ulp, scale=scale)
    return executable
