"""The registry of kernel emitters: which function may write the loop nest of which kind of kernel."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget

Emitter = Callable[[Kernel, CpuTarget], Emitted | None]
EMITTERS: dict[str, list[Emitter]] = {}

ONLY: set[str] = set()
"""Kinds of kernels whose meaning lies outside of their bodies, which the general path knows nothing of."""


_ORDER: dict[Emitter, int] = {}


def emitter(*kinds: str, only: bool = False, order: int = 0) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for kernels of `kinds`; those of the lowest `order` are asked first.

    With `only` it is asked in any case. Of equal ones those are asked first that are registered first, which depends on
    who imports whom and so must not matter. An emitter answers None, and leaves the module as it was, when it cannot
    take a kernel.
    """

    if only:
        ONLY.update(kinds)

    def register(function: Emitter) -> Emitter:
        _ORDER[function] = order
        for kind in kinds:
            EMITTERS.setdefault(kind, []).append(function)
            EMITTERS[kind].sort(key=lambda one: _ORDER.get(one, 0))
        return function

    return register
