"""Tiled matrix products (GEMM) on scalar cores: a block stages tiles of both factors in shared memory.

Each thread keeps an accumulator tile in registers. The loops, the factors' conversions and the epilogue are matched by
`codegen/match/contraction.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis, match_contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, accumulator_type, stores_vectors
from stablexla.targets.codegen.refusals import COMPLEX, Refusal, refuse
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.gpu.contraction.register_tile import (
    DEPTH,
    LANES,
    SEVERAL,
    SIDE,
    TERMS,
    THREADS,
    RegisterTile,
    add_accumulators,
)
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, thread_index

MOST_SHARED = 48 << 10
BIG_TILES = Gate("gpu-contraction.big-tiles", 512, eager=1)
"""Rows and columns from which tiles are twice as large."""


_NARROW = Refusal(
    f"a factor has fewer than {SIDE} rows or columns, and sums along several dimensions",
    "one summed dimension: reshape both factors to matrices",
)


@gpu_emitter("contraction")
def emit_contraction(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit products whose result is at least some tens of rows and columns."""
    contraction = match_contraction(kernel)
    if contraction is None:
        return None
    if not isinstance(contraction.sum_type, ir.FloatType | ir.IntegerType):
        refuse(COMPLEX)
        return None
    if min(contraction.m.extent, contraction.n.extent) < SIDE:
        refuse(_NARROW)
        return None
    if not contraction.k.extent:
        return None
    if not prod(a.extent for a in (*contraction.batch, *contraction.k_outer)):
        return None
    compute = accumulator_type(contraction)
    big = min(contraction.m.extent, contraction.n.extent) >= BIG_TILES() and cg.bits_of(compute) <= 32
    tile = RegisterTile(2 if big else 1, compute)
    blocks = [contraction.batches, *(-(-axis.extent // tile.side) for axis in (contraction.m, contraction.n))]
    launch = Launch(prod(blocks), THREADS, tile.shared)
    if launch.shared > MOST_SHARED:
        return None
    with kernel_function(kernel, launch) as arguments:
        _Block(ContractionScene(contraction, arguments), tile).write(blocks)
    return Emitted(prod(blocks), 1)


class _Block:
    """One thread's part of its block's tile."""

    def __init__(self, scene: ContractionScene, tile: RegisterTile) -> None:
        self.scene, self.tile = scene, tile
        self.contraction: Contraction = scene.contraction

    def write(self, blocks: list[int]) -> None:
        """Emit the tile of this block's number."""
        batch, row, column = cg.split_index(block_index(), blocks)
        frame = self.scene.frame(batch)
        first = (row * self.tile.side, column * self.tile.side)
        self._buffers, self._own = self.tile.buffers(), (thread_index() // SIDE, thread_index() % SIDE)
        start = cg.index(frame.a), cg.index(frame.b)
        sums = self._outer(list(self.contraction.k_outer), start, first, self.tile.zeros())
        self._put(frame, first, sums)

    def _outer(
        self, axes: list[ContractionAxis], at: tuple[Value, Value], first: tuple[Value, Value], sums: list[Value]
    ) -> list[Value]:
        """Accumulate over the reduction loops outside of k, and over k."""
        if not axes:
            return self._inner(at, first, sums)
        axis, *rest = axes

        def body(place: Value, sums: list[Value], _: list[Value]) -> tuple[list[Value], list[Value]]:
            here = at[0] + place * axis.a, at[1] + place * axis.b
            return add_accumulators(sums, self._outer(rest, here, first, self.tile.zeros())), []

        return blocked_reduction(0, axis.extent, 1, axis.extent, sums, add_accumulators, body)[0]

    def _inner(self, at: tuple[Value, Value], first: tuple[Value, Value], sums: list[Value]) -> list[Value]:
        c = self.contraction

        def body(k: Value, sums: list[Value], _: list[Value]) -> tuple[list[Value], list[Value]]:
            self._copy_tile(self._buffers[0], self.scene.load_a, at[0], first[0], k, c.m.extent, c.m.a, c.k.a)
            self._copy_tile(self._buffers[1], self.scene.load_b, at[1], first[1], k, c.n.extent, c.n.b, c.k.b)
            gpu.barrier()
            with cg.loop(0, DEPTH, 1, sums) as depth:
                depth.yields(*self.tile.step(self._buffers, self._own, depth.iv, depth.args))
            gpu.barrier()
            return depth.results, []

        trip_count, block = -(-c.k.extent // DEPTH), max(1, TERMS() // DEPTH)
        return blocked_reduction(
            0, c.k.extent, DEPTH, trip_count, sums, add_accumulators, body, block=block, several=SEVERAL()
        )[0]

    def _copy_tile(
        self,
        to: Value,
        read: Callable[[Value], Value],
        at: Value,
        first: Value,
        depth: Value,
        extent: int,
        stride: int,
        stride_k: int,
    ) -> None:
        """Load a tile of a factor into shared memory, k-major and zero-padded."""
        side, k_extent, me = self.tile.side, self.contraction.k.extent, thread_index()
        along_k = stride_k == 1
        for number in range(side * DEPTH // THREADS):
            element = me + number * THREADS
            place, k = (element // DEPTH, element % DEPTH) if along_k else (element % side, element // side)
            there, deep = first + place, depth + k
            inside = there.lt(extent) & deep.lt(k_extent)
            found = cg.branch(inside, [self.tile.compute])
            with found.then:
                found.yields(read(at + there * stride + deep * stride_k))
            with found.otherwise:
                found.yields(cg.constant(0, self.tile.compute))
            cg.store(found.results[0], to, k * self.tile.pitch + place)

    def _put(self, frame: BatchFrame, first: tuple[Value, Value], sums: list[Value]) -> None:
        """Store the accumulators through the epilogue."""
        c, (y, x), waiting = self.contraction, self._own, iter(sums)
        whole = c.n.extent % LANES == 0 and stores_vectors(c)
        for g in range(self.tile.groups):
            for i in range(LANES):
                number = first[0] + (y + g * SIDE) * LANES + i
                row = self.scene.row(frame, number)
                for h in range(self.tile.groups):
                    value, column = next(waiting), first[1] + (x + h * SIDE) * LANES
                    for lane in (None,) if whole else range(LANES):
                        at = column if lane is None else column + lane
                        with cg.when(number.lt(c.m.extent) & at.lt(c.n.extent)):
                            part = value if lane is None else cg.extract(value, lane)
                            self.scene.write(part, row, at, LANES if lane is None else 1)
