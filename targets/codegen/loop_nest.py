"""Analyze a kernel of maps and reductions as one loop nest that all its operations share.

Every array access is reduced to an offset and a stride for each loop. Loops of trip count 1 vanish, and adjacent loops
that nothing distinguishes are collapsed. Emits no code; None means that a kernel does not have this form.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import Protocol

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.support.operations import constant_attribute, constant_of, terminator_of, walk
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import body_cost, can_clone, computed_types
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.refusals import BLOCKS, BRANCHES, COMPLEX, INDICES, Refusal, refuse
from stablexla.targets.grouping.loops import Loops, loops_of


@dataclass(eq=False)
class Scalar:
    """A loop-invariant scalar: argument number `argument`, or the constant `attribute`."""

    type: ir.Type
    argument: int | None = None
    attribute: ir.Attribute | None = None
    deps: frozenset[int] = frozenset()


@dataclass(eq=False)
class Load:
    """An element of input `buffer`, at offset + the sum of stride times induction variable.

    `moves` are further pairs of a scalar argument of the kernel (a dynamic start) and its stride in elements.
    """

    buffer: int
    element: ir.Type
    offset: int
    strides: tuple[int, ...]
    moves: tuple[tuple[int, int], ...] = ()

    @property
    def stays(self) -> bool:
        """Whether the loops begin at the array's first element."""
        return not self.offset and not self.moves

    @property
    def deps(self) -> frozenset[int]:
        """The loops that the element depends on."""
        return frozenset(d for d, stride in enumerate(self.strides) if stride)


@dataclass(eq=False)
class Map:
    """A linalg body applied at every index of the loops in `domain`.

    `indices` maps each `linalg.index` dimension to its loop; None is a loop of trip count 1.
    """

    block: ir.Block
    operands: list[Ref]
    domain: frozenset[int]
    indices: dict[int, int | None]
    deps: frozenset[int] = frozenset()

    @property
    def types(self) -> list[ir.Type]:
        """Element types of the results."""
        return [v.type for v in terminator_of(self.block).operands]

    @functools.cached_property
    def operations(self) -> list[ir.Operation]:
        """The operations of the body."""
        return [view.operation for view in self.block.operations]

    @functools.cached_property
    def cost(self) -> int:
        """About how many vector instructions the body takes."""
        return body_cost(self.operations)

    @functools.cached_property
    def computed(self) -> list[ir.Type]:
        """Types that the body computes with, one for each value, but for indices and constants."""
        return list(computed_types(self.operations))

    @functools.cached_property
    def widest(self) -> int:
        """Bits of the widest lane that the body computes with."""
        return max(map(cg.lane_bits, self.computed), default=0)


@dataclass(eq=False)
class Reduction(Map):
    """A reduction over the loops `reduced`, from the initial values `starts`; accumulators are the last arguments."""

    reduced: frozenset[int] = frozenset()
    starts: list[Ref] = field(default_factory=list)


Node = Scalar | Load | Map
Ref = tuple[Node, int]


@dataclass(eq=False)
class Store:
    """Result number `result` of the kernel, stored at every index of the loops in `domain`."""

    ref: Ref
    result: int
    element: ir.Type
    strides: tuple[int, ...]
    domain: frozenset[int]


@dataclass(eq=False)
class LoopNest:
    """A loop nest, outermost loop first, and the operations in it. `nodes` are in order of use."""

    extents: list[int]
    nodes: list[Node]
    stores: list[Store]

    @functools.cached_property
    def folds(self) -> list[Reduction]:
        """The reductions, in order."""
        return [n for n in self.nodes if isinstance(n, Reduction)]

    @functools.cached_property
    def maps(self) -> list[Map]:
        """All nodes with a body, in order."""
        return [n for n in self.nodes if isinstance(n, Map)]

    @functools.cached_property
    def loads(self) -> list[Load]:
        """The array elements loaded, each once."""
        return [n for n in self.nodes if isinstance(n, Load)]


@dataclass(frozen=True)
class _Cut:
    """A slice of an input: the start (a number or a scalar argument) and the stride of each dimension."""

    source: ir.Value
    starts: tuple[int | ir.Value, ...]
    steps: tuple[int, ...]


def operands_of(node: Node) -> list[Ref]:
    """Return the use-def edges of a node: its operands."""
    if isinstance(node, Reduction):
        return [*node.operands, *node.starts]
    return node.operands if isinstance(node, Map) else []


def reachable(refs: Sequence[Ref]) -> list[Node]:
    """Return the nodes in the use-def graph of `refs`, each once, operands first."""
    seen: set[int] = set()
    found: list[Node] = []

    def visit(node: Node) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for operand, _ in operands_of(node):
                visit(operand)
            found.append(node)

    for node, _ in refs:
        visit(node)
    return found


class KernelLike(Protocol):
    """A kernel, or a part of one."""

    ops: list[ir.Operation]
    results: list[ir.Value]


def analyze_nest(kernel: KernelLike, merge: bool = True, parts: bool = False) -> LoopNest | None:
    """Return the loop nest of `kernel`, or None.

    Args:
        kernel: operations and results.
        merge: collapse adjacent loops that nothing distinguishes.
        parts: complex numbers may be mapped, as `cg.ComplexVector` in lanes.
    """
    try:
        nest = _Analysis(kernel, parts).nest()
    except _NoNest as found:
        if found.args:
            refuse(*found.args)
        return None
    return _merged(nest) if merge else nest


class _NoNest(Exception):
    """The kernel is not of this form; with the refusal to be noted where there is a better one than `NESTS`."""


@dataclass
class _Made:
    """The def of a tensor inside the kernel; `axes` are loop numbers, None for extent 1 or a fill."""

    operation: ir.Operation | None
    number: int
    axes: list[int | None]


class _Analysis:
    """Unify the loops of all operations that use-def chains connect (union-find), then build the nodes."""

    def __init__(self, kernel: KernelLike, parts: bool) -> None:
        self._kernel, self._parts = kernel, parts
        self._parent: list[int] = []
        self._extent: list[int] = []
        self._loops: dict[ir.Operation, list[int | None]] = {}
        self._read: dict[ir.Operation, Loops] = {}
        self._tensors: dict[ir.Value, _Made] = {}
        self._fills: dict[ir.Value, ir.Value | ir.Attribute] = {}
        self._cuts: dict[ir.Value, _Cut] = {}
        self._nodes: dict[object, Node] = {}
        self._position: dict[int, int] = {}
        self._extents: list[int] = []

    def nest(self) -> LoopNest:
        generics = [op for op in self._kernel.ops if self._enter(op)]
        order = self._order(generics)
        self._position = {self._find(loop): d for d, loop in enumerate(order)}
        extents = self._extents = [self._extent[self._find(loop)] for loop in order]
        stores = [self._store(i, value, order) for i, value in enumerate(self._kernel.results)]
        nodes = reachable([store.ref for store in stores])
        if not extents:  # a single element: one loop of trip count 1 spares the emitters a special case
            extents = [1]
            _add_loop(nodes, stores)
        return LoopNest(extents, nodes, stores)

    # --- loops ------------------------------------------------------------------------------------------

    def _enter(self, op: ir.Operation) -> bool:
        """Record the results of an operation; return True for a linalg.generic."""
        if op.name == "linalg.generic":
            self._enter_generic(op)
            return True
        if op.name in ("linalg.fill", "tensor.splat"):
            self._fills[op.results[0]] = op.operands[0]
        elif op.name == "arith.constant":
            attribute = op.attributes["value"]
            if isinstance(op.results[0].type, ir.RankedTensorType):
                if not (isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat):
                    raise _NoNest
                self._fills[op.results[0]] = attribute.get_splat_value()
        elif op.name == "tensor.extract_slice":
            self._cuts[op.results[0]] = _cut_of(op)
        elif op.name == "tensor.insert_slice":
            raise _NoNest(BLOCKS)
        elif op.name != "tensor.empty":
            raise _NoNest
        return False

    def _enter_generic(self, op: ir.Operation) -> None:
        known = self._read[op] = loops_of(op)
        maps, loops = known.maps, self._new_loops(known.extents)
        if len({self._find(loop) for loop in loops if loop is not None}) != sum(x is not None for x in loops):
            raise _NoNest
        self._loops[op] = loops
        for operand, map_ in zip(op.operands, maps, strict=True):
            made = self._tensors.get(operand)
            if made is not None:
                self._connect(made, map_, loops)
        count = len(op.results)
        for number, (result, map_) in enumerate(zip(op.results, maps[len(maps) - count :], strict=True)):
            shape = result.type.shape
            axes = [None if n == 1 else loops[_dim(e)] for e, n in zip(map_.results, shape, strict=True)]
            self._tensors[result] = _Made(op, number, axes)
        block = op.regions[0].blocks[0]
        is_complex = any(isinstance(a.type, ir.ComplexType) for a in block.arguments)
        if (is_complex and not self._parts) or not can_clone(block, indices=True, scalars=True, parts=self._parts):
            raise _NoNest(_obstacle(block))

    def _new_loops(self, extents: Sequence[int]) -> list[int | None]:
        loops: list[int | None] = []
        for extent in extents:
            loops.append(None if extent == 1 else len(self._parent))
            if extent != 1:
                self._parent.append(len(self._parent))
                self._extent.append(extent)
        return loops

    def _connect(self, made: _Made, map_: ir.AffineMap, loops: list[int | None]) -> None:
        """Unify a producer's axes with the loops of its consumer, which uses each element where it is computed."""
        for axis, expr in zip(made.axes, map_.results, strict=True):
            if axis is None:
                continue
            loop = loops[expr.position] if isinstance(expr, ir.AffineDimExpr) else None
            if loop is None:
                raise _NoNest
            self._parent[self._find(loop)] = self._find(axis)

    def _find(self, loop: int) -> int:
        while self._parent[loop] != loop:
            loop = self._parent[loop]
        return loop

    def _order(self, generics: list[ir.Operation]) -> list[int]:
        """Return the loops of the widest operation; those of all others must be among them."""
        if not generics:
            order = self._loops_like(self._kernel.results[0].type.shape)
        else:
            widest = max(generics, key=lambda op: len(self._classes(op)))
            order = self._classes(widest)
        for op in generics:
            self._align(self._classes(op), order)
        if len(set(order)) != len(order):
            raise _NoNest
        return [self._find(loop) for loop in order]

    def _loops_like(self, shape: Sequence[int]) -> list[int]:
        first = len(self._parent)
        self._extent += [extent for extent in shape if extent != 1]
        self._parent += range(first, len(self._extent))
        return list(range(first, len(self._extent)))

    def _classes(self, op: ir.Operation) -> list[int]:
        found = [self._find(loop) for loop in self._loops[op] if loop is not None]
        if len(set(found)) != len(found):
            raise _NoNest
        return found

    def _align(self, found: list[int], order: list[int]) -> None:
        """Unify unconnected loops with ones of the nest, by extent and in order; any of the same extent is right."""
        known = [self._find(loop) for loop in order]
        taken = {known.index(loop) for loop in found if loop in known}
        last = -1
        for loop in found:
            if loop in known:
                last = known.index(loop)
                continue
            free = (
                p
                for p, other in enumerate(known)
                if p > last and p not in taken and self._extent[other] == self._extent[loop]
            )
            last = next(free, -1)
            if last < 0:
                raise _NoNest
            taken.add(last)
            self._parent[loop] = known[last]

    # --- nodes ------------------------------------------------------------------------------------------

    def _dim_of(self, loop: int | None) -> int | None:
        return None if loop is None else self._position[self._find(loop)]

    def _node(self, op: ir.Operation) -> Map:
        found = self._nodes.get(op)
        if found is None:
            found = self._nodes[op] = self._make(op)
        assert isinstance(found, Map)
        return found

    def _make(self, op: ir.Operation) -> Map:
        loops, known, count = [self._dim_of(loop) for loop in self._loops[op]], self._read[op], len(op.results)
        block = op.regions[0].blocks[0]
        refs = [
            (self._unread(v), 0) if _is_unread(op, i) else self._ref(v, m, loops)
            for i, (v, m) in enumerate(zip(op.operands, known.maps, strict=True))
        ]
        reduced = frozenset(d for d, r in zip(loops, known.reduced, strict=True) if r and d is not None)
        domain = frozenset(d for d in loops if d is not None)
        indices = {d: loops[d] for d in _indexed(block)}
        if any(d is not None and self._extents[d] >= 1 << 31 for d in indices.values()):
            raise _NoNest  # indices are counted in 32 bits
        deps = frozenset(d for d in indices.values() if d is not None)
        if not reduced:  # also a reduction over loops of trip count 1: its initial value is one more operand
            return Map(block, refs, domain, indices, deps | _deps(refs))
        operands, starts = refs[: len(refs) - count], refs[len(refs) - count :]
        deps = (deps | _deps(operands)) - reduced | _deps(starts)
        return Reduction(block, operands, domain, indices, deps, reduced, starts)

    def _unread(self, value: ir.Value) -> Node:
        """Return a placeholder for an array whose elements are never used."""
        element = value.type.element_type
        element = element.element_type if isinstance(element, ir.ComplexType) else element
        zero = ir.FloatAttr.get(element, 0.0) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, 0)
        return self._constant(zero, element)

    def _ref(self, value: ir.Value, map_: ir.AffineMap, loops: Sequence[int | None]) -> Ref:
        made = self._tensors.get(value)
        if made is not None:
            assert made.operation is not None
            return self._node(made.operation), made.number
        if not isinstance(value.type, ir.RankedTensorType):
            return self._scalar(value), 0
        if value in self._fills:
            fill = self._fills[value]
            if isinstance(fill, ir.Value):
                return self._scalar(fill), 0
            return self._constant(fill, value.type.element_type), 0
        return self._load(value, map_, loops), 0

    def _scalar(self, value: ir.Value) -> Node:
        if isinstance(value.owner, ir.Block):
            return self._known(("argument", value.arg_number), Scalar(value.type, argument=value.arg_number))
        attribute = constant_attribute(value)
        if attribute is None:
            raise _NoNest
        return self._constant(attribute, value.type)

    def _constant(self, attribute: ir.Attribute, type_: ir.Type) -> Node:
        return self._known(("constant", attribute), Scalar(type_, attribute=attribute))

    def _load(self, value: ir.Value, map_: ir.AffineMap, loops: Sequence[int | None]) -> Node:
        rank = len(map_.results)
        cut = self._cuts.get(value) or _Cut(value, (0,) * rank, (1,) * rank)
        value = cut.source
        if isinstance(value.type.element_type, ir.ComplexType) and not self._parts:
            raise _NoNest(COMPLEX)
        if not isinstance(value.owner, ir.Block):
            raise _NoNest
        offset, moves, strides = 0, [], [0] * len(self._position)
        for expr, whole, start, step in zip(
            map_.results, row_major(value.type.shape), cut.starts, cut.steps, strict=True
        ):
            constant, factors = _linear(expr)
            offset += constant * whole * step
            if isinstance(start, ir.Value):
                moves.append((start.arg_number, whole))
            else:
                offset += start * whole
            for d, factor in factors.items():
                dim = loops[d]
                if dim is not None:
                    strides[dim] += factor * whole * step
        key = ("load", value.arg_number, offset, tuple(strides), tuple(moves))
        return self._known(key, Load(value.arg_number, value.type.element_type, offset, tuple(strides), tuple(moves)))

    def _known(self, key: object, node: Node) -> Node:
        return self._nodes.setdefault(key, node)

    def _store(self, number: int, value: ir.Value, order: list[int]) -> Store:
        shape = list(value.type.shape)
        made = self._tensors.get(value)
        if made is None:
            axes = self._axes_by_position(shape, order)
            loops = [self._dim_of(axis) for axis in axes]
            ref = self._ref(value, ir.AffineMap.get_identity(len(shape)), loops)
        else:
            axes = made.axes
            loops = [self._dim_of(axis) for axis in axes]
            assert made.operation is not None
            ref = self._node(made.operation), made.number
        strides = [0] * len(order)
        for dim, stride in zip(loops, row_major(shape), strict=True):
            if dim is not None:
                strides[dim] = stride
        domain = frozenset(d for d in loops if d is not None)
        return Store(ref, number, value.type.element_type, tuple(strides), domain)

    def _axes_by_position(self, shape: list[int], order: list[int]) -> list[int | None]:
        """Return the axes of a result that no operation defines: its dimensions are all the loops, in order."""
        if [n for n in shape if n != 1] != [self._extent[self._find(x)] for x in order]:
            raise _NoNest
        left = iter(order)
        return [None if n == 1 else next(left) for n in shape]


# --- linalg ---------------------------------------------------------------------------------------------


def _obstacle(block: ir.Block) -> Refusal:
    """Return why a body cannot be inlined on vectors."""
    inside = [op for view in block.operations for op in walk(view.operation)]
    if any(op.name.startswith("scf.") for op in inside):
        return BRANCHES
    return INDICES if any(op.name == "tensor.extract" for op in inside) else COMPLEX


def _dim(expr: ir.AffineExpr) -> int:
    if not isinstance(expr, ir.AffineDimExpr):
        raise _NoNest
    position: int = expr.position
    return position


def _cut_of(op: ir.Operation) -> _Cut:
    source, starts = op.operands[0], slice_starts(op)
    if starts is None or source.type.rank != op.results[0].type.rank:
        raise _NoNest
    return _Cut(source, tuple(starts), tuple(ir.DenseI64ArrayAttr(op.attributes["static_strides"])))


def slice_starts(op: ir.Operation) -> list[int | ir.Value] | None:
    """Return the starts of a slice, numbers or scalar arguments of the kernel; None for starts of other kinds."""
    *_, moving, sizes, strides = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    if sizes or strides:
        return None
    scalars = iter(list(op.operands)[len(op.operands) - moving :])
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    starts: list[int | ir.Value] = []
    for number in ir.DenseI64ArrayAttr(op.attributes["static_offsets"]):
        start = next(scalars) if number == dynamic else number
        if isinstance(start, ir.Value) and not isinstance(start.owner, ir.Block):
            start = constant_of(start)
            if start is None:
                return None
        starts.append(start)
    return starts


def _is_unread(op: ir.Operation, number: int) -> bool:
    """Return whether a body has no use of an array: an output's old elements, or a mere carrier of extents."""
    argument = op.regions[0].blocks[0].arguments[number]
    is_array = isinstance(op.operands[number].type, ir.RankedTensorType)
    return is_array and not any(True for _ in argument.uses)


def _indexed(block: ir.Block) -> list[int]:
    """Return the dimensions whose `linalg.index` a body uses."""
    indices = [op.operation for op in block.operations if op.operation.name == "linalg.index"]
    return [ir.IntegerAttr(op.attributes["dim"]).value for op in indices]


def _deps(refs: Sequence[Ref]) -> frozenset[int]:
    return frozenset(d for node, _ in refs for d in node.deps)


def _linear(expr: ir.AffineExpr) -> tuple[int, dict[int, int]]:
    """Decompose an affine expression into a constant and a factor for each dimension."""
    if isinstance(expr, ir.AffineDimExpr):
        return 0, {expr.position: 1}
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value, {}
    if isinstance(expr, ir.AffineAddExpr):
        (c, a), (d, b) = _linear(expr.lhs), _linear(expr.rhs)
        return c + d, {k: a.get(k, 0) + b.get(k, 0) for k in a.keys() | b.keys()}
    if isinstance(expr, ir.AffineMulExpr):
        (c, a), (d, b) = _linear(expr.lhs), _linear(expr.rhs)
        if not b:
            return c * d, {k: v * d for k, v in a.items()}
        if not a:
            return c * d, {k: v * c for k, v in b.items()}
    raise _NoNest


# --- collapsing adjacent loops ----------------------------------------------------------------------------


def _merged(nest: LoopNest) -> LoopNest:
    """Collapse every two adjacent loops that no array and no operation distinguishes."""
    groups = [[0]]
    for d in range(1, len(nest.extents)):
        if _inseparable(nest, d - 1, d):
            groups[-1].append(d)
        else:
            groups.append([d])
    if len(groups) < len(nest.extents):
        collapse_loops(nest, groups)
    return nest


def collapse_loops(nest: LoopNest, groups: Sequence[Sequence[int]]) -> None:
    """Collapse each group of adjacent loops into one; arrays keep the stride of its last one."""
    place = {d: g for g, group in enumerate(groups) for d in group}

    def renamed(dims: frozenset[int]) -> frozenset[int]:
        return frozenset(place[d] for d in dims)

    for node in nest.nodes:
        if isinstance(node, Load):
            node.strides = tuple(node.strides[group[-1]] for group in groups)
        elif isinstance(node, Map):
            node.domain, node.deps = renamed(node.domain), renamed(node.deps)
            node.indices = {k: None if d is None else place[d] for k, d in node.indices.items()}
            if isinstance(node, Reduction):
                node.reduced = renamed(node.reduced)
    for store in nest.stores:
        store.strides = tuple(store.strides[group[-1]] for group in groups)
        store.domain = renamed(store.domain)
    nest.extents = [prod(nest.extents[d] for d in group) for group in groups]


def _inseparable(nest: LoopNest, outer: int, inner: int) -> bool:
    def together(dims: frozenset[int]) -> bool:
        return (outer in dims) == (inner in dims)

    def lie_in_line(strides: Sequence[int]) -> bool:
        return strides[outer] == strides[inner] * nest.extents[inner]

    for node in nest.nodes:
        if isinstance(node, Load) and not lie_in_line(node.strides):
            return False
        if isinstance(node, Map):
            if not together(node.domain) or not {outer, inner}.isdisjoint(node.indices.values()):
                return False
            if isinstance(node, Reduction) and not together(node.reduced):
                return False
    return all(together(store.domain) and lie_in_line(store.strides) for store in nest.stores)


def _add_loop(nodes: Sequence[Node], stores: Sequence[Store]) -> None:
    for node in nodes:
        if isinstance(node, Load):
            node.strides = (0,)
        elif isinstance(node, Map):
            node.domain = frozenset((0,))
    for store in stores:
        store.strides, store.domain = (0,), frozenset((0,))


def in_place(kernel: Kernel, nest: LoopNest) -> tuple[tuple[int, int], ...]:
    """Find results that may overwrite an input in place: every element replaces the one loaded at the same index."""
    pairs = []
    for place in nest.stores:
        for number, value in enumerate(kernel.inputs):
            reads = [node for node in nest.loads if node.buffer == number]
            same = all(node.strides == place.strides and node.stays for node in reads)
            if reads and same and value.type == kernel.results[place.result].type:
                pairs.append((place.result, number))
    return tuple(pairs)
