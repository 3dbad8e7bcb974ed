"""Skinny products (GEMV, few rows) of narrow elements, bandwidth-bound by the large matrix.

Like `skinny_rows`, for elements that are widened before they are multiplied: lhs is widened once an item, an element of
rhs once for all rows. With rhs contiguous along k they go to `skinny_dots`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
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
from stablexla.targets.cpu.contraction.skinny_dots import SkinnyDotsPlan, emit_skinny_dots, row_groups

# The most rows of a product that is bandwidth-bound by the other matrix.
MOST_ROWS = Gate("narrow.most-rows", 12, eager=1)
# The least elements of that matrix.
LEAST_ELEMENTS = Gate("narrow.least-elements", 1 << 14, eager=1)
# Bytes of widened lhs and of the accumulators: both are reused and stay in L1.
ROWS_LHS_BYTES = Gate("narrow.rows-lhs-bytes", 8 << 10, eager=64)
SUMS_BYTES = Gate("narrow.sums-bytes", 16 << 10, eager=64)
# Bytes of widened lhs of dot products: it stays in L2.
DOTS_LHS_BYTES = Gate("narrow.dots-lhs-bytes", 176 << 10, eager=64)
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
        if view.m.extent > MOST_ROWS() or view.n.extent < 2 * lanes or view.k_outer or product.offset:
            continue
        if view.n.extent * view.k.extent < LEAST_ELEMENTS():
            continue
        own = product if view is c else product.swapped()
        if view.k.b == 1:
            return emit_skinny_dots(kernel, view, target, _plan_dots(view, own, target), own)
        if view.n.b == 1 and view.n.c == 1:
            return _emit_rows(kernel, view, own, target)
    return None


def _emit_rows(kernel: Kernel, c: Contraction, product: MultiplyAdd, target: CpuTarget) -> Emitted:
    plan = _plan_rows(c, product, target)
    blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target) as arguments:
        rows = _Rows(ContractionScene(c, arguments), product, plan)
        with arguments.split_items([c.batches, blocks]) as place:
            rows.item(*place)
    items = c.batches * blocks
    return Emitted(items, contraction_grain(c, items), in_place=c.in_place)


def _plan_dots(c: Contraction, product: MultiplyAdd, target: CpuTarget) -> SkinnyDotsPlan:
    """Plan lines of rhs to be read from end to end, if lhs is not too large."""
    lanes = target.vector_bits // LANE_BITS
    depth = max(1, DOTS_LHS_BYTES() // (c.m.extent * LANE_BITS // 8) // (8 * lanes)) * 8 * lanes * product.group
    columns = min(1024, math.ceil(c.n.extent * c.batches / _items(c, target)), c.n.extent)
    return SkinnyDotsPlan(_rounded(columns, lanes), min(12 // row_groups(c.m.extent, 4)[0], 4), pack=True, depth=depth)


def _plan_rows(c: Contraction, product: MultiplyAdd, target: CpuTarget) -> SkinnyNarrowPlan:
    """Plan long pieces of a few rows of rhs, which suit the hardware prefetcher."""
    lanes = target.vector_bits // LANE_BITS
    size = c.m.extent * LANE_BITS // 8
    threads = target.num_threads if _items(c, target) > 1 else 1
    blocks = threads * math.ceil(c.n.extent / (threads * max(16 * lanes, SUMS_BYTES() // size)))
    blocks = max(1, blocks // min(blocks, c.batches))
    depth = max(8, ROWS_LHS_BYTES() // size // 8 * 8)
    columns = _rounded(max(c.n.extent / blocks, min(c.n.extent, 32 * lanes)), 2 * lanes)
    return SkinnyNarrowPlan(min(depth, math.ceil(c.k.extent / product.group)), columns, c.m.extent > 2)


def _items(c: Contraction, target: CpuTarget) -> int:
    """Return the work items wanted: some for each thread, but no smaller than is worth the call."""
    return target.work_items(c.batches * c.m.extent * c.n.extent * c.k.extent)


def _rounded(number: float, multiple: int) -> int:
    return max(1, math.ceil(number / multiple)) * multiple


class _Rows:
    """Code of one work item: some rows of rhs, times elements of lhs, are added to accumulators in L1."""

    def __init__(self, scene: ContractionScene, product: MultiplyAdd, plan: SkinnyNarrowPlan) -> None:
        self.scene, self.product, self.plan, self.c = scene, product, plan, scene.contraction
        self.lanes = scene.lanes
        # The remainder of k is padded to whole vectors.
        self.stride = math.ceil(plan.depth / self.lanes) * self.lanes
        self.lhs = cg.alloca(self.c.m.extent * self.stride * product.group, product.unit_type)
        self.size = self.c.m.extent * plan.columns
        self.sums = cg.alloca(self.size, scene.compute)
        long = self.c.k.extent > max(LONGEST_RUNNING_SUM(), plan.depth * product.group) and cg.is_float(scene.compute)
        self.blocks = CompensatedSums.make(self.size, scene.compute) if long else None

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
            padded = (steps + (group - 1)) // group * group
            pack_lines(PackedPanels(1, self.stride * group, self.lanes, group), source, self.lhs, padded)
            self.block(first * c.n.b + frame.b + k.iv * c.k.b, columns, steps)
            if self.blocks is not None:
                self.blocks.take(self.sums, self.size, self.lanes)
        if self.blocks is not None:
            self.blocks.give(self.sums, self.size, self.lanes)
        self.scene.write_block(self.sums, plan.columns, frame, (c.m.extent, columns), (0, first))

    def load_b(self, lines: Sequence[Value], lanes: int, count: int) -> Value:
        """Load elements of rhs, interleaved and widened; the first `count` of each line."""
        buffer = self.scene.inputs[self.c.b.number]
        return self.product.b(interleave_lanes([cg.load_lanes(buffer, line, lanes, count) for line in lines]))

    def block(self, at: Value, columns: Value, steps: Value) -> None:
        group, lanes, rest = self.product.group, self.lanes, self.c.n.extent % self.lanes
        groups = 8 if self.c.m.extent <= 2 else 4
        whole = steps // (groups * group) * groups

        def sweep(g: Value, groups: int, missing: bool = False) -> None:
            if self.plan.ahead and groups > 1:
                self._prefetch(g + groups, at, columns, groups)
            strips, vectors = columns // (2 * lanes) * (2 * lanes), columns // lanes * lanes
            with cg.loop(0, strips, 2 * lanes) as j:
                self._strip(g, at, j.iv, groups, 2, lanes, missing)
            if self.c.n.extent % (2 * lanes) >= lanes:
                with cg.loop(strips, vectors, lanes) as j:
                    self._strip(g, at, j.iv, groups, 1, lanes, missing)
            if rest:
                with cg.when(vectors.lt(columns)):
                    self._strip(g, at, vectors, groups, 1, rest, missing)

        with cg.loop(0, whole, groups) as g:
            sweep(g.iv, groups)
        if self.c.k.extent % (groups * group):
            with cg.loop(whole, steps // group) as g:
                sweep(g.iv, 1)
        if self.c.k.extent % group:
            with cg.when((steps // group * group).lt(steps)):
                sweep(steps // group, 1, True)

    def _prefetch(self, g: Value, at: Value, columns: Value, groups: int) -> None:
        """Prefetch the same columns of the next rows."""
        buffer = self.scene.inputs[self.c.b.number]
        with cg.loop(0, columns, LINE * 8 // cg.bits_of(buffer.type)) as j:
            for row in range(groups * self.product.group):
                cg.prefetch(buffer, (g * self.product.group + row) * self.c.k.b + at + j.iv)

    def _strip(self, g: Value, at: Value, column: Value, groups: int, vectors: int, count: int, missing: bool) -> None:
        """Accumulate `iteration` groups of rows for some vectors of columns; with `missing`, groups of one row."""
        c, group, lanes = self.c, self.product.group, self.lanes
        factors = []
        for t in range(groups):
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
        return cg.cut(units, number * size, size)

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
