"""Window arithmetic and combiner of scatters, shared by all their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.lowering.rules.scatter import ScatterConfig, ScatterLoop, ScatterStart, ScatterWindowLoop
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.operations import walk
from stablexla.lowering.support.storage import from_storage
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel, KernelArguments
from stablexla.targets.gpu.threads.scalar_clones import ScalarClones, element_loads


@dataclass(frozen=True)
class ScatterPlan:
    """The loops of a scatter, and the combiner.

    Attributes:
        distinct: windows are disjoint.
        stored: the combined elements of each result, in the function on tensors.
        there, given: loads of operands' and updates' elements in it, with the number of the array.
    """

    outer: tuple[ScatterLoop, ...]
    inner: tuple[ScatterWindowLoop, ...]
    starts: tuple[ScatterStart, ...]
    index_type: ElementType
    distinct: bool
    stored: tuple[ir.Value, ...]
    there: tuple[tuple[ir.Value, int], ...]
    given: tuple[tuple[ir.Value, int], ...]

    @staticmethod
    def of(kernel: Kernel) -> ScatterPlan | None:
        """Match the plan of a kernel; None if its combiner is more than arithmetic."""
        config, read = kernel.config(ScatterConfig), _computation(kernel)
        if read is None:
            return None
        return ScatterPlan(
            config.outer, config.window, config.starts, BY_NAME[config.index_type], config.distinct, *read
        )

    @property
    def count(self) -> int:
        """Number of windows."""
        return prod(axis.extent for axis in self.outer)

    @property
    def width(self) -> int:
        """Elements of a window."""
        return prod(axis.extent for axis in self.inner)

    @property
    def partly(self) -> bool:
        """Whether windows may be partly out of bounds."""
        return any(axis.moved is not None for axis in self.inner)


_Reads = tuple[tuple[ir.Value, int], ...]


def _computation(kernel: Kernel) -> tuple[tuple[ir.Value, ...], _Reads, _Reads] | None:
    count = len(kernel.results)
    inserts = [op for op in walk(kernel.func.operation) if op.name == "tensor.insert"][:count]
    stored = tuple(op.operands[0] for op in inserts)
    leaves = element_loads(stored)
    if leaves is None or len(inserts) != count:
        return None
    there: list[tuple[ir.Value, int]] = []
    given: list[tuple[ir.Value, int]] = []
    for read in leaves:
        number = _array_of(kernel, read.operands[0])
        if number is None:
            return None
        (there if number < count else given).append((read.results[0], number if number < count else number - count - 1))
    return stored, tuple(there), tuple(given)


def _array_of(kernel: Kernel, source: ir.Value) -> int | None:
    """Return the number of an array among the kernel's inputs; loop-carried ones have that of their initial value."""
    if source in kernel.inputs:
        return kernel.inputs.index(source)
    if isinstance(source.owner, ir.Block) and source.owner.owner.operation.name == "scf.for":
        return int(ir.BlockArgument(source).arg_number) - 1
    return None


class ScatterWindows:
    """Windows' offsets and combined elements, inside one function."""

    def __init__(self, kernel: Kernel, plan: ScatterPlan, arguments: KernelArguments) -> None:
        self._plan = plan
        count = len(kernel.results)
        self.results = arguments.results
        self._indices = arguments.inputs[count]
        self._updates = arguments.inputs[count + 1 : 2 * count + 1]
        pairs = zip(kernel.inputs, arguments.inputs, strict=True)
        self._scalars = {v: made.ssa for v, made in pairs if not isinstance(v.type, ir.RankedTensorType)}

    def split(self, window: Value) -> list[Value]:
        """Delinearize a window's number over the loops over windows."""
        return cg.split_index(window, [axis.extent for axis in self._plan.outer]) if self._plan.outer else []

    def starts(self, at: Sequence[Value]) -> list[Value]:
        """Load a window's index vector; out-of-bounds components become large or negative."""
        vector = cg.total([i * axis.index_step for i, axis in zip(at, self._plan.outer, strict=True)])
        return [self._start(vector + start.offset, start) for start in self._plan.starts]

    def _start(self, place: Value, start: ScatterStart) -> Value:
        type_ = self._plan.index_type
        stored = cg.load(self._indices, place) if isinstance(self._indices.type, ir.MemRefType) else self._indices
        number = from_storage(stored.ssa, type_)
        if type_.is_unsigned and type_.bits == 64:
            number = held_within(number, type_, start.extent)
        return Value(as_index(number, type_))

    def begins_inside(self, starts: Sequence[Value]) -> Value:
        """Return the mask of windows that begin in bounds; with starts that move a window, each element is tested."""
        moved = {axis.moved for axis in self._plan.inner}
        inside = cg.constant(1, ir.IntegerType.get_signless(1))
        for number, (value, start) in enumerate(zip(starts, self._plan.starts, strict=True)):
            if number not in moved:
                inside = inside & in_bounds(value, start.extent)
        return inside

    def first(self, at: Sequence[Value], starts: Sequence[Value]) -> Value:
        """Return the offset of the window's first element in the operand."""
        terms = [i * axis.operand_step for i, axis in zip(at, self._plan.outer, strict=True)]
        return cg.total([*terms, *(value * start.step for value, start in zip(starts, self._plan.starts, strict=True))])

    def given(self, at: Sequence[Value]) -> Value:
        """Return the offset of its first element in the updates."""
        return cg.total([i * axis.update_step for i, axis in zip(at, self._plan.outer, strict=True)])

    def element(self, number: Value) -> tuple[Value, Value, list[Value]]:
        """Return an element's distance from the window's first, in operand and updates, and its coordinates."""
        inner = self._plan.inner
        places = cg.split_index(number, [axis.extent for axis in inner]) if inner else []
        there = cg.total([i * axis.operand_step for i, axis in zip(places, inner, strict=True)])
        return there, cg.total([i * axis.update_step for i, axis in zip(places, inner, strict=True)]), places

    def element_inside(self, starts: Sequence[Value], places: Sequence[Value]) -> Value:
        """Return the mask of elements in bounds, along the dimensions in which windows may be partly outside."""
        inside = cg.constant(1, ir.IntegerType.get_signless(1))
        for axis, place in zip(self._plan.inner, places, strict=True):
            if axis.moved is not None:
                inside = inside & in_bounds(starts[axis.moved] + place, self._plan.starts[axis.moved].extent)
        return inside

    def values(self, at: Value | None, given: Value) -> list[ir.Value]:
        """Return the combined elements; without an offset, those that do not depend on the operand."""
        known = dict(self._scalars)
        if at is not None:
            known.update({value: cg.load(self.results[number], at).ssa for value, number in self._plan.there})
        known.update({value: cg.load(self._updates[number], given).ssa for value, number in self._plan.given})
        copies = ScalarClones(known)
        return [copies.of(value) for value in self._plan.stored]

    def update(self, value: ir.Value, given: Value) -> ir.Value:
        """Return a part of the combiner that depends on the updates alone."""
        known = {v: cg.load(self._updates[number], given).ssa for v, number in self._plan.given}
        return ScalarClones({**self._scalars, **known}).of(value)

    def combine(self, at: Value, given: Value) -> None:
        """Combine one element of the updates into one of the operands."""
        for value, result in zip(self.values(at, given), self.results, strict=True):
            cg.store(Value(value), result, at)


def in_bounds(number: Value, limit: Value | int) -> Value:
    """Return 0 <= number < limit."""
    return Value(arith.cmpi(arith.CmpIPredicate.ult, number.ssa, cg.index(limit).ssa))
