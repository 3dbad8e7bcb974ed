"""Parallel calls: a kernel call that is marked with a grain becomes a call of the runtime's parallel-for.

Runs on the LLVM dialect, where every argument is a pointer or a number. A launcher, one for all kernels of the same
arguments, stores them in a struct on its stack; each kernel has a task that loads them for a range of work items.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import callee_of, symbol_of
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.codegen.calls import PARALLEL_GRAIN
from stablexla.targets.pipeline.passes import module_pass

PARALLEL_FOR, LAUNCH, TASK = "stablexla_parallel_for", "stablexla_launch_", "_task"
_DECLARED = f"llvm.func @{PARALLEL_FOR}(!llvm.ptr, !llvm.ptr, i64, i64)"
_LAUNCHER = """
llvm.func internal @{name}(%task: !llvm.ptr, {parameters}%n: i64, %grain: i64) {{
  %one = llvm.mlir.constant(1 : i64) : i64
  %context = llvm.alloca %one x {struct} : (i64) -> !llvm.ptr
  {stores}
  llvm.call @{parallel_for}(%task, %context, %n, %grain) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
  llvm.return
}}
"""
_TASK = """
llvm.func @{kernel}({types})
llvm.func internal @{kernel}{suffix}(%context: !llvm.ptr, %lo: i64, %hi: i64) {{
  {loads}
  llvm.call @{kernel}({values}) : ({types}) -> ()
  llvm.return
}}
"""
_PLACE = "%p{i} = llvm.getelementptr %context[0, {i}] : (!llvm.ptr) -> !llvm.ptr, {struct}"
_STORE = _PLACE + "\n  llvm.store %{i}, %p{i} : {type}, !llvm.ptr"
_LOAD = _PLACE + "\n  %{i} = llvm.load %p{i} : !llvm.ptr -> {type}"


@module_pass("stablexla-run-in-parallel", "turns marked calls of kernels into calls of the runtime's parallel-for")
def run_in_parallel(module: ir.Module) -> None:
    """Replace each marked `llvm.call` of `main` by a call of a launcher with the kernel's task."""
    mains = [view.operation for view in module.body.operations if _is_main(view.operation)]
    calls = [op for main in mains for op in operations_named(main, "llvm.call")]
    marked = [op for op in calls if PARALLEL_GRAIN in op.attributes]
    if not marked:
        return
    with module.context, ir.Location.unknown():
        calls_of = {callee_of(op): op for op in marked}
        kernels = {name: tuple(str(v.type) for v in op.operands) for name, op in calls_of.items()}
        launchers = {types: f"{LAUNCH}{number}" for number, types in enumerate(dict.fromkeys(kernels.values()))}
        _add(module, kernels, launchers)
        for op in marked:
            with op.location, ir.InsertionPoint(op):
                _launch(op, launchers[kernels[callee_of(op)]])
            erase(op)


def is_of_launches(symbol: str) -> bool:
    """Return whether a function is a launcher or a task: a few stores, loads and a call."""
    return symbol.startswith(LAUNCH) or symbol.endswith(TASK)


def _is_main(op: ir.Operation) -> bool:
    """Return whether a function is `main`, the only one with marked calls."""
    return bool(op.name == "llvm.func" and symbol_of(op) == "main")


def _add(module: ir.Module, kernels: dict[str, tuple[str, ...]], launchers: dict[tuple[str, ...], str]) -> None:
    """Add the functions, and the declaration of the runtime's, all parsed at once."""
    texts = [_DECLARED, *(_launcher(name, types) for types, name in launchers.items())]
    texts += [_task(kernel, types) for kernel, types in kernels.items()]
    parsed = ir.Module.parse("\n".join(texts))
    with ir.InsertionPoint(module.body):
        for view in parsed.body.operations:
            if symbol_of(view) not in kernels:
                view.operation.clone()


def _launcher(name: str, types: Sequence[str]) -> str:
    parameters = "".join(f"%{i}: {type_}, " for i, type_ in enumerate(types[:-2]))
    stores, struct = _accesses(_STORE, types)
    return _LAUNCHER.format(name=name, parameters=parameters, struct=struct, stores=stores, parallel_for=PARALLEL_FOR)


def _task(kernel: str, types: Sequence[str]) -> str:
    loads, _ = _accesses(_LOAD, types)
    values = ", ".join([*(f"%{i}" for i in range(len(types) - 2)), "%lo", "%hi"])
    return _TASK.format(kernel=kernel, suffix=TASK, types=", ".join(types), loads=loads, values=values)


def _accesses(form: str, types: Sequence[str]) -> tuple[str, str]:
    """Return accesses of the fields of a struct of all arguments but the range, and its type."""
    struct = f"!llvm.struct<({', '.join(types[:-2])})>"
    return "\n  ".join(form.format(i=i, type=type_, struct=struct) for i, type_ in enumerate(types[:-2])), struct


def _launch(op: ir.Operation, launcher: str) -> None:
    """Create the call that takes the place of a marked one."""
    *values, _, high = op.operands
    pointer, i64 = ir.Type.parse("!llvm.ptr"), ir.IntegerType.get_signless(64)
    task = _create("llvm.mlir.addressof", pointer, global_name=ir.FlatSymbolRefAttr.get(callee_of(op) + TASK))
    grain = _create("llvm.mlir.constant", i64, value=op.attributes[PARALLEL_GRAIN])
    operands = [task, *values, high, grain]
    ir.Operation.create(
        "llvm.call",
        operands=operands,
        attributes={
            "callee": ir.FlatSymbolRefAttr.get(launcher),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    )


def _create(name: str, result: ir.Type, **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(name, results=[result], attributes=attributes).result
