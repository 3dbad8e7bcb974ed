"""The registry of emitters for GPUs: which function may write the thread of which kind of kernel."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.registry import Emitters
from stablexla.targets.gpu.chips import GpuName as GpuName  # it is named from here

Emitter = Callable[[Kernel, GpuName], Emitted | None]
EMITTERS: Emitters[Emitter] = Emitters()


def gpu_emitter(*kinds: str, priority: int = 0) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for kernels of `kinds`; of several, the one of the highest priority is asked first.

    It answers None, and leaves the module as it was, when it cannot take a kernel.

    Raises:
        ValueError: another emitter of one of the kinds has this priority.
    """
    return EMITTERS.register(*kinds, priority=priority)
