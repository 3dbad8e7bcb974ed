"""A block's sums on their way out: by way of shared memory, so that neighbours are written by neighbours.

A thread's own sums are in pairs all over the tile. From shared memory it takes 16 bytes of a row at a time, through the
epilogue, in a loop: the epilogue's code is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

from mlir.dialects import gpu

from stablexla.targets.codegen.emission import Index, Value, bits_of, load, loop, store, when
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import Frame, Scene, writes_vectors
from stablexla.targets.gpu.contraction.mma_plan import Plan
from stablexla.targets.gpu.threads.warps import shared_buffer, thread

Put = Callable[[Value, Value, Value], None]
"""Takes some neighbouring sums, their row and the column of the first."""
_ACCESS = 128


def lanes_for(c: Contraction) -> int:
    """So many neighbours of a row are written together: at most 16 bytes of the widest array."""
    if not writes_vectors(c):
        return 1
    arrays = [result.type for result in c.kernel.results]
    arrays += [i.value.type for op in c.epilogue for i in op.inputs if i.kind == "array"]
    widest = max(bits_of(t) for t in arrays)
    lanes = max(1, min(8, _ACCESS // widest))
    while c.n.extent % lanes:
        lanes //= 2
    return lanes


def keep_sums(plan: Plan, pieces: Iterable[tuple[Value, Value]]) -> Value:
    """A thread's sums into shared memory, and those of all others. `pieces`: numbers and where they stand there."""
    buffer = shared_buffer(plan.format.sum_type, plan.tiling.rows * plan.tiling.pitch, 0)
    for at, value in pieces:
        store(value, buffer, at)
    gpu.barrier()
    return buffer


def put_tile(plan: Plan, c: Contraction, buffer: Value, first: tuple[Value, Value], lanes: int, put: Put) -> None:
    """The tile that begins at `first`, as far as it is inside the product."""
    tiling = plan.tiling
    across = tiling.columns // lanes
    with loop(0, tiling.rows * across, tiling.threads) as turn:
        piece = turn.iv + thread()
        y, x = piece // across, piece % across * lanes
        value = load(buffer, y * tiling.pitch + x, 0 if lanes == 1 else lanes)
        row, column = first[0] + y, first[1] + x
        even = c.m.extent % tiling.rows == 0 and c.n.extent % tiling.columns == 0
        with nullcontext() if even else when(row.lt(c.m.extent) & column.lt(c.n.extent)):
            put(value, row, column)


def writer(scene: Scene, frame: Frame, lanes: int) -> Put:
    """Puts sums through the epilogue into the results."""

    def put(value: Value, row: Value, column: Value) -> None:
        scene.write(value, scene.row(frame, row), column, lanes)

    return put


def keeper(c: Contraction, partial: Value, product: Index) -> Put:
    """Leaves sums of one part of k for the launch that adds them up; `product`: number of the part's array."""

    def put(value: Value, row: Value, column: Value) -> None:
        store(value, partial, (row + product * c.m.extent) * c.n.extent + column)

    return put
