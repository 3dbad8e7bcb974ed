"""Skinny products with rhs contiguous along k: dot products of its lines with those of lhs.

They are bandwidth-bound by rhs; products are accumulated in the lanes, by plain multiply-adds or by an instruction on
groups of narrow elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.cpu.contraction.dot_instructions import MultiplyAdd
from stablexla.targets.cpu.contraction.factors import Bundle, Step, rhs_of
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_lines
from stablexla.targets.cpu.contraction.register_tile import OuterReduction, contraction_grain

# Bytes that a core reads from memory in 10 microseconds, on the machine where this was measured.
READ_BYTES = 128 << 10


@dataclass(frozen=True)
class SkinnyDotsPlan:
    """Blocking of a product of few rows.

    Attributes:
        columns: columns of an item.
        width: lines of rhs in the register tile.
        pack: whether an item packs lhs, as contiguous lines along k that are converted once.
        depth: steps of k (`Bundle`) in a block; 0 for all of them, with the outer axes of k.
        rows: the most rows of lhs in the register tile.
        ahead: whether the same steps of the next line are prefetched. A stream of blocks of k leaps from line to line,
            where the hardware prefetcher begins anew.
    """

    columns: int
    width: int
    pack: bool
    depth: int = 0
    rows: int = 4
    ahead: bool = False


def emit_skinny_dots(
    kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: SkinnyDotsPlan, product: MultiplyAdd
) -> Emitted:
    """Emit dot products of lines of lhs and rhs, both contiguous along k (lhs is packed if it is not)."""
    c = contraction
    blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target) as arguments:
        scene = ContractionScene(c, arguments)
        dots = _Dots(scene, plan, product)
        with arguments.split_items([c.batches, blocks]) as place:
            dots.item(*place)
    items = c.batches * blocks
    return Emitted(items, reading_grain(c, items), in_place=c.in_place)


class _Dots:
    """Code of one work item of `emit_skinny_dots`: all rows of lhs with a block of rhs's lines."""

    def __init__(self, scene: ContractionScene, plan: SkinnyDotsPlan, product: MultiplyAdd) -> None:
        self.scene, self.plan, self.product, self.c = scene, plan, product, scene.contraction
        c, self.vector = self.c, scene.lanes * product.group
        self.bundle = Bundle.of(c)
        self.depth = plan.depth or self.bundle.steps
        self.in_blocks = self.depth < self.bundle.steps
        self.stride = math.ceil(min(plan.columns, c.n.extent) / plan.width) * plan.width
        self.size = math.ceil(c.m.extent * self.stride / scene.lanes) * scene.lanes
        self.sums = cg.alloca(self.size, scene.compute)
        compensated = self.in_blocks and cg.is_float(scene.compute)
        self.blocks = CompensatedSums.make(self.size, scene.compute) if compensated else None
        self.groups = row_groups(c.m.extent, plan.rows)
        # Independent accumulators hide the FMA latency.
        self.unroll = max(1, 8 // (self.groups[0] * plan.width))
        if plan.pack:
            depth = math.ceil(self.depth / self.vector) * self.vector
            self.lines = PackedPanels(1, depth, scene.lanes, product.group)
            self.lhs = cg.alloca(self.lines.size(c.m.extent) * len(self.bundle.offsets), product.unit_type)

    def item(self, batch: Index, block: Index) -> None:
        c = self.c
        frame = self.scene.frame(batch)
        first = cg.index(block) * self.plan.columns
        columns = block_size(c.n.extent, self.plan.columns, first)
        at = cg.index(frame.a)
        if self.in_blocks:
            self._sum_blocks(frame, first, columns)
        else:
            self.rhs = rhs_of(self.scene, frame, first, cg.index(0))
            self._sum_block(at, columns, cg.index(self.bundle.steps))
        self.scene.write_block(self.sums, self.stride, frame, (c.m.extent, columns), (0, first))

    def _sum_blocks(self, frame: BatchFrame, first: Value, columns: Value) -> None:
        """Accumulate all blocks of k."""
        c, lanes = self.c, self.scene.lanes
        with cg.loop(0, self.size, lanes) as i:
            cg.store(self.scene.zero, self.sums, i.iv)
        if self.blocks is not None:
            self.blocks.clear_all(self.size, lanes)
        with cg.loop(0, self.bundle.steps, self.depth) as k:
            steps = cg.minimum(cg.index(self.bundle.steps) - k.iv, self.depth)
            self.rhs = rhs_of(self.scene, frame, first, k.iv)
            self._sum_block(k.iv * (self.bundle.unit * c.k.a) + frame.a, columns, steps)
            if self.blocks is not None:
                self.blocks.take(self.sums, self.size, lanes)
        if self.blocks is not None:
            self.blocks.give(self.sums, self.size, lanes)

    def _sum_block(self, at: Value, columns: Value, steps: Value) -> None:
        """Store, or with several blocks of k accumulate, the dot products of a block from `at` in lhs on."""
        c, width, vector = self.c, self.plan.width, self.vector
        if self.plan.pack:
            a, between = self.scene.inputs[c.a.number], self.bundle.unit * c.k.a
            for number, offset in enumerate(self.bundle.offsets):
                source = PackingSource(a, at + offset * c.k.a, c.m.a, between, c.m.extent, steps, self.product.a)
                padded, base = (steps + (vector - 1)) // vector * vector, number * self.lines.size(c.m.extent)
                pack_lines(self.lines, source, self.lhs, padded, base)
        # Lines read concurrently are far apart: each stream continues with the next line in memory.
        apart = (columns + (width - 1)) // width
        with cg.loop(0, apart) as group:
            places = [group.iv + apart * r for r in range(width)]
            lines = [cg.minimum(place, columns - 1) for place in places]
            for_groups(
                self.groups,
                lambda row, rows: self._keep(self._sum(at, row, rows, lines, steps), row, places),
            )

    def _sum(self, at_a: Value, row: Value, rows: int, lines: Sequence[Value], steps: Value) -> list[Value]:
        """Emit vector accumulators of the dot products of `rows` rows of lhs with every line."""
        c, vector = self.c, self.vector
        count = rows * len(lines)
        if self.plan.pack:
            starts = [(row + m) * self.lines.stride for m in range(rows)]
        else:
            starts = [(row + m) * c.m.a + at_a for m in range(rows)]
        with OuterReduction(c.k_outer, 0, 0, [self.scene.zero] * (count * self.unroll)) as nest:
            per_iteration = vector * self.unroll
            whole, vectors = steps // per_iteration * per_iteration, steps // vector * vector

            def sweep(first: Index, last: Value, unroll: int, inits: Sequence[Value], valid: int) -> list[Value]:
                with cg.loop(first, last, vector * unroll, inits) as k:
                    sums = list(k.args)
                    for u in range(unroll):
                        mine = slice(u * count, (u + 1) * count)
                        sums[mine] = self._step(k.iv + u * vector, valid, nest, starts, lines, sums[mine])
                    k.yields(*sums)
                return k.results

            sums = sweep(0, whole, self.unroll, nest.sums, vector)
            if self.bundle.steps % per_iteration >= vector:
                sums[:count] = sweep(whole, vectors, 1, sums[:count], vector)
            if rest := self.bundle.steps % vector:
                sums[:count] = sweep(vectors, steps, 1, sums[:count], rest)
            nest.yields(*sums)
        sums = nest.results
        while len(sums) > count:
            sums = [*(a + b for a, b in zip(sums[:count], sums[-count:], strict=True)), *sums[count:-count]]
        return sums

    def _step(
        self,
        k: Value,
        valid: int,
        nest: OuterReduction,
        starts: Sequence[Value],
        lines: Sequence[Value],
        sums: Sequence[Value],
    ) -> list[Value]:
        product, vector, a = self.product, self.vector, self.scene.inputs[self.c.a.number]
        for element in range(len(self.bundle.offsets)):
            if self.plan.pack:
                base = element * self.lines.size(self.c.m.extent)
                rows = [cg.load(self.lhs, start + k + base, vector) for start in starts]
            else:
                rows = [product.a(cg.load_lanes(a, nest.at_a + k + start, vector, valid)) for start in starts]
            step = Step(k, element=element)
            if self.plan.ahead:
                for line in lines:
                    self.rhs.prefetch_line(step, line + 1, vector, nest.at_b)
            factors = [product.b(self.rhs.line(step, line, vector, valid, nest.at_b)) for line in lines]
            pairs = [(row, factor) for row in rows for factor in factors]
            sums = [product.multiply_add(row, factor, s) for (row, factor), s in zip(pairs, sums, strict=True)]
        return list(sums)

    def _keep(self, sums: list[Value], row: Value, columns: Sequence[Value]) -> None:
        """Reduce lanes horizontally, and store the sums of some rows in these columns, one for each line."""
        lanes, width = self.scene.lanes, self.plan.width
        for m in range(len(sums) // width):
            line = sums[m * width : (m + 1) * width]
            if width == lanes:
                parts = cg.transpose_registers(line)
                while len(parts) > 1:
                    parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
                totals = [cg.extract(parts[0], r) for r in range(width)]
            else:
                totals = [cg.reduce_add(value) for value in line]
            for total, column in zip(totals, columns, strict=True):
                place = (row + m) * self.stride + column
                cg.store(cg.load(self.sums, place) + total if self.in_blocks else total, self.sums, place)


def reading_grain(contraction: Contraction, items: int) -> int:
    """Return a grain of about 20 microseconds of work, or of 10 of reading rhs from memory."""
    c = contraction
    elements = c.batches * c.n.extent * c.depth
    read = elements * cg.bits_of(c.b.element) // 8
    return min(contraction_grain(c, items), math.ceil(items * READ_BYTES / max(1, read)))


def row_groups(rows: int, most: int) -> list[int]:
    """Split rows into balanced groups of at most `most`, the larger ones first; return their sizes."""
    count = math.ceil(rows / most)
    return [rows // count + (number < rows % count) for number in range(count)]


def for_groups(groups: Sequence[int], write: Callable[[Value, int], None]) -> None:
    """Call `write` with the first row and the size of each group; groups of the first one's size share code.

    Operands shared by all rows are loaded by the first group and then cached.
    """
    equal = groups.count(groups[0])
    with cg.loop(0, groups[0] * equal, groups[0]) as row:
        write(row.iv, groups[0])
    if equal < len(groups):
        with cg.loop(groups[0] * equal, sum(groups), groups[-1]) as row:
            write(row.iv, groups[-1])


def block_size(extent: int, block: int, first: Index) -> Value:
    """Emit the size of the block of `extent` that begins at `first`."""
    if extent <= block:
        return cg.index(extent)
    return cg.index(block) if extent % block == 0 else cg.minimum(cg.index(extent) - first, block)
