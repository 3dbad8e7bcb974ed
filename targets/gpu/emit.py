"""The pass that writes for every kernel what a thread of a GPU does: by an emitter that takes it, or generally."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.kernels import KIND
from stablexla.targets.cpu import collective, foreign, lapack_calls, random  # noqa: F401  (they register)
from stablexla.targets.cpu.emit import record
from stablexla.targets.cpu.emitters import EMITTERS as HOST_EMITTERS
from stablexla.targets.cpu.emitters import ONLY
from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.cpu.target import host_target
from stablexla.targets.gpu import (  # noqa: F401  (they register)
    attention_mma,
    attention_tiles,
    cholesky,
    columns,
    contraction,
    convolution_channels,
    convolution_mma,
    convolution_tiles,
    fft,
    gather,
    loops,
    pool,
    rows,
    scan,
    scatter,
    select_and_scatter,
    skinny,
    sort,
    tensor_cores,
    transpose,
    triangular_solve,
)
from stablexla.targets.gpu import random as random_  # noqa: F401  (it registers)
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.emitters import EMITTERS
from stablexla.targets.gpu.general import emit_general
from stablexla.targets.gpu.host_calls import note_access
from stablexla.targets.passes import module_pass

ON_HOST = "stablexla.on_host"
"""Attribute of the module: names of what cannot run on the device."""


@module_pass("stablexla-map-kernels", "writes beside each kernel's function on tensors what one thread of a GPU does")
def map_kernels(
    module: ir.Module,
    *,
    chip: str = "sm_80",
    ptx: int = 0,
    emulated: bool = False,
    general_only: bool = False,
    general: str = "",
) -> None:
    """Kernels get an attribute `stablexla.impl` that says how to call what was written.

    Args:
        chip: what it is written for.
        ptx: the version of PTX; 0 for the one that is taken when none is given.
        emulated: it will be run by the CPU, which has only some of a GPU's instructions.
        general_only: sends everything through the general path, for comparing the two.
        general: names of kernels, with commas between them, that go through the general path.
    """
    name = GpuName.of(chip, ptx or None, emulated)
    waiting, on_host = [], list[str]()
    for view in list(module.body.operations):
        if KIND not in view.operation.attributes:
            continue
        kernel = Kernel(view)
        if kernel.kind in ONLY:
            on_host.append(str(kernel.config.get("target") or kernel.config.get("call") or kernel.kind))
            called = _on_host(kernel)
            note_access(kernel, called)
            record(kernel, called, "host")
            continue
        is_general = general_only or kernel.name in general.split(",")
        emitted = None if is_general else _ask(kernel, name)
        if emitted is None:
            waiting.append(kernel)
        else:
            record(kernel, emitted, "emitted")
    for kernel, made in zip(waiting, emit_general(waiting), strict=True):
        record(kernel, made, "general")
    if on_host:
        with module.context:
            module.operation.attributes[ON_HOST] = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in on_host])


def _ask(kernel: Kernel, name: GpuName) -> Emitted | None:
    for emit in EMITTERS.get(kernel.kind, []):
        emitted = emit(kernel, name)
        if emitted is not None:
            return emitted
    return None


def _on_host(kernel: Kernel) -> Emitted:
    """What lies outside of the program is called by the CPU's own emitter."""
    for emit in HOST_EMITTERS[kernel.kind]:
        emitted = emit(kernel, host_target())
        if emitted is not None:
            return emitted
    raise UnsupportedError("nothing can be called for it", operation=kernel.kind)
