"""Scans on a GPU: the plan, elements in memory, and the combiner on them."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.scan.line_scan import ScanConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.combiners import plus_zero
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel, KernelArguments

Values = list[Value]


@dataclass(frozen=True)
class ScanPlan:
    """A scan of `outer` times `extent` rows of `inner` elements, of several arrays.

    Attributes:
        starts: there are initial values, as inputs behind the arrays.
        associative: parts may be scanned independently.
        returned: numbers of the arrays whose scans are results.
        positive_zeros: zeros are added to the results.
        elements: storage types of the elements.
        totals: types of the carried accumulators: f32 for sums of narrower numbers.
        combiner: of accumulators and elements, where they are of one type.
    """

    kernel: Kernel
    outer: int
    extent: int
    inner: int
    backwards: bool
    starts: bool
    associative: bool
    returned: tuple[int, ...]
    positive_zeros: bool
    elements: tuple[ir.Type, ...]
    totals: tuple[ir.Type, ...]
    combiner: ElementCombiner

    @staticmethod
    def of(kernel: Kernel) -> ScanPlan | None:
        """Return the plan of a kernel; None if its combiner is more than arithmetic."""
        config = kernel.config(ScanConfig)
        arrays = [v for v in kernel.inputs if isinstance(v.type, ir.RankedTensorType)]
        if arrays != kernel.inputs[: len(arrays)]:
            return None
        elements = tuple(v.type.element_type for v in arrays)
        combiner = ElementCombiner.of(kernel)
        if not combiner.is_scalar or not all(_is_plain(e) for e in elements):
            return None
        returned = tuple(range(len(arrays))) if config.returned is None else config.returned
        adds = config.computation == "add"
        narrow = [adds and cg.is_float(e) and cg.bits_of(e) < 32 for e in elements]
        totals = tuple(ir.F32Type.get() if n else e for n, e in zip(narrow, elements, strict=True))
        return ScanPlan(
            kernel,
            config.outer,
            config.extent,
            config.inner,
            config.backwards,
            config.start,
            config.associative,
            returned,
            config.positive_zeros,
            elements,
            totals,
            combiner,
        )

    @property
    def widest(self) -> int:
        """Bits of the widest element."""
        return max(map(cg.bits_of, self.elements))


def _is_plain(type_: ir.Type) -> bool:
    return isinstance(type_, ir.FloatType) or (isinstance(type_, ir.IntegerType) and type_.width in (8, 16, 32, 64))


class ScanElements:
    """Loads, combinations and stores of elements inside one function."""

    def __init__(self, plan: ScanPlan, arguments: KernelArguments) -> None:
        self.plan = plan
        count = len(plan.elements)
        self.arrays = arguments.inputs[:count]
        self.results = arguments.results
        self._inputs = arguments.inputs
        self._starts = [v.ssa for v in arguments.inputs[count:]][:count]

    def starts(self) -> Values:
        """Return the initial values, as accumulators."""
        return self.widened([_stored(v, e) for v, e in zip(self._starts, self.plan.elements, strict=True)])

    def combine(self, before: Values, values: Values) -> Values:
        """Combine accumulators with later ones, in order."""
        plan = self.plan
        if plan.totals != plan.elements:
            return [b + v for b, v in zip(before, values, strict=True)]
        return plan.combiner.inline([*before, *values], self._inputs)

    def read(self, at: Value) -> Values:
        """Load the elements at an offset, as accumulators."""
        return self.widened([cg.load(array, at) for array in self.arrays])

    def widened(self, elements: Values) -> Values:
        """Convert elements to accumulators."""
        return [cg.to_float(v, t) for v, t in zip(elements, self.plan.totals, strict=True)]

    def finished(self, totals: Values) -> Values:
        """Convert accumulators to the elements stored."""
        plan = self.plan
        made = [plus_zero(v) if plan.positive_zeros else v for v in totals]
        stored = [cg.to_float(v, e) for v, e in zip(made, plan.elements, strict=True)]
        return [stored[n] for n in plan.returned]

    def write(self, totals: Values, at: Value) -> None:
        """Store accumulators that are results."""
        for value, result in zip(self.finished(totals), self.results, strict=True):
            cg.store(value, result, at)


def _stored(value: ir.Value, element: ir.Type) -> Value:
    return Value(value if value.type == element else arith.extui(element, value))
