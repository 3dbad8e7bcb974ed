"""Host functions called from a `main` with arrays on the device: arguments are copied to the host and results back.

How such a function accesses each argument is noted on it when its kernel is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import mlir.ir as ir
from mlir.dialects import arith, func

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.codegen.emission import buffer_from_address
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.host.symbols import declare, pointer_to, pointer_type

ACCESS = "stablexla.access"
"""Attribute of a host function: for each argument whether it is read, written, or both."""
NOTHING, READS, WRITES = 0, 1, 2
TO_HOST, FROM_HOST = "stablexla_gpu_to_host", "stablexla_gpu_from_host"


def note_access(kernel: Kernel, emitted: Emitted) -> None:
    """Note on a kernel's functions how they access their arguments: inputs, results, scratch and the range."""
    changed = {result for result, _ in emitted.updates}
    results = [WRITES | (READS if number in changed else NOTHING) for number in range(len(kernel.results))]
    inputs = [READS if isinstance(v.type, ir.RankedTensorType) else NOTHING for v in kernel.inputs]
    row = [*inputs, *results, *(READS | WRITES for _ in emitted.scratch), NOTHING, NOTHING]
    names = {phase.function for phase in emitted.phases} or {kernel.impl_name}
    for view in kernel.func.operation.parent.regions[0].blocks[0].operations:
        if symbol_of(view) in names:
            view.operation.attributes[ACCESS] = ir.DenseI64ArrayAttr.get(row)


def functions_of_host(module: ir.Module | ir.Operation) -> dict[str, list[int]]:
    """Return a module's host functions, each with the accesses of its arguments."""
    return {
        symbol_of(view): [int(n) for n in ir.DenseI64ArrayAttr(view.operation.attributes[ACCESS])]
        for view in module.operation.regions[0].blocks[0].operations
        if ACCESS in view.operation.attributes
    }


def is_host_call(op: ir.Operation, functions: Collection[str]) -> bool:
    """Return whether an operation calls one of the functions."""
    return op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value in functions


class HostCalls:
    """Rewrite host calls in one function.

    Attributes:
        functions: host functions, each with the accesses of its arguments.
        on_host: device arrays that a call has just written, with their host copies that are still valid.
    """

    def __init__(self, main: ir.Operation) -> None:
        self._main = main
        self.functions = functions_of_host(main.parent)
        self.on_host: dict[ir.Value, ir.Value] = {}

    def forget(self) -> None:
        """Invalidate the host copies: something else may be written from here on."""
        self.on_host.clear()

    def write(self, op: ir.Operation) -> None:
        """Copy a call's inputs to the host before it, and what it wrote back to the device after it."""
        access = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
        done: dict[ir.Value, int] = {}
        for value, how in zip(op.operands, access, strict=True):
            if how != NOTHING:
                done[value] = done.get(value, NOTHING) | how
        copies = {value: self._on_host(value, bool(how & READS)) for value, how in done.items()}
        call = func.CallOp([], op.attributes["callee"], [copies.get(v, v) for v in op.operands])
        if PARALLEL_GRAIN in op.attributes:
            call.operation.attributes[PARALLEL_GRAIN] = op.attributes[PARALLEL_GRAIN]
        written = [value for value, how in done.items() if how & WRITES]
        self._bring_back(written, copies)
        erase(op)
        self.on_host = {value: copies[value] for value in written}

    def _on_host(self, buffer: ir.Value, copied: bool) -> ir.Value:
        pointer, i64 = pointer_type(), ir.IntegerType.get_signless(64)
        callee = declare(self._main, TO_HOST, [pointer, i64, i64], [pointer])
        numbers = [arith.ConstantOp(i64, n).result for n in (bytes_of(buffer.type), int(copied))]
        return buffer_from_address(
            func.CallOp([pointer], callee, [pointer_to(buffer), *numbers]).results[0], buffer.type
        )

    def _bring_back(self, written: Iterable[ir.Value], copies: dict[ir.Value, ir.Value]) -> None:
        pointer, i64 = pointer_type(), ir.IntegerType.get_signless(64)
        for buffer in written:
            size = bytes_of(buffer.type)
            if size:
                callee = declare(self._main, FROM_HOST, [pointer, pointer, i64])
                count = arith.ConstantOp(i64, size).result
                func.CallOp([], callee, [pointer_to(buffer), pointer_to(copies[buffer]), count])
