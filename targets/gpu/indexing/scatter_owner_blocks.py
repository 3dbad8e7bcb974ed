"""Scatters by owner blocks: each block owns a range of the places at which windows may begin.

It scans all index vectors, some thousand at a time, and lists those that begin in its range, in their order. Then its
threads process the list: each owns elements of the window, or some of the places where windows are narrow. So updates
are combined in their order, whatever the combiner, and without atomics.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.gpu.indexing.scatter_windows import ScatterPlan, ScatterWindows, in_bounds
from stablexla.targets.gpu.threads import (
    THREADS,
    WARP,
    Launch,
    block_index,
    kernel_function,
    scan_warp,
    shared_buffer,
    thread_index,
)

EACH = 8
"""Neighbouring index vectors that a thread tests at a time."""
LISTED = THREADS * EACH
COLUMN = Gate("gpu-scatter.column", 2048, eager=8)
"""Elements of a window that a block takes at most."""
BLOCKS = Gate("gpu-scatter.blocks", 1024, eager=1)
MOST_READ = Gate("gpu-scatter.most-read", 1 << 28, eager=1)
"""Index vectors that all blocks together load, at most, as long as there are some blocks."""
FEWEST_RANGES = Gate("gpu-scatter.fewest-ranges", 16, eager=1)


@dataclass(frozen=True)
class OwnerBlocks:
    """Partition of places and windows among blocks, and among the threads of each.

    Attributes:
        unit, places: windows begin at multiples of `unit`, of which there are `places`.
        ranges, range: number of ranges of places, and places of each.
        columns, column: number of columns of a window's elements, and elements of each.
        across: threads that share a window; the others own other places.
    """

    unit: int
    places: int
    ranges: int
    range: int
    columns: int
    column: int
    across: int

    @staticmethod
    def of(kernel: Kernel, plan: ScatterPlan, unit: int, places: int) -> OwnerBlocks:
        """Choose enough blocks to fill a chip, unless they would load the indices too often."""
        across = min(THREADS, 1 << (plan.width - 1).bit_length())
        columns = -(-plan.width // COLUMN())
        column = -(-plan.width // columns)
        ranges = max(1, min(BLOCKS() // columns, -(-places * across // THREADS)))
        while ranges > FEWEST_RANGES() and ranges * columns * plan.count > MOST_READ():
            ranges //= 2
        each = -(-places // ranges)
        return OwnerBlocks(unit, places, -(-places // each), each, columns, column, across)


def write_owner_blocks(kernel: Kernel, plan: ScatterPlan, owned: OwnerBlocks) -> None:
    """Emit the code of one thread of a block."""
    warps = THREADS // WARP
    shared = 4 * (2 * LISTED + warps)
    with kernel_function(kernel, Launch(owned.ranges * owned.columns, THREADS, shared)) as arguments:
        i32 = ir.IntegerType.get_signless(32)
        places, numbers = (shared_buffer(i32, LISTED, 4 * LISTED * n) for n in range(2))
        counts = shared_buffer(i32, warps, 8 * LISTED)
        windows = ScatterWindows(kernel, plan, arguments)
        low = block_index() // owned.columns * owned.range
        column = block_index() % owned.columns * owned.column
        with cg.loop(0, plan.count, LISTED) as chunk:
            found = _list(plan, owned, windows, (places, numbers, counts), chunk.iv, low)
            gpu.barrier()
            with cg.loop(0, found) as entry:
                place = cg.cast_index(cg.load(places, entry.iv), cg.index(0).type)
                number = cg.cast_index(cg.load(numbers, entry.iv), cg.index(0).type)
                _combine(plan, owned, windows, place, low, number, column)


def _list(
    plan: ScatterPlan,
    owned: OwnerBlocks,
    windows: ScatterWindows,
    lists: tuple[Value, Value, Value],
    first: Value,
    low: Value,
) -> Value:
    """Compact the windows of a chunk that begin in the block's range, from `low` on, into a list; returns its size."""
    places, numbers, counts = lists
    i32 = counts.element
    one, zero = cg.constant(1, i32), cg.constant(0, i32)
    me, lane = thread_index() // WARP, thread_index() % WARP
    seen = []
    mine = zero
    for iteration in range(EACH):
        number = first + thread_index() * EACH + iteration
        at = windows.split(cg.minimum(number, plan.count - 1))
        starts = windows.starts(at)
        place = windows.first(at, starts) // owned.unit - low
        here = windows.begins_inside(starts) & number.lt(plan.count) & in_bounds(place, owned.range)
        mine = mine + cg.select(here, one, zero)
        seen.append((here, place, number))
    before, whole = scan_warp([mine], lambda a, b: [a[0] + b[0]], [zero])
    with cg.when(lane.eq(0)):
        cg.store(whole[0], counts, me)
    gpu.barrier()
    total, to = zero, before[0]
    for warp in range(THREADS // WARP):
        count = cg.load(counts, warp)
        to = to + cg.select(me.gt(warp), count, zero)
        total = total + count
    for here, place, number in seen:
        with cg.when(here):
            there = cg.cast_index(to, cg.index(0).type)
            cg.store(cg.cast_index(place, i32), places, there)
            cg.store(cg.cast_index(number, i32), numbers, there)
        to = to + cg.select(here, one, zero)
    return cg.cast_index(total, cg.index(0).type)


def _combine(
    plan: ScatterPlan,
    owned: OwnerBlocks,
    windows: ScatterWindows,
    place: Value,
    low: Value,
    number: Value,
    column: Value,
) -> None:
    """Combine one listed window: the elements that this thread owns."""
    groups = THREADS // owned.across
    lane = thread_index() % owned.across
    at = windows.split(number)
    first, given = (low + place) * owned.unit, windows.given(at)

    def elements() -> None:
        stop = cg.minimum(column + owned.column, plan.width)
        with cg.loop(column + lane, stop, owned.across) as iteration:
            there, here, _ = windows.element(iteration.iv)
            windows.combine(first + there, given + here)

    if groups == 1:
        elements()
    else:
        with cg.when((place % groups).eq(thread_index() // owned.across)):
            elements()
