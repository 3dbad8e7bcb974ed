"""Map every kernel to a thread's code on a GPU, by an emitter that takes it or by the general path."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.targets.codegen.emit import emit_all, general_kernels, kernels_of
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.emitters import EMITTERS
from stablexla.targets.gpu.general.general import emit_general
from stablexla.targets.gpu.launch.host_calls import note_access
from stablexla.targets.host.calls import name_on_host
from stablexla.targets.host.emitters import HOST_EMITTERS
from stablexla.targets.pipeline.passes import module_pass

ON_HOST = "stablexla.on_host"
"""Attribute of the module: names of kernels that cannot run on the device."""


@module_pass("stablexla-map-kernels", "writes beside each kernel's function on tensors what one thread of a GPU does")
def map_kernels(
    module: ir.Module,
    *,
    chip: str = "sm_80",
    ptx: int = 0,
    general_only: bool = False,
    general: str = "",
) -> None:
    """Set each kernel's attribute `stablexla.impl`: how to call the code written for it.

    Args:
        chip: what it is written for.
        ptx: the version of PTX; 0 for the one that is taken when none is given.
        general_only: sends everything through the general path, for comparing the two.
        general: names of kernels, with commas between them, that go through the general path.

    Raises:
        CompileError: a kernel that there is not.
    """
    name = GpuName.of(chip, ptx or None)
    on_host = list[str]()
    kernels = [Kernel(view) for view in kernels_of(module)]
    left_general = general_kernels(general, general_only, kernels)

    def emit(kernel: Kernel) -> tuple[Emitted, str] | None:
        if kernel.kind in HOST_EMITTERS:
            on_host.append(name_on_host(kernel))
            return _on_host(kernel), "host"
        if kernel.name in left_general:
            return None
        emitted = EMITTERS.emit(kernel, name)
        return None if emitted is None else (emitted, "emitted")

    emit_all(kernels, emit, emit_general)
    if on_host:
        with module.context:
            module.operation.attributes[ON_HOST] = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in on_host])


def _on_host(kernel: Kernel) -> Emitted:
    """What lies outside of the program is called by machine code of the CPU."""
    emitted = HOST_EMITTERS.emit(kernel, host_target())
    if emitted is None:
        raise UnsupportedError("nothing can be called for it", operation=kernel.kind)
    note_access(kernel, emitted)
    return emitted
