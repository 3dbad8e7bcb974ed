"""Products of a few rows with a large matrix that lies along n: its rows, times elements of lhs, are added up.

What bounds them is the speed at which that matrix comes from memory. It is highest where a core reads some long pieces
of memory side by side: k is cut in parts of such pieces, and each part's sums are kept near the core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stablexla.targets.cpu.contraction_match import Contraction
from stablexla.targets.cpu.contraction_output import WHOLE, Scene, Sums, compute_type
from stablexla.targets.cpu.contraction_parts import emit_last_sums
from stablexla.targets.cpu.contraction_skinny import block_size, for_groups, row_groups
from stablexla.targets.cpu.contraction_tiles import OuterSums, grain_of
from stablexla.targets.cpu.emission import (
    Index,
    Value,
    alloca,
    emitting,
    fma,
    index,
    known,
    load,
    loop,
    splat,
    split_index,
    store,
    when,
)
from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.cpu.rolled import keep_rolled
from stablexla.targets.cpu.target import CpuTarget


@dataclass(frozen=True)
class RowsPlan:
    """How a product of few rows is cut.

    Attributes:
        columns: columns of an item.
        depth: steps of k of a part, each of which is summed by items of its own.
        streams: pieces of a part that are read side by side.
        rows: rows of lhs whose sums go through registers together, at most.
        width: vectors of columns that do so.
    """

    columns: int
    depth: int
    streams: int
    rows: int
    width: int


def emit_rows(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: RowsPlan) -> Emitted:
    """Writes such a product; where k is in parts, a second phase adds up their sums."""
    c = contraction
    parts, blocks = math.ceil(c.k.extent / plan.depth), math.ceil(c.n.extent / plan.columns)
    size = math.prod(c.shape)
    scratch: tuple[tuple[str, int], ...] = ()
    if parts > 1:
        scratch = ((str(compute_type(c)), parts * size),)
    function, arguments = kernel.declare(scratch)
    keep_rolled(function)
    with emitting(function, target):
        scene = Scene(c, arguments, Value(arguments.scratch[0]) if parts > 1 else None)
        rows = _Rows(scene, plan)
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            *part, batch, block = split_index(item.iv, [*([parts] if parts > 1 else []), c.batches, blocks])
            if part:
                rows.item(part[0], batch, block, Sums(kept=True, offset=part[0] * size))
            else:
                rows.item(0, batch, block, WHOLE)
    items = parts * c.batches * blocks
    phases = [(kernel.impl_name, items, grain_of(c, items))]
    if parts > 1:
        phases.append(emit_last_sums(kernel, c, target, scratch, parts))
    return Emitted(items, phases[0][2], scratch, c.in_place, phases=tuple(phases))


class _Rows:
    """The code of one item: sums of all rows of lhs for a block of columns, over a part of k."""

    def __init__(self, scene: Scene, plan: RowsPlan) -> None:
        self.scene, self.plan, self.c = scene, plan, scene.contraction
        self.stride = math.ceil(min(plan.columns, self.c.n.extent) / scene.lanes) * scene.lanes
        self.sums = alloca(self.c.m.extent * self.stride, scene.compute)
        self.groups = row_groups(self.c.m.extent, plan.rows)

    def item(self, part: Index, batch: Index, block: Index, state: Sums) -> None:
        c, plan = self.c, self.plan
        frame = self.scene.frame(batch)
        first = index(block) * plan.columns
        columns = block_size(c.n.extent, plan.columns, first)
        start = index(part) * plan.depth
        steps = block_size(c.k.extent, plan.depth, start)
        with loop(0, c.m.extent * self.stride, self.scene.lanes) as i:
            store(self.scene.zero, self.sums, i.iv)
        at_a, at_b = start * c.k.a + frame.a, first * c.n.b + frame.b + start * c.k.b
        with OuterSums(c.k_outer, at_a, at_b) as nest:
            length = steps // plan.streams
            with loop(0, length) as k:
                self._sweep(columns, k.iv * c.k.a + nest.at_a, k.iv * c.k.b + nest.at_b, plan.streams, length)
            if known(steps) is None or c.k.extent % plan.streams:
                with loop(length * plan.streams, steps) as k:
                    self._sweep(columns, k.iv * c.k.a + nest.at_a, k.iv * c.k.b + nest.at_b, 1, 0)
        self.scene.write_block(self.sums, self.stride, frame, (c.m.extent, columns), (0, first), state)

    def _sweep(self, columns: Value, at_a: Value, at_b: Value, streams: int, apart: Index) -> None:
        """Adds a row of rhs from each of some streams, `apart` rows from each other, to all sums."""
        lanes, width = self.scene.lanes, self.plan.width * self.scene.lanes
        strips, whole = columns // width * width, columns // lanes * lanes

        def strip(column: Value, vectors: int, count: int) -> None:
            for_groups(
                self.groups,
                lambda row, rows: self._add(row, rows, column, (at_a, at_b), streams, apart, vectors, count),
            )

        with loop(0, strips, width) as j:
            strip(j.iv, self.plan.width, lanes)
        if self.c.n.extent % width >= lanes:
            with loop(strips, whole, lanes) as j:
                strip(j.iv, 1, lanes)
        if self.c.n.extent % lanes:
            with when(whole.lt(columns)):
                strip(whole, 1, self.c.n.extent % lanes)

    def _add(
        self,
        row: Value,
        rows: int,
        column: Value,
        at: tuple[Value, Value],
        streams: int,
        apart: Index,
        vectors: int,
        count: int,
    ) -> None:
        """Adds to the sums of some rows, some vectors of columns; of each vector the first `count` lanes hold."""
        scene, c, lanes = self.scene, self.c, self.scene.lanes
        pairs = [(m, v) for m in range(rows) for v in range(vectors)]
        places = [row * self.stride + column + (m * self.stride + v * lanes) for m, v in pairs]
        start_a, start_b = row * c.m.a + at[0], at[1] + column
        unroll = next(u for u in (4, 2, 1) if streams % u == 0 and u * len(pairs) <= max(16, len(pairs)))
        with loop(0, streams, unroll, [load(self.sums, place, lanes) for place in places]) as stream:
            sums = stream.args
            for u in range(unroll):
                step = (stream.iv + u) * apart
                line, factor = step * c.k.b + start_b, step * c.k.a + start_a
                strip = [scene.load_b(line + v * lanes, lanes, count) for v in range(vectors)]
                factors = [splat(scene.load_a(factor + m * c.m.a), lanes) for m in range(rows)]
                sums = [fma(factors[m], strip[v], s) for (m, v), s in zip(pairs, sums, strict=True)]
            stream.yields(*sums)
        for value, place in zip(stream.results, places, strict=True):
            store(value, self.sums, place)
