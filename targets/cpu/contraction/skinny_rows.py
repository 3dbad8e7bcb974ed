"""Skinny products with rhs contiguous along n: rows of rhs, times elements of lhs, are accumulated (split-K).

They are bandwidth-bound by rhs. Bandwidth is highest where a core reads several long streams concurrently: k is split
into parts of such streams, and each part's accumulators stay in the core's cache. On two cores of Zen 3, matrices of
768x768 were read at 35 GB/s so, and at 21 where each core took half of the columns, eight rows at a time.
"""

from __future__ import annotations

import itertools
import math

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import COMPLETE_SUM, ContractionScene, SumState, accumulator_type
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.cpu.contraction.factors import Bundle, ComputedRhs, Step, rhs_of
from stablexla.targets.cpu.contraction.register_tile import OuterReduction
from stablexla.targets.cpu.contraction.skinny_dots import block_size, for_groups, reading_grain, row_groups
from stablexla.targets.cpu.contraction.split_k import emit_split_k_reduction


@dataclass(frozen=True)
class SkinnyRowsPlan:
    """Blocking of a product of few rows.

    Attributes:
        columns: columns of an item.
        depth: steps of k (`Bundle`) of a part (split-K), summed by work items of its own.
        streams: streams of a part that are read concurrently.
        steps: rows of rhs read from each stream before the next columns.
        rows: the most rows of lhs in the register tile.
        width: vectors of columns in the register tile.
    """

    columns: int
    depth: int
    streams: int
    steps: int
    rows: int
    width: int


def emit_skinny_rows(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: SkinnyRowsPlan) -> Emitted:
    """Emit such a product; with split-K, a second phase reduces the partial sums."""
    c = contraction
    parts, blocks = math.ceil(Bundle.of(c).steps / plan.depth), math.ceil(c.n.extent / plan.columns)
    size = math.prod(c.shape)
    scratch: tuple[tuple[str, int], ...] = ()
    if parts > 1:
        scratch = ((str(accumulator_type(c)), parts * size),)
    with kernel.phase(target, scratch, unroll=False) as arguments:
        scene = ContractionScene(c, arguments, arguments.scratch[0] if parts > 1 else None)
        rows = _Rows(scene, plan)
        with arguments.split_items([*([parts] if parts > 1 else []), c.batches, blocks]) as (*part, batch, block):
            if part:
                rows.item(part[0], batch, block, SumState(kept=True, offset=part[0] * size))
            else:
                rows.item(0, batch, block, COMPLETE_SUM)
    items = parts * c.batches * blocks
    phases = [Phase(kernel.impl_name, items, reading_grain(c, items))]
    if parts > 1:
        phases.append(emit_split_k_reduction(kernel, c, target, scratch, parts))
    return Emitted(items, phases[0].grain, scratch, c.in_place, phases=tuple(phases))


@dataclass(frozen=True)
class _Block:
    """Rows of rhs that are accumulated together: `steps` adjacent ones of each of `streams`, `apart` rows apart."""

    streams: int
    steps: int
    apart: Index


class _Rows:
    """Code of one work item: sums of all rows of lhs for a block of columns, over a part of k."""

    def __init__(self, scene: ContractionScene, plan: SkinnyRowsPlan) -> None:
        self.scene, self.plan, self.c = scene, plan, scene.contraction
        self.bundle = Bundle.of(self.c)
        # Sums of even and of odd columns are apart while they are accumulated.
        factor = self.c.b.factor
        self.paired = factor is not None and factor.pairs and plan.width % 2 == 0
        # Rows of accumulators a multiple of a page apart would conflict in the cache.
        self.stride = math.ceil(min(plan.columns, self.c.n.extent) / scene.lanes) * scene.lanes + 2 * scene.lanes
        self.size = self.c.m.extent * self.stride
        self.sums = cg.alloca(self.size, scene.compute)
        depth = min(plan.depth, self.bundle.steps) * len(self.bundle.offsets)
        depth *= math.prod(axis.extent for axis in self.c.k_outer)
        long = depth > LONGEST_RUNNING_SUM() and cg.is_float(scene.compute)
        self.blocks = CompensatedSums.make(self.size, scene.compute) if long else None
        self.groups = row_groups(self.c.m.extent, plan.rows)
        self.copied = self.c.m.extent > 1
        if self.copied:
            size = self.c.m.extent * min(plan.depth, self.bundle.steps) * len(self.bundle.offsets)
            self.lhs = cg.alloca(size, scene.compute)

    def item(self, part: Index, batch: Index, block: Index, state: SumState) -> None:
        c, plan = self.c, self.plan
        frame = self.scene.frame(batch)
        first = cg.index(block) * plan.columns
        columns = block_size(c.n.extent, plan.columns, first)
        start = cg.index(part) * plan.depth
        steps = block_size(self.bundle.steps, plan.depth, start)
        self.rhs = rhs_of(self.scene, frame, first, start)
        with cg.loop(0, c.m.extent * self.stride, self.scene.lanes) as i:
            cg.store(self.scene.zero, self.sums, i.iv)
        at_a = start * (self.bundle.unit * c.k.a) + frame.a
        if self.blocks is not None:
            self.blocks.clear_all(self.size, self.scene.lanes)
        with OuterReduction(c.k_outer, at_a, 0) as nest:
            at = (nest.at_a, nest.at_b)
            if self.copied:
                at = (self._copy_lhs(nest.at_a, steps), nest.at_b)
            per_iteration = plan.streams * plan.steps
            length = steps // per_iteration * plan.steps
            block = max(1, LONGEST_RUNNING_SUM() // (per_iteration * len(self.bundle.offsets))) * plan.steps
            with cg.loop(0, length, block) as part_of_k:
                with cg.loop(part_of_k.iv, cg.minimum(part_of_k.iv + block, length), plan.steps) as k:
                    self._sweep(columns, at, k.iv, _Block(plan.streams, plan.steps, length))
                self._take()
            if cg.known(steps) is None or self.bundle.steps % per_iteration:
                with cg.loop(length * plan.streams, steps) as k:
                    self._sweep(columns, at, k.iv, _Block(1, 1, 0))
                self._take()
        if self.blocks is not None:
            self.blocks.give(self.sums, self.size, self.scene.lanes)
        if self.paired:
            self._interleave(columns)
        self.scene.write_block(self.sums, self.stride, frame, (c.m.extent, columns), (0, first), state)

    def _interleave(self, columns: Value) -> None:
        """Interleave the sums of even and of odd columns in the strips of the register tile's width."""
        lanes, width = self.scene.lanes, self.plan.width * self.scene.lanes
        order = [lane for pair in zip(range(lanes), range(lanes, 2 * lanes), strict=True) for lane in pair]
        with cg.loop(0, self.c.m.extent) as m, cg.loop(0, columns // width * width, 2 * lanes) as j:
            at = m.iv * self.stride + j.iv
            even, odd = (cg.load(self.sums, at + first, lanes) for first in (0, lanes))
            cg.store(cg.shuffle(even, odd, order), self.sums, at)

    def _take(self) -> None:
        """Add the partial sums of a block of k to those of the blocks before it."""
        if self.blocks is not None:
            self.blocks.take(self.sums, self.size, self.scene.lanes)

    def _copy_lhs(self, at: Value, steps: Value) -> Value:
        """Pack lhs so that the elements of each step are contiguous; unpacked, strides may conflict in the cache."""
        c, rows, offsets = self.c, self.c.m.extent, self.bundle.offsets
        with cg.loop(0, steps) as k, cg.loop(0, rows) as m:
            for number, offset in enumerate(offsets):
                value = self.scene.load_a((k.iv * self.bundle.unit + offset) * c.k.a + at + m.iv * c.m.a)
                cg.store(value, self.lhs, (k.iv * len(offsets) + number) * rows + m.iv)
        return cg.index(0)

    def _factors(self, at: Value, k: Value, element: int, row: Value, rows: int) -> list[Value]:
        """Load and broadcast the elements of lhs in step `k` of a part that begins at `at`, those of one of rhs."""
        c, lanes, offsets = self.c, self.scene.lanes, self.bundle.offsets
        if self.copied:
            start = (k * len(offsets) + element) * c.m.extent + row
            return [cg.splat(cg.load(self.lhs, start + m), lanes) for m in range(rows)]
        return [cg.splat(self.scene.load_a((k * self.bundle.unit + offsets[element]) * c.k.a + at), lanes)]

    def _sweep(self, columns: Value, at: tuple[Value, Value], k: Value, block: _Block) -> None:
        """Accumulate a block of rows of rhs."""
        lanes, width = self.scene.lanes, self.plan.width * self.scene.lanes
        strips, whole = columns // width * width, columns // lanes * lanes

        def strip(column: Value, vectors: int, count: int) -> None:
            for_groups(
                self.groups,
                lambda row, rows: self._add((row, column), (rows, vectors), at, k, block, count),
            )

        with cg.loop(0, strips, width) as j:
            strip(j.iv, self.plan.width, lanes)
        if self.c.n.extent % width >= lanes:
            with cg.loop(strips, whole, lanes) as j:
                strip(j.iv, 1, lanes)
        if self.c.n.extent % lanes:
            with cg.when(whole.lt(columns)):
                strip(whole, 1, self.c.n.extent % lanes)

    def _add(
        self,
        start: tuple[Value, Value],
        size: tuple[int, int],
        at: tuple[Value, Value],
        first: Value,
        block: _Block,
        count: int,
    ) -> None:
        """Accumulate some rows by some vectors of columns; of each vector the first `count` lanes are valid."""
        lanes = self.scene.lanes
        (row, column), (rows, vectors) = start, size
        elements = range(len(self.bundle.offsets))
        pairs = [(m, v) for m in range(rows) for v in range(vectors)]
        places = [row * self.stride + column + (m * self.stride + v * lanes) for m, v in pairs]
        unroll = next(u for u in (4, 2, 1) if block.streams % u == 0 and u * len(pairs) <= max(16, len(pairs)))
        with cg.loop(0, block.streams, unroll, [cg.load(self.sums, place, lanes) for place in places]) as stream:
            sums = stream.args
            for u in range(unroll):
                ahead = (stream.iv + u) * block.apart + first + block.steps
                self.rhs.prefetch(ahead, block.steps, column, vectors)
            for u, step, element in itertools.product(range(unroll), range(block.steps), elements):
                k = (stream.iv + u) * block.apart + first
                strip = self._strip(Step(k, block.steps, step, element), column, vectors, count, at[1])
                factors = self._factors(at[0], k + step, element, row, rows)
                sums = [cg.fma(factors[m], strip[v], s) for (m, v), s in zip(pairs, sums, strict=True)]
            stream.yields(*sums)
        for value, place in zip(stream.results, places, strict=True):
            cg.store(value, self.sums, place)

    def _strip(self, step: Step, column: Value, vectors: int, count: int, outer: Index) -> list[Value]:
        if self.paired and vectors == self.plan.width and isinstance(self.rhs, ComputedRhs):
            return self.rhs.pairs(step, column, vectors)
        return self.rhs.row(step, column, vectors, count, outer)
