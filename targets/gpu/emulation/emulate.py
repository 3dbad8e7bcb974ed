"""Emulate a GPU's kernels on the CPU: blocks and threads become loops, one after the other.

So launch configurations, bounds and index arithmetic of GPU kernels are tested where there is no GPU.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, memref, scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.operations import remap, walk
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.gpu.emulation.inline_ptx import EmulatedInstructions
from stablexla.targets.gpu.ptx.inline_ptx import NAME
from stablexla.targets.gpu.threads.launch import Launch
from stablexla.targets.host.symbols import declare
from stablexla.targets.llvm.parallel_calls import PARALLEL_FOR
from stablexla.targets.pipeline.passes import module_pass

_IDS = ("gpu.block_id", "gpu.thread_id", "gpu.grid_dim", "gpu.block_dim")
_AXES = ("x", "y", "z")
_TOGETHER = ("gpu.barrier", "gpu.shuffle", "gpu.dynamic_shared_memory")
THREADS, BARRIER, SHUFFLE = (f"stablexla_emulated_{name}" for name in ("threads", "barrier", "shuffle"))


@module_pass("stablexla-emulate-gpu", "turns launches of GPU kernels into loops over blocks and threads")
def emulate_gpu(module: ir.Module) -> None:
    """Rewrite kernels as functions of their block and thread numbers, and of how many there are."""
    waiting: set[str] = set()
    with module.context, ir.Location.unknown():
        for view in list(module.body.operations):
            if view.operation.name == "gpu.module":
                for inner in list(view.operation.regions[0].blocks[0].operations):
                    if inner.operation.name == "gpu.func" and _write(inner.operation, view.operation):
                        waiting.add(ir.StringAttr(inner.operation.attributes["sym_name"]).value)
                erase(view.operation)
        for view in list(module.body.operations):
            for op in [op for op in walk(view.operation) if op.name == "gpu.launch_func"]:
                with op.location, ir.InsertionPoint(op):
                    _loops(op, frozenset(waiting))
                erase(op)
        del module.operation.attributes["gpu.container_module"]


def _write(kernel: ir.Operation, place: ir.Operation) -> bool:
    """Rewrite a kernel as a function. Returns whether its threads synchronize or communicate."""
    source = kernel.regions[0].blocks[0]
    used = {op.name for op in walk(kernel)}
    together = not used.isdisjoint(_TOGETHER)
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    _refuse(name, used)
    index, byte = ir.IndexType.get(), ir.IntegerType.get_signless(8)
    size = Launch.read(kernel).shared
    shared = [ir.MemRefType.get([size], byte)] if size else []
    types = [*(a.type for a in source.arguments), *shared, *[index] * (len(_IDS) * len(_AXES))]
    with kernel.location, ir.InsertionPoint(place):
        made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
        if together:
            _write_range(name, types)
    arguments = list(made.add_entry_block().arguments)
    mapping: dict[ir.Value, ir.Value] = dict(zip(source.arguments, arguments, strict=False))
    with ir.InsertionPoint(made.entry_block):
        for view in source.operations:
            if view.operation.name == "gpu.return":
                func.ReturnOp([])
                continue
            copy = view.operation.clone().operation
            remap(copy, mapping)
            mapping.update(zip(view.operation.results, copy.results, strict=True))
    numbers = arguments[len(source.arguments) + len(shared) :]
    common = arguments[len(source.arguments)] if shared else None
    instructions = EmulatedInstructions(made.operation, common)
    for op in [op for op in walk(made.operation) if op.name in (*_IDS, *_TOGETHER) or NAME in op.attributes]:
        with op.location, ir.InsertionPoint(op):
            if not instructions.replace(op):
                _replace(made.operation, op, numbers, common)
    return together


def _refuse(kernel: str, used: set[str]) -> None:
    """Raise CompileError for instructions that the emulation does not have."""
    known = {*_IDS, *_TOGETHER, "gpu.func", "gpu.return"}
    unknown = sorted(n for n in used - known if n.startswith(("gpu.", "nvvm.", "nvgpu.")))
    if unknown:
        raise CompileError(f"{kernel}: the CPU cannot run {', '.join(unknown)}", hint="an emitter that asks `emulated`")


def _replace(function: ir.Operation, op: ir.Operation, numbers: list[ir.Value], shared: ir.Value | None) -> None:
    i32 = ir.IntegerType.get_signless(32)
    if op.name in _IDS:
        axis = next(n for n, a in enumerate(_AXES) if f"dim {a}>" in str(op.attributes["dimension"]))
        op.results[0].replace_all_uses_with(numbers[_IDS.index(op.name) * len(_AXES) + axis])
    elif op.name == "gpu.barrier":
        func.CallOp([], declare(function, BARRIER, []), [])
    elif op.name == "gpu.shuffle":
        name = declare(function, SHUFFLE, [i32, i32], [i32])
        op.results[0].replace_all_uses_with(func.CallOp([i32], name, list(op.operands)[:2]).results[0])
    elif op.name == "gpu.dynamic_shared_memory":
        for use in list(op.results[0].uses):
            view = use.owner.operation
            type_ = ir.MemRefType(view.results[0].type)
            flat = ir.MemRefType.get(type_.shape, type_.element_type)
            with ir.InsertionPoint(view):
                view.results[0].replace_all_uses_with(memref.view(flat, shared, view.operands[1], []))
            erase(view)
    else:
        return
    erase(op)


def _write_range(name: str, types: list[ir.Type]) -> None:
    """Write the function that runs threads [lo, hi) of a block, in x."""
    index = ir.IndexType.get()
    kept = types[: -len(_AXES)]  # without the thread's own numbers, which stand after the block's
    made = func.FuncOp(f"{name}_threads", ir.FunctionType.get([*kept, index, index], []), visibility="private")
    *arguments, low, high = made.add_entry_block().arguments
    fixed = len(types) - len(_IDS) * len(_AXES)
    blocks, sizes = arguments[fixed : fixed + 3], arguments[fixed + 3 :]
    with ir.InsertionPoint(made.entry_block):
        zero, one = (arith.ConstantOp(index, n).result for n in (0, 1))
        loop = scf.ForOp(low, high, one)
        with ir.InsertionPoint(loop.body):
            ids = [*blocks, loop.induction_variable, zero, zero]
            func.CallOp([], name, [*arguments[:fixed], *ids, *sizes])
            scf.YieldOp([])
        func.ReturnOp([])


def _loops(launch: ir.Operation, waiting: frozenset[str]) -> None:
    sizes = list(launch.operands)[:6]
    count = len(ir.DenseI32ArrayAttr(launch.attributes["operandSegmentSizes"]))
    segments = [int(n) for n in ir.DenseI32ArrayAttr(launch.attributes["operandSegmentSizes"])]
    has_shared = bool(segments[count - 3])
    arguments = list(launch.operands)[6 + has_shared : 6 + has_shared + segments[count - 2]]
    name = ir.SymbolRefAttr(launch.attributes["kernel"]).value[-1]
    shared = _shared(launch, launch.operands[6]) if has_shared else None
    zero, one = (arith.ConstantOp(ir.IndexType.get(), n).result for n in (0, 1))

    def nest(depth: int, ids: list[ir.Value]) -> None:
        if depth == len(sizes):
            func.CallOp([], name, [*arguments, *ids, *sizes])
            return
        if name in waiting and depth == len(_AXES):
            _all_at_once(name, [*arguments, *([] if shared is None else [shared]), *ids, *sizes], sizes[depth])
            return
        loop = scf.ForOp(zero, sizes[depth], one)
        with ir.InsertionPoint(loop.body):
            nest(depth + 1, [*ids, loop.induction_variable])
            scf.YieldOp([])

    nest(0, [])


def _shared(launch: ir.Operation, size: ir.Value) -> ir.Value:
    """Allocate a block's shared memory on the stack of `main`."""
    maker = size.owner
    bytes_ = ir.IntegerAttr(maker.attributes["value"]).value
    with ir.InsertionPoint.at_block_begin(_function_of(launch).regions[0].blocks[0]):
        type_ = ir.MemRefType.get([bytes_], ir.IntegerType.get_signless(8))
        return memref.AllocaOp(type_, [], [], alignment=64).result


def _function_of(op: ir.Operation) -> ir.Operation:
    while op.name != "func.func":
        op = op.parent.operation
    return op


def _all_at_once(name: str, arguments: list[ir.Value], threads: ir.Value) -> None:
    """Call a range of threads, in the form that becomes a call of the runtime's function for many of them."""
    zero = arith.ConstantOp(ir.IndexType.get(), 0).result
    call = func.CallOp([], f"{name}_threads", [*arguments, zero, threads])
    call.operation.attributes[PARALLEL_GRAIN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)


@module_pass("stablexla-emulate-threads", "has threads that wait for each other run by turns")
def emulate_threads(module: ir.Module) -> None:
    """Replace the runtime's parallel-for by its function for emulated threads."""
    with module.context:
        for view in module.body.operations:
            for op in walk(view.operation):
                if op.name == "llvm.call" and "callee" in op.attributes:
                    if ir.FlatSymbolRefAttr(op.attributes["callee"]).value == PARALLEL_FOR:
                        op.attributes["callee"] = ir.FlatSymbolRefAttr.get(THREADS)
                elif op.name == "llvm.func" and ir.StringAttr(op.attributes["sym_name"]).value == PARALLEL_FOR:
                    op.attributes["sym_name"] = ir.StringAttr.get(THREADS)
