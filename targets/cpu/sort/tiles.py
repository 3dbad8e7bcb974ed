"""Merge sort of long rows: columns sorted in lanes are merged, first in tiles that stay in a cache.

Then the output is computed tile by tile, level by level, each tile independently along the merge path.
"""

from __future__ import annotations

from collections.abc import Callable

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.cpu.shared import SharedFunctions
from stablexla.targets.cpu.sort.merge import ABREAST, RunMerger, merge_path_split
from stablexla.targets.cpu.sort.network import cells_for, network_ns, sort_columns
from stablexla.targets.cpu.sort.rows import RestoreAlike, SortRows, any_bit

# Columns that a row is cut into: at most of this length, and so that at most an eighth is padding.
COLUMN = Gate("sort.column", 512, eager=8)
FILLING = 8
# Tiles are halved for load balance, until there are so many or they have so few keys.
SMALLEST_TILE = Gate("sort.smallest-tile", 4096, eager=16)
SHARES = 8
# Cost model: time of a vector's iteration in a merge.
MERGE_NS = 5.0


@dataclass(frozen=True)
class SortPlan:
    """The tiling of rows.

    Attributes:
        column: keys of a sorted column, a power of two.
        blocks: of `lanes` columns each, in a row.
        tile: blocks of a tile, a power of two.
    """

    given: SortRows
    column: int
    blocks: int
    tile: int

    @classmethod
    def of(cls, given: SortRows, target: CpuTarget) -> SortPlan:
        least = max(8, ABREAST * given.lanes)
        column = max(least, 1 << (COLUMN() - 1).bit_length())
        while column > least and -given.length % (column * given.lanes) * FILLING > given.length:
            column //= 2
        block = column * given.lanes
        blocks = -(-given.length // block)
        # Two tiles are in use at a time, and fit a core's L2.
        most = max(1, target.l2_bytes // 4 // (block * given.keys.bits // 8))
        tile = min(1 << (blocks - 1).bit_length(), 1 << most.bit_length() - 1)
        while tile > 1 and given.rows * -(-blocks // tile) < SHARES and tile * block >= 2 * SMALLEST_TILE():
            tile //= 2
        return cls(given, column, blocks, tile)

    @property
    def block(self) -> int:
        """Keys of a block."""
        return self.column * self.given.lanes

    @property
    def padded(self) -> int:
        """Keys of a row with its padding."""
        return self.blocks * self.block

    @property
    def tiles(self) -> int:
        """Tiles of a row, the last one perhaps partial."""
        return -(-self.blocks // self.tile)

    @property
    def keys_of_tile(self) -> int:
        return self.tile * self.block

    @property
    def levels(self) -> int:
        """How many levels of pairwise merging turn columns into a tile."""
        return (self.tile * self.given.lanes).bit_length() - 1


class _Writer:
    """Emits parts of the sort, on a ping-pong buffer: levels alternate between its two halves.

    Attributes:
        other: where the second half begins.
    """

    def __init__(
        self, plan: SortPlan, arguments: KernelArguments, buffer: Value, other: int, merging: RunMerger
    ) -> None:
        self.plan, self.given, self.buffer, self.other, self.merging = plan, plan.given, buffer, other, merging
        self.source, self.result = arguments.inputs[0], arguments.results[0]
        lanes = self.given.lanes
        self.cells = cg.alloca(plan.column * lanes, self.given.keys.type)
        self.notes = buffer

    def keys(self, first: Value, low: Value, count: Value, to: Value) -> Value:
        """Load `count` elements of a row from `low` on as keys, padded behind the row's end.

        Returns:
            The bits that keys do not show.
        """
        given, lanes = self.given, self.given.lanes
        whole = cg.minimum(low + count, cg.index(given.length // lanes * lanes))
        with cg.loop(cg.minimum(low, whole), whole, lanes, [given.zeros()]) as iteration:
            key, bits = given.load(self.source, first + iteration.iv, lanes)
            cg.store(key, self.buffer, to + (iteration.iv - low))
            iteration.yields(iteration.args[0] | bits)
        differing = iteration.results[0]
        if given.length == self.plan.padded:
            return differing
        end = low + count
        with cg.loop(cg.minimum(whole, end), end, 1, [cg.constant(0, given.keys.word)]) as iteration:
            inside = iteration.iv.lt(given.length)
            at = cg.minimum(iteration.iv, given.length - 1)
            bits = given.keys.as_bits(cg.load(self.source, first + at))
            canonical = given.keys.canonical(bits)
            key = cg.select(inside, given.keys.of_bits(canonical), cg.constant(given.keys.highest, given.keys.type))
            cg.store(key, self.buffer, to + (iteration.iv - low))
            iteration.yields(iteration.args[0] | (bits ^ canonical))
        return differing | cg.splat(iteration.results[0], lanes)

    def columns(self, at: Value) -> None:
        """Sort each column of a block, transposed to lanes."""
        lanes, column = self.given.lanes, self.plan.column
        places = [at + lane * column for lane in range(lanes)]
        with cg.loop(0, column, lanes) as iteration:
            rows = [cg.load(self.buffer, place + iteration.iv, lanes) for place in places]
            for i, cell in enumerate(cg.transpose_registers(rows)):
                cg.store(cell, self.cells, (iteration.iv + i) * lanes)
        sort_columns(self.merging.shared, self.cells, lanes, column, cells_for(column).bit_length() - 1)
        with cg.loop(0, column, lanes) as iteration:
            cells = [cg.load(self.cells, (iteration.iv + i) * lanes, lanes) for i in range(lanes)]
            for place, row in zip(places, cg.transpose_registers(cells), strict=True):
                cg.store(row, self.buffer, place + iteration.iv)

    def tile(self, at: Value, count: Value) -> None:
        """Sort the keys of a tile; they end in the other half when the plan's levels are odd."""
        with cg.loop(0, count, self.plan.block) as iteration:
            self.columns(at + iteration.iv)
        there = cg.index(self.other)
        with cg.loop(0, self.plan.levels, 1, [at, at + there]) as level:
            here, to = level.args
            width = cg.index(self.plan.column) << level.iv
            with cg.loop(0, count, width * 2) as pair:
                middle, end = cg.minimum(pair.iv + width, count), cg.minimum(pair.iv + width * 2, count)
                left, right = (here + pair.iv, here + middle), (here + middle, here + end)
                self.merging.call(self.buffer, left, right, to + pair.iv, end - pair.iv)
            level.yields(to, here)

    def finish(self, at: Value, first: Value, low: Value, count: Value) -> None:
        """Store `count` sorted elements of a row, from `low` on."""
        lanes, length = self.given.lanes, self.given.length
        end = cg.minimum(low + count, length)
        whole = cg.minimum(end, length // lanes * lanes)
        with cg.loop(cg.minimum(low, whole), whole, lanes) as iteration:
            self.given.store(
                cg.load(self.buffer, at + (iteration.iv - low), lanes), self.result, first + iteration.iv, lanes
            )
        if length % lanes:
            with cg.when(end.eq(length)):
                last = length // lanes * lanes
                key = cg.load(self.buffer, at + (cg.index(last) - low), lanes)
                self.given.store(key, self.result, first + last, length % lanes)


def _tile_ns(plan: SortPlan) -> float:
    given = plan.given
    vectors = plan.keys_of_tile / given.lanes
    return plan.tile * network_ns(plan.column, given.keys.bits) + vectors * plan.levels * MERGE_NS


def emit_tiles(kernel: Kernel, target: CpuTarget, plan: SortPlan) -> Emitted:
    """Emit the sort of rows of one tile; a work item is a row."""
    given = plan.given
    size = 2 * plan.padded + given.lanes
    merging = RunMerger(SharedFunctions(kernel, target), given.keys, given.lanes)
    with kernel.phase(target, unroll=False) as arguments:
        writer = _Writer(plan, arguments, cg.alloca(size, given.keys.type), plan.padded, merging)
        with arguments.items(given.rows) as item:
            first, all_ = item * given.length, cg.index(plan.padded)
            differing = writer.keys(first, cg.index(0), all_, cg.index(0))
            writer.tile(cg.index(0), all_)
            writer.finish(cg.index(plan.padded * (plan.levels % 2)), first, cg.index(0), all_)
            if given.keys.has_alike:
                with cg.when(any_bit(differing)):
                    RestoreAlike(given.keys.integers, writer.source, writer.result, first, given.length).write()
    return Emitted(given.rows, grain_of(_tile_ns(plan), given.rows), in_place=given.in_place)


def emit_phases(kernel: Kernel, target: CpuTarget, plan: SortPlan) -> Emitted:
    """Emit the sort of rows of several tiles: see `_Phases`."""
    given = plan.given
    phases = _Phases(kernel, target, plan)
    rows = [
        phases.write("tiles", phases.sort, _tile_ns(plan)),
        *phases.levels(),
        phases.write("", phases.finish, plan.keys_of_tile / given.lanes),
    ]
    if given.keys.has_alike:
        rows.append(phases.mend())
    return Emitted(rows[0].items, rows[0].grain, phases.scratch, in_place=given.in_place, phases=tuple(rows))


class _Phases:
    """Functions of the multi-tile sort: one sorts the tiles, one merges a level, one converts keys to elements.

    The merging function is called again for each level. The level's number is kept in memory, behind a flag for each
    tile whether it has elements that their keys do not show.
    """

    def __init__(self, kernel: Kernel, target: CpuTarget, plan: SortPlan) -> None:
        self.kernel, self.target, self.plan, self.keys = kernel, target, plan, plan.given.keys
        self.total = plan.given.rows * plan.padded
        self.tiles = plan.given.rows * plan.tiles
        self.size = 2 * self.total + plan.given.lanes
        self.scratch = ((str(self.keys.type), self.size), (str(self.keys.word), self.tiles + 1))
        self.merging = RunMerger(SharedFunctions(kernel, target), plan.given.keys, plan.given.lanes)

    def write(self, name: str, piece: Callable[[_Writer, Value, Value, Value], None], nanoseconds: float) -> Phase:
        """Emit a phase whose work items are the tiles: `piece(writer, row, low, count)`, in keys of a row."""
        plan = self.plan
        name = "_".join([self.kernel.impl_name, *([name] if name else [])])
        with self.kernel.phase(self.target, self.scratch, name, unroll=False) as arguments:
            writer = _Writer(plan, arguments, arguments.scratch[0], self.total, self.merging)
            writer.notes = arguments.scratch[1]
            with arguments.items(self.tiles) as item:
                row, low = item // plan.tiles, item % plan.tiles * plan.keys_of_tile
                piece(writer, row, low, cg.minimum(low + plan.keys_of_tile, plan.padded) - low)
        return Phase(name, self.tiles, grain_of(nanoseconds, self.tiles))

    def sort(self, writer: _Writer, row: Value, low: Value, count: Value) -> None:
        """Sort one tile."""
        at = row * self.plan.padded + low
        differing = writer.keys(row * self.plan.given.length, low, count, at)
        writer.tile(at, count)
        note = cg.select(any_bit(differing), cg.constant(1, self.keys.word), cg.constant(0, self.keys.word))
        number = row * self.plan.tiles + low // self.plan.keys_of_tile
        cg.store(note, writer.notes, number)
        with cg.when(number.eq(0)):
            cg.store(cg.constant(0, self.keys.word), writer.notes, self.tiles)

    def levels(self) -> list[Phase]:
        """Emit the merging phases, and between them those that increment the level."""
        plan = self.plan
        merge = self.write("level", self.merge, plan.keys_of_tile / plan.given.lanes * MERGE_NS)
        name = f"{self.kernel.impl_name}_next"
        with self.kernel.phase(self.target, self.scratch, name) as arguments, arguments.items(1):
            notes = arguments.scratch[1]
            cg.store(cg.load(notes, self.tiles) + 1, notes, self.tiles)
        return [merge, Phase(name, 1, 1)] * (plan.tiles - 1).bit_length()

    def merge(self, writer: _Writer, row: Value, low: Value, count: Value) -> None:
        """Merge one tile of the output of two runs, found by its merge path."""
        plan = self.plan
        level = cg.cast_index(cg.load(writer.notes, self.tiles), cg.index(0).type)
        width, begin = cg.index(plan.keys_of_tile) << level, row * plan.padded
        here, there = (begin + (level + plan.levels + n) % 2 * self.total for n in (0, 1))
        first = low // (width * 2) * (width * 2)
        middle, end = cg.minimum(first + width, plan.padded), cg.minimum(first + width * 2, plan.padded)
        left, right = (here + first, here + middle), (here + middle, here + end)
        before = low - first
        taken = merge_path_split(self.keys, writer.buffer, left, right, before)
        rest = (left[0] + taken, left[1]), (right[0] + (before - taken), right[1])
        writer.merging.call(writer.buffer, *rest, there + low, count)

    def finish(self, writer: _Writer, row: Value, low: Value, count: Value) -> None:
        """Store the elements of a sorted tile of keys."""
        half = (self.plan.levels + (self.plan.tiles - 1).bit_length()) % 2 * self.total
        writer.finish(row * self.plan.padded + low + half, row * self.plan.given.length, low, count)

    def mend(self) -> Phase:
        """Emit the phase that restores zeros and NaNs in the flagged rows."""
        given, tiles = self.plan.given, self.plan.tiles
        name = f"{self.kernel.impl_name}_mend"
        with self.kernel.phase(self.target, self.scratch, name) as arguments, arguments.items(given.rows) as item:
            notes = arguments.scratch[1]
            with cg.loop(0, tiles, 1, [cg.constant(0, self.keys.word)]) as iteration:
                iteration.yields(iteration.args[0] | cg.load(notes, item * tiles + iteration.iv))
            with cg.when(iteration.results[0].ne(0)):
                source, result = arguments.inputs[0], arguments.results[0]
                RestoreAlike(given.keys.integers, source, result, item * given.length, given.length).write()
        return Phase(name, given.rows, 1)
