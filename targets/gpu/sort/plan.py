"""Sorts on a GPU: the plan, rows of several arrays in memory, and the comparator on them."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.whole_sort import SortRowsConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel, KernelArguments

Values = list[Value]
EACH = 8
"""Neighbouring elements of a thread."""
MOST_SLOTS = Gate("gpu-sort.most-slots", 2048, eager=256)
FEWEST_SLOTS = 256
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
        comparator: whether elements come before others.
    """

    kernel: Kernel
    rows: int
    length: int
    first: int
    by_keys: bool
    elements: tuple[ir.Type, ...]
    comparator: ElementCombiner

    @staticmethod
    def of(kernel: Kernel) -> SortPlan | None:
        """Return the plan of a kernel; None if its comparator is more than arithmetic and branches on numbers."""
        config = kernel.config(SortRowsConfig)
        elements = tuple(v.type.element_type for v in kernel.results)
        comparator = ElementCombiner.of(kernel)
        if not comparator.is_scalar:
            return None
        return SortPlan(kernel, config.rows, config.length, config.first, config.by_keys, elements, comparator)

    @property
    def slots(self) -> int:
        """Elements that a block sorts in shared memory."""
        slots = 1 << max(FEWEST_SLOTS, MOST_SLOTS()).bit_length() - 1
        while slots > FEWEST_SLOTS and self.shared(slots) > SHARED_BYTES:
            slots //= 2
        return slots

    def shared(self, slots: int) -> int:
        """Return the bytes of shared memory for so many elements, and the numbers in front of them."""
        return sum(slots * max(1, cg.bits_of(e) // 8) for e in self.elements) + NUMBERS_BYTES


class SortElements:
    """Elements in one function: loads, stores and comparison."""

    def __init__(self, plan: SortPlan, arguments: KernelArguments) -> None:
        self._plan = plan
        count = len(plan.elements)
        self.sources = arguments.inputs[:count]
        self.results = arguments.results
        self.scratch = arguments.scratch
        self._inputs = arguments.inputs

    def less(self, these: Values, those: Values) -> Value:
        """Return whether these come before those."""
        return self._plan.comparator.inline([*these, *those], self._inputs)[0]
