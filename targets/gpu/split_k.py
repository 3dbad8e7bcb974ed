"""Products of few blocks and a long k: each part of k is summed up by blocks of its own, and added up by a second launch.

It adds the parts in their order, so that the same program gives the same numbers on every run.
"""

from __future__ import annotations

from stablexla.targets.cpu.contraction_match import Contraction
from stablexla.targets.cpu.contraction_output import Scene
from stablexla.targets.cpu.emission import Value, load, loop
from stablexla.targets.cpu.kernel import KernelArguments
from stablexla.targets.gpu.emitters import Launch
from stablexla.targets.gpu.mma_plan import Plan
from stablexla.targets.gpu.threads import global_thread, taken_apart, total_threads


def scratch_of(plan: Plan, c: Contraction) -> tuple[tuple[str, int], ...]:
    """Room for the sums of all parts."""
    if plan.parts == 1:
        return ()
    return ((plan.format.sums, plan.parts * plan.batches * c.m.extent * c.n.extent),)


def launch_of(c: Contraction, lanes: int) -> Launch:
    """The second launch."""
    return Launch.for_items(c.batches * c.m.extent * c.n.extent // lanes)


def add_parts(plan: Plan, c: Contraction, arguments: KernelArguments, lanes: int) -> None:
    """What one thread of the second launch does."""
    scene, partial = Scene(c, arguments), Value(arguments.scratch[0])
    extents = [c.batches, c.m.extent, c.n.extent // lanes]
    items, width = extents[0] * extents[1] * extents[2], 0 if lanes == 1 else lanes
    with loop(Value(global_thread()), items, Value(total_threads())) as item:
        batch, row, column = (Value(v) for v in taken_apart(item.iv.ssa, extents))
        at = item.iv * lanes
        total = load(partial, at, width)
        for part in range(1, plan.parts):
            total = total + load(partial, at + part * items * lanes, width)
        scene.write(total, scene.row(scene.frame(batch), row), column * lanes, lanes)
