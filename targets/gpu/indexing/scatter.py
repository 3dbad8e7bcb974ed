"""Scatters: windows of updates combined into arrays, deterministic: each element takes its updates in their order.

Disjoint windows, and combiners that atomics compute exactly, give every element of the updates a thread. Otherwise a
block owns a range of the places at which windows begin: it lists the windows that begin there, and its threads take
their elements. No result depends on the threads' order.
"""

from __future__ import annotations

from functools import reduce
from math import gcd, prod

import mlir.ir as ir
from mlir.dialects import arith, gpu, memref

from stablexla.lowering.support.operations import defining
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import COMBINER, Refusal, refuse
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.indexing.scatter_owner_blocks import OwnerBlocks, write_owner_blocks
from stablexla.targets.gpu.indexing.scatter_windows import ScatterPlan, ScatterWindows
from stablexla.targets.gpu.threads import THREADS, Launch, coordinates, grid_loop, kernel_function, thread_index

ATOMIC = {
    **{name: name for name in ("addi", "andi", "ori", "xori")},
    "maxsi": "maxs",
    "maxui": "maxu",
    "minsi": "mins",
    "minui": "minu",
}
"""Commutative operations of arith, with the names of their atomic forms."""
MOST = (1 << 31) - 1


_LARGE = Refusal("it has more updates or places than 32 bits count", "several scatters, one after the other")


@gpu_emitter("scatter")
def emit_scatter(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit scatters whose combiner is arithmetic."""
    plan = ScatterPlan.of(kernel)
    if plan is None or plan.count * plan.width > MOST:
        refuse(COMBINER if plan is None else _LARGE)
        return None
    updates = tuple((number, number) for number in range(len(kernel.results)))
    atomic = None if plan.distinct else _atomic(kernel, plan)
    if plan.distinct or atomic is not None:
        _write_each(kernel, plan, atomic)
        return Emitted(1, 1, updates=updates)
    if plan.partly:
        _write_in_turn(kernel, plan)
        return Emitted(1, 1, updates=updates)
    unit = reduce(gcd, [*(start.step for start in plan.starts), *(axis.operand_step for axis in plan.outer)])
    last = sum((start.extent - 1) * start.step for start in plan.starts)
    last += sum((axis.extent - 1) * axis.operand_step for axis in plan.outer)
    if not unit or last // unit >= MOST:
        refuse(_LARGE)
        return None
    write_owner_blocks(kernel, plan, OwnerBlocks.of(kernel, plan, unit, 1 + last // unit))
    return Emitted(1, 1, updates=updates)


def _atomic(kernel: Kernel, plan: ScatterPlan) -> tuple[arith.AtomicRMWKind, ir.Value] | None:
    """Match the atomic instruction of a combiner, and its operand besides the element in memory."""
    combiner = plan.combiner
    if len(kernel.results) != 1 or str(kernel.results[0].type.element_type) not in ("i32", "i64"):
        return None
    maker = defining(combiner.results[0])
    if maker is None or maker.name.removeprefix("arith.") not in ATOMIC:
        return None
    for one, other in (maker.operands, reversed(list(maker.operands))):
        if one == combiner.arguments[0] and 0 not in combiner.elements_read([other]):
            return getattr(arith.AtomicRMWKind, ATOMIC[maker.name.removeprefix("arith.")]), other
    return None


def _write_each(kernel: Kernel, plan: ScatterPlan, atomic: tuple[arith.AtomicRMWKind, ir.Value] | None) -> None:
    """Emit a thread for each element of the updates, coalesced."""
    steps = [axis.update_step for axis in plan.outer] + [axis.update_step for axis in plan.inner]
    extents = [axis.extent for axis in plan.outer] + [axis.extent for axis in plan.inner]
    order = sorted(range(len(steps)), key=lambda d: -steps[d])
    items = prod(extents)
    with kernel_function(kernel, Launch.for_items(items)) as arguments:
        windows = ScatterWindows(kernel, plan, arguments)
        with grid_loop(items) as item:
            found = [v.ssa for v in coordinates(item.iv, [extents[d] for d in order])] if order else []
            at = [Value(found[order.index(d)]) for d in range(len(extents))]
            outer, inner = at[: len(plan.outer)], at[len(plan.outer) :]
            starts = windows.starts(outer)
            there = sum((i * axis.operand_step for i, axis in zip(inner, plan.inner, strict=True)), cg.index(0))
            given = sum((i * axis.update_step for i, axis in zip(inner, plan.inner, strict=True)), cg.index(0))
            with cg.when(windows.begins_inside(starts) & windows.element_inside(starts, inner)):
                place = windows.first(outer, starts) + there
                given = windows.given(outer) + given
                if atomic is None:
                    windows.combine(place, given)
                else:
                    memref.atomic_rmw(atomic[0], windows.update(atomic[1], given), windows.results[0].ssa, [place.ssa])


def _write_in_turn(kernel: Kernel, plan: ScatterPlan) -> None:
    """Emit windows that may overlap at any distance sequentially, by one block."""
    threads = min(THREADS * 4, -(-plan.width // 32) * 32)
    with kernel_function(kernel, Launch(1, threads)) as arguments:
        windows = ScatterWindows(kernel, plan, arguments)
        with cg.loop(0, plan.count) as window:
            outer = windows.split(window.iv)
            starts = windows.starts(outer)
            with (
                cg.when(windows.begins_inside(starts)),
                cg.loop(thread_index(), cg.index(plan.width), threads) as iteration,
            ):
                there, given, places = windows.element(iteration.iv)
                with cg.when(windows.element_inside(starts, places)):
                    windows.combine(windows.first(outer, starts) + there, windows.given(outer) + given)
            gpu.barrier()
