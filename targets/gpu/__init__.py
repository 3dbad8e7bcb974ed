"""Target NVIDIA GPUs. The package is callable: `sx.targets.gpu(chip="sm_90")` is a target's name for `sx.compile`."""

from __future__ import annotations

import sys
from types import ModuleType

from stablexla.targets.kinds import Kind

KIND = Kind(
    "gpu:sm_90 or gpu:sm_90,ptx80: NVIDIA's GPUs; gpu alone is the one that is there. --list-chips has the chips",
    composites="rules",
    files="kernels",
)


class _Callable(ModuleType):
    """Make the package a function that spells targets, which are plain texts."""

    def __call__(self, chip: str | None = None, *, ptx: int | None = None) -> str:
        """Return the name of a target, as `sx.compile(target=...)` takes it.

        Args:
            chip: the chip PTX is generated for, as "sm_90" or "sm_90a"; sm_80 when it is not given.
            ptx: the version of PTX, 80 for 8.0; the oldest that knows the chip when it is not given.

        Raises:
            CompileError: there is no such chip, or the version of PTX does not know it.
        """
        from stablexla.targets.gpu.chips import GpuName

        return str(GpuName.of(chip, ptx))


sys.modules[__name__].__class__ = _Callable
