"""The calling contract of `main`: roles and sizes of its buffers, values of its constants, aliases of its results.

`main` takes flat buffers, each marked `stablexla.role` = "parameter", "constant", "result" or "arena".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlir.ir as ir
import numpy as np

from stablexla.dialects.errors import CompileError
from stablexla.dialects.held_arrays import held_array, is_borrowed
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.pipeline.driver import side_of
from stablexla.targets.pipeline.passes import module_pass

PREFIX = "stablexla."
ROLE, VALUE, BYTES, ALIAS = PREFIX + "role", PREFIX + "value", PREFIX + "bytes", PREFIX + "alias"
PACKED = "_mlir_"
PACKED_MAIN = PACKED + "main"
"""The packed entry point: takes the addresses of all arguments of main; see `CompiledFunction`."""
ROLES = ("parameter", "constant", "result", "arena")
CONTRACT = PREFIX + "contract"
"""Attribute of a `main` that takes all its buffers as one array: those of each; see `targets/llvm/call_list.py`."""
_OF_MAIN = frozenset(["arg_attrs", "res_attrs", "sym_visibility"])


@dataclass(frozen=True)
class EntryContract:
    """The calling contract of `main`.

    Attributes:
        parameters, results: how many there are.
        constants: arrays held by the program itself, in the order in which main takes them.
        arena_bytes: size of the arena for temporaries.
        aliases: for results the parameter that each may alias.
    """

    parameters: int
    results: int
    constants: tuple[np.ndarray[Any, Any], ...]
    arena_bytes: int
    aliases: dict[int, int]


@module_pass("stablexla-note-sizes", "writes on each buffer of main how many bytes it has, before the types are lost")
def annotate_sizes(module: ir.Module) -> None:
    """Annotate each buffer of main with its size in bytes; a module without `main` is left alone."""
    main = _find(module, "main")
    if main is None or "arg_attrs" not in main.attributes:
        return
    with module.context:
        rows = []
        for attributes, argument in zip(main.attributes["arg_attrs"], main.regions[0].blocks[0].arguments, strict=True):
            row = {name.name: name.attr for name in attributes}
            if ROLE in row and isinstance(argument.type, ir.MemRefType):
                row[BYTES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), bytes_of(argument.type))
            rows.append(ir.DictAttr.get(row))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)


@module_pass("stablexla-hide-kernels", "keeps LLVM from exporting and from inlining any function but main")
def hide_kernels(module: ir.Module) -> None:
    """Make all functions but main internal and no-inline.

    Both cost compile time otherwise: a wrapper for every exported function, and a main that grows with each kernel.
    """
    with module.context:
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        for op in module.body.operations:
            function = op.operation
            if function.name == "llvm.func" and function.regions[0].blocks and symbol_of(function) != "main":
                function.attributes["linkage"] = internal
                function.attributes["no_inline"] = ir.UnitAttr.get()


def take_entry(module: ir.Module) -> EntryContract:
    """Read the calling contract from a module in LLVM's dialect and strip its attributes, which LLVM need not see.

    A `main` that takes all buffers as one array becomes the packed entry point.

    Raises:
        CompileError: there is no `main`, or it is not of the contract's form.
    """
    main = _find(module, "main") if side_of(module) == "upstream" else None
    if main is None or main.name != "llvm.func":
        raise CompileError("the pipeline left no function main in LLVM's dialect")
    entry = entry_of(main)
    if CONTRACT in main.attributes:
        del main.attributes[CONTRACT]
        main.attributes["sym_name"] = ir.StringAttr.get(PACKED_MAIN, module.context)
        return entry
    rows = _rows(main)
    with module.context:
        kept = [ir.DictAttr.get({k: v for k, v in row.items() if not k.startswith(PREFIX)}) for row in rows]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
    return entry


def entry_of(main: Any) -> EntryContract:
    """Read the calling contract of `main`, in any dialect; the arena has 0 bytes where no size is noted.

    Raises:
        CompileError: it is not of the contract's form.
    """
    rows = _rows(main)
    roles = _roles(rows)
    if roles != sorted(roles, key=lambda r: ROLES.index(r) if r in ROLES else -1) or roles.count("arena") != 1:
        raise CompileError(
            f"main must take parameters, constants, results and an arena, each marked {ROLE}; it takes {roles}"
        )
    constants = tuple(_constant(row[VALUE]) for row, role in zip(rows, roles, strict=True) if role == "constant")
    arena = ir.IntegerAttr(rows[-1][BYTES]).value if BYTES in rows[-1] else 0
    results = [row for row, role in zip(rows, roles, strict=True) if role == "result"]
    aliases = {i: ir.IntegerAttr(row[ALIAS]).value for i, row in enumerate(results) if ALIAS in row}
    return EntryContract(roles.count("parameter"), len(results), constants, arena, aliases)


def argument_roles(main: Any) -> list[Any]:
    """Return the role of each argument of `main`, "" where there is none."""
    return _roles(_rows(main))


def _roles(rows: Sequence[dict[str, ir.Attribute]]) -> list[Any]:
    return [ir.StringAttr(row[ROLE]).value if ROLE in row else "" for row in rows]


def pack_entry(module: ir.Module, name: str = "main") -> str:
    """Make a function its packed entry point, which takes an array of its arguments' addresses; return its name.

    A `main` that takes the array itself is that already, see `take_entry`.

    Args:
        module: in LLVM's dialect.
        name: a function that it defines, without a result, and that nothing calls.
    """
    function, entry = _find(module, name), PACKED + name
    if function is None and _find(module, entry) is not None:
        return entry
    block = function.regions[0].blocks[0]
    with module.context, ir.Location.unknown():
        pointer = ir.Type.parse("!llvm.ptr")
        of_pointers = ir.TypeAttr.get(pointer)
        given, every = list(block.arguments), block.add_argument(pointer, ir.Location.unknown())
        with ir.InsertionPoint.at_block_begin(block):
            for number, argument in enumerate(given):
                place = {"rawConstantIndices": ir.DenseI32ArrayAttr.get([number]), "elem_type": of_pointers}
                at = _made("llvm.getelementptr", pointer, every, place)
                argument.replace_all_uses_with(_made("llvm.load", argument.type, _made("llvm.load", pointer, at)))
        for _ in given:
            block.erase_argument(0)
        for attribute in _OF_MAIN.intersection(function.attributes):
            del function.attributes[attribute]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr)>"))
        function.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
        function.attributes["sym_name"] = ir.StringAttr.get(entry)
    return entry


def _made(name: str, type_: ir.Type, operand: ir.Value, attributes: dict[str, ir.Attribute] | None = None) -> ir.Value:
    """Create an operation of LLVM's dialect, whose classes take 16 ms to import."""
    return ir.Operation.create(name, [type_], [operand], attributes or {}).result


def _find(module: ir.Module, name: str) -> Any:
    return next((op.operation for op in module.body.operations if symbol_of(op) == name), None)


def _rows(main: Any) -> list[dict[str, ir.Attribute]]:
    """Return the attributes of each argument of `main`."""
    name = CONTRACT if CONTRACT in main.attributes else "arg_attrs"
    return [{a.name: a.attr for a in row} for row in main.attributes[name]] if name in main.attributes else []


def _constant(attribute: ir.Attribute) -> np.ndarray[Any, Any]:
    held = held_array(attribute)
    array = np.ascontiguousarray(np.array(attribute) if held is None else held)
    array = array.copy() if is_borrowed(attribute) else array.view()
    array.flags.writeable = False  # it is the executable's from here on
    return array
