"""Skinny products with rhs contiguous along k: dot products of its lines with those of lhs.

They are bandwidth-bound by rhs; products are accumulated in the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_panels
from stablexla.targets.cpu.contraction.register_tile import OuterReduction, contraction_grain

# Bytes that a core reads from memory in 20 microseconds, on the machine where this was measured.
READ_BYTES = 256 << 10


@dataclass(frozen=True)
class SkinnyDotsPlan:
    """Blocking of a product of few rows.

    Attributes:
        columns: columns of an item.
        width: lines of rhs in the register tile.
        rows: the most rows of lhs in it.
    """

    columns: int
    width: int
    rows: int = 4


def emit_skinny_dots(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: SkinnyDotsPlan) -> Emitted:
    """Emit dot products of lines of lhs and rhs, both contiguous along k (lhs is packed if it is not)."""
    c = contraction
    blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target) as arguments:
        scene = ContractionScene(c, arguments)
        dots = _Dots(scene, plan)
        with arguments.split_items([c.batches, blocks]) as place:
            dots.item(*place)
    items = c.batches * blocks
    return Emitted(items, reading_grain(c, items), in_place=c.in_place)


class _Dots:
    """Code of one work item of `emit_skinny_dots`: all rows of lhs with a block of rhs's lines."""

    def __init__(self, scene: ContractionScene, plan: SkinnyDotsPlan) -> None:
        self.scene, self.plan, self.c = scene, plan, scene.contraction
        c = self.c
        self.stride = math.ceil(min(plan.columns, c.n.extent) / plan.width) * plan.width
        self.sums = cg.alloca(c.m.extent * self.stride, scene.compute)
        self.groups = row_groups(c.m.extent, plan.rows)
        # Independent accumulators hide the FMA latency.
        self.unroll = max(1, 8 // (self.groups[0] * plan.width))
        self.copied = c.k.a != 1
        if self.copied:
            self.lines = PackedPanels(1, c.k.extent, 1)
            self.lhs = cg.alloca(self.lines.size(c.m.extent), scene.compute)

    def item(self, batch: Index, block: Index) -> None:
        c, width = self.c, self.plan.width
        frame = self.scene.frame(batch)
        first = cg.index(block) * self.plan.columns
        columns = block_size(c.n.extent, self.plan.columns, first)
        if self.copied:
            a, convert = self.scene.inputs[c.a.number], self.scene.convert_a
            source = PackingSource(a, frame.a, c.m.a, c.k.a, c.m.extent, c.k.extent, convert)
            pack_panels(self.lines, source, self.lhs)
        # Lines read concurrently are far apart: each stream continues with the next line in memory.
        apart = (columns + (width - 1)) // width
        with cg.loop(0, apart) as group:
            places = [group.iv + apart * r for r in range(width)]
            lines = [(cg.minimum(place, columns - 1) + first) * c.n.b + frame.b for place in places]
            for_groups(
                self.groups,
                lambda row, rows: self._keep(self._sum(cg.index(frame.a), row, rows, lines), row, places),
            )
        self.scene.write_block(self.sums, self.stride, frame, (c.m.extent, columns), (0, first))

    def _sum(self, at_a: Value, row: Value, rows: int, lines: Sequence[Value]) -> list[Value]:
        """Emit vector accumulators of the dot products of `rows` rows of lhs with every line."""
        c, lanes = self.c, self.scene.lanes
        count = rows * len(lines)
        if self.copied:
            starts = [(row + m) * self.lines.stride for m in range(rows)]
        else:
            starts = [(row + m) * c.m.a + at_a for m in range(rows)]
        with OuterReduction(c.k_outer, 0, 0, [self.scene.zero] * (count * self.unroll)) as nest:
            step = lanes * self.unroll
            whole = c.k.extent // step * step
            with cg.loop(0, whole, step, nest.sums) as k:
                sums = list(k.args)
                for u in range(self.unroll):
                    mine = slice(u * count, (u + 1) * count)
                    sums[mine] = self._step(k.iv + u * lanes, lanes, nest, starts, lines, sums[mine])
                k.yields(*sums)
            sums = k.results
            for at in range(whole, c.k.extent, lanes):
                valid = min(lanes, c.k.extent - at)
                sums[:count] = self._step(cg.index(at), valid, nest, starts, lines, sums[:count])
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
        scene, lanes = self.scene, self.scene.lanes
        if self.copied:
            rows = [cg.load_lanes(self.lhs, start + k, lanes, valid) for start in starts]
        else:
            rows = [scene.load_a(nest.at_a + k + start, lanes, valid) for start in starts]
        factors = [scene.load_b(line + k + nest.at_b, lanes, valid) for line in lines]
        pairs = [(row, factor) for row in rows for factor in factors]
        return [cg.fma(row, factor, s) for (row, factor), s in zip(pairs, sums, strict=True)]

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
                cg.store(total, self.sums, (row + m) * self.stride + column)


def reading_grain(contraction: Contraction, items: int) -> int:
    """Return a grain of about 20 microseconds of work, or of reading rhs from memory."""
    c = contraction
    elements = c.batches * c.n.extent * c.k.extent * math.prod(axis.extent for axis in c.k_outer)
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
