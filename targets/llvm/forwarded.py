"""Kernels that do nothing but to call one function: their calls become calls of that function.

What such a kernel has of its own are numbers and addresses, so it needs no code: `main`'s list says what its arguments
are (`targets/llvm/call_list.py`), tables of numbers among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, addressof, c_int64
from dataclasses import field
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of

FORWARDED = "stablexla.forwarded"
"""Attribute of a kernel's function that need not become code where its calls are listed: a `Forwarded`, as text."""
MOST_NUMBERS = 64
"""Entries of the tables of a call with the addresses of buffers in them: `kMostNumbers` of the runtime."""
# Operations of the longest such function, and some: it fills two tables, and may have eight buffers.
_MOST_OPERATIONS = 80
# Operations whose result is what they are given, in another type.
_SAME = (
    "arith.index_cast",
    "builtin.unrealized_conversion_cast",
    "llvm.ptrtoint",
    "memref.extract_aligned_pointer_as_index",
)


@dataclass(frozen=True)
class Argument:
    """An argument of the kernel, by its number."""

    number: int


@dataclass(frozen=True)
class Function:
    """The address of a function."""

    name: str


@dataclass(eq=False)
class Table:
    """A table on the stack, filled with numbers and the addresses of buffers; None for what is not filled.

    The function that is given it only reads it: all calls, and all threads of one, have the same.
    """

    entries: list[Any] = field(default_factory=list)

    def has(self, place: int, count: int) -> bool:
        """Whether it has so many entries from a place on."""
        return 0 <= place <= len(self.entries) - count

    @property
    def is_constant(self) -> bool:
        """Whether all entries are numbers."""
        return not any(map(_is_argument, self.entries))


@dataclass(frozen=True)
class Forwarded:
    """The call that a kernel forwards its own to, with the range of items behind these arguments.

    Attributes:
        function: the symbol of what is called.
        arguments: an `Argument`, a number, a `Function` or a `Table` each.
        is_of_one: whether the function takes no range, as that of a kernel of one item. It is given one all the same:
            who calls puts arguments into registers and on the stack, and takes them off again.
    """

    function: str
    arguments: Sequence[Any]
    is_of_one: bool = False

    @property
    def names(self) -> set[str]:
        """Return the functions that it refers to."""
        return {self.function, *(given.name for given in self.arguments if isinstance(given, Function))}

    def note(self, function: ir.Operation) -> None:
        """Attach it to the kernel's function, which takes 70 us to be read again."""
        text = json.dumps([self.function, self.is_of_one, *map(_written, self.arguments)])
        function.attributes[FORWARDED] = ir.StringAttr.get(text, function.context)

    @staticmethod
    def noted(function: ir.Operation) -> Forwarded:
        """Return what is attached to a kernel's function."""
        called, is_of_one, *arguments = json.loads(ir.StringAttr(function.attributes[FORWARDED]).value)
        return Forwarded(called, [_unwritten(each) for each in arguments], is_of_one)

    def call(self, buffers: Sequence[int], items: int, address: Callable[[str], int]) -> None:
        """Call it for all items, in this thread.

        Args:
            buffers: addresses of the kernel's arguments, which are buffers alone.
            address: from names of functions to their addresses.
        """
        assert items == 1 or not self.is_of_one, f"{self.function} takes no range of {items} items"
        tables = []

        def value(given: Any) -> int:
            match given:
                case Argument():
                    return buffers[given.number]
                case Function():
                    return address(given.name)
                case Table():
                    table = (c_int64 * len(given.entries))(*map(value, given.entries))
                    tables.append(table)
                    return addressof(table)
                case _:
                    return int(given)

        values = [*map(value, self.arguments), 0, items]
        CFUNCTYPE(None, *[c_int64] * len(values))(address(self.function))(*values)

    @staticmethod
    def of(function: ir.Operation) -> Forwarded | None:
        """Read a kernel's function on buffers; None if it does anything else."""
        block, *others = function.regions[0].blocks
        if others:
            return None
        values: dict[ir.Value, Any] = {
            value: Argument(number)
            for number, value in enumerate(block.arguments)
            if isinstance(value.type, ir.MemRefType | ir.IndexType)  # others may leave bits of a register as they were
        }
        forwarded: Forwarded | None = None
        for count, view in enumerate(block.operations):
            op = view.operation
            if op.name == "func.return":
                return forwarded
            if count == _MOST_OPERATIONS or forwarded is not None:
                return None
            if op.name == "func.call":
                given = [values.get(value) for value in op.operands]
                items = [Argument(len(block.arguments) - 2), Argument(len(block.arguments) - 1)]
                is_of_one = given[-2:] != items
                if not is_of_one:
                    given = given[:-2]
                tables = [each for each in given if isinstance(each, Table)]
                used = {*filter(_is_argument, given), *(n for t in tables for n in t.entries if _is_argument(n))}
                if used.intersection(items) or not all(map(_is_known, given)) or len(op.results):
                    return None
                if sum(len(table.entries) for table in tables if not table.is_constant) > MOST_NUMBERS:
                    return None
                forwarded = Forwarded(callee_of(op), given, is_of_one)
            elif not _read(op, values):
                return None
        return None


def _written(given: Any) -> Any:
    """Return an argument as JSON has it: a number, or a list behind a word that says what it is."""
    match given:
        case Argument():
            return ["argument", given.number]
        case Function():
            return ["function", given.name]
        case Table():
            return ["table", *map(_written, given.entries)]
        case _:
            return given


def _unwritten(given: Any) -> Any:
    match given:
        case ["argument", number]:
            return Argument(number)
        case ["function", name]:
            return Function(name)
        case ["table", *entries]:
            return Table([_unwritten(entry) for entry in entries])
        case _:
            return given


def _is_argument(value: Any) -> bool:
    return isinstance(value, Argument)


def _is_known(given: Any) -> bool:
    """Whether an operand of the call is known, and no memory that the function may write."""
    return isinstance(given, Argument | Function | int) or (isinstance(given, Table) and None not in given.entries)


def _read(op: ir.Operation, values: dict[ir.Value, Any]) -> bool:
    """Note what an operation makes, or fill a table; return whether it is of those that such a kernel has."""
    operands = [values.get(value) for value in op.operands]
    made: Any = None
    match op.name, operands:
        case "arith.constant", []:
            made = _constant(op.attributes["value"])
        case "memref.alloca", []:
            type_ = ir.MemRefType(op.result.type)
            is_table = isinstance(type_.element_type, ir.IndexType) and type_.rank == 1 and type_.shape[0] > 0
            made = Table([None] * type_.shape[0]) if is_table else None
        case name, [Argument() | Table() | Function() as made] if name in _SAME:
            pass
        case "func.constant", []:
            made = Function(ir.FlatSymbolRefAttr(op.attributes["value"]).value)
        case "vector.store", [list() as numbers, Table() as table, int() as place] if table.has(place, len(numbers)):
            table.entries[place : place + len(numbers)] = numbers
            return True
        case "memref.store", [Argument() | int() as entry, Table() as table, int() as place] if table.has(place, 1):
            table.entries[place] = entry
            return True
        case _:
            return False
    values[op.result] = made
    return made is not None


def _constant(value: ir.Attribute) -> int | list[int] | None:
    """Return an index, or the lanes of a vector of indices."""
    if isinstance(value, ir.IntegerAttr):
        return value.value if isinstance(value.type, ir.IndexType) else None
    if isinstance(value, ir.DenseIntElementsAttr) and isinstance(ir.ShapedType(value.type).element_type, ir.IndexType):
        return [(n + 2**63) % 2**64 - 2**63 for n in value]  # those of indices are read as if they had no sign
    return None


__all__ = ["FORWARDED", "MOST_NUMBERS", "Argument", "Forwarded", "Function", "Table"]
