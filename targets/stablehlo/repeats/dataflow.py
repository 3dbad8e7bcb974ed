"""The dataflow of a block as numbers: a key of each operation's own structure, and who defines its operands.

Two operations have equal keys when they differ in nothing but which arrays they read. Constants, and what is made of
them by broadcasts and the like, belong to their readers: each part of a program makes its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects.constants import is_splat
from stablexla.dialects.held_arrays import value_of
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import TRAITS
from stablexla.targets.stablehlo.inlining import all_operations

_CHEAP = "add and broadcast_in_dim compare constant convert iota multiply not or reshape select subtract"
MADE_AGAIN = frozenset(f"stablehlo.{name}" for name in _CHEAP.split())
"""Operations that readers repeat where they read nothing but others of these, and single numbers from outside: they
fuse, and are not stored. What is a single number itself is computed again whatever it costs.
"""
ELEMENTWISE = frozenset(name for name, row in TRAITS.items() if row.is_elementwise)
CONSTANT = "stablehlo.constant"
PRODUCTS = frozenset(["stablehlo.convolution", "stablehlo.dot_general"])
LIGHT = MADE_AGAIN | {
    *ELEMENTWISE,
    *(
        f"stablehlo.{name}"
        for name in ("concatenate", "dynamic_slice", "pad", "reduce", "reverse", "slice", "transpose")
    ),
}
"""Operations that grouping may compute in one kernel with what they read."""
_ORDERED = ("all_", "collective_", "infeed", "outfeed", "recv", "reduce_scatter", "rng", "send")
_NEVER = frozenset(["stablehlo.after_all", "stablehlo.create_token", "stablehlo.custom_call", "stablehlo.partition_id"])

Slot = tuple[int, int]
"""A value that an operation reads: the number of the operation that makes it, and of that one's result."""
OUTSIDE: Slot = (-1, 0)


@dataclass
class Node:
    """One operation of a block.

    Attributes:
        key: equal for operations of equal structure.
        values: what it reads, but for what is made again; then values that its regions capture, and single numbers of
            which what is made again is computed.
        numbers: how many of the values are such single numbers.
        slots: where these come from; `OUTSIDE` where it is no operation of the block.
        readers: for each result, the numbers of the nodes that read it; the block's length stands for others.
    """

    op: Any
    key: int
    values: list[Any]
    numbers: int
    slots: list[Slot]
    readers: list[set[int]]


class Dataflow:
    """The operations of a block that are not made again by their readers, in program order.

    Attributes:
        nodes: these operations.
        made_again: results of the others, with the numbers of their structures.
        numbers: the single numbers from outside of which each of those results is made.
        slots: those of all nodes, one node after the other.
        first_slots: for each node the number of its first slot among these, and of all slots at the end.
        last_reads: for each node and each of its results, the number of the last node that reads it; -1 for none.
    """

    def __init__(self, block: Any, structures: Structures) -> None:
        self.nodes: list[Node] = []
        self.made_again: dict[Any, int] = {}
        self.numbers: dict[Any, dict[Any, None]] = {}
        self._structures = structures
        self._makers: dict[Any, Slot] = {}
        *operations, self.terminator = (view.operation for view in block.operations)
        for op in operations:
            self._add(op)
        self._note_readers()
        self.slots = np.array([slot for node in self.nodes for slot in node.slots], np.int64).reshape(-1, 2)
        self.first_slots = [0, *accumulate(len(node.slots) for node in self.nodes)]

    def _add(self, op: Any) -> None:
        name, results = op.name, list(op.results)  # each is a call of C++, and so are hashes of values
        if name == CONSTANT and not _is_splat(op):
            return  # weights, perhaps: an operand of the part that reads it
        read = [*op.operands, *captured(op)] if len(op.regions) else list(op.operands)
        structures = [self.made_again.get(value) for value in read]
        kept = [value for value, known in zip(read, structures, strict=True) if known is None]
        numbers: dict[Any, None] = {}
        if len(kept) < len(read):
            made = (value for value, known in zip(read, structures, strict=True) if known is not None)
            numbers = {number: None for value in made for number in self.numbers[value]}
        key = self._structures.key(op, read, (len(numbers), *structures))
        cheap = name in MADE_AGAIN or (name in ELEMENTWISE and not results[0].type.rank)
        if cheap and not any(value in self._makers or value.type.rank for value in kept):
            self.made_again[results[0]] = key
            self.numbers[results[0]] = numbers | dict.fromkeys(kept)
            return
        kept += numbers
        number = len(self.nodes)
        slots = [self._makers.get(value, OUTSIDE) for value in kept]
        self.nodes.append(Node(op, key, kept, len(numbers), slots, [set() for _ in results]))
        for position, result in enumerate(results):
            self._makers[result] = number, position

    def _note_readers(self) -> None:
        for number, node in enumerate(self.nodes):
            for maker, position in node.slots:
                if maker >= 0:
                    self.nodes[maker].readers[position].add(number)
        end = len(self.nodes)
        for value in (*self.terminator.operands, *captured(self.terminator)):
            maker, position = self._makers.get(value, OUTSIDE)
            if maker >= 0:
                self.nodes[maker].readers[position].add(end)
        most = max((len(node.readers) for node in self.nodes), default=0)
        self.last_reads = np.full((len(self.nodes), most), -1, np.int64)
        for number, node in enumerate(self.nodes):
            for position, readers in enumerate(node.readers):
                if readers:
                    self.last_reads[number, position] = max(readers)


class Structures:
    """Numbers for the structures of a module's operations: equal ones have equal numbers."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._keys: dict[Any, int] = {}
        self._bodies: dict[Any, Any] = {}

    def key(self, op: Any, read: Sequence[Any], again: tuple[int | None, ...]) -> int:
        """Return the number of an operation's structure.

        Args:
            read: its operands, and what its regions capture.
            again: for each of those the number of what is made again before it, after that of single numbers in it.
        """
        if _has_effects(op):
            return self._number(object())
        inner: dict[Any, int] = {}
        places = tuple([inner.setdefault(value, len(inner)) for value in read])  # x * x is not x * y
        types = tuple([value.type for value in read])
        regions = tuple(self._region(region, dict(inner)) for region in op.regions) if len(op.regions) else ()
        return self._number((*self._own(op), types, places, again, regions))

    def _number(self, structure: Any) -> int:
        return self._keys.setdefault(structure, len(self._keys))

    def _own(self, op: Any) -> tuple[Any, ...]:
        """Return an operation's name, attributes and result types; of the function that it names, the structure."""
        name = op.name
        if name == CONSTANT:
            return name, _constant(op)
        known = tuple([(each, self._named(attribute)) for each, attribute in op.attributes.items()])
        return name, known, tuple([result.type for result in op.results])

    def _named(self, attribute: Any) -> Any:
        if not isinstance(attribute, hlo_ir.FlatSymbolRefAttr) or attribute.value not in self._functions:
            return attribute
        if attribute not in self._bodies:
            self._bodies[attribute] = attribute  # a function that calls itself
            self._bodies[attribute] = self._region(self._functions[attribute.value].regions[0], {})
        return self._bodies[attribute]

    def _region(self, region: Any, numbers: dict[Any, int]) -> tuple[Any, ...]:
        """Return the structure of a region; `numbers` holds the values from outside."""
        found: list[Any] = []
        for block in region.blocks:
            for argument in block.arguments:
                numbers[argument] = len(numbers)
            found.append(tuple(a.type for a in block.arguments))
            for view in block.operations:
                op = view.operation
                operands = tuple(numbers.setdefault(v, len(numbers)) for v in op.operands)
                for result in op.results:
                    numbers[result] = len(numbers)
                found.append((*self._own(op), operands, tuple(self._region(r, numbers) for r in op.regions)))
        return tuple(found)


def captured(op: Any) -> list[Any]:
    """Return the values from outside that an operation's regions read, each once."""
    seen: dict[Any, None] = {}

    def look(inside: Any, made: set[Any]) -> None:
        for region in inside.regions:
            for block in region.blocks:
                made.update(block.arguments)
                for view in block.operations:
                    seen.update((v, None) for v in view.operation.operands if v not in made)
                    made.update(view.operation.results)
                    look(view.operation, made)

    look(op, set())
    return list(seen)


def _constant(op: Any) -> Any:
    """Return a constant's value: its attribute, or the text where jaxlib knows none, as of complex numbers."""
    value = value_of(op)
    return op.get_asm(enable_debug_info=False).split("=", 1)[1] if value is None else value


def _is_splat(op: Any) -> bool:
    value = _constant(op)
    return "dense<(" in value if isinstance(value, str) else is_splat(value)


def _has_effects(op: Any) -> bool:
    """Whether an operation, or one in it, must stay one of its kind: its order counts, or it is somebody else's."""
    if len(op.regions):
        return any(map(_is_ordered, all_operations(op)))
    return _is_ordered(op)


def _is_ordered(op: Any) -> bool:
    if op.name == "stablehlo.composite":  # a user's may call a function of the host, which names the line
        return not str(op.attributes["name"].value).startswith(("chlo.", "stablexla."))
    return _is_name_ordered(op.name)


@functools.cache
def _is_name_ordered(name: str) -> bool:
    return name in _NEVER or name.removeprefix("stablehlo.").startswith(_ORDERED)
