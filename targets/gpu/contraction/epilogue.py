"""Coalesced epilogue: a block's accumulators pass through shared memory, so that stores are 16 bytes wide.

A thread's accumulators are pairs scattered over the tile. From shared memory it loads 16 bytes of a row at a time and
applies the epilogue, in a loop: the epilogue's code is emitted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from math import prod

from mlir.dialects import gpu

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, stores_vectors
from stablexla.targets.gpu.contraction.mma_plan import GemmPlan
from stablexla.targets.gpu.threads import (
    Launch,
    access_lanes,
    coordinates,
    grid_loop,
    kernel_function,
    launched,
    shared_buffer,
    thread_index,
)

StoreSums = Callable[[Value, Value, Value], None]
"""Stores some neighbouring sums, given their row and the column of the first."""


def lanes_for(c: Contraction) -> int:
    """Return the vector width of stores: at most 16 bytes of the widest array."""
    if not stores_vectors(c):
        return 1
    arrays = [result.type for result in c.kernel.results]
    arrays += [i.value.type for i in c.arrays]
    return access_lanes(max(cg.bits_of(t) for t in arrays), c.n.extent)


def stage_accumulators(plan: GemmPlan, pieces: Iterable[tuple[Value, Value]]) -> Value:
    """Store all threads' accumulators into shared memory. `pieces`: values and their positions there."""
    buffer = shared_buffer(plan.format.sum_type, plan.tiling.rows * plan.tiling.pitch, 0)
    for at, value in pieces:
        cg.store(value, buffer, at)
    gpu.barrier()
    return buffer


def store_tile(
    plan: GemmPlan, c: Contraction, buffer: Value, first: tuple[Value, Value], lanes: int, put: StoreSums
) -> None:
    """Store the tile that begins at `first`, masked by the bounds of the product."""
    tiling = plan.tiling
    across = tiling.columns // lanes
    with cg.loop(0, tiling.rows * across, tiling.threads) as iteration:
        piece = iteration.iv + thread_index()
        y, x = piece // across, piece % across * lanes
        value = cg.load(buffer, y * tiling.pitch + x, 0 if lanes == 1 else lanes)
        row, column = first[0] + y, first[1] + x
        even = c.m.extent % tiling.rows == 0 and c.n.extent % tiling.columns == 0
        with nullcontext() if even else cg.when(row.lt(c.m.extent) & column.lt(c.n.extent)):
            put(value, row, column)


def epilogue_store(scene: ContractionScene, frame: BatchFrame, lanes: int) -> StoreSums:
    """Return a store of sums into the results, through the epilogue."""

    def put(value: Value, row: Value, column: Value) -> None:
        scene.write(value, scene.row(frame, row), column, lanes)

    return put


def partial_sum_store(c: Contraction, partial: Value, product: Index) -> StoreSums:
    """Return a store of split-K partial sums for the reducing launch; `product`: number of the part's array."""

    def put(value: Value, row: Value, column: Value) -> None:
        cg.store(value, partial, (row + product * c.m.extent) * c.n.extent + column)

    return put


# ---- split-K ---------------------------------------------------------------------------------------------------------


def split_k_workspace(parts: int, sums: str, c: Contraction) -> tuple[tuple[str, int], ...]:
    """Return the workspace for the partial sums; `sums`: their type."""
    return ((sums, parts * c.batches * c.m.extent * c.n.extent),) if parts > 1 else ()


def emit_split_k(
    kernel: Kernel,
    c: Contraction,
    first: Launch,
    parts: int,
    sums: str,
    write: Callable[[KernelArguments, Value | None], None],
) -> Emitted:
    """Emit the kernel in one launch, or, with several parts of k, in two.

    `write` emits a thread's code of the first one; its argument is the array for partial sums, if there is one.
    """
    if parts == 1:
        with kernel_function(kernel, first) as arguments:
            write(arguments, None)
        return Emitted(first.blocks, 1)
    scratch, lanes = split_k_workspace(parts, sums, c), lanes_for(c)
    names = f"{kernel.impl_name}_parts", f"{kernel.impl_name}_whole"
    with kernel_function(kernel, first, names[0], scratch) as arguments:
        write(arguments, arguments.scratch[0])
    second = Launch.for_items(c.batches * c.m.extent * c.n.extent // lanes)
    with kernel_function(kernel, second, names[1], scratch) as arguments:
        _add_parts(parts, c, arguments, lanes)
    return launched(names, scratch)


def _add_parts(parts: int, c: Contraction, arguments: KernelArguments, lanes: int) -> None:
    """Emit one thread of the reducing launch."""
    scene, partial = ContractionScene(c, arguments), arguments.scratch[0]
    extents = [c.batches, c.m.extent, c.n.extent // lanes]
    items, width = prod(extents), 0 if lanes == 1 else lanes
    with grid_loop(items) as item:
        batch, row, column = coordinates(item.iv, extents)
        at = item.iv * lanes
        total = cg.load(partial, at, width)
        for part in range(1, parts):
            total = total + cg.load(partial, at + part * items * lanes, width)
        scene.write(total, scene.row(scene.frame(batch), row), column * lanes, lanes)
