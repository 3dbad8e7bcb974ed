"""Skinny products (GEMV, few rows) of narrow elements, bandwidth-bound by the large matrix.

Like `skinny_rows` and `skinny_dots`, for elements that are widened before they are multiplied: lhs is widened once an
item, an element of rhs once for some rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from mlir.dialects import vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.cpu.contraction.dot_instructions import (
    LANE_BITS,
    MultiplyAdd,
    broadcast_group,
    interleave_lanes,
    load_group,
)
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_lines
from stablexla.targets.cpu.contraction.register_tile import contraction_grain
from stablexla.targets.cpu.contraction.skinny_dots import for_groups, row_groups

# The most rows of a product that is bandwidth-bound by the other matrix.
MOST_ROWS = 12
# Bytes of widened lhs and of the accumulators: both are reused and stay in L1.
ROWS_LHS_BYTES = 8 << 10
SUMS_BYTES = 16 << 10
# Bytes of widened lhs of dot products: it stays in L2.
DOTS_LHS_BYTES = 176 << 10
LINE = 64


@dataclass(frozen=True)
class SkinnyNarrowPlan:
    """Blocking of such a product: groups of k in a block, columns of an item, whether rows are prefetched."""

    depth: int
    columns: int
    ahead: bool = False


def emit_skinny_narrow(kernel: Kernel, c: Contraction, product: MultiplyAdd, target: CpuTarget) -> Emitted | None:
    """Emit a skinny product, of few rows or few columns; None for others."""
    lanes = target.vector_bits // LANE_BITS
    for view in (c, c.swapped()):
        if view.m.extent > MOST_ROWS or view.n.extent < 2 * lanes or view.k_outer or product.offset:
            continue
        if view.n.extent * view.k.extent < 1 << 14:
            continue
        own = product if view is c else product.swapped()
        if view.k.b == 1:
            return _emit(kernel, view, own, target, _Dots)
        if view.n.b == 1 and view.n.c == 1:
            return _emit(kernel, view, own, target, _Rows)
    return None


def _emit(kernel: Kernel, c: Contraction, product: MultiplyAdd, target: CpuTarget, kind: type[_Item]) -> Emitted:
    plan = kind.plan_for(c, product, target)
    blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target) as arguments:
        item = kind(ContractionScene(c, arguments), product, plan)
        with arguments.split_items([c.batches, blocks]) as place:
            item.item(*place)
    items = c.batches * blocks
    return Emitted(items, contraction_grain(c, items), in_place=c.in_place)


def _items(c: Contraction, target: CpuTarget) -> int:
    """Return the work items wanted: some for each thread, but no smaller than is worth the call."""
    return target.work_items(c.batches * c.m.extent * c.n.extent * c.k.extent)


def _rounded(number: float, multiple: int) -> int:
    return max(1, math.ceil(number / multiple)) * multiple


class _Item(ABC):
    """Common code of both kinds of items: sums of all rows for a block of columns, k block by block."""

    def __init__(self, scene: ContractionScene, product: MultiplyAdd, plan: SkinnyNarrowPlan) -> None:
        self.scene, self.product, self.plan, self.c = scene, product, plan, scene.contraction
        self.lanes = scene.lanes
        # The remainder of k is padded to whole vectors.
        self.stride = math.ceil(plan.depth / self.lanes) * self.lanes
        self.lhs = cg.alloca(self.c.m.extent * self.stride * product.group, product.unit_type)
        self.size = self.c.m.extent * plan.columns
        self.sums = cg.alloca(self.size, scene.compute)
        long = self.c.k.extent > max(LONGEST_RUNNING_SUM, plan.depth * product.group) and cg.is_float(scene.compute)
        self.blocks = CompensatedSums.make(self.size, scene.compute) if long else None

    @staticmethod
    @abstractmethod
    def plan_for(c: Contraction, product: MultiplyAdd, target: CpuTarget) -> SkinnyNarrowPlan:
        """Plan the blocking."""

    def item(self, batch: Index, block: Index) -> None:
        c, plan, group = self.c, self.plan, self.product.group
        frame = self.scene.frame(batch)
        first = cg.index(block) * plan.columns
        columns = cg.minimum(cg.index(c.n.extent) - first, plan.columns)
        with cg.loop(0, self.size, self.lanes) as i:
            cg.store(self.scene.zero, self.sums, i.iv)
        if self.blocks is not None:
            self.blocks.clear_all(self.size, self.lanes)
        with cg.loop(0, c.k.extent, plan.depth * group) as k:
            steps = cg.minimum(cg.index(c.k.extent) - k.iv, plan.depth * group)
            a = self.scene.inputs[c.a.number]
            at = k.iv * c.k.a + frame.a
            source = PackingSource(a, at, c.m.a, c.k.a, c.m.extent, steps, self.product.a)
            padded = self.padded((steps + (group - 1)) // group) * group
            pack_lines(PackedPanels(1, self.stride * group, self.lanes, group), source, self.lhs, padded)
            self.block(first * c.n.b + frame.b + k.iv * c.k.b, columns, steps)
            if self.blocks is not None:
                self.blocks.take(self.sums, self.size, self.lanes)
        if self.blocks is not None:
            self.blocks.give(self.sums, self.size, self.lanes)
        self.scene.write_block(self.sums, plan.columns, frame, (c.m.extent, columns), (0, first))

    def padded(self, groups: Value) -> Value:
        """Return the groups of lhs after zero padding."""
        return groups

    @abstractmethod
    def block(self, at: Value, columns: Value, steps: Value) -> None:
        """Accumulate the products of a block of k; `at` is its offset in rhs."""

    def load_b(self, lines: Sequence[Value], lanes: int, count: int) -> Value:
        """Load elements of rhs, interleaved and widened; the first `count` of each line."""
        buffer = self.scene.inputs[self.c.b.number]
        return self.product.b(interleave_lanes([cg.load_lanes(buffer, line, lanes, count) for line in lines]))


class _Rows(_Item):
    """rhs contiguous along n: some of its rows, times elements of lhs, are added to accumulators in L1."""

    @staticmethod
    def plan_for(c: Contraction, product: MultiplyAdd, target: CpuTarget) -> SkinnyNarrowPlan:
        """Plan long pieces of a few rows of rhs, which suit the hardware prefetcher."""
        lanes = target.vector_bits // LANE_BITS
        size = c.m.extent * LANE_BITS // 8
        threads = target.num_threads if _items(c, target) > 1 else 1
        blocks = threads * math.ceil(c.n.extent / (threads * max(16 * lanes, SUMS_BYTES // size)))
        blocks = max(1, blocks // min(blocks, c.batches))
        depth = max(8, ROWS_LHS_BYTES // size // 8 * 8)
        columns = _rounded(max(c.n.extent / blocks, min(c.n.extent, 32 * lanes)), 2 * lanes)
        return SkinnyNarrowPlan(min(depth, math.ceil(c.k.extent / product.group)), columns, c.m.extent > 2)

    def block(self, at: Value, columns: Value, steps: Value) -> None:
        group, lanes, rest = self.product.group, self.lanes, self.c.n.extent % self.lanes
        turn = 8 if self.c.m.extent <= 2 else 4
        whole = steps // (turn * group) * turn

        def sweep(g: Value, turn: int, missing: bool = False) -> None:
            if self.plan.ahead and turn > 1:
                self._prefetch(g + turn, at, columns, turn)
            strips, vectors = columns // (2 * lanes) * (2 * lanes), columns // lanes * lanes
            with cg.loop(0, strips, 2 * lanes) as j:
                self._strip(g, at, j.iv, turn, 2, lanes, missing)
            if self.c.n.extent % (2 * lanes) >= lanes:
                with cg.loop(strips, vectors, lanes) as j:
                    self._strip(g, at, j.iv, turn, 1, lanes, missing)
            if rest:
                with cg.when(vectors.lt(columns)):
                    self._strip(g, at, vectors, turn, 1, rest, missing)

        with cg.loop(0, whole, turn) as g:
            sweep(g.iv, turn)
        if self.c.k.extent % (turn * group):
            with cg.loop(whole, steps // group) as g:
                sweep(g.iv, 1)
        if self.c.k.extent % group:
            with cg.when((steps // group * group).lt(steps)):
                sweep(steps // group, 1, True)

    def _prefetch(self, g: Value, at: Value, columns: Value, turn: int) -> None:
        """Prefetch the same columns of the next rows."""
        buffer = self.scene.inputs[self.c.b.number]
        with cg.loop(0, columns, LINE * 8 // cg.bits_of(buffer.type)) as j:
            for row in range(turn * self.product.group):
                cg.prefetch(buffer, (g * self.product.group + row) * self.c.k.b + at + j.iv)

    def _strip(self, g: Value, at: Value, column: Value, turn: int, vectors: int, count: int, missing: bool) -> None:
        """Accumulate `turn` groups of rows for some vectors of columns; with `missing`, groups of one row."""
        c, group, lanes = self.c, self.product.group, self.lanes
        factors = []
        for t in range(turn):
            # A missing row is multiplied by the zero padding of lhs.
            lines = [((g + t) * group + (0 if missing else u)) * c.k.b + at + column for u in range(group)]
            units = self.load_b(lines, vectors * lanes, (vectors - 1) * lanes + count)
            factors.append([self._part(units, v) for v in range(vectors)])
        unroll = next(u for u in (4, 3, 2, 1) if c.m.extent % u == 0)
        with cg.loop(0, c.m.extent, unroll) as row:
            for r in range(unroll):
                self._add(g, row.iv + r, column, factors)

    def _part(self, units: Value, number: int) -> Value:
        size = self.lanes * self.product.group
        if units.lanes == size:
            return units
        type_ = cg.vector_of(size, units.element)
        return Value(vector.extract_strided_slice(type_, units.ssa, [number * size], [size], [1]))

    def _add(self, g: Value, row: Value, column: Value, factors: Sequence[Sequence[Value]]) -> None:
        lanes, group = self.lanes, self.product.group
        places = [row * self.plan.columns + column + v * lanes for v in range(len(factors[0]))]
        sums = [cg.load(self.sums, place, lanes) for place in places]
        for t, parts in enumerate(factors):
            units = load_group(self.product, self.lhs, (row * self.stride + g + t) * group)
            a = broadcast_group(units, lanes)
            sums = [self.product.multiply_add(a, b, s) for b, s in zip(parts, sums, strict=True)]
        for value, place in zip(sums, places, strict=True):
            cg.store(value, self.sums, place)


class _Dots(_Item):
    """rhs contiguous along k: dot products of its lines with those of lhs, accumulated in the lanes."""

    @staticmethod
    def plan_for(c: Contraction, product: MultiplyAdd, target: CpuTarget) -> SkinnyNarrowPlan:
        """Plan lines of rhs to be read from end to end, if lhs is not too large."""
        lanes = target.vector_bits // LANE_BITS
        groups = math.ceil(c.k.extent / product.group)
        depth = DOTS_LHS_BYTES // (c.m.extent * LANE_BITS // 8) // (8 * lanes) * 8 * lanes
        columns = min(1024, math.ceil(c.n.extent * c.batches / _items(c, target)), c.n.extent)
        return SkinnyNarrowPlan(min(depth, groups), _rounded(columns, lanes))

    def padded(self, groups: Value) -> Value:
        return (groups + (self.lanes - 1)) // self.lanes * self.lanes

    def block(self, at: Value, columns: Value, steps: Value) -> None:
        c = self.c
        groups = row_groups(c.m.extent, 4)
        width = min(12 // groups[0], 4)
        # Independent accumulators hide the FMA latency.
        unroll = max(1, 8 // (groups[0] * width))
        with cg.loop(0, columns, width) as group:
            # Lines beyond the edge are clamped to the last one: their sums are not used.
            lines = [cg.minimum(group.iv + w, columns - 1) * c.n.b + at for w in range(width)]

            def add(row: Value, rows: int) -> None:
                for number, value in enumerate(self._sum(row, rows, lines, steps, unroll)):
                    r, w = divmod(number, width)
                    place = (row + r) * self.plan.columns + group.iv + w
                    with cg.when((group.iv + w).lt(columns)) if w else nullcontext():
                        cg.store(cg.load(self.sums, place) + cg.reduce_add(value), self.sums, place)

            for_groups(groups, add)

    def _sum(self, row: Value, rows: int, lines: Sequence[Value], steps: Value, unroll: int) -> list[Value]:
        """Emit dot products of some rows of lhs with every line, as vector accumulators before horizontal reduction."""
        c, size = self.c, self.lanes * self.product.group
        count = rows * len(lines)
        turn = size * unroll
        whole = steps // turn * turn
        with cg.loop(0, whole, turn, [self.scene.zero] * (count * unroll)) as k:
            sums = list(k.args)
            for u in range(unroll):
                mine = slice(u * count, (u + 1) * count)
                sums[mine] = self._step(row, rows, k.iv + u * size, size, lines, sums[mine])
            k.yields(*sums)
        sums = list(k.results)
        while len(sums) > count:
            sums = [*(a + b for a, b in zip(sums[:count], sums[-count:], strict=True)), *sums[count:-count]]
        vectors = steps // size * size
        if unroll > 1 and c.k.extent % turn >= size:
            with cg.loop(whole, vectors, size, sums) as k:
                k.yields(*self._step(row, rows, k.iv, size, lines, k.args))
            sums = list(k.results)
        if c.k.extent % size:
            with cg.loop(vectors, steps, size, sums) as k:  # remainder of the last block: at most one iteration
                k.yields(*self._step(row, rows, k.iv, c.k.extent % size, lines, k.args))
            sums = list(k.results)
        return sums

    def _step(
        self, row: Value, rows: int, k: Value, valid: int, lines: Sequence[Value], sums: Sequence[Value]
    ) -> list[Value]:
        group = self.product.group
        size = self.lanes * group
        factors = [self.load_b([line + k], size, valid) for line in lines]
        left = [cg.load(self.lhs, (row + r) * (self.stride * group) + k, size) for r in range(rows)]
        pairs = [(a, factor) for a in left for factor in factors]
        return [self.product.multiply_add(a, b, s) for (a, b), s in zip(pairs, sums, strict=True)]
