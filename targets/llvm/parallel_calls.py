"""Parallel calls: a kernel call that is marked with a grain becomes a call of the runtime's parallel-for.

Runs on the LLVM dialect, where every argument is a pointer or a number: they are passed in one struct on main's stack.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import walk
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.pipeline.passes import module_pass

PARALLEL_FOR = "stablexla_parallel_for"
TASK = """
llvm.func @{name}({types})
llvm.func internal @{name}_task(%context: !llvm.ptr, %lo: i64, %hi: i64) {{
  %args = llvm.load %context : !llvm.ptr -> {struct}
  {unpack}
  llvm.call @{name}({values}) : ({types}) -> ()
  llvm.return
}}
"""


@module_pass("stablexla-run-in-parallel", "turns marked calls of kernels into calls of the runtime's parallel-for")
def run_in_parallel(module: ir.Module) -> None:
    """Outline each marked `llvm.call` of `main` into a task that unpacks its arguments for a range of work items."""
    mains = [view.operation for view in module.body.operations if _is_main(view.operation)]
    marked = [op for main in mains for op in walk(main) if op.name == "llvm.call" and PARALLEL_GRAIN in op.attributes]
    if not marked:
        return
    with module.context, ir.Location.unknown():
        kernels: dict[str, list[ir.Type]] = {}
        for op in marked:
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            kernels.setdefault(name, [v.type for v in op.operands])
        _add_tasks(module, kernels)
        structs = {name: ir.Type.parse(_struct(types)) for name, types in kernels.items()}
        for op in marked:
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            with op.location:
                _replace(op, name, structs[name])


def _is_main(op: ir.Operation) -> bool:
    """Return whether a function is `main`, the only one with marked calls."""
    return bool(op.name == "llvm.func" and symbol_of(op) == "main")


def _struct(types: list[ir.Type]) -> str:
    """Return the type of a task's context: all arguments of the kernel but the range."""
    return f"!llvm.struct<({', '.join(map(str, types[:-2]))})>"


def _add_tasks(module: ir.Module, kernels: dict[str, list[ir.Type]]) -> None:
    """Add a task function for each kernel, and the declaration of the runtime's function, all parsed at once."""
    texts = [f"llvm.func @{PARALLEL_FOR}(!llvm.ptr, !llvm.ptr, i64, i64)"]
    for name, types in kernels.items():
        struct, fields = _struct(types), range(len(types) - 2)
        texts.append(
            TASK.format(
                name=name,
                types=", ".join(map(str, types)),
                struct=struct,
                unpack="\n  ".join(f"%{i} = llvm.extractvalue %args[{i}] : {struct}" for i in fields),
                values=", ".join([*(f"%{i}" for i in fields), "%lo", "%hi"]),
            )
        )
    parsed = ir.Module.parse("\n".join(texts))
    with ir.InsertionPoint(module.body):
        for view in parsed.body.operations:
            if symbol_of(view) not in kernels:
                view.operation.clone()


def _replace(op: ir.Operation, name: str, struct: ir.Type) -> None:
    pointer, i64 = ir.Type.parse("!llvm.ptr"), ir.IntegerType.get_signless(64)
    function = _function_of(op)
    with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
        one = _create("llvm.mlir.constant", [i64], [], value=ir.IntegerAttr.get(i64, 1))
        context = _create("llvm.alloca", [pointer], [one], elem_type=ir.TypeAttr.get(struct))
    with ir.InsertionPoint(op):
        *values, _, high = op.operands
        packed = _create("llvm.mlir.undef", [struct], [])
        for i, value in enumerate(values):
            packed = _create("llvm.insertvalue", [struct], [packed, value], position=ir.DenseI64ArrayAttr.get([i]))
        ir.Operation.create("llvm.store", operands=[packed, context])
        task = _create("llvm.mlir.addressof", [pointer], [], global_name=ir.FlatSymbolRefAttr.get(f"{name}_task"))
        grain = _create("llvm.mlir.constant", [i64], [], value=op.attributes[PARALLEL_GRAIN])
        ir.Operation.create(
            "llvm.call",
            operands=[task, context, high, grain],
            attributes={
                "callee": ir.FlatSymbolRefAttr.get(PARALLEL_FOR),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([4, 0]),
                "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            },
        )
    erase(op)


def _create(name: str, results: list[ir.Type], operands: list[ir.Value], **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(name, results=results, operands=operands, attributes=attributes).result


def _function_of(op: ir.Operation) -> ir.Operation:
    while op.name != "llvm.func":
        op = op.parent.operation
    return op
