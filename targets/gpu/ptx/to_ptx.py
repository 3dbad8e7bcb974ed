"""PTX generation: canonicalize and check a GPU module for LLVM's backend, and read its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.operations import walk
from stablexla.targets.gpu.chips import DEFAULT, MAX_BLOCK_THREADS, shared_limit
from stablexla.targets.gpu.launch.launches import kernel_of, launch_of
from stablexla.targets.gpu.ptx.selectable import is_selectable, selection_name
from stablexla.targets.pipeline.passes import module_pass

INTRINSICS = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.copysign": "llvm.copysign",
    "math.floor": "llvm.floor",
    "math.fma": "llvm.fma",
    "math.round": "llvm.round",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}


def _device_operations(module: ir.Module) -> Iterator[ir.Operation]:
    """Yield all operations of the kernels' modules, which may be erased meanwhile."""
    for view in module.body.operations:
        if view.operation.name == "gpu.module":
            yield from walk(view.operation)


@module_pass("stablexla-math-to-intrinsics", "calls LLVM's intrinsics for what GPUs have instructions for")
def math_to_intrinsics(module: ir.Module) -> None:
    """Lower math to LLVM intrinsics: `convert-gpu-to-nvvm` would call libdevice, and refuses the intrinsics."""
    with module.context:
        for op in _device_operations(module):
            if op.name in INTRINSICS:
                with op.location, ir.InsertionPoint(op):
                    made = ir.Operation.create(
                        "llvm.call_intrinsic",
                        results=[op.results[0].type],
                        operands=list(op.operands),
                        attributes={
                            "intrin": ir.StringAttr.get(INTRINSICS[op.name]),
                            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(op.operands), 0]),
                            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                        },
                    )
                op.results[0].replace_all_uses_with(made.results[0])
                erase(op)


@module_pass("stablexla-share-outside", "declares what the threads of a block share as memory that the launch brings")
def declare_external_shared(module: ir.Module) -> None:
    """Make shared memory an external array: upstream's has no elements, so LLVM may think no access is in bounds."""
    with module.context:
        external = ir.Attribute.parse("#llvm.linkage<external>")
        for op in _device_operations(module):
            if op.name == "llvm.mlir.global" and _is_shared_bytes(op):
                op.attributes["linkage"] = external


def _is_shared_bytes(op: ir.Operation) -> bool:
    shared = "addr_space" in op.attributes and str(op.attributes["addr_space"]).startswith("3")
    return shared and "x i8>" in str(op.attributes["global_type"])


@module_pass("stablexla-check-nvvm", "refuses what LLVM has no instructions for, at which it would end the process")
def check_nvvm(module: ir.Module, *, chip: str = DEFAULT) -> None:
    """Raise CompileError where a GPU module holds untranslatable operations, or a launch exceeds the chip's limits.

    Args:
        chip: whose limits hold.
    """
    left: Counter[str] = Counter()
    texts: dict[ir.Type, str] = {}
    for view in module.body.operations:
        for op in walk(view.operation):
            if op.name == "gpu.launch_func":
                _check_launch(op, chip)
            elif view.operation.name == "gpu.module" and not is_selectable(op, texts):
                left[selection_name(op)] += 1
    if left:
        raise CompileError("left over: " + ", ".join(f"{name} ({count}x)" for name, count in left.items()))


def _check_launch(op: ir.Operation, chip: str) -> None:
    launch = launch_of(op)
    if not 0 < launch.threads <= MAX_BLOCK_THREADS:
        raise CompileError(f"{kernel_of(op)}: a block has at most {MAX_BLOCK_THREADS} threads, not {launch.threads}")
    if launch.shared > shared_limit(chip):
        raise CompileError(
            f"{kernel_of(op)}: its blocks share {launch.shared} bytes; those of {chip} can share {shared_limit(chip)}",
            hint="smaller tiles, in the emitter that wrote it",
        )


def ptx_of(module: ir.Module) -> str:
    """Return the PTX in a module.

    Raises:
        CompileError: there is none.
    """
    for view in module.body.operations:
        if view.operation.name == "gpu.binary":
            for attribute in ir.ArrayAttr(view.operation.attributes["objects"]):
                text: bytes = gpu.ObjectAttr(attribute).object
                return text.decode().rstrip("\0")
    raise CompileError("the pipeline left no PTX")


@module_pass("stablexla-flush-denormals", "has kernels of a GPU count denormal numbers of 32 bits as zero")
def flush_denormals(module: ir.Module) -> None:
    """Set LLVM's `denormal_fp_math_f32` on kernels; to be run when they are functions of LLVM's dialect."""
    with module.context:
        for view in module.body.operations:
            if view.operation.name == "gpu.module":
                for inner in view.operation.regions[0].blocks[0].operations:
                    if inner.operation.name == "llvm.func":
                        inner.operation.attributes["denormal_fp_math_f32"] = ir.StringAttr.get("preserve-sign")


_SHIFTS = ("llvm.shl", "llvm.lshr")
_LAST = 63  # the largest defined distance; beyond it a shift is poison in LLVM


@module_pass("stablexla-clamp-shifts", "makes distances of shifts of 64 bits small enough for a GPU's 32 bits of them")
def clamp_shifts(module: ir.Module) -> None:
    """Clamp distances; to be run when kernels are functions of LLVM's dialect."""
    with module.context:
        wide = ir.IntegerType.get_signless(64)
        for op in _device_operations(module):
            if op.name in _SHIFTS and _element(op.operands[1].type) == wide and not _is_constant(op.operands[1]):
                _clamp(op)


def _clamp(op: ir.Operation) -> None:
    distance = op.operands[1]
    with op.location, ir.InsertionPoint(op):
        number = ir.IntegerAttr.get(_element(distance.type), _LAST)
        if isinstance(distance.type, ir.VectorType):
            number = ir.DenseElementsAttr.get_splat(distance.type, number)
        last = ir.Operation.create("llvm.mlir.constant", [distance.type], attributes={"value": number}).results[0]
        op.operands[1] = ir.Operation.create("llvm.intr.umin", [distance.type], [distance, last]).results[0]


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "llvm.mlir.constant"
