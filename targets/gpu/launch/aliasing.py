"""Drop noalias from kernels whose arguments may alias, as in-place operations and donation make them.

LLVM is not told that such arrays are noalias, so that it treats them as memory that changes.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.operations import constant_of, defining, main_of, walk
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.gpu.threads import launched_functions
from stablexla.targets.llvm.entry import ALIAS, ROLE
from stablexla.targets.pipeline.passes import module_pass

APART = "llvm.noalias"


@module_pass("stablexla-tell-overlaps", "takes from kernels the word that arrays lie apart, where two of them do not")
def drop_noalias(module: ir.Module) -> None:
    """Give calls with aliasing buffers a function of their own; to be run when arrays of `main` have buffers."""
    functions = launched_functions(module)
    main = main_of(module)
    donated = _donated(main)
    made: dict[tuple[str, tuple[int, ...]], str] = {}
    with module.context, ir.Location.unknown():
        for op in walk(main):
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value if op.name == "func.call" else ""
            places = _overlapping(op, donated) if name in functions else ()
            if places:
                label = made.setdefault((name, places), f"{name}_over_{len(made)}")
                if label not in functions:
                    functions[label] = _copied(functions[name], label, places)
                op.attributes["callee"] = ir.FlatSymbolRefAttr.get(label)


def _donated(main: ir.Operation) -> set[frozenset[ir.Value]]:
    """Return pairs of parameters and results of `main` that may alias by donation."""
    arguments = list(main.regions[0].blocks[0].arguments)
    rows = [ir.DictAttr(row) for row in ir.ArrayAttr(main.attributes["arg_attrs"])]
    roles = {
        role: [a for a, row in zip(arguments, rows, strict=True) if ir.StringAttr(row[ROLE]).value == role]
        for role in ("parameter", "result")
    }
    aliases = [ir.IntegerAttr(row[ALIAS]).value for row in rows if ALIAS in row]
    results = [a for a, row in zip(arguments, rows, strict=True) if ALIAS in row]
    return {frozenset((roles["parameter"][n], result)) for n, result in zip(aliases, results, strict=True)}


def _overlapping(call: ir.Operation, donated: set[frozenset[ir.Value]]) -> tuple[int, ...]:
    """Return the operands of a call that alias another one."""
    buffers = [(n, v) for n, v in enumerate(call.operands) if isinstance(v.type, ir.MemRefType)]
    found = [(n, *_place(v), bytes_of(v.type)) for n, v in buffers]
    shared: set[int] = set()
    for n, base, offset, size in found:
        for other, other_base, other_offset, other_size in found:
            same = base == other_base and offset < other_offset + other_size and other_offset < offset + size
            if n != other and size and other_size and (same or frozenset((base, other_base)) in donated):
                shared.add(n)
    return tuple(sorted(shared))


def _place(buffer: ir.Value) -> tuple[ir.Value, int]:
    """Return a buffer's base and its offset in that."""
    offset, maker = 0, defining(buffer)
    while maker is not None and maker.name in ("memref.view", "builtin.unrealized_conversion_cast"):
        if maker.name == "memref.view":
            begins = constant_of(maker.operands[1])
            assert begins is not None, "main takes its arrays at places that are known"
            offset += begins
        buffer = maker.operands[0]
        maker = defining(buffer)
    return buffer, offset


def _copied(function: ir.Operation, name: str, places: tuple[int, ...]) -> ir.Operation:
    rows = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
    for place in places:
        kept = {named.name: named.attr for named in ir.DictAttr(rows[place]) if named.name != APART}
        rows[place] = ir.DictAttr.get(kept)
    with ir.InsertionPoint(function):
        made = function.clone().operation
    made.attributes["sym_name"] = ir.StringAttr.get(name)
    made.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)
    return made
