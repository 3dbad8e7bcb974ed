"""A block's sums on their way out: by way of shared memory, so that neighbours are written by neighbours.

A thread's own sums are in pairs all over the tile. From shared memory it takes 16 bytes of a row at a time, through the
epilogue, in a loop: the epilogue's code is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import mlir.ir as ir
from mlir.dialects import gpu, vector

from stablexla.targets.cpu.contraction_match import Contraction
from stablexla.targets.cpu.contraction_output import Frame, Scene, writes_vectors
from stablexla.targets.cpu.emission import Index, Value, bits_of, load, loop, store, when
from stablexla.targets.gpu.mma_plan import Plan
from stablexla.targets.gpu.warps import WARP, shared_buffer, thread

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


def keep_sums(plan: Plan, sums: list[Value], first: tuple[Value, Value], units: tuple[int, int]) -> Value:
    """A warp's sums into shared memory, and those of all others. `first`: the warp's place in the tile."""
    pitch, type_ = plan.tiling.pitch(), plan.format.sum_type
    buffer = shared_buffer(type_, plan.tiling.rows * pitch, 0)
    lane, pair = thread() % WARP, ir.VectorType.get([2], type_)
    start = (first[0] + lane // 4) * pitch + first[1] + lane % 4 * 2
    waiting = iter(sums)
    for i in range(units[0]):
        for j in range(2 * units[1]):
            for half in range(2):
                own = [next(waiting).ssa for _ in range(2)]
                value = Value(vector.from_elements(pair, own))
                store(value, buffer, start + ((16 * i + 8 * half) * pitch + 8 * j))
    gpu.barrier()
    return buffer


def put_tile(plan: Plan, c: Contraction, buffer: Value, first: tuple[Value, Value], lanes: int, put: Put) -> None:
    """The tile that begins at `first`, as far as it is inside the product."""
    tiling = plan.tiling
    across = tiling.columns // lanes
    with loop(0, tiling.rows * across, tiling.threads) as turn:
        piece = turn.iv + thread()
        y, x = piece // across, piece % across * lanes
        value = load(buffer, y * tiling.pitch() + x, 0 if lanes == 1 else lanes)
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
