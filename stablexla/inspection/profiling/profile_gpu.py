"""Profiles on a GPU: launches are timed by the device's own clock, between events.

Each measured run is one call with events around every launch, which makes launches wait for each other a little more
than otherwise; work of the host is no part of a kernel's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from stablexla.dialects.errors import UnsupportedError
from stablexla.inspection.profiling.bounds import with_bounds
from stablexla.inspection.profiling.profile import Profile, Slice, kernel_name, times_of
from stablexla.targets.runtime._runtime import GpuFunction
from stablexla.targets.runtime.bounded import BoundedFunction

if TYPE_CHECKING:
    from stablexla.executable.executable import Executable


def profile_on_gpu(executable: Executable, function: GpuFunction, arguments: Sequence[object], runs: int) -> Profile:
    """Like `profile`, for a program that a GPU runs.

    Raises:
        ExecutionError: arguments that do not fit; no driver.
        UnsupportedError: a program for several devices.
    """
    if executable.num_devices > 1:
        raise UnsupportedError(f"{executable.name}: a program for several devices does not run on GPUs")
    leaves = arguments if executable._tree is None else executable._tree.arguments(arguments)
    signature = executable._signature
    if not signature.is_static:
        leaves = BoundedFunction(function, signature.dynamic_parameters, signature.dynamic_results).in_bounds(leaves)
    explanation = executable.explain()
    names = [kernel.name for kernel in explanation.kernels]
    function.launch_times(leaves)
    slices: list[Slice] = []
    at, start = 0, perf_counter_ns()
    for _ in range(runs):
        for launched, microseconds in function.launch_times(leaves):
            end = at + round(microseconds * 1e3)
            slices.append(Slice(kernel_name(launched, names), 0, at, end, False, launched))
            at = end
    seconds = (perf_counter_ns() - start) / 1e9
    # The limits of the host say nothing about the device.
    times = tuple(with_bounds(times_of(slices, explanation), slices, None, 1))
    return Profile(executable.name, runs, seconds, times, tuple(slices), explanation)
