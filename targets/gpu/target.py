"""GPU target: its pipeline, its loader, and how its stages are printed."""

from __future__ import annotations

from functools import partial
from typing import Any

from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.launch.device_buffers import DeviceAssignment
from stablexla.targets.gpu.launch.engine import load
from stablexla.targets.gpu.pipeline import gpu_pipeline, plain_pipeline
from stablexla.targets.gpu.ptx.to_ptx import ptx_of
from stablexla.targets.registry import Target


def target(text: str) -> Target:
    """Return the target that a text as `gpu:sm_90` names.

    Raises:
        CompileError: there is no such chip or version of PTX.
    """
    name = GpuName.parse(text)
    return Target(
        str(name),
        lambda options: gpu_pipeline(name, options),
        partial(load, chip=name.chip),
        {"ptx": _ptx},
        plain=partial(plain_pipeline, str(name)),
        assignment=DeviceAssignment,
        ignores=("num_threads", "vector_bits", "schedules"),
    )


def _ptx(module: Any) -> str:
    return ptx_of(module)
