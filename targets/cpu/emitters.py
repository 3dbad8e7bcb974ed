"""The registry of kernel emitters: which function may write the loop nest of which kind of kernel."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.cpu.target import CpuTarget

Emitter = Callable[[Kernel, CpuTarget], Emitted | None]
EMITTERS: dict[str, list[Emitter]] = {}


def emitter(*kinds: str) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for kernels of `kinds`; those registered first are asked first.

    An emitter answers None, and leaves the module as it was, when it cannot take a kernel.
    """

    def register(function: Emitter) -> Emitter:
        for kind in kinds:
            EMITTERS.setdefault(kind, []).append(function)
        return function

    return register
