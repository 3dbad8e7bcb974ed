"""Implicit GEMM of any type on scalar cores: tiles of windows and weights in shared memory, accumulators in registers.

Register double buffering: the next tile is loaded while the current one is multiplied.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.convolution import MatchedConvolution
from stablexla.targets.codegen.match.epilogue import ContractionScene, accumulator_type, stores_vectors
from stablexla.targets.codegen.refusals import COMPLEX, CONVOLVED, refuse
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
from stablexla.targets.gpu.convolution.implicit_gemm import MOST_LAUNCHES, ImplicitGemm, emit_phases, implicit_gemms
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, thread_index

STEPS = 4
"""Unroll factor along k."""
LEAST = Gate("gpu-convolution.least", 8, eager=1)
"""Output features and rows from which tiles pay off."""
BIG_TILES = Gate("gpu-convolution.big-tiles", 128, eager=1)
MANY_TILES = Gate("gpu-convolution.many-tiles", 128, eager=1)


@gpu_emitter("convolution")
def emit_convolution(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit convolutions of real numbers with some output features in each group."""
    parts = implicit_gemms(kernel)
    if not parts or parts[0].convolved.outputs < LEAST():
        return None
    with kernel.func.context:
        compute = accumulator_type(parts[0].convolved.contraction)
    if len(parts) > MOST_LAUNCHES or not isinstance(compute, ir.FloatType | ir.IntegerType):
        refuse(COMPLEX if isinstance(compute, ir.ComplexType) else CONVOLVED)
        return None

    def emit(windows: ImplicitGemm, name: str) -> None:
        work = _Work(windows, compute)
        with kernel_function(kernel, Launch(work.blocks, THREADS, work.tile.shared), name) as arguments:
            _Block(work, arguments).write()

    return emit_phases(kernel, parts, emit)


class _Work:
    """Assignment of output tiles to blocks."""

    def __init__(self, windows: ImplicitGemm, compute: ir.Type) -> None:
        self.windows = windows
        self.convolved: MatchedConvolution = windows.convolved
        c = self.convolved
        large = min(windows.rows, c.outputs) >= BIG_TILES() and self.blocks_of(128) >= MANY_TILES()
        big = cg.bits_of(compute) <= 32 and large
        self.tile = RegisterTile(2 if big else 1, compute)
        # Outputs contiguous along the pixels: neighbouring threads have neighbouring pixels, for coalesced stores.
        self.turned = c.contraction.n.c != 1
        self.vectors = stores_vectors(c.contraction) and c.outputs % LANES == 0

    def blocks_of(self, side: int) -> int:
        """Return the number of tiles of that size."""
        return self.convolved.group.extent * -(-self.windows.rows // side) * -(-self.convolved.outputs // side)

    @property
    def blocks(self) -> int:
        """Tiles in all."""
        return self.blocks_of(self.tile.side)

    def places(self, along_k: bool) -> tuple[list[Value], list[Value]]:
        """Return rows (or columns) and positions along k of the thread's loads, coalesced along k or across."""
        me, side = thread_index(), self.tile.side
        count = side * DEPTH // THREADS
        if along_k:
            return [me // DEPTH + n * (THREADS // DEPTH) for n in range(count)], [me % DEPTH]
        return [me % side], [me // side + n * (THREADS // side) for n in range(count)]


class _Block:
    """One thread's part of its block's tile."""

    def __init__(self, work: _Work, arguments: KernelArguments) -> None:
        self.work, self.windows, self.convolved = work, work.windows, work.convolved
        self.scene = ContractionScene(self.convolved.contraction, arguments)
        self.buffers = work.tile.buffers()

    def write(self) -> None:
        """Emit the tile of this block's number."""
        work, c, windows = self.work, self.convolved, self.windows
        side = work.tile.side
        tiles = [-(-windows.rows // side), -(-c.outputs // side)]
        self.group, row, column = cg.split_index(block_index(), [c.group.extent, *tiles])
        self.first = row * side, column * side
        self._lefts, self._rights = work.places(c.inputs.a == 1), work.places(c.inputs.b == 1)
        self._pixels = [windows.pixel(self.first[0] + place) for place in self._lefts[0]]
        sums = work.tile.zeros()
        self._put(self._sums(sums) if windows.depth else sums)

    def _sums(self, sums: list[Value]) -> list[Value]:
        tile, whole = self.work.tile, self.windows.depth

        def body(k: Value, sums: list[Value], loaded: list[Value]) -> tuple[list[Value], list[Value]]:
            self._keep(loaded)
            gpu.barrier()
            loaded = self._load_tile(k + DEPTH)
            with cg.loop(0, DEPTH, STEPS, sums) as depth:
                made = depth.args
                for number in range(STEPS):
                    made = tile.step(self.buffers, self._own(), depth.iv + number, made)
                depth.yields(*made)
            gpu.barrier()
            return depth.results, loaded

        trip_count, block = -(-whole // DEPTH), max(1, TERMS() // DEPTH)
        return blocked_reduction(
            0,
            whole,
            DEPTH,
            trip_count,
            sums,
            add_accumulators,
            body,
            self._load_tile(cg.index(0)),
            block,
            SEVERAL(),
        )[0]

    def _load_tile(self, first: Value) -> list[Value]:
        """Load the thread's elements of both factors, from position `first` along k on, zero-padded."""
        c, depth = self.convolved, self.windows.depth
        made = []
        for k in self._lefts[1]:
            (window, feature), exists = self.windows.tap(first + k), (first + k).lt(depth)
            for pixel in self._pixels:
                place, inside = self.windows.left(pixel, window)
                inside = exists if inside is None else inside & exists
                made.append((inside, place + feature * c.inputs.a + self.group * c.group.a, self.scene.load_a))
        for k in self._rights[1]:
            (window, feature), exists = self.windows.tap(first + k), (first + k).lt(depth)
            for column in self._rights[0]:
                number = self.first[1] + column
                place = self.windows.right(window, feature) + number * c.contraction.n.b + self.group * c.group.b
                made.append((exists & number.lt(c.outputs), place, self.scene.load_b))
        zero = cg.constant(0, self.work.tile.compute)
        loaded = [read(cg.select(inside, place, cg.index(0))) for inside, place, read in made]
        return [cg.select(inside, value, zero) for (inside, _, _), value in zip(made, loaded, strict=True)]

    def _keep(self, values: list[Value]) -> None:
        each, waiting = (self._lefts, self._rights), iter(values)
        for buffer, (across, along) in zip(self.buffers, each, strict=True):
            for k in along:
                for place in across:
                    cg.store(next(waiting), buffer, k * self.work.tile.pitch + place)

    def _own(self) -> tuple[Value, Value]:
        """Return the thread's position in the tile, down and across."""
        me = thread_index()
        y, x = me // SIDE, me % SIDE
        return (x, y) if self.work.turned else (y, x)

    def _put(self, sums: list[Value]) -> None:
        """Store the accumulators through the epilogue."""
        c, (y, x), waiting, work = self.convolved, self._own(), iter(sums), self.work
        for g in range(work.tile.groups):
            for i in range(LANES):
                number = self.first[0] + (y + g * SIDE) * LANES + i
                row = self.windows.row(self.scene, self.windows.pixel(number))
                for h in range(work.tile.groups):
                    value, column = next(waiting), self.first[1] + (x + h * SIDE) * LANES
                    for lane in (None,) if work.vectors else range(LANES):
                        own = column if lane is None else column + lane
                        with cg.when(number.lt(self.windows.rows) & own.lt(c.outputs)):
                            part = value if lane is None else cg.extract(value, lane)
                            own = own + self.group * c.outputs
                            self.scene.write(part, row, own, LANES if lane is None else 1)
