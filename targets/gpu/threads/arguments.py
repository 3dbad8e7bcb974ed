"""Declare kernel functions for GPUs, with their arguments' ABI attributes: aligned to 16 bytes, and noalias."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlir.ir as ir

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.kernel import Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.gpu.threads.launch import Launch

ALIGNMENT = 16
"""Alignment of every buffer, in bytes."""


@contextmanager
def kernel_function(
    kernel: Kernel, launch: Launch, name: str | None = None, scratch: Sequence[tuple[str, int]] = ()
) -> Iterator[KernelArguments]:
    """Declare the kernel's function; what is emitted inside the context is the body of one thread."""
    function, arguments = kernel.declare(scratch, name)
    launch.write(function.operation)
    mark_arguments(function.operation)
    with cg.emitting(function, CpuTarget(vector_bits=128), in_blocks=False):
        yield arguments


def mark_arguments(function: ir.Operation) -> None:
    """Mark all buffer arguments noalias and aligned, for LLVM."""
    types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    i64 = ir.IntegerType.get_signless(64)
    row = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get(), "llvm.align": ir.IntegerAttr.get(i64, ALIGNMENT)})
    rows = [row if isinstance(t, ir.MemRefType) else ir.DictAttr.get({}) for t in types]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)
