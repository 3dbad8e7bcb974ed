"""The emitter of sorts of one array by a plain order of its elements: see `sort_network` and `sort_merge`.

Short rows are sorted side by side, one in each lane. A longer row is cut into columns that are, and its sorted columns
are merged: in tiles that stay in a cache first, then, tile by tile of what comes out, level by level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlir.dialects import vector

from stablexla.targets.cpu.emission import (
    Value,
    alloca,
    constant,
    emitting,
    index,
    load,
    load_lanes,
    loop,
    minimum,
    reduce,
    select,
    shuffle,
    splat,
    store,
    store_lanes,
    transpose_registers,
    vector_of,
    when,
)
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.sort_keys import Keys, highest_of
from stablexla.targets.cpu.sort_merge import Merging, cut
from stablexla.targets.cpu.sort_network import cells_for, fill, sort_columns
from stablexla.targets.cpu.sweeps import grain_of
from stablexla.targets.cpu.target import CpuTarget

# Rows up to this length are sorted in lanes; above, the network's n log^2 n costs more than merging.
LONGEST_COLUMN = 2048
# Columns that a row is cut into: at most of this length, and so that not more than an eighth is filling.
COLUMN, FILLING = 512, 8
# About how long a comparison of two cells takes, and a vector's turn in a merge.
CELL_NS, MERGE_NS = 0.4, 4.0


@emitter("sort_keys")
def emit_sort(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Rows of keys of 32 or 64 bits."""
    config = kernel.config
    rows, length = int(config["rows"]), int(config["length"])
    with kernel.func.context:
        keys = Keys.of(kernel.inputs[0].type.element_type, config)
        lanes = max(2, target.vector_bits // keys.bits)
        if length <= LONGEST_COLUMN and 2 * rows >= lanes:
            return _emit_columns(kernel, target, _Rows(keys, lanes, rows, length))
        plan = _Plan.of(_Rows(keys, lanes, rows, length), target)
        return (_emit_tiles if plan.tiles == 1 else _emit_phases)(kernel, target, plan)


@dataclass(frozen=True)
class _Rows:
    """What is sorted."""

    keys: Keys
    lanes: int
    rows: int
    length: int

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Elements of one key are read again when everything is done."""
        return () if self.keys.has_alike else ((0, 0),)

    def load(self, source: Value, at: Value, count: int) -> tuple[Value, Value]:
        """The keys of some neighbours, and what bits of these their keys do not show; highest keys after `count`."""
        keys = self.keys
        bits = keys.as_bits(load_lanes(source, at, self.lanes, count))
        canonical = keys.canonical(bits)
        made = keys.of_bits(canonical)
        if count < self.lanes:
            inside = [lane < count for lane in range(self.lanes)]
            made = _where(inside, made, highest_of(keys, self.lanes))
        return made, bits ^ canonical

    def store(self, key: Value, result: Value, at: Value, count: int) -> None:
        """The elements of keys."""
        store_lanes(self.keys.as_elements(self.keys.to_bits(key)), result, at, count)

    def nothing(self) -> Value:
        """Vectors without bits."""
        return constant(0, vector_of(self.lanes, self.keys.type))

    def along(self, count: int, step: Callable[[Value, int, Value], Value]) -> Value:
        """`step(at, how many, carried)` for vectors of a row; the last one may take some elements again.

        Returns:
            What is carried, which begins with `nothing`.
        """
        if count < self.lanes:
            return step(index(0), count, self.nothing())
        with loop(0, count, self.lanes, [self.nothing()]) as turn:
            at = turn.iv if count % self.lanes == 0 else minimum(turn.iv, count - self.lanes)
            turn.yields(step(at, self.lanes, turn.args[0]))
        return turn.results[0]

    def mend(self, source: Value, result: Value, first: Value, differing: Value) -> None:
        """Writes elements whose keys are alike once more, as they are and in their order, if any need it."""
        if not self.keys.has_alike:
            return
        with when(_any(differing)):
            _Mending(self.keys, source, result, first, self.length).write()


def _where(inside: list[bool], yes: Value, no: Value) -> Value:
    lanes = len(inside)
    return shuffle(yes, no, [lane if there else lane + lanes for lane, there in enumerate(inside)])


def _any(bits: Value) -> Value:
    """Whether a vector has bits."""
    return reduce(bits, vector.CombiningKind.OR).ne(0)


@dataclass(frozen=True)
class _Mending:
    """A row in order, but for the elements that are alike: of zeros and NaNs there is one form only."""

    keys: Keys
    source: Value
    result: Value
    first: Value
    length: int

    def write(self) -> None:
        alike = [bits for bits, there in ((0, self.keys.zeros_alike), (self.keys.nan, self.keys.nans_alike)) if there]
        numbers = [constant(bits, self.keys.type) for bits in alike]
        marks = [self.keys.of_bits(number) for number in numbers]
        with loop(0, self.length, 1, [index(0)] * len(alike)) as turn:
            key = self.keys.of_bits(self._canonical(turn.iv))
            turn.yields(*(count + _one_if(key.lt(mark)) for count, mark in zip(turn.args, marks, strict=True)))
        with loop(0, self.length, 1, turn.results) as turn:
            bits = self._canonical(turn.iv)
            places = []
            for place, number in zip(turn.args, numbers, strict=True):
                same = bits.eq(number)
                with when(same):
                    store(load(self.source, self.first + turn.iv), self.result, self.first + place)
                places.append(place + _one_if(same))
            turn.yields(*places)

    def _canonical(self, at: Value) -> Value:
        return self.keys.canonical(self.keys.as_bits(load(self.source, self.first + at)))


def _one_if(condition: Value) -> Value:
    return select(condition, index(1), index(0))


# ---- rows in lanes ---------------------------------------------------------------------------------------------------


def _emit_columns(kernel: Kernel, target: CpuTarget, given: _Rows) -> Emitted:
    """One item is as many rows as there are lanes."""
    lanes, length = given.lanes, given.length
    size = cells_for(length)
    function, arguments = kernel.declare()
    with emitting(function, target):
        source, result = Value(arguments.inputs[0]), Value(arguments.results[0])
        cells = alloca(size * lanes, given.keys.type)
        fill(cells, lanes, length, size, given.keys.highest)
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            starts = [minimum(item.iv * lanes + lane, given.rows - 1) * length for lane in range(lanes)]

            def bring(at: Value, count: int, differing: Value) -> Value:
                loaded = [given.load(source, start + at, count) for start in starts]
                for lane, cell in enumerate(transpose_registers([key for key, _ in loaded])[:count]):
                    store(cell, cells, (at + lane) * lanes)
                for _, bits in loaded:
                    differing = differing | bits
                return differing

            def take(at: Value, count: int, _: Value) -> Value:
                columns = [load(cells, (at + lane) * lanes, lanes) for lane in range(lanes)]
                for start, row in zip(starts, transpose_registers(columns), strict=True):
                    given.store(row, result, start + at, count)
                return given.nothing()

            differing = given.along(length, bring)
            sort_columns(cells, lanes, length)
            given.along(length, take)
            if given.keys.has_alike:
                with when(_any(differing)), loop(0, lanes) as lane:
                    first = minimum(item.iv * lanes + lane.iv, given.rows - 1) * length
                    _Mending(given.keys, source, result, first, length).write()
    items = -(-given.rows // lanes)
    depth = size.bit_length() * (size.bit_length() + 1) / 4
    return Emitted(items, grain_of(size * depth * CELL_NS * keys_factor(given), items), in_place=given.in_place)


def keys_factor(given: _Rows) -> float:
    """A 64-bit comparison takes three instructions."""
    return given.keys.bits / 32


# ---- rows cut into columns -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """How rows are cut.

    Attributes:
        column: keys of a sorted column, a power of two.
        blocks: of `lanes` columns each, in a row.
        tile: blocks of a tile, a power of two.
    """

    given: _Rows
    column: int
    blocks: int
    tile: int

    @classmethod
    def of(cls, given: _Rows, target: CpuTarget) -> _Plan:
        column = COLUMN
        while column > 8 and -given.length % (column * given.lanes) * FILLING > given.length:
            column //= 2
        block = column * given.lanes
        blocks = -(-given.length // block)
        # Two of them are worked in at a time, and lie in the cache that a core has for itself.
        most = max(1, target.l2_bytes // 4 // (block * given.keys.bits // 8))
        return cls(given, column, blocks, min(1 << (blocks - 1).bit_length(), 1 << most.bit_length() - 1))

    @property
    def block(self) -> int:
        """Keys of a block."""
        return self.column * self.given.lanes

    @property
    def padded(self) -> int:
        """Keys of a row with its filling."""
        return self.blocks * self.block

    @property
    def tiles(self) -> int:
        """Tiles of a row, the last one perhaps not whole."""
        return -(-self.blocks // self.tile)

    @property
    def keys_of_tile(self) -> int:
        return self.tile * self.block

    @property
    def levels(self) -> int:
        """How often columns are merged two by two to be a tile."""
        return (self.tile * self.given.lanes).bit_length() - 1


class _Writer:
    """Parts of the code, on a buffer that has room for the keys twice: level by level they go from one half to the other.

    Attributes:
        other: where the second half begins.
    """

    def __init__(self, plan: _Plan, arguments: KernelArguments, buffer: Value, other: int, merging: Merging) -> None:
        self.plan, self.given, self.buffer, self.other, self.merging = plan, plan.given, buffer, other, merging
        self.source, self.result = Value(arguments.inputs[0]), Value(arguments.results[0])
        lanes = self.given.lanes
        self.cells = alloca(plan.column * lanes, self.given.keys.type)

    def keys(self, first: Value, low: Value, count: Value, to: Value) -> Value:
        """Makes keys of `count` elements of a row from `low` on, filled up behind the row's end.

        Returns:
            The bits that keys do not show.
        """
        given, lanes = self.given, self.given.lanes
        whole = minimum(low + count, index(given.length // lanes * lanes))
        with loop(minimum(low, whole), whole, lanes, [given.nothing()]) as turn:
            key, bits = given.load(self.source, first + turn.iv, lanes)
            store(key, self.buffer, to + (turn.iv - low))
            turn.yields(turn.args[0] | bits)
        differing = turn.results[0]
        if given.length == self.plan.padded:
            return differing
        end = low + count
        with loop(minimum(whole, end), end, 1, [constant(0, given.keys.type)]) as turn:
            inside = turn.iv.lt(given.length)
            at = minimum(turn.iv, given.length - 1)
            bits = given.keys.as_bits(load(self.source, first + at))
            canonical = given.keys.canonical(bits)
            key = select(inside, given.keys.of_bits(canonical), constant(given.keys.highest, given.keys.type))
            store(key, self.buffer, to + (turn.iv - low))
            turn.yields(turn.args[0] | (bits ^ canonical))
        return differing | splat(turn.results[0], lanes)

    def columns(self, at: Value) -> None:
        """Sorts each column of a block."""
        lanes, column = self.given.lanes, self.plan.column
        places = [at + lane * column for lane in range(lanes)]
        with loop(0, column, lanes) as turn:
            rows = [load(self.buffer, place + turn.iv, lanes) for place in places]
            for i, cell in enumerate(transpose_registers(rows)):
                store(cell, self.cells, (turn.iv + i) * lanes)
        sort_columns(self.cells, lanes, column)
        with loop(0, column, lanes) as turn:
            cells = [load(self.cells, (turn.iv + i) * lanes, lanes) for i in range(lanes)]
            for place, row in zip(places, transpose_registers(cells), strict=True):
                store(row, self.buffer, place + turn.iv)

    def tile(self, at: Value, count: Value) -> None:
        """Sorts the keys of a tile; they end in the other half when the plan's levels are odd."""
        with loop(0, count, self.plan.block) as turn:
            self.columns(at + turn.iv)
        there = index(self.other)
        with loop(0, self.plan.levels, 1, [at, at + there]) as level:
            here, to = level.args
            width = index(self.plan.column) << level.iv
            with loop(0, count, width * 2) as pair:
                middle, end = minimum(pair.iv + width, count), minimum(pair.iv + width * 2, count)
                left, right = (here + pair.iv, here + middle), (here + middle, here + end)
                self.merging.call(self.buffer, left, right, to + pair.iv, end - pair.iv)
            level.yields(to, here)

    def finish(self, at: Value, first: Value, low: Value, count: Value) -> None:
        """Writes `count` elements of a row, from `low` on, whose keys are in order."""
        lanes, length = self.given.lanes, self.given.length
        end = minimum(low + count, length)
        whole = minimum(end, length // lanes * lanes)
        with loop(minimum(low, whole), whole, lanes) as turn:
            self.given.store(load(self.buffer, at + (turn.iv - low), lanes), self.result, first + turn.iv, lanes)
        if length % lanes:
            with when(end.eq(length)):
                last = length // lanes * lanes
                key = load(self.buffer, at + (index(last) - low), lanes)
                self.given.store(key, self.result, first + last, length % lanes)

    def half(self, levels: int) -> int:
        """Where keys are after some levels."""
        return self.other if levels % 2 else 0


def _tile_ns(plan: _Plan) -> float:
    given, depth = plan.given, plan.column.bit_length()
    vectors = plan.keys_of_tile / given.lanes
    return vectors * (depth * (depth + 1) / 4 * CELL_NS * keys_factor(given) + plan.levels * MERGE_NS)


def _emit_tiles(kernel: Kernel, target: CpuTarget, plan: _Plan) -> Emitted:
    """Rows of one tile: one item is a row."""
    given = plan.given
    size = 2 * plan.padded + given.lanes
    merging = Merging.declare(kernel, target, given.keys, given.lanes, size)
    function, arguments = kernel.declare()
    with emitting(function, target):
        writer = _Writer(plan, arguments, alloca(size, given.keys.type), plan.padded, merging)
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            first, all_ = item.iv * given.length, index(plan.padded)
            differing = writer.keys(first, index(0), all_, index(0))
            writer.tile(index(0), all_)
            writer.finish(index(writer.half(plan.levels)), first, index(0), all_)
            given.mend(writer.source, writer.result, first, differing)
    return Emitted(given.rows, grain_of(_tile_ns(plan), given.rows), in_place=given.in_place)


def _emit_phases(kernel: Kernel, target: CpuTarget, plan: _Plan) -> Emitted:
    """Rows of several tiles: a phase for the tiles, one for each level of merging, and one that makes elements."""
    given, step = plan.given, plan.keys_of_tile
    total = given.rows * plan.padded
    size, tiles = 2 * total + given.lanes, given.rows * plan.tiles
    merging = Merging.declare(kernel, target, given.keys, given.lanes, size)
    scratch = ((str(given.keys.type), size), (str(given.keys.type), tiles))
    phases: list[tuple[str, int, int]] = []

    def phase(name: str, nanoseconds: float, write: Callable[[_Writer, Value, Value, Value, Value], None]) -> None:
        function, arguments = kernel.declare(scratch, name)
        with emitting(function, target):
            writer = _Writer(plan, arguments, Value(arguments.scratch[0]), total, merging)
            with loop(Value(arguments.lo), Value(arguments.hi)) as item:
                row, low = item.iv // plan.tiles, item.iv % plan.tiles * step
                write(writer, Value(arguments.scratch[1]), row, low, minimum(low + step, plan.padded) - low)
        phases.append((name, tiles, grain_of(nanoseconds, tiles)))

    def sort(writer: _Writer, notes: Value, row: Value, low: Value, count: Value) -> None:
        at = row * plan.padded + low
        differing = writer.keys(row * given.length, low, count, at)
        writer.tile(at, count)
        store(select(_any(differing), constant(1, given.keys.type), constant(0, given.keys.type)), notes, row * plan.tiles + low // step)

    def merge(level: int) -> Callable[[_Writer, Value, Value, Value, Value], None]:
        def write(writer: _Writer, _: Value, row: Value, low: Value, count: Value) -> None:
            width, begin = step << level, row * plan.padded
            here, there = (begin + writer.half(plan.levels + level + n) for n in (0, 1))
            first = low // (2 * width) * (2 * width)
            middle, end = minimum(first + width, plan.padded), minimum(first + 2 * width, plan.padded)
            left, right = (here + first, here + middle), (here + middle, here + end)
            taken = cut(writer.buffer, left, right, low - first)
            rest = (left[0] + taken, left[1]), (right[0] + (low - first - taken), right[1])
            writer.merging.call(writer.buffer, *rest, there + low, count)

        return write

    levels = (plan.tiles - 1).bit_length()

    def finish(writer: _Writer, notes: Value, row: Value, low: Value, count: Value) -> None:
        at = row * plan.padded + low + writer.half(plan.levels + levels)
        writer.finish(at, row * given.length, low, count)

    phase(f"{kernel.impl_name}_tiles", _tile_ns(plan), sort)
    for level in range(levels):
        phase(f"{kernel.impl_name}_level{level}", step / given.lanes * MERGE_NS, merge(level))
    phase(kernel.impl_name, step / given.lanes, finish)
    if given.keys.has_alike:
        name = f"{kernel.impl_name}_mend"
        function, arguments = kernel.declare(scratch, name)
        with emitting(function, target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
            notes = Value(arguments.scratch[1])
            with loop(0, plan.tiles, 1, [constant(0, given.keys.type)]) as turn:
                turn.yields(turn.args[0] | load(notes, item.iv * plan.tiles + turn.iv))
            with when(turn.results[0].ne(0)):
                source, result = Value(arguments.inputs[0]), Value(arguments.results[0])
                _Mending(given.keys, source, result, item.iv * given.length, given.length).write()
        phases.append((name, given.rows, 1))
    items, grain = phases[0][1:]
    return Emitted(items, grain, scratch, in_place=given.in_place, phases=tuple(phases))
