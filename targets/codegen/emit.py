"""Writes an implementation beside every kernel: by an emitter of the target, else by the general path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.dialects.stopping import look
from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.kernels import KIND
from stablexla.targets.codegen.calls import IMPL, BufferPair, KernelCall, Phase
from stablexla.targets.codegen.excess_precision import as_marked
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import Refusal
from stablexla.targets.codegen.schedule import ScheduleNote


def kernels_of(module: ir.Module) -> list[Any]:
    """The functions on tensors that are kernels, in the order of the module."""
    return [view for view in module.body.operations if KIND in view.operation.attributes]


def general_kernels(general: str, general_only: bool, kernels: Sequence[Kernel]) -> frozenset[str]:
    """The kernels that options send through the general path, which is noted with them.

    Args:
        general: their names, with commas between them.
        general_only: sends all of them there.

    Raises:
        CompileError: there is no kernel of such a name.
    """
    chosen = frozenset(filter(None, general.split(",")))
    known = [kernel.name for kernel in kernels]
    for name in sorted(chosen.difference(known)):
        near = get_close_matches(name, known, n=3) or known
        raise CompileError(f"there is no kernel {name!r}", hint=" or ".join(near))
    option = "general-only sends every kernel there" if general_only else "general names it"
    left = [kernel for kernel in kernels if general_only or kernel.name in chosen]
    for kernel in left:
        kernel.refusal = Refusal(f"the pipeline's option {option}", "the pipeline without it")
    return frozenset(kernel.name for kernel in left)


def emit_all(
    kernels: Sequence[Kernel],
    emit: Callable[[Kernel], tuple[Emitted, str] | None],
    emit_general: Callable[[Sequence[Kernel]], Sequence[Emitted]],
) -> None:
    """Writes an implementation of every kernel, and notes on the kernel how it is called.

    Args:
        emit: what an emitter makes of a kernel, and the name of the way it went; None for the general path.
        emit_general: writes those that are left, all at once.
    """
    waiting = []
    for kernel in kernels:
        look()
        with as_marked(kernel.func):
            emitted = emit(kernel)
        if emitted is None:
            waiting.append(kernel)
        else:
            record(kernel, *emitted)
    for kernel, made in zip(waiting, emit_general(waiting), strict=True):
        record(kernel, made, "general")


def record(kernel: Kernel, emitted: Emitted, path: str) -> None:
    """Writes what main must know onto the kernel, so that the module says it all."""
    phases = emitted.phases or (Phase(kernel.impl_name, emitted.items, emitted.grain),)
    with kernel.func.context, ir.Location.unknown():
        call = KernelCall(
            path,
            phases=phases,
            scratch=tuple(ir.MemRefType.get([n], ir.Type.parse(t)) for t, n in emitted.scratch),
            in_place=tuple(BufferPair(*pair) for pair in emitted.in_place),
            updates=tuple(BufferPair(*pair) for pair in emitted.updates),
            packs=emitted.packs,
            refusal=kernel.refusal,
            schedule=None if kernel.schedule is None else ScheduleNote(str(kernel.schedule), kernel.schedule.why),
        )
        kernel.func.attributes[IMPL] = config_attribute(call)
