"""Emitters of collectives: a call of the native runtime, with the number of the collective.

The module lists the configurations. A reduction passes a combiner function for two arrays, element by element.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.lowering.rules.devices.devices import COLLECTIVE, DEVICE, DeviceConfig
from stablexla.lowering.support.kernels import CONFIG, copied_constant
from stablexla.lowering.support.operations import captured, inline_body, is_tensor
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody, body_cost, can_clone
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.vector_loops import unroll_factor
from stablexla.targets.host.calls import address_table
from stablexla.targets.host.emitters import host_emitter
from stablexla.targets.host.symbols import declare, pointer_type

COLLECTIVES = "stablexla.collectives"
"""Attribute of the module: the configurations, in the order of their numbers."""
RUN, DEVICE_ID = "stablexla_collective", "stablexla_device_id"


@host_emitter(DEVICE)
def emit_device(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit the replica or partition number of the device that the runtime names."""
    config = kernel.config(DeviceConfig)
    made, arguments = kernel.declare()
    i64, i32 = (ir.IntegerType.get_signless(bits) for bits in (64, 32))
    with ir.InsertionPoint(made.entry_block), kernel.func.location:
        device = func.CallOp([i64], declare(kernel.func.operation, DEVICE_ID, [], [i64]), []).results[0]
        partitions = arith.constant(i64, config.partitions)
        divide = arith.divui if config.what == "replica_id" else arith.remui
        number = arith.trunci(i32, divide(device, partitions))
        memref.store(number, arguments.results[0].ssa, [arith.constant(ir.IndexType.get(), 0)])
        func.ReturnOp([])
    return Emitted(items=1, grain=1)


@host_emitter(COLLECTIVE)
def emit_collective(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit one work item, so that it runs on the device's own thread. No result aliases an operand."""
    pointer, i64 = pointer_type(), ir.IntegerType.get_signless(64)
    combine = _combine(kernel, target)
    made, arguments = kernel.declare()
    with ir.InsertionPoint(made.entry_block), kernel.func.location:
        inputs, outputs = (address_table([b.ssa for b in buffers]) for buffers in (arguments.inputs, arguments.results))
        number = arith.constant(i64, _number(kernel))
        values = [number, outputs, inputs, _address(combine)]
        func.CallOp([], declare(kernel.func.operation, RUN, [i64, pointer, pointer, pointer]), values)
        func.ReturnOp([])
    return Emitted(items=1, grain=1)


def _address(function: func.FuncOp | None) -> ir.Value:
    """Return a function's address; null without one."""
    pointer = pointer_type()
    if function is None:
        return ir.Operation.create("llvm.mlir.zero", results=[pointer]).result
    name = ir.FlatSymbolRefAttr.get(function.name.value)
    constant = ir.Operation.create("func.constant", results=[function.type], attributes={"value": name}).result
    # A pointer in LLVM's dialect; the cast folds away there.
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[pointer], operands=[constant]).result


def _number(kernel: Kernel) -> int:
    """Return the kernel's index in the module's list: each has its own, since devices rendezvous by it."""
    attributes = kernel.func.operation.parent.attributes
    others = list(ir.ArrayAttr(attributes[COLLECTIVES])) if COLLECTIVES in attributes else []
    attributes[COLLECTIVES] = ir.ArrayAttr.get([*others, kernel.func.attributes[CONFIG]])
    return len(others)


# ---- the combiner of two arrays --------------------------------------------------------------------------------------


def _combine(kernel: Kernel, target: CpuTarget) -> func.FuncOp | None:
    """Emit combine(a, b, out, lo, hi), the combiner of two members' arrays in a reduction; `out` may alias `a`."""
    reduction = next((op for op in kernel.ops if op.name == "linalg.generic"), None)
    if reduction is None:
        return None
    block = reduction.regions[0].blocks[0]
    element = block.arguments[0].type
    index = ir.IndexType.get()
    arrays = [ir.MemRefType.get([_most_elements(kernel)], element)] * 3
    with kernel.func.context, kernel.func.location, ir.InsertionPoint(kernel.func):
        type_ = ir.FunctionType.get([*arrays, index, index], [])
        made = func.FuncOp(f"{kernel.name}_combine", type_, visibility="private")
        made.attributes["no_inline"] = ir.UnitAttr.get()
        a, b, out, lo, hi = map(Value, made.add_entry_block().arguments)
    with cg.emitting(made, target):
        at = lo
        if not isinstance(element, ir.ComplexType) and can_clone(block):
            lanes = _lanes(block, target)
            unroll = unroll_factor(body_cost(view.operation for view in block.operations), 4)
            for step in sorted({lanes * unroll, lanes}, reverse=True):
                end = at + (hi - at) // step * step
                with cg.loop(at, end, step) as turn:
                    places = [turn.iv + u * lanes for u in range(step // lanes)]
                    pairs = [(cg.load(b, p, lanes), cg.load(a, p, lanes)) for p in places]
                    for place, pair in zip(places, pairs, strict=True):
                        (value,) = VectorBody(block, lanes).on(pair)
                        cg.store(value, out, place)
                at = end
        with cg.loop(at, hi) as turn:
            constants = {v: copied_constant(v) for v in captured(reduction) if not is_tensor(v)}
            elements = [cg.load(b, turn.iv).ssa, cg.load(a, turn.iv).ssa]
            (combined,) = inline_body(reduction, elements, constants)
            cg.store(Value(combined), out, turn.iv)
    return made


def _most_elements(kernel: Kernel) -> int:
    """Return a bound for the type of the arrays, which may be of any length."""
    sizes: list[int] = [prod(v.type.shape) for v in kernel.inputs]
    return max(1, *sizes)


def _lanes(block: ir.Block, target: CpuTarget) -> int:
    """Return the vector width of the widest type computed with."""
    types = [v.type for op in block.operations if op.operation.name != "arith.constant" for v in op.operation.results]
    return max(2, target.vector_bits // max(cg.bits_of(t) for t in (*types, block.arguments[0].type)))
