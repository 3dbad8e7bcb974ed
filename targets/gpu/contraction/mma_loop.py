"""Main loop of `mma.sync` GEMM: multi-stage pipeline of asynchronous copies, fragments loaded a step ahead."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.contraction import ContractionAxis
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.gpu.contraction.mma_formats import INSTRUCTION_DEPTH_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_fragments import FragmentReader, Registers, accumulator_pairs
from stablexla.targets.gpu.contraction.mma_loads import TileLoader
from stablexla.targets.gpu.contraction.mma_plan import FRAGMENT_ROWS, BlockTiling, MmaOperand
from stablexla.targets.gpu.contraction.register_tile import add_accumulators
from stablexla.targets.gpu.ptx.inline_ptx import commit_copies, shared_base, wait_for_copies
from stablexla.targets.gpu.threads import WARP, thread_index

STEPS = ROW_BYTES // INSTRUCTION_DEPTH_BYTES
MAX_CHAIN = Gate("gpu-mma.longest-chain", 256, eager=1)
"""Longest chain of MMA instructions on one accumulator, each of which adds several terms; beyond, sums are blocked."""


@dataclass
class PipelineStages:
    """Pipeline stages in shared memory, a circular buffer.

    Attributes:
        loaders: of both factors.
        offsets: where each tile begins in a stage.
        count: of the stages.
        size: of one, in bytes.
        trip_count: trip count of the main loop; each iteration consumes one stage.
        outer: reduction loops outside of k.
    """

    loaders: tuple[TileLoader, TileLoader]
    offsets: tuple[int, int]
    count: int
    size: int
    trip_count: int
    outer: tuple[ContractionAxis, ...] = ()

    def sources(self) -> list[Value]:
        """Return the sources of the first stage."""
        return [loader.source for loader in self.loaders]

    def start(self, to: Value, ahead: int, first: Index) -> list[Value]:
        """Issue the copies of the first stages (prologue), from `first` along k on. Returns the next sources."""
        sources = self.sources()
        for number in range(ahead):
            if number < self.trip_count:
                self._issue(to + number * self.size, sources, cg.index(number), first)
                sources = self.after(sources)
            commit_copies()
        return sources

    def go_on(self, to: Value, sources: list[Value], number: Value, first: Index) -> None:
        """Issue the copies of stage `number`, if there is one."""
        with cg.when(number.lt(self.trip_count)):
            self._issue(to, sources, number, first)
        commit_copies()

    def _issue(self, to: Value, sources: list[Value], number: Value, first: Index) -> None:
        k = cg.index(first) + number * self.depth
        if self.outer:
            extents = [axis.extent for axis in self.outer]
            *places, inner = cg.split_index(number, [*extents, self.trip_count // prod(extents)])
            k, sources = inner * self.depth, [self._source(side, places, inner) for side in range(2)]
        for loader, offset, source in zip(self.loaders, self.offsets, sources, strict=True):
            loader.issue(to, offset, source, k)

    def _source(self, side: int, places: list[Value], inner: Value) -> Value:
        """Return the source of a stage of the inner loop, in an iteration of the outer ones."""
        loader = self.loaders[side]
        source = loader.source + inner * loader.advance
        for axis, place in zip(self.outer, places, strict=True):
            source = source + place * ((axis.a, axis.b)[side] * loader.unit)
        return source

    def after(self, sources: list[Value]) -> list[Value]:
        """Advance the sources by a stage."""
        return [source + loader.advance for loader, source in zip(self.loaders, sources, strict=True)]

    def next(self, at: Value, base: Value) -> Value:
        """Return the following stage's address, wrapping around."""
        after = at + self.size
        return cg.select(after.eq(base + self.count * self.size), base, after)

    @property
    def depth(self) -> int:
        return self.loaders[0].format.depth


class MmaLoop:
    """One thread's part of its warp's accumulator tile."""

    def __init__(
        self, tiling: BlockTiling, format_: MmaFormat, sides: tuple[MmaOperand, MmaOperand], chip: int
    ) -> None:
        self.tiling, self.format, self.chip = tiling, format_, chip
        warp = thread_index() // WARP
        y, x = warp // tiling.warps[1], warp % tiling.warps[1]
        self.first = y * tiling.warp_rows, x * tiling.warp_columns
        self.units = tiling.warp_rows // FRAGMENT_ROWS, tiling.warp_columns // FRAGMENT_ROWS
        self._left = FragmentReader(sides[0], format_, self.first[0], self.units[0], is_left=True)
        self._right = FragmentReader(sides[1], format_, self.first[1], self.units[1], is_left=False)

    def run(self, stages: PipelineStages, first: Index) -> list[Value]:
        """Emit the loop; returns accumulators: per 16 rows and 8 columns, two neighbours and two 8 rows after."""
        zeros = [cg.constant(0, self.format.sum_type)] * (8 * self.units[0] * self.units[1])
        base, ahead = shared_base(), stages.count - 1
        sources = stages.start(base, ahead, first)
        wait_for_copies(ahead - 1)
        gpu.barrier()
        loaded = self._load(base, stages, 0)
        words = [base, base + ahead * stages.size]
        registers = len(loaded)

        def body(number: Value, sums: list[Value], rest: list[Value]) -> tuple[list[Value], list[Value]]:
            loaded, sources, (at, to) = rest[:registers], rest[registers:-2], rest[-2:]
            stages.go_on(to, sources, number + ahead, first)
            for step in range(STEPS):
                here = at
                if step == STEPS - 1:
                    wait_for_copies(ahead - 1)
                    gpu.barrier()
                    at = here = stages.next(at, base)
                last = step == STEPS - 1 and number.known is not None
                following = loaded if last else self._load(here, stages, (step + 1) % STEPS)
                sums = self._multiply(loaded, sums)
                loaded = following
            return sums, [*loaded, *stages.after(sources), at, stages.next(to, base)]

        rest = [*loaded, *sources, *words]
        sums, _ = blocked_reduction(
            0,
            stages.trip_count,
            1,
            stages.trip_count,
            zeros,
            add_accumulators,
            body,
            rest,
            block=max(1, MAX_CHAIN() // STEPS),
        )
        wait_for_copies(0)
        gpu.barrier()
        return sums

    def pieces(self, sums: list[Value]) -> Iterator[tuple[Value, Value]]:
        """Yield the accumulators with their positions in the block's tile."""
        return accumulator_pairs(sums, self.first, self.units, self.tiling.pitch)

    def _load(self, at: Value, stages: PipelineStages, step: int) -> list[Value]:
        parts = (self._left.read(at, stages.offsets[0], step), self._right.read(at, stages.offsets[1], step))
        return [v for part in parts for unit in part for v in unit]

    def _multiply(self, loaded: list[Value], sums: list[Value]) -> list[Value]:
        each = len(loaded) // sum(self.units)
        parts: list[Registers] = [loaded[i : i + each] for i in range(0, len(loaded), each)]
        rows, units = parts[: self.units[0]], parts[self.units[0] :]
        columns = [half for unit in units for half in self._right.columns(unit)]
        made = list[Value]()
        for a in rows:
            for b in columns:
                made += self.format.multiply(a, b, sums[len(made) : len(made) + 4], self.chip)
        return made
