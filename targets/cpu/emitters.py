"""The registry of kernel emitters: which function may write the loop nest of which kind of kernel."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.cpu.target import CpuTarget

Emitter = Callable[[Kernel, CpuTarget], Emitted | None]
EMITTERS: dict[str, list[Emitter]] = {}

ONLY: set[str] = set()
"""Kinds of kernels whose meaning lies outside of their bodies, which the general path knows nothing of."""


def emitter(*kinds: str, only: bool = False) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for kernels of `kinds`; those registered first are asked first, with `only` in any case.

    An emitter answers None, and leaves the module as it was, when it cannot take a kernel.
    """

    if only:
        ONLY.update(kinds)

    def register(function: Emitter) -> Emitter:
        for kind in kinds:
            EMITTERS.setdefault(kind, []).append(function)
        return function

    return register
