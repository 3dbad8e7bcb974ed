"""The registry of emitters that all targets share: kernels whose meaning lies outside of their bodies."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.registry import Emitters

HostEmitter = Callable[[Kernel, CpuTarget], Emitted | None]
HOST_EMITTERS: Emitters[HostEmitter] = Emitters()
"""The kinds in here have no general path."""


def host_emitter(*kinds: str, priority: int = 0) -> Callable[[HostEmitter], HostEmitter]:
    """Registers an emitter for kernels that the host runs on every target: C functions, Python, LAPACK."""
    return HOST_EMITTERS.register(*kinds, priority=priority)
