"""Split a function on buffers into kernels (loop fission): parallel loops become threads, the rest one-thread kernels.

Consecutive launches are ordered and see each other's stores, so that kernels need no barrier of the whole grid. Values
defined in one kernel and used in a later one go through a buffer of one element.
"""

from __future__ import annotations

from dataclasses import field
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import captured, clone_with, constant_of, defining
from stablexla.targets.gpu.general.vectorized_copies import copy_lanes, write_vectorized
from stablexla.targets.gpu.threads import ALIGNMENT, Launch, constant, delinearize, grid_stride_loop, in_first_thread

_PURE = ("arith.", "math.", "complex.", "affine.apply", "index.", "ub.")
_VIEWS = frozenset(
    f"memref.{name}"
    for name in ("reinterpret_cast", "subview", "cast", "collapse_shape", "expand_shape", "view", "dim", "alloca")
)


@dataclass
class ParallelRange:
    """A loop nest without loop-carried dependences.

    Attributes:
        extents: trip count of each loop.
        starts, steps: lower bound and step of each induction variable.
    """

    extents: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass
class KernelPart:
    """Body of one kernel: a parallel loop nest, or operations that one thread runs."""

    ops: list[ir.Operation]
    range: ParallelRange | None
    kept: dict[ir.Value, int] = field(default_factory=dict)


def ranges_of(function: ir.Operation, independent: bool) -> dict[ir.Operation, ParallelRange]:
    """Return the outermost loops of a function whose iterations are independent.

    Args:
        independent: this is known of the one outermost `scf.for`, too.
    """
    *ops, _ = (view.operation for view in function.regions[0].blocks[0].operations)
    loops = [op for op in ops if op.name == "scf.for" and not len(op.results)]
    single = loops if independent and len(loops) == 1 else []
    found = {op: range_of(op) for op in ops if op.name == "scf.parallel" or op in single}
    return {op: range_ for op, range_ in found.items() if range_ is not None}


def parts_of(function: ir.Operation, ranges: dict[ir.Operation, ParallelRange]) -> list[KernelPart]:
    """Partition a function's only block into parts, in order; each of the loops in `ranges` is one."""
    *ops, _ = (view.operation for view in function.regions[0].blocks[0].operations)
    parts: list[KernelPart] = []
    for op in ops:
        if is_rematerializable(op):
            continue
        if op in ranges:
            parts.append(KernelPart([op], ranges[op]))
        elif parts and parts[-1].range is None:
            parts[-1].ops.append(op)
        else:
            parts.append(KernelPart([op], None))
    return parts if all(_can_be_cut(v) for part in parts for op in part.ops for v in op.results) else _whole(parts)


def _can_be_cut(result: ir.Value) -> bool:
    """Return whether a result of an operation that runs once may be passed on through memory."""
    return not isinstance(result.type, ir.MemRefType)


def _whole(parts: list[KernelPart]) -> list[KernelPart]:
    return [KernelPart([op for part in parts for op in part.ops], None)]


def is_rematerializable(op: ir.Operation) -> bool:
    """Return whether an operation is cheap and pure, so that kernels rematerialize it."""
    return op.name in _VIEWS or (op.name.startswith(_PURE) and not len(op.regions))


def range_of(op: ir.Operation) -> ParallelRange | None:
    """Return the range of a loop or a parallel nest; None if trip counts are not constant, or the nest has results."""
    if len(op.results):
        return None
    numbers = [number for v in op.operands if (number := constant_of(v)) is not None]
    if len(numbers) != len(op.operands):
        return None
    n = len(numbers) // 3
    low, high, step = numbers[:n], numbers[n : 2 * n], numbers[2 * n :]
    extents = tuple(max(0, -(-(end - start) // by)) for start, end, by in zip(low, high, step, strict=True))
    return ParallelRange(extents, tuple(low), tuple(step))


class KernelSplitter:
    """Outline the parts of one function as functions of their own, before it."""

    def __init__(self, function: ir.Operation, parts: list[KernelPart]) -> None:
        self._function = function
        self._block = function.regions[0].blocks[0]
        self._parts = parts
        self._spilled: dict[ir.Value, int] = {}
        self.spills: list[tuple[str, int]] = []
        for number, part in enumerate(parts):
            for value in self._slice(part)[1]:
                self._spill(value, parts[:number])

    def _inline(self, part: KernelPart) -> set[ir.Operation]:
        """Return operations that could be rematerialized, but depend on the part's own operations."""
        own = set(part.ops)
        inline: set[ir.Operation] = set()
        if part.range is None:
            for view in self._block.operations:
                op = view.operation
                if is_rematerializable(op) and any(defining(v) in own or defining(v) in inline for v in op.operands):
                    inline.add(op)
        return inline

    def _slice(self, part: KernelPart) -> tuple[list[ir.Operation], list[ir.Value]]:
        """Return the operations to rematerialize before a part, in order, and its live-ins from earlier parts."""
        own, setup, outside = {*part.ops, *self._inline(part)}, list[ir.Operation](), list[ir.Value]()

        def take(value: ir.Value) -> None:
            maker = defining(value)
            if maker is None or maker in own or maker in setup:
                return
            if not is_rematerializable(maker):
                if value not in outside:
                    outside.append(value)
                return
            for operand in maker.operands:
                take(operand)
            setup.append(maker)

        for op in own:
            for value in captured(op):
                if value.owner == self._block or defining(value) is not None:
                    take(value)
        order = {view.operation: n for n, view in enumerate(self._block.operations)}
        return sorted(setup, key=lambda op: order[op]), outside

    def _spill(self, value: ir.Value, before: list[KernelPart]) -> None:
        if value in self._spilled:
            return
        number = self._spilled[value] = len(self.spills)
        maker = defining(value)
        next(part for part in before if maker in part.ops).kept[value] = number
        type_ = "i64" if isinstance(value.type, ir.IndexType) else "i8" if str(value.type) == "i1" else str(value.type)
        self.spills.append((type_, 1))

    def write(self, name: str) -> list[tuple[str, int]]:
        """Emit the functions; returns their names in order, each with its number of items."""
        *types, low, high = (a.type for a in self._block.arguments)
        spills = [ir.MemRefType.get([n], ir.Type.parse(t)) for t, n in self.spills]
        made = []
        for number, part in enumerate(self._parts):
            label = name if len(self._parts) == 1 else f"{name}_{number}"
            items = 1 if part.range is None else prod(part.range.extents) // _lanes(part.ops[0], part.range)
            with ir.InsertionPoint(self._function):
                type_ = ir.FunctionType.get([*types, *spills, low, high], [])
                function = func.FuncOp(label, type_, visibility="private")
            Launch.for_items(items).write(function.operation)
            _copy_argument_attributes(self._function, function.operation)
            self._fill(function, part)
            made.append((label, items))
        return made

    def _fill(self, function: func.FuncOp, part: KernelPart) -> None:
        arguments = list(function.add_entry_block().arguments)
        places = arguments[len(self._block.arguments) - 2 : -2]
        mapping: dict[ir.Value, ir.Value] = dict(zip(list(self._block.arguments)[:-2], arguments, strict=False))
        setup, outside = self._slice(part)
        with ir.InsertionPoint(function.entry_block):
            for value in outside:
                mapping[value] = _restored(places[self._spilled[value]], value.type)
            for op in setup:
                clone_with(op, mapping)
            if part.range is None:
                in_first_thread(lambda: self._sequence(part, mapping, places))
            else:
                _map(part.ops[0], part.range, mapping)
            func.ReturnOp([])

    def _sequence(self, part: KernelPart, mapping: dict[ir.Value, ir.Value], places: list[ir.Value]) -> None:
        here = {*part.ops, *self._inline(part)}
        for view in self._block.operations:
            op = view.operation
            if op in here:
                clone_with(op, mapping)
                for result in op.results:
                    if result in part.kept:
                        _keep(mapping[result], places[part.kept[result]])


def _copy_argument_attributes(source: ir.Operation, target: ir.Operation) -> None:
    """Keep buffers' attributes (noalias); the new arguments before the last two are buffers, too."""
    rows = [ir.DictAttr(row) for row in ir.ArrayAttr(source.attributes["arg_attrs"])]
    types = ir.FunctionType(ir.TypeAttr(target.attributes["function_type"]).value).inputs
    apart = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    aligned = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    every = [*rows[:-2], *[apart] * (len(types) - len(rows)), *rows[-2:]]
    written = [
        ir.DictAttr.get({**{named.name: named.attr for named in row}, "llvm.align": aligned})
        if isinstance(type_, ir.MemRefType)
        else row
        for row, type_ in zip(every, types, strict=True)
    ]
    target.attributes["arg_attrs"] = ir.ArrayAttr.get(written)


def _lanes(op: ir.Operation, range_: ParallelRange) -> int:
    """Return the vector width of a loop nest's iterations."""
    plain = range_.extents and not any(range_.starts) and all(step == 1 for step in range_.steps)
    return copy_lanes(op, range_.extents) if plain else 1


def _map(op: ir.Operation, range_: ParallelRange, mapping: dict[ir.Value, ir.Value]) -> None:
    """Map a parallel loop nest's body onto the thread's own items."""
    block = op.regions[0].blocks[0]
    lanes = _lanes(op, range_)
    extents = (*range_.extents[:-1], range_.extents[-1] // lanes)

    def body(item: ir.Value) -> None:
        indices = delinearize(item, extents)
        if lanes > 1:
            indices[-1] = arith.muli(indices[-1], constant(lanes))
            mapping.update(zip(block.arguments, indices, strict=True))
            write_vectorized(op, mapping, lanes)
            return
        for argument, index, start, step in zip(block.arguments, indices, range_.starts, range_.steps, strict=True):
            scaled = index if step == 1 else arith.muli(index, constant(step))
            mapping[argument] = scaled if start == 0 else arith.addi(scaled, constant(start))
        *ops, _ = (view.operation for view in block.operations)
        for inner in ops:
            clone_with(inner, mapping)

    grid_stride_loop(prod(extents), body)


def _keep(value: ir.Value, place: ir.Value) -> None:
    wanted = ir.MemRefType(place.type).element_type
    if isinstance(value.type, ir.IndexType):
        value = arith.index_cast(wanted, value)
    elif value.type != wanted:
        value = arith.extui(wanted, value)
    memref.store(value, place, [constant(0)])


def _restored(place: ir.Value, type_: ir.Type) -> ir.Value:
    value = memref.load(place, [constant(0)])
    if isinstance(type_, ir.IndexType):
        return arith.index_cast(type_, value)
    return value if value.type == type_ else arith.trunci(type_, value)
