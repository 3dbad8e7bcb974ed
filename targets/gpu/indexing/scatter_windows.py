"""Window arithmetic and combiner of scatters, shared by all their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.scatter import ScatterConfig, ScatterLoop, ScatterStart, ScatterWindowLoop
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.storage import from_storage
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel, KernelArguments


@dataclass(frozen=True)
class ScatterPlan:
    """The loops of a scatter, and the combiner.

    Attributes:
        distinct: windows are disjoint.
        combiner: of elements of the operands and of the updates.
    """

    outer: tuple[ScatterLoop, ...]
    inner: tuple[ScatterWindowLoop, ...]
    starts: tuple[ScatterStart, ...]
    index_type: ElementType
    distinct: bool
    combiner: ElementCombiner

    @staticmethod
    def of(kernel: Kernel) -> ScatterPlan | None:
        """Return the plan of a kernel; None if its combiner is more than arithmetic."""
        config, combiner = kernel.config(ScatterConfig), ElementCombiner.of(kernel)
        if not combiner.is_scalar:
            return None
        return ScatterPlan(
            config.outer, config.window, config.starts, BY_NAME[config.index_type], config.distinct, combiner
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


class ScatterWindows:
    """Windows' offsets and combined elements, inside one function."""

    def __init__(self, kernel: Kernel, plan: ScatterPlan, arguments: KernelArguments) -> None:
        self._plan = plan
        count = len(kernel.results)
        self.results = arguments.results
        self._indices = arguments.inputs[count]
        self._updates = arguments.inputs[count + 1 : 2 * count + 1]
        self._inputs = arguments.inputs

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

    def update(self, value: ir.Value, given: Value) -> ir.Value:
        """Return a part of the combiner that depends on the updates alone."""
        elements = [*[None] * len(self.results), *self._load_updates(given)]
        return self._plan.combiner.parts([value], elements, self._inputs)[0].ssa

    def combine(self, at: Value, given: Value) -> None:
        """Combine one element of the updates into one of the operands."""
        combiner = self._plan.combiner
        read = combiner.elements_read()
        there = [cg.load(result, at) if number in read else None for number, result in enumerate(self.results)]
        values = combiner.inline([*there, *self._load_updates(given)], self._inputs)
        for value, result in zip(values, self.results, strict=True):
            cg.store(value, result, at)

    def _load_updates(self, given: Value) -> list[Value]:
        return [cg.load(v, given) if isinstance(v.type, ir.MemRefType) else v for v in self._updates]


def in_bounds(number: Value, limit: Value | int) -> Value:
    """Return 0 <= number < limit."""
    return Value(arith.cmpi(arith.CmpIPredicate.ult, number.ssa, cg.index(limit).ssa))
