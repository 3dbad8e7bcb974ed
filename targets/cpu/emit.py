"""The pass that gives every kernel a function on flat buffers: by the first emitter that takes it, else generally."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.kernels import KIND
from stablexla.targets.codegen.calls import IMPL, Packing
from stablexla.targets.codegen.general import emit_general
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.attention import attention  # noqa: F401
from stablexla.targets.cpu.contraction import strategy as contraction  # noqa: F401
from stablexla.targets.cpu.convolution import convolution  # noqa: F401
from stablexla.targets.cpu.elementwise import loops  # noqa: F401
from stablexla.targets.cpu.elementwise import random_bits as random
from stablexla.targets.cpu.emitters import EMITTERS, ONLY
from stablexla.targets.cpu.fft import fft  # noqa: F401
from stablexla.targets.cpu.indexing import gather, scatter  # noqa: F401
from stablexla.targets.cpu.linalg import linear_algebra  # noqa: F401
from stablexla.targets.cpu.movement import assembly, transpose  # noqa: F401
from stablexla.targets.cpu.packed_constants import constant_inputs
from stablexla.targets.cpu.reduction import arg_search, reductions, rows  # noqa: F401
from stablexla.targets.cpu.scan import general as general_scan  # noqa: F401
from stablexla.targets.cpu.scan import known as window_scan
from stablexla.targets.cpu.sort import sort as sorting  # noqa: F401
from stablexla.targets.cpu.window import loops as window_loops  # noqa: F401
from stablexla.targets.host import collective, foreign, lapack_calls  # noqa: F401
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-emit-kernels", "writes each kernel's loops on flat buffers beside its function on tensors")
def emit_kernels(
    module: ir.Module, *, vector_bits: int = 0, features: str = "", general_only: bool = False, general: str = ""
) -> None:
    """Kernels get an attribute `stablexla.impl` that says how to call what was written.

    Args:
        vector_bits: width of vectors; 0 is the host's, with its features.
        features: instructions that go with `vector_bits`, of `target.FEATURES` with + between them; "emulated" for
            vector arithmetic in their place.
        general_only: sends everything through the general path, for comparing the two.
        general: names of kernels, with commas between them, that go through the general path.
    """
    target = host_target().with_vectors(vector_bits, tuple(features.split("+"))) if vector_bits else host_target()
    constants = constant_inputs(module)
    waiting = []
    for view in list(module.body.operations):
        if KIND not in view.operation.attributes:
            continue
        kernel = Kernel(view, constants.get(ir.StringAttr(view.operation.attributes["sym_name"]).value, frozenset()))
        is_general = (general_only or kernel.name in general.split(",")) and kernel.kind not in ONLY
        emitted = None if is_general else _ask(kernel, target)
        if emitted is None:
            waiting.append(kernel)
        else:
            record(kernel, emitted, "emitted")
    for kernel, emitted in zip(waiting, emit_general(waiting), strict=True):
        record(kernel, emitted, "general")


def _ask(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    for emit in EMITTERS.get(kernel.kind, []):
        emitted = emit(kernel, target)
        if emitted is not None:
            return emitted
    return None


def record(kernel: Kernel, emitted: Emitted, path: str) -> None:
    """Writes what main must know onto the kernel, so that the module says it all."""
    phases = emitted.phases or ((kernel.impl_name, emitted.items, emitted.grain),)
    with kernel.func.context, ir.Location.unknown():
        string, i64 = ir.StringAttr.get, ir.IntegerType.get_signless(64)

        def number(n: int) -> ir.Attribute:
            return ir.IntegerAttr.get(i64, n)

        def pairs(rows: tuple[tuple[int, int], ...]) -> ir.Attribute:
            return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(row)) for row in rows])

        kernel.func.attributes[IMPL] = ir.DictAttr.get(
            {
                "path": string(path),
                "phases": ir.ArrayAttr.get(
                    [
                        ir.DictAttr.get({"function": string(f), "items": number(n), "grain": number(g)})
                        for f, n, g in phases
                    ]
                ),
                "scratch": ir.ArrayAttr.get(
                    [ir.TypeAttr.get(ir.MemRefType.get([n], ir.Type.parse(t))) for t, n in emitted.scratch]
                ),
                "in_place": pairs(emitted.in_place),
                "updates": pairs(emitted.updates),
                "packs": ir.ArrayAttr.get([ir.DictAttr.get(Packing(*p).attributes) for p in emitted.packs]),
            }
        )
