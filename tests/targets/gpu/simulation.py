"""Running a program's PTX under the real runtime on the simulated driver, and comparing with the CPU's kernels.

The simulator also finds races between threads, addresses outside of arrays, and reads of what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from tests.comparison import assert_same
from tests.targets.gpu.emulation import program
from tests.targets.gpu.runtime import simulated


def check_simulated(
    make: Callable[..., Any], *arrays: np.ndarray[Any, Any], chip: str = "sm_80", ulp: float = 0, scale: float = 0
) -> sx.Executable:
    """The simulated kernels give what the CPU's give. Returns the program."""
    computation = program(make, *arrays)
    wanted = sx.compile(computation).execute(list(arrays))
    with simulated(chip=int("".join(filter(str.isdigit, chip)))):
        executable = sx.compile(computation, target=sx.targets.gpu(chip=chip))
        for actual, other in zip(executable.execute(list(arrays)), wanted, strict=True):
            assert_same(actual, other, ulp=ulp, scale=scale)
    return executable
