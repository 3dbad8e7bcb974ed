"""Rewrite all-reduces as operations of MLIR's `mpi` dialect, where the user asks for it: no pipeline has this pass.

It goes behind the step `buffers`, and takes what the dialect and its lowering know: one group of all devices, each in a
process of its own, element types that MPI has, and a combiner that MPI has under a name. The native runtime does the
rest; minima and maxima of floating-point numbers too, since MPI's lose NaN, and messages, since a blocking send may
wait for its receiver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import mlir.ir as ir

from stablexla.dialects.attributes.device_groups import grid_of
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.rules.devices.devices import CollectiveConfig
from stablexla.lowering.support.configs import config_attribute, read_config
from stablexla.lowering.support.operations import defining, walk
from stablexla.targets.host.collective import COLLECTIVES, DEVICE_ID, RUN
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.runtime.mpi_symbols import IMPLEMENTATIONS

FOLDS = {
    **dict.fromkeys(("arith.addf", "arith.addi"), "MPI_SUM"),
    **dict.fromkeys(("arith.mulf", "arith.muli"), "MPI_PROD"),
    "arith.maxsi": "MPI_MAX",
    "arith.minsi": "MPI_MIN",
    "arith.andi": "MPI_BAND",
    "arith.ori": "MPI_BOR",
    "arith.xori": "MPI_BXOR",
}
ELEMENTS = frozenset(["f32", "f64", "i8", "i16", "i32", "i64"])
"""Upstream's lowering ends the process at any other."""
MOST = 2**31 - 1
"""MPI counts with 32 bits."""


@module_pass("stablexla-collectives-to-mpi", "makes calls of MPI of the reductions over all devices that MPI has")
def collectives_to_mpi(module: ir.Module, *, implementation: str = "MPICH") -> None:
    """Rewrite a program on buffers, which then runs with one device per process and under that implementation only."""
    if implementation not in IMPLEMENTATIONS:
        raise CompileError(f"there is no implementation {implementation!r}", hint=f"one of {list(IMPLEMENTATIONS)}")
    attributes = module.operation.attributes
    if COLLECTIVES not in attributes:
        return
    configs, devices = list(ir.ArrayAttr(attributes[COLLECTIVES])), list(range(grid_of(module).size))
    with module.context, ir.Location.unknown():
        changed = False
        for call in list(_calls(module, RUN)):
            number = _number(call)
            config = read_config(CollectiveConfig, configs[number], COLLECTIVES)
            fold = _fold_of(call, config, devices)
            if fold:
                _make(call, len(config.inputs), fold)
                configs[number] = config_attribute(replace(config, mpi=implementation))
                changed = True
        if changed:
            for call in list(_calls(module, DEVICE_ID)):
                _ask_for_rank(call)
            attributes[COLLECTIVES] = ir.ArrayAttr.get(configs)
            attributes["dlti.map"] = ir.Attribute.parse(f'#dlti.map<"MPI:Implementation" = "{implementation}">')


def _calls(module: ir.Module, name: str) -> Iterator[ir.Operation]:
    for op in walk(module.operation):
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
            yield op


def _number(call: ir.Operation) -> int:
    """Return the number of the collective that a call runs."""
    constant = defining(call.operands[0])
    assert constant is not None
    return int(ir.IntegerAttr(constant.attributes["value"]).value)


def _fold_of(call: ir.Operation, config: CollectiveConfig, devices: list[int]) -> str:
    """Return MPI's name of the combiner; empty where MPI does not have the collective."""
    if config.op != "all_reduce" or [sorted(group) for group in config.groups] != [devices]:
        return ""
    buffers = [a.type for a in call.parent.regions[0].blocks[0].arguments[:-2]]
    if config.mpi is not None or any(prod(t.shape) > MOST or str(t.element_type) not in ELEMENTS for t in buffers):
        return ""
    return FOLDS.get(_computation(call), "")


def _computation(call: ir.Operation) -> str:
    """Return the one operation by which the call's combiner folds two elements; empty where there are more."""
    address = defining(call.operands[3])
    function = defining(address.operands[0]) if address is not None and len(address.operands) else None
    if function is None or function.name != "func.constant":
        return ""
    name = ir.FlatSymbolRefAttr(function.attributes["value"])
    combine = ir.SymbolTable(call.parent.parent)[name.value].operation
    *_, loop = (op.operation for op in combine.regions[0].blocks[0].operations if op.operation.name == "scf.for")
    load, other, *fold, store, _ = (op.operation for op in loop.regions[0].blocks[0].operations)
    if len(fold) != 1 or (load.name, other.name, store.name) != ("memref.load", "memref.load", "memref.store"):
        return ""
    of_both = {load.result, other.result} == set(fold[0].operands)
    return fold[0].name if of_both and store.operands[0] == fold[0].result else ""


def _make(call: ir.Operation, count: int, fold: str) -> None:
    """Insert a function in front of the one with the call, which remains as the fallback when MPI reports an error."""
    function = call.parent
    name = symbol_of(function)
    types = [str(a.type) for a in function.regions[0].blocks[0].arguments]
    values = [f"%a{i}" for i in range(len(types))]
    listed = ", ".join(f"{v}: {t}" for v, t in zip(values, types, strict=True))
    lines = ["%sum0 = arith.constant 0 : i32", "%zero = arith.constant 0 : i32", "%world = mpi.comm_world : !mpi.comm"]
    for i in range(count):
        source, target = values[i], values[count + i]
        arrays = f"{types[i]}, {types[count + i]}"
        lines += [
            f"%said{i} = mpi.allreduce({source}, {target}, {fold}, %world) : {arrays} -> !mpi.retval",
            f"%code{i} = builtin.unrealized_conversion_cast %said{i} : !mpi.retval to i32",
            f"%sum{i + 1} = arith.ori %sum{i}, %code{i} : i32",
        ]
    lines += [
        f"%failed = arith.cmpi ne, %sum{count}, %zero : i32",
        f"scf.if %failed {{ func.call @{name}_by_runtime({', '.join(values)}) : ({', '.join(types)}) -> () }}",
        "return",
    ]
    body = "\n".join(lines)
    function.attributes["sym_name"] = ir.StringAttr.get(f"{name}_by_runtime")
    made = ir.Module.parse(
        f"func.func private @{name}_by_runtime({', '.join(types)})\n"
        f"func.func private @{name}({listed}) attributes {{no_inline}} {{\n{body}\n}}"
    )
    with ir.InsertionPoint.after(function):
        made.body.operations[1].operation.clone()


def _ask_for_rank(call: ir.Operation) -> None:
    """Replace the device's number by the MPI rank of its process."""
    with ir.InsertionPoint(call):
        world = ir.Operation.create("mpi.comm_world", results=[ir.Type.parse("!mpi.comm")]).result
        rank = ir.Operation.create("mpi.comm_rank", results=[ir.IntegerType.get_signless(32)], operands=[world]).result
        wide = ir.Operation.create("arith.extui", results=[call.result.type], operands=[rank]).result
    call.result.replace_all_uses_with(wide)
    erase(call)
