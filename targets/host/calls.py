"""Emit kernels without a body of their own as calls of C functions, with two tables of buffer addresses.

A custom call's own function is called by its address. Everything else is a call of the native runtime with the number
of a host call; the module has the list of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlir.ir as ir
from mlir.dialects import arith, func

from stablexla.dialects.custom_calls import C_FUNCTION
from stablexla.dialects.shapes import Shape
from stablexla.lowering.rules.calls.host import HOST, HostConfig
from stablexla.lowering.support.kernels import CONFIG
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.host.emitters import host_emitter
from stablexla.targets.host.symbols import declare, pointer_to, pointer_type

HOST_CALLS = "stablexla.host_calls"
"""Attribute of the module: the configurations of the host calls, in the order of their numbers."""
CALL_HOST = "stablexla_call_host"


@host_emitter(HOST)
def emit_host(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit one work item, so that the call runs on the thread that called the program."""
    config = kernel.config(HostConfig)
    made, arguments = kernel.declare()
    with ir.InsertionPoint(made.entry_block), kernel.func.location:
        if config.call == "c":
            sides = ((config.result, arguments.results), (config.arguments, arguments.inputs))
            addresses = [_address(Shape.parse(tree or "").nested([b.ssa for b in buffers])) for tree, buffers in sides]
            _call(kernel, f"{C_FUNCTION}{config.target}", addresses)
        else:
            inputs, outputs = (
                address_table([b.ssa for b in buffers]) for buffers in (arguments.inputs, arguments.results)
            )
            number = arith.ConstantOp(ir.IntegerType.get_signless(64), _number(kernel)).result
            _call(kernel, CALL_HOST, [number, outputs, inputs])
        func.ReturnOp([])
    updates = tuple((update.result, update.operand) for update in config.updates or ())
    return Emitted(items=1, grain=1, updates=updates)


def name_on_host(kernel: Kernel) -> str:
    """Return the name of what a kernel calls on the host."""
    if kernel.kind != HOST:
        return kernel.kind
    config = kernel.config(HostConfig)
    return config.target or config.call


def _call(kernel: Kernel, name: str, arguments: Sequence[ir.Value]) -> None:
    callee = declare(kernel.func.operation, name, [a.type for a in arguments])
    func.CallOp([], callee, list(arguments))


def _address(value: Any) -> ir.Value:
    """Return the address of a buffer, or of a table of addresses for a tuple of buffers and tuples."""
    return address_table(value) if isinstance(value, tuple) else pointer_to(value)


def address_table(buffers: Sequence[Any]) -> ir.Value:
    """Build a table of the buffers' addresses on the stack and return its address; tuples are nested tables."""
    from mlir.dialects import llvm  # 16 ms

    pointer = pointer_type()
    count = arith.ConstantOp(ir.IntegerType.get_signless(64), max(1, len(buffers))).result
    table = llvm.alloca(pointer, count, pointer)
    for i, buffer in enumerate(buffers):
        slot = llvm.getelementptr(pointer, table, [], [i], pointer, None)
        llvm.store(_address(buffer), slot)
    return table


def _number(kernel: Kernel) -> int:
    """Return the kernel's index in the module's list of host calls; equal configurations share one index."""
    module = kernel.func.operation.parent
    calls = list(ir.ArrayAttr(module.attributes[HOST_CALLS])) if HOST_CALLS in module.attributes else []
    config = kernel.func.attributes[CONFIG]
    if config not in calls:
        calls.append(config)
        module.attributes[HOST_CALLS] = ir.ArrayAttr.get(calls)
    return calls.index(config)
