"""The common parts of scans with any combiner: schedule, loads and stores, and blocks of long lines."""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.scan.line_scan import ScanConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.combiners import plus_zero
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sums.blocked_reduction import blocked_scan
from stablexla.targets.codegen.vector_loops import grain_of

Values = list[Value]


@dataclass(frozen=True)
class ScanPlan:
    """The schedule of a scan of `outer` times `extent` rows of `inner` elements, of several arrays.

    Attributes:
        returned: numbers of the arrays whose scans are results.
        positive_zeros: whether zeros are added to the results.
    """

    kernel: Kernel
    combiner: ElementCombiner
    target: CpuTarget
    outer: int
    extent: int
    inner: int
    backwards: bool
    returned: tuple[int, ...]
    positive_zeros: bool
    elements: tuple[ir.Type, ...]
    lanes: int

    @staticmethod
    def of(
        kernel: Kernel, config: ScanConfig, returned: tuple[int, ...], combiner: ElementCombiner, target: CpuTarget
    ) -> ScanPlan:
        """Return the schedule of a kernel."""
        outer, extent, inner = config.outer, config.extent, config.inner
        elements = tuple(v.type for v in combiner.results)
        lanes = max(2, target.vector_bits // max(32, *(cg.bits_of(e) for e in elements)))
        width = extent if inner == 1 else inner
        while lanes > 2 and lanes // 2 >= width:
            lanes //= 2
        sizes, zeros = (outer, extent, inner), config.positive_zeros
        return ScanPlan(kernel, combiner, target, *sizes, config.backwards, returned, zeros, elements, lanes)

    @property
    def bytes(self) -> int:
        """Bytes of the arrays and of the results."""
        numbers = [*range(len(self.elements)), *self.returned]
        return self.outer * self.extent * self.inner * sum(cg.bits_of(self.elements[n]) for n in numbers) // 8

    @property
    def cost(self) -> int:
        """Instructions of one combination, for the cost model."""
        return 1 + len(self.combiner.operations)

    @property
    def widths(self) -> set[int]:
        """Widths of the arrays' elements, in bits."""
        return {cg.bits_of(element) for element in self.elements}

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Pairs (result, input) that may share a buffer: an element is loaded before it is overwritten, never after."""
        return tuple(enumerate(self.returned))


class ScanWriter:
    """Emits the combiner, the loads and the stores inside one function."""

    def __init__(self, plan: ScanPlan, arguments: KernelArguments) -> None:
        self.plan = plan
        self.arrays = arguments.inputs[: len(plan.elements)]
        self.results = arguments.results
        self._inputs = arguments.inputs

    def combine(self, before: Values, values: Values) -> Values:
        """Inline the combiner on elements, or vectors of them, and the prefix before them."""
        return self.plan.combiner.inline([*before, *values], self._inputs)

    def read(self, at: Value, count: int) -> Values:
        """Load the elements at a place."""
        return [cg.load_lanes(array, at, self.plan.lanes, count) for array in self.arrays]

    def write(self, totals: Values, at: Value, count: int) -> None:
        """Store those accumulators that are results."""
        for number, result in zip(self.plan.returned, self.results, strict=True):
            value = plus_zero(totals[number]) if self.plan.positive_zeros else totals[number]
            cg.store_lanes(value, result, at, count)


# (arguments, line, block, place of the block's total) -> None, and the same with whether it is the last block.
Total = Callable[[KernelArguments, Value, Value, Value], None]
Scan = Callable[[KernelArguments, Value, Value, Value, Value], None]


def emit_three_phase_scan(
    plan: ScanPlan, blocks: int, lines: int, width: int, time: float, total: Total, scan: Scan
) -> Emitted:
    """Emit a three-phase parallel scan: totals of all blocks but the last, their exclusive scan, then the blocks.

    Args:
        width: elements of the total of a block.
        time: nanoseconds that a line takes.
    """
    kernel = plan.kernel
    scratch = tuple((str(element), lines * blocks * width) for element in plan.elements)
    names = [kernel.impl_name + suffix for suffix in ("_totals", "_before", "")]
    with (
        kernel.phase(plan.target, scratch, names[0]) as arguments,
        arguments.split_items([lines, blocks - 1]) as (line, block),
    ):
        total(arguments, line, block, (line * blocks + block) * width)
    with kernel.phase(plan.target, scratch, names[1]) as arguments, arguments.items(lines) as item:
        _combine_totals(plan, arguments, item * blocks * width, blocks, width)
    with (
        kernel.phase(plan.target, scratch, names[2]) as arguments,
        arguments.split_items([lines, blocks]) as (line, block),
    ):
        scan(arguments, line, block, block.eq(blocks - 1), (line * blocks + block) * width)
    grain = grain_of(time / blocks, lines * blocks)
    phases = (
        Phase(names[0], lines * (blocks - 1), grain),
        Phase(names[1], lines, lines),
        Phase(names[2], lines * blocks, grain),
    )
    return Emitted(lines * blocks, grain, scratch, in_place=plan.in_place, phases=phases)


def _combine_totals(plan: ScanPlan, arguments: KernelArguments, first: Value, blocks: int, width: int) -> None:
    """Replace the blocks' totals by their exclusive scan: the total before each block of a line but the first."""
    writer, buffers = ScanWriter(plan, arguments), arguments.scratch
    with cg.loop(0, width) as column:
        start = first + column.iv
        totals = [cg.load(buffer, start) for buffer in buffers]

        def body(block: Value, here: Values) -> Values:
            place = start + block * width
            own = [cg.load(buffer, place) for buffer in buffers]
            for before, buffer in zip(here, buffers, strict=True):
                cg.store(before, buffer, place)
            return own

        totals = blocked_scan(1, blocks - 1, 1, blocks, totals, writer.combine, body)
        for before, buffer in zip(totals, buffers, strict=True):
            cg.store(before, buffer, start + (blocks - 1) * width)
