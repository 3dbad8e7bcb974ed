"""Outline threads' code into a GPU module, and launch it from `main`."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, gpu

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import clone_with, walk
from stablexla.targets.gpu.threads import LAUNCH, Launch, launched_functions
from stablexla.targets.pipeline.passes import module_pass

MODULE = "kernels"


@module_pass("stablexla-outline-gpu", "moves functions for threads into a gpu.module, and launches them from main")
def outline_gpu(module: ir.Module) -> None:
    """Outline all launched functions; those that nobody launches are dropped."""
    found = launched_functions(module)
    with module.context, ir.Location.unknown():
        launched = dict.fromkeys(_launch(op, found) for op in _calls(module, found))
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        with ir.InsertionPoint.at_block_begin(module.body):
            holder = gpu.GPUModuleOp(MODULE)
            block = holder.regions[0].blocks[0] if len(holder.regions[0].blocks) else holder.regions[0].blocks.append()
        for name in launched:
            _write(block, name, found[name])
        for op in found.values():
            erase(op)


def _calls(module: ir.Module, found: dict[str, ir.Operation]) -> list[ir.Operation]:
    return [
        op
        for view in list(module.body.operations)
        if LAUNCH not in view.operation.attributes
        for op in walk(view.operation)
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value in found
    ]


def _launch(call: ir.Operation, found: dict[str, ir.Operation]) -> str:
    """Replace a call by a launch; the call's last two operands, the range, are constants inside the function."""
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    launch = Launch.read(found[name])
    with call.location, ir.InsertionPoint(call):
        one, blocks, threads = (
            arith.ConstantOp(ir.IndexType.get(), n).result for n in (1, launch.blocks, launch.threads)
        )
        shared = arith.ConstantOp(ir.IntegerType.get_signless(32), launch.shared).result if launch.shared else None
        gpu.LaunchFuncOp(
            kernel=[MODULE, name],
            grid_size=(blocks, one, one),
            block_size=(threads, one, one),
            kernel_operands=[_as_byte(v) for v in list(call.operands)[:-2]],
            dynamic_shared_memory_size=shared,
        )
    erase(call)
    return str(name)


def _write(block: ir.Block, name: str, function: ir.Operation) -> None:
    source = function.regions[0].blocks[0]
    arguments = list(source.arguments)[:-2]
    launch = Launch.read(function)
    with function.location, ir.InsertionPoint(block):
        made = gpu.GPUFuncOp(
            ir.FunctionType.get([_passed(a.type) for a in arguments], []),
            sym_name=name,
            kernel=True,
            known_block_size=[launch.threads, 1, 1],
            known_grid_size=[launch.blocks, 1, 1],
        )
        made.attributes["arg_attrs"] = ir.ArrayAttr.get(list(ir.ArrayAttr(function.attributes["arg_attrs"]))[:-2])
        made.attributes[LAUNCH] = function.attributes[LAUNCH]
        entry = made.add_entry_block()
    with function.location, ir.InsertionPoint(entry):
        mapping = {a: _from_byte(b, a.type) for a, b in zip(arguments, entry.arguments, strict=True)}
        for view in source.operations:
            if view.operation.name == "func.return":
                gpu.ReturnOp([])
                continue
            clone_with(view.operation, mapping)
    _put_sizes(made.operation, launch)


def _put_sizes(kernel: ir.Operation, launch: Launch) -> None:
    """Replace block and grid sizes by constants: a grid-stride loop with enough threads then has one iteration."""
    known = {"gpu.block_dim": launch.threads, "gpu.grid_dim": launch.blocks}
    for op in [op for op in walk(kernel) if op.name in known]:
        with op.location, ir.InsertionPoint(op):
            size = known[op.name] if "dim x>" in str(op.attributes["dimension"]) else 1
            op.results[0].replace_all_uses_with(arith.ConstantOp(ir.IndexType.get(), size).result)
        erase(op)


def _is_short(type_: ir.Type) -> bool:
    return isinstance(type_, ir.IntegerType | ir.FloatType) and type_.width < 8


def _passed(type_: ir.Type) -> ir.Type:
    """Return the type a kernel takes a scalar as: PTX has no parameters below a byte."""
    return ir.IntegerType.get_signless(8) if _is_short(type_) else type_


def _as_byte(value: ir.Value) -> ir.Value:
    if not _is_short(value.type):
        return value
    if isinstance(value.type, ir.FloatType):
        value = arith.bitcast(ir.IntegerType.get_signless(value.type.width), value)
    return arith.extui(_passed(value.type), value)


def _from_byte(value: ir.Value, type_: ir.Type) -> ir.Value:
    if not _is_short(type_):
        return value
    bits = arith.trunci(ir.IntegerType.get_signless(type_.width), value)
    return arith.bitcast(type_, bits) if isinstance(type_, ir.FloatType) else bits
