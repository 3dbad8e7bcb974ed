"""Gathers of contiguous rows, copied in vectors, with non-temporal stores where the result is large.

Rows are prefetched some rows ahead, as only the indices tell their addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir

from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.indexing import GatherAxis, GatherConfig, GatherStart
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.storage import from_storage
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.codegen.sizes import bytes_of, element_bytes
from stablexla.targets.codegen.vector_loops import estimate_ns, grain_of, unroll_factor, vector_loop
from stablexla.targets.cpu.emitters import emitter

LINE = 64
# Shorter rows are a few loads and stores, which LLVM vectorizes in the general path's loops.
LEAST_ROW = LINE // 2
# Prefetch distance in rows, and the most cache lines of a row prefetched; the hardware prefetcher follows from there.
AHEAD, MOST_LINES = 12, 8


@dataclass(frozen=True)
class _Plan:
    """The loop nest of a gather of rows.

    Attributes:
        vectors: loops over the index vectors; their iterations are the work items.
        slices: loops over a slice, the last one over a row.
        size: bytes of an element.
        lines: cache lines of a row to prefetch.
    """

    vectors: tuple[GatherAxis, ...]
    slices: tuple[GatherAxis, ...]
    starts: tuple[GatherStart, ...]
    index_type: ElementType
    size: int
    lanes: int
    lines: int
    nontemporal: bool


_SHORT = Refusal(
    f"its slices are single elements, or shorter than half a cache line ({LEAST_ROW} bytes)",
    f"gather whole rows: the indexed dimensions first, {LEAST_ROW} bytes or more in the last one",
)


@emitter("gather")
def emit_gather(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit gathers whose slices have at least half a cache line of contiguous elements."""
    plan = _plan(kernel, target)
    if plan is None:
        refuse(_SHORT)
        return None
    with kernel.phase(target) as arguments:
        _write(plan, arguments)
    items = prod(axis.extent for axis in plan.vectors)
    elements = prod(axis.extent for axis in plan.slices)
    return Emitted(items=items, grain=grain_of(estimate_ns(1, elements, 2 * elements * plan.size, target), items))


def _plan(kernel: Kernel, target: CpuTarget) -> _Plan | None:
    operand, indices = (v.type for v in kernel.inputs)
    config = kernel.config(GatherConfig)
    axes = config.axes
    count = max((i + 1 for i, axis in enumerate(axes) if axis.index_step), default=0)
    vectors, slices = axes[:count], axes[count:]
    is_array = isinstance(indices, ir.RankedTensorType)
    size, register = element_bytes(operand.element_type), target.vector_bits // 8
    if not is_array or not vectors or not slices:
        return None
    row = slices[-1]
    if (row.operand_step, row.result_step) != (1, 1) or row.extent * size < LEAST_ROW:
        return None
    aligned = all(step * size % register == 0 for step in (row.extent, *(axis.result_step for axis in axes[:-1])))
    far = len(vectors) == 1 and bytes_of(operand) > target.l2_bytes
    return _Plan(
        vectors,
        slices,
        config.starts,
        BY_NAME[config.index_type],
        size,
        register // size,
        min(MOST_LINES, -(-row.extent * size // LINE)) if far else 0,
        aligned and bytes_of(kernel.results[0].type) >= target.nontemporal_bytes,
    )


def _write(plan: _Plan, arguments: KernelArguments) -> None:
    operand, indices = arguments.inputs
    result = arguments.results[0]
    extents = [axis.extent for axis in plan.vectors]
    with arguments.items(prod(extents)) as item:
        at = cg.split_index(item, extents)
        vector, read, written = (
            _place(at, steps)
            for steps in (
                [axis.index_step for axis in plan.vectors],
                [axis.operand_step for axis in plan.vectors],
                [axis.result_step for axis in plan.vectors],
            )
        )
        if plan.lines:
            (axis,) = plan.vectors
            later = cg.minimum(item + AHEAD, axis.extent - 1)
            there = _first_element(plan, indices, later * axis.index_step) + later * axis.operand_step
            for line in range(plan.lines):
                cg.prefetch(operand, there + line * (LINE // plan.size))
        _copy(plan, plan.slices, operand, read + _first_element(plan, indices, vector), result, written)


def _place(at: Sequence[Value], steps: Sequence[int]) -> Value:
    return sum((i * step for i, step in zip(at, steps, strict=True)), cg.index(0))


def _first_element(plan: _Plan, indices: Value, vector: Value) -> Value:
    """Return the operand's element at which the slice of an index vector begins."""
    found = cg.index(0)
    for start in plan.starts:
        given = from_storage(cg.load(indices, vector + start.offset).ssa, plan.index_type)
        if start.highest is not None:
            given = held_within(given, plan.index_type, start.highest)
        found = found + Value(as_index(given, plan.index_type)) * start.step
    return found


def _copy(plan: _Plan, axes: Sequence[GatherAxis], operand: Value, read: Value, result: Value, written: Value) -> None:
    """Emit the loop nest over a slice."""
    axis, *rest = axes
    if rest:
        with cg.loop(0, axis.extent) as iteration:
            there, here = read + iteration.iv * axis.operand_step, written + iteration.iv * axis.result_step
            _copy(plan, rest, operand, there, result, here)
        return

    def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
        if count is None:
            cg.store(cg.load(operand, read + at, plan.lanes), result, written + at, plan.nontemporal)
        else:
            cg.store_lanes(cg.load_lanes(operand, read + at, plan.lanes, count), result, written + at, count)
        return []

    vector_loop(axis.extent, plan.lanes, step, [[]] * unroll_factor(1, axis.extent // plan.lanes))
