"""Match prefix scans in the form in which JAX writes `lax.associative_scan`, and prove that they are scans.

JAX combines adjacent pairs, scans the pairs, which yields every second element of the result, combines each of those
with the next element for the others, and interleaves both by padding and adding: log n levels of strided slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import count, pairwise
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.constants import is_splat
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import rule_for
from stablexla.lowering.support.registry import RULES

# Scans along fewer elements stay as they are: they have few levels.
SHORTEST = Gate("scan-trees.shortest", 16, eager=2)
# Levels whose combiners are read to find all arrays that are scanned together.
READ_LEVELS = 4


class NoScanError(Exception):
    """The operations do not match a scan."""


@dataclass(frozen=True)
class Node:
    """One value in the combiner's expression graph: an element, a number, or an operation on other nodes.

    Attributes:
        kind: "left" or "right" for an element of the array with number `array`, "uniform" for a value that is the same
            everywhere, "operation".
        value: the uniform value, of rank 0 or a constant.
        operation: one instance of the operation in the tree.
    """

    kind: str
    array: int = 0
    value: Any = None
    operation: Any = None
    operands: tuple[int, ...] = ()


@dataclass
class Tree:
    """A proved associative scan.

    Attributes:
        arrays: the operands, scanned together.
        firsts: the arrays of combined pairs.
        results: number of the array, and its scan.
        nodes: the combiner.
        combined: for each array the node of its combined element.
        operations: all operations that the tree consists of.
    """

    dimension: int
    arrays: list[Any]
    firsts: list[Any]
    results: list[tuple[int, Any]]
    nodes: list[Node]
    combined: list[int]
    operations: dict[Any, None]

    @property
    def uniforms(self) -> list[Any]:
        """The combiner's captured values that are no constants."""
        values = [node.value for node in self.nodes if node.kind == "uniform" and not _is_constant(node.value)]
        return list(dict.fromkeys(values))

    def takes(self, other: Tree) -> bool:
        """Merge another tree's results into this one, if all of them scan arrays of this one."""
        own = list(zip(self.arrays, self.firsts, strict=True))
        wanted = [(other.arrays[number], other.firsts[number]) for number, _ in other.results]
        if other.dimension != self.dimension or any(pair not in own for pair in wanted):
            return False
        self.results += [(own.index(pair), value) for pair, (_, value) in zip(wanted, other.results, strict=True)]
        self.operations.update(other.operations)
        return True


def trees_of(root: Any) -> list[Tree]:
    """Return the scans in a module or an operation, last ones in program order first."""
    found: list[Tree] = []
    inside: set[Any] = set()
    for candidate in _candidates(root):
        if candidate in inside:
            continue
        try:
            tree = _Proof(candidate.results[0]).tree
        except NoScanError:
            continue
        inside.update(tree.operations)
        if not any(other.takes(tree) for other in found):
            found = [other for other in found if not tree.takes(other)] + [tree]
    return found


def _candidates(root: Any) -> Iterator[Any]:
    """Yield the operations, last first, that interleave two arrays."""
    pads: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        if op.name == "stablehlo.pad":
            pads.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    root.operation.walk(note)
    for pad in reversed(pads):
        if sum(hlo_ir.DenseI64ArrayAttr(pad.attributes["interior_padding"])) == 1:
            for use in pad.results[0].uses:
                owner = use.owner.operation
                if owner.name in ("stablehlo.add", "stablehlo.or") and owner.operands[1] == pad.results[0]:
                    yield owner


# --- what single operations are -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cut:
    """Elements `start`, `start + stride` ... of an array along one dimension."""

    source: Any
    start: int
    number: int
    stride: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Cut):
            return NotImplemented
        steps = self.stride == other.stride or self.number < 2
        starts = self.start == other.start or not self.number
        return self.source == other.source and self.number == other.number and steps and starts


@dataclass(frozen=True)
class _Level:
    """One level of the tree: elements 0, 2, 4 ... of a result, and elements 1, 3, 5 ..."""

    first: Any
    others: Any
    odd: Any


def _shape(value: Any) -> list[int]:
    type_ = value.type
    if not isinstance(type_, hlo_ir.RankedTensorType) or not type_.has_static_shape:
        raise NoScanError
    return list(type_.shape)


def _owner(value: Any, name: str = "") -> Any:
    """Return the operation that defines a value."""
    owner = value.owner
    if isinstance(owner, hlo_ir.Block) or (name and owner.name != name) or rule_for(owner) is not None:
        raise NoScanError
    return owner.operation


def _numbers(op: Any, name: str) -> list[int]:
    return list(hlo_ir.DenseI64ArrayAttr(op.attributes[name]))


def _is_constant(value: Any) -> bool:
    return not isinstance(value.owner, hlo_ir.Block) and value.owner.name == "stablehlo.constant"


def _is_zero(value: Any) -> bool:
    if not _is_constant(value) or not is_splat(number := value.owner.attributes["value"]):
        return False
    return str(number.get_splat_value()).split(" ")[0] in ("0", "0.000000e+00", "false")


@dataclass
class _Reader:
    """Matches operations of one tree, and collects them."""

    dimension: int
    operations: dict[Any, None] = field(default_factory=dict)

    def owner(self, value: Any, name: str = "") -> Any:
        op = _owner(value, name)
        self.operations[op] = None
        return op

    def is_cut(self, value: Any) -> bool:
        return not isinstance(value.owner, hlo_ir.Block) and value.owner.name == "stablehlo.slice"

    def cut(self, value: Any) -> _Cut:
        """Match a slice of one dimension."""
        op = self.owner(value, "stablehlo.slice")
        source, d = op.operands[0], self.dimension
        shape, wanted = _shape(value), _shape(source)
        wanted[d] = shape[d]
        if shape != wanted:
            raise NoScanError
        return _Cut(source, _numbers(op, "start_indices")[d], shape[d], _numbers(op, "strides")[d])

    def note_empty(self, value: Any) -> None:
        """Collect the operation that defines an empty array, which may be any."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if 0 in _shape(value) and not isinstance(value.owner, hlo_ir.Block):
                waiting += self.owner(value).operands

    def padded(self, value: Any, low: int, high: int) -> Any:
        """Match an interior padding by zeros with so many before and after; return its operand."""
        op = self.owner(value, "stablehlo.pad")
        self.operations[_owner(op.operands[1])] = None
        alone = [0] * len(_shape(value))
        for name, number in (("edge_padding_low", low), ("edge_padding_high", high), ("interior_padding", 1)):
            wanted = alone.copy()
            wanted[self.dimension] = number
            if _numbers(op, name) != wanted:
                raise NoScanError
        if not _is_zero(op.operands[1]):
            raise NoScanError
        return op.operands[0]

    def level(self, value: Any) -> _Level:
        """Match the interleave at the end of a level."""
        op = self.owner(value)
        shape = _shape(value)
        element = str(value.type.element_type)
        if op.name != ("stablehlo.or" if element == "i1" else "stablehlo.add") or element.startswith("complex"):
            raise NoScanError
        extent = shape[self.dimension]
        even = self.padded(op.operands[0], 0, 1 - extent % 2)
        odd = self.padded(op.operands[1], 1, extent % 2)
        joined = self.owner(even, "stablehlo.concatenate")
        if len(joined.operands) != 2 or hlo_ir.IntegerAttr(joined.attributes["dimension"]).value != self.dimension:
            raise NoScanError
        first = self.cut(joined.operands[0])
        if first != _Cut(first.source, 0, 1, 1) or _shape(first.source) != shape:
            raise NoScanError
        return _Level(first.source, joined.operands[1], odd)


# --- the computation ----------------------------------------------------------------------------------------------


class _Nodes:
    """Hash-consed nodes of combiners (value numbering): equal computations have equal numbers."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, node: Node) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return found

    def uniform(self, reader: _Reader, value: Any) -> int | None:
        """Return the number of a splat value, ignoring its shape; None for another value."""
        if not isinstance(value.owner, hlo_ir.Block) and value.owner.name == "stablehlo.broadcast_in_dim":
            if value.owner.operands[0].type.rank:
                return None
            reader.owner(value)
            value = value.owner.operands[0]
        if _is_constant(value):
            number = value.owner.attributes["value"]
            if not is_splat(number):
                return None
            key = (str(value.type.element_type), str(number.get_splat_value()))
            reader.owner(value)
        elif value.type.rank:
            return None
        else:
            key = ("value", value)
        return self.number(key, Node("uniform", value=value))


def _key(op: Any) -> tuple[Any, ...]:
    """Return the value-numbering key of an operation besides its operands, ignoring shapes."""
    attributes = tuple(sorted((name, str(attribute)) for name, attribute in op.attributes.items()))
    return (op.name, attributes, str(op.results[0].type.element_type))


def _is_elementwise(op: Any) -> bool:
    """Whether an operation is element-wise with one result."""
    known = op.name in RULES and (RULES[op.name].family == "elementwise" or op.name == "stablehlo.convert")
    if not known or len(op.results) != 1:
        return False
    shape = _shape(op.results[0])
    return all(not (extents := _shape(v)) or extents == shape for v in op.operands)


def _read(reader: _Reader, nodes: _Nodes, arrays: list[Any], pairs: Any) -> int:
    """Read the combiner that makes pairs of the elements of arrays; new arrays are added to `arrays`."""
    made: dict[Any, int] = {}
    half = _shape(pairs)[reader.dimension]

    def read(value: Any) -> int:
        if value in made:
            return made[value]
        found = nodes.uniform(reader, value)
        if found is None:
            found = element(value) if reader.is_cut(value) else operation(reader.owner(value))
        made[value] = found
        return found

    def element(value: Any) -> int:
        cut = reader.cut(value)
        if cut.start not in (0, 1) or cut != _Cut(cut.source, cut.start, half, 2):
            raise NoScanError
        if cut.source not in arrays:
            arrays.append(cut.source)
        kind, array = ("left", "right")[cut.start], arrays.index(cut.source)
        return nodes.number((kind, array), Node(kind, array))

    def operation(op: Any) -> int:
        if not _is_elementwise(op):
            raise NoScanError
        operands = tuple(read(v) for v in op.operands)
        return nodes.number((_key(op), operands), Node("operation", operation=op, operands=operands))

    return read(pairs)


# --- the proof ----------------------------------------------------------------------------------------------------


class _Proof:
    """Reads the combiner at the topmost levels, and then checks every level of the tree against it.

    A worklist holds the claims still to be shown, so that deep trees need no deep recursion.
    """

    def __init__(self, root: Any) -> None:
        odd = _owner(_owner(root).operands[1], "stablehlo.pad")
        self.reader = _Reader(_numbers(odd, "interior_padding").index(1))
        self.nodes = _Nodes()
        self.lengths = [_shape(root)[self.reader.dimension]]
        if self.lengths[0] < SHORTEST() or 0 in _shape(root):
            raise NoScanError
        while self.lengths[-1] > 1:
            self.lengths.append(self.lengths[-1] // 2)
        self.reduced: dict[tuple[int, int], Any] = {}
        self.scanned: dict[tuple[int, int], Any] = {}
        self.shown: set[tuple[int, int]] = set()
        self.left: list[Callable[[], None]] = []
        arrays = self._read_levels(root)
        if any(_shape(a) != _shape(root) for a in arrays):
            raise NoScanError
        self.reduced.update({(number, 0): array for number, array in enumerate(arrays)})
        self._is_scan(0, 0, root)
        while self.left:
            self.left.pop()()
        firsts = [self.reduced.get((number, 1)) for number in range(len(arrays))]
        dimension, operations = self.reader.dimension, self.reader.operations
        self.tree = Tree(dimension, arrays, firsts, [(0, root)], self.nodes.nodes, self.combined, operations)

    def _read_levels(self, root: Any) -> list[Any]:
        """Return the arrays that are scanned together; set the combiner of each."""
        levels: list[list[Any]] = []
        value = root
        for _ in range(READ_LEVELS):
            level = self.reader.level(value)
            levels.append([level.first])
            value = level.odd
        self.combined: list[int] = []
        for number in count():
            if number == len(levels[0]):
                break
            made = [
                _read(self.reader, self.nodes, arrays, pairs[number])
                for arrays, pairs in pairwise(levels)
                if number < len(pairs)
            ]
            if not made or any(m != made[0] for m in made):
                raise NoScanError
            self.combined.append(made[0])
        return levels[0]

    def _is_reduced(self, array: int, level: int, value: Any) -> None:
        """Prove that a value is the array of pairs of pairs ... of an array."""
        known = self.reduced.setdefault((array, level), value)
        if known != value:
            raise NoScanError
        if level and (array, level) not in self.shown:
            self.shown.add((array, level))
            length = self.lengths[level]

            def element(kind: str, other: int, part: Any) -> None:
                cut = self.reader.cut(part)
                if cut != _Cut(cut.source, int(kind == "right"), length, 2):
                    raise NoScanError
                self.left.append(lambda: self._is_reduced(other, level - 1, cut.source))

            self._is_combination(self.combined[array], value, element)

    def _is_scan(self, array: int, level: int, value: Any) -> None:
        """Prove that a value is the scan of such an array."""
        known = self.scanned.get((array, level))
        if known is not None:
            if known != value:
                raise NoScanError
            return
        self.scanned[array, level] = value
        length = self.lengths[level]
        if length == 1:
            self._is_reduced(array, level, value)
            return
        parts = self.reader.level(value)
        self._is_reduced(array, level, parts.first)
        others = (length - 1) // 2

        def element(kind: str, other: int, part: Any) -> None:
            if kind == "right":
                cut = self.reader.cut(part)
                if cut != _Cut(cut.source, 2, others, 2):
                    raise NoScanError
                self.left.append(lambda: self._is_reduced(other, level, cut.source))
                return
            if length % 2 == 0:
                cut = self.reader.cut(part)
                if cut != _Cut(cut.source, 0, others, 1):
                    raise NoScanError
                part = cut.source
            self.left.append(lambda: self._is_scan(other, level + 1, part))

        if others:
            self._is_combination(self.combined[array], parts.others, element)
        else:
            self.reader.note_empty(parts.others)
        self.left.append(lambda: self._is_scan(array, level + 1, parts.odd))

    def _is_combination(self, number: int, value: Any, element: Callable[[str, int, Any], None]) -> None:
        """Prove that a value is the combiner applied to values that `element` proves to be elements."""
        shown: set[tuple[int, Any]] = set()
        waiting = [(number, value)]
        while waiting:
            pair = waiting.pop()
            if pair in shown:
                continue
            shown.add(pair)
            node, value = self.nodes.nodes[pair[0]], pair[1]
            if node.kind in ("left", "right"):
                element(node.kind, node.array, value)
            elif node.kind == "uniform":
                if self.nodes.uniform(self.reader, value) != pair[0]:
                    raise NoScanError
            else:
                op = self.reader.owner(value)
                if not _is_elementwise(op) or _key(op) != _key(node.operation):
                    raise NoScanError
                waiting += zip(node.operands, op.operands, strict=True)
