"""Match a sort in the kernel's function: rows of several arrays, and the comparator."""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

from stablexla.lowering.kernels.sort.whole_sort import SortRowsConfig
from stablexla.lowering.support.operations import defining, walk
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel, KernelArguments
from stablexla.targets.gpu.threads.scalar_clones import ScalarClones, element_loads

Values = list[Value]
EACH = 8
"""Neighbouring elements of a thread."""
MOST_SLOTS, FEWEST_SLOTS = 2048, 256
SHARED_BYTES = 40 << 10
NUMBERS_BYTES = 96
"""Shared memory in front of the elements: two cuts, and from byte 16 on a number of each warp."""


@dataclass(frozen=True)
class SortPlan:
    """A sort of the rows of some arrays.

    Attributes:
        first: elements of each row that are wanted (top-k).
        by_keys: the comparator is a total order, so it cannot be inconsistent.
        elements: types of the arrays' elements.
        condition: the comparator's result in the function on tensors; if `negated`, its negation.
        these, those: the comparator's left and right arguments there, with the number of the array.
    """

    kernel: Kernel
    rows: int
    length: int
    first: int
    by_keys: bool
    elements: tuple[ir.Type, ...]
    condition: ir.Value
    negated: bool
    these: tuple[tuple[ir.Value, int], ...]
    those: tuple[tuple[ir.Value, int], ...]

    @staticmethod
    def of(kernel: Kernel) -> SortPlan | None:
        """Match the plan of a kernel; None if its comparator is more than arithmetic, branches and loops on numbers."""
        config = kernel.config(SortRowsConfig)
        elements = tuple(v.type.element_type for v in kernel.results)
        found = _comparison(kernel)
        if found is None:
            return None
        return SortPlan(kernel, config.rows, config.length, config.first, config.by_keys, elements, *found)

    @property
    def slots(self) -> int:
        """Elements that a block sorts in shared memory."""
        slots = MOST_SLOTS
        while slots > FEWEST_SLOTS and self.shared(slots) > SHARED_BYTES:
            slots //= 2
        return slots

    def shared(self, slots: int) -> int:
        """Return the bytes of shared memory for so many elements, and the numbers in front of them."""
        return sum(slots * _bytes(e) for e in self.elements) + NUMBERS_BYTES


def _bytes(element: ir.Type) -> int:
    return max(1, cg.bits_of(element) // 8)


_Sides = tuple[tuple[ir.Value, int], ...]


def _comparison(kernel: Kernel) -> tuple[ir.Value, bool, _Sides, _Sides] | None:
    """Match the exchange of neighbours: its condition, whether negated, and both sides' values."""
    count = len(kernel.results)
    writes = [op for op in walk(kernel.func.operation) if op.name == "tensor.insert" and _is_chosen(op.operands[0])]
    if len(writes) != 2 * count:
        return None
    arrays, at = [op.operands[1] for op in writes[:count]], writes[0].operands[2]
    sides: dict[bool, list[tuple[ir.Value, int]]] = {True: [], False: []}
    for read in walk(kernel.func.operation):
        if read.name == "tensor.extract" and read.operands[0] in arrays:
            sides[read.operands[1] == at].append((read.results[0], arrays.index(read.operands[0])))
    chosen = defining(writes[0].operands[0])
    if chosen is None or any(len(side) != count for side in sides.values()):
        return None
    condition, first = chosen.operands[0], chosen.operands[1]
    given = {value for side in sides.values() for value, _ in side}
    if element_loads([condition], given) is None:
        return None
    negated = any(value == first for value, _ in sides[True])
    return condition, negated, tuple(sides[True]), tuple(sides[False])


def _is_chosen(value: ir.Value) -> bool:
    maker = defining(value)
    return maker is not None and maker.name == "arith.select"


class SortElements:
    """Elements in one function: loads, stores and comparison."""

    def __init__(self, plan: SortPlan, arguments: KernelArguments) -> None:
        self._plan = plan
        count = len(plan.elements)
        self.sources = arguments.inputs[:count]
        self.results = arguments.results
        self.scratch = arguments.scratch
        scalars = (v.ssa for v in arguments.inputs[count:])
        self._scalars = dict(zip(plan.kernel.inputs[count:], scalars, strict=True))

    def less(self, these: Values, those: Values) -> Value:
        """Return whether these come before those."""
        known = dict(self._scalars)
        for side, values in ((self._plan.these, these), (self._plan.those, those)):
            known.update({v: values[number].ssa for v, number in side})
        answer = Value(ScalarClones(known).of(self._plan.condition))
        return answer ^ cg.constant(1, answer.type) if self._plan.negated else answer
