"""The pass that gives every kernel a function on flat buffers: by the first emitter that takes it, else generally."""

from __future__ import annotations

from collections.abc import Hashable

import mlir.ir as ir

from stablexla.targets.codegen.calls import Packing
from stablexla.targets.codegen.emit import emit_all, general_kernels, kernels_of
from stablexla.targets.codegen.general import emit_general
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.cpu.emitters import EMITTERS
from stablexla.targets.cpu.packed_constants import constant_and_lasting_inputs
from stablexla.targets.host.emitters import HOST_EMITTERS
from stablexla.targets.llvm.early_code import open_session
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-emit-kernels", "writes each kernel's loops on flat buffers beside its function on tensors")
def emit_kernels(
    module: ir.Module, *, vector_bits: int = 0, features: str = "", general_only: bool = False, general: str = ""
) -> None:
    """Kernels get an attribute `stablexla.impl` that says how to call what was written.

    Args:
        vector_bits: width of vectors; 0 is the host's, with its features.
        features: instructions that go with `vector_bits`, of `machine.FEATURES` with + between them; "emulated" for
            vector arithmetic in their place.
        general_only: sends everything through the general path, for comparing the two.
        general: names of kernels, with commas between them, that go through the general path.

    Raises:
        CompileError: a feature or a kernel that there is not.
    """
    target = host_target().with_choices()
    if vector_bits:
        target = target.with_vectors(vector_bits, tuple(filter(None, features.split("+"))))
    constants, lasting = constant_and_lasting_inputs(module)
    shared: dict[Hashable, str] = {}
    none = frozenset[int]()
    kernels = [
        Kernel(view, constants.get(view.name.value, none), shared, lasting.get(view.name.value, none))
        for view in kernels_of(module)
    ]
    left_general = general_kernels(general, general_only, kernels)

    early = open_session()
    if early is not None and not early.may_call(module.operation):
        early = None
    for kernel in kernels:
        kernel.uses_library = early is not None
    linked = set[Kernel]()
    if early is not None and _are_ours():
        own = [k for k in kernels if k.kind not in HOST_EMITTERS and k.name not in left_general]
        linked = early.link_kept(module, own, target)
    waiting = [kernel for kernel in kernels if kernel not in linked]
    packing: list[Packing] = []

    def emit(kernel: Kernel) -> tuple[Emitted, str] | None:
        emitted = HOST_EMITTERS.emit(kernel, target) if kernel.kind in HOST_EMITTERS else None
        if emitted is None and kernel.name not in left_general:
            emitted = EMITTERS.emit(kernel, target)
            if emitted is not None and early is not None:
                early.take(kernel)
                packing.extend(each for each in emitted.packs if each.input in kernel.constants)
        return None if emitted is None else (emitted, "emitted")

    if early is not None:
        early.expect(module, len(kernels))
    emit_all(waiting, emit, emit_general)
    if early is not None:
        early.finish(module, waiting, packs=bool(packing))


def _are_ours() -> bool:
    """Return whether all emitters are stablexla's own; others may change while a process runs."""
    return all(emitter.__module__.startswith("stablexla.") for found in EMITTERS.values() for emitter in found)
