"""The pass that runs a GPU's kernels on the CPU: blocks and threads are loops, one after the other.

So the numbers of threads, bounds and index arithmetic that a GPU will run are tested where there is none.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, scf

from stablexla.lowering.operations import remap, walk
from stablexla.targets.passes import module_pass

_IDS = ("gpu.block_id", "gpu.thread_id", "gpu.grid_dim", "gpu.block_dim")
_AXES = ("x", "y", "z")


@module_pass("stablexla-emulate-gpu", "turns launches of GPU kernels into loops over blocks and threads")
def emulate_gpu(module: ir.Module) -> None:
    """Kernels become functions that take the numbers of their block and thread, and of how many there are."""
    with module.context, ir.Location.unknown():
        for view in list(module.body.operations):
            if view.operation.name == "gpu.module":
                for inner in list(view.operation.regions[0].blocks[0].operations):
                    if inner.operation.name == "gpu.func":
                        _write(inner.operation, view.operation)
                view.operation.erase()
        for view in list(module.body.operations):
            for op in walk(view.operation):
                if op.name == "gpu.launch_func":
                    with op.location, ir.InsertionPoint(op):
                        _loops(op)
                    op.erase()
        del module.operation.attributes["gpu.container_module"]


def _write(kernel: ir.Operation, place: ir.Operation) -> None:
    source = kernel.regions[0].blocks[0]
    index = ir.IndexType.get()
    types = [*(a.type for a in source.arguments), *[index] * (len(_IDS) * len(_AXES))]
    with kernel.location, ir.InsertionPoint(place):
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
    arguments = list(made.add_entry_block().arguments)
    mapping: dict[ir.Value, ir.Value] = dict(zip(source.arguments, arguments, strict=False))
    numbers = arguments[len(source.arguments) :]
    with ir.InsertionPoint(made.entry_block):
        for view in source.operations:
            if view.operation.name == "gpu.return":
                func.ReturnOp([])
                continue
            copy = view.operation.clone().operation
            remap(copy, mapping)
            mapping.update(zip(view.operation.results, copy.results, strict=True))
    for op in walk(made.operation):
        if op.name in _IDS:
            axis = next(n for n, a in enumerate(_AXES) if f"dim {a}>" in str(op.attributes["dimension"]))
            op.results[0].replace_all_uses_with(numbers[_IDS.index(op.name) * len(_AXES) + axis])
            op.erase()


def _loops(launch: ir.Operation) -> None:
    sizes = list(launch.operands)[:6]
    arguments = list(launch.operands)[6:]
    name = ir.SymbolRefAttr(launch.attributes["kernel"]).value[-1]
    zero, one = (arith.ConstantOp(ir.IndexType.get(), n).result for n in (0, 1))

    def nest(depth: int, ids: list[ir.Value]) -> None:
        if depth == len(sizes):
            func.CallOp([], name, [*arguments, *ids, *sizes])
            return
        loop = scf.ForOp(zero, sizes[depth], one)
        with ir.InsertionPoint(loop.body):
            nest(depth + 1, [*ids, loop.induction_variable])
            scf.YieldOp([])

    nest(0, [])
