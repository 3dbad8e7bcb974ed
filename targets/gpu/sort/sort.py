"""Merge sort of rows by any comparator: a block sorts some thousand elements in shared memory; longer rows are merged.

In a block a thread sorts eight neighbours in registers, then all threads merge runs (merge path) until the tile is
sorted. Each further launch merges runs two by two, and loads and stores every element once. For the first few of a row
(top-k), blocks keep no more than these, and the kept ones are sorted again.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.gpu.chips import shared_limit
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.sort.merge import MergeRuns, Read, cuts_fit, merge_elements, merge_path
from stablexla.targets.gpu.sort.plan import EACH, FEWEST_SLOTS, NUMBERS_BYTES, SortElements, SortPlan, Values
from stablexla.targets.gpu.threads import (
    WARP,
    Launch,
    block_index,
    kernel_function,
    launched,
    reduce_block,
    shared_buffer,
    thread_index,
)

_SORT = Refusal(
    "its comparator is more than arithmetic on numbers, or a block's shared memory does not hold its arrays",
    "a comparison such as lt, and fewer arrays: sort indices, then gather",
)


@gpu_emitter("sort_rows")
def emit_sort(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit sorts with any comparator computed from numbers alone, of as many arrays as a block can hold."""
    plan = SortPlan.of(kernel)
    if plan is None or plan.shared(plan.slots) > shared_limit(chip.chip):
        refuse(_SORT)
        return None
    return _Phases(plan).write()


@dataclass(frozen=True)
class _Tiles:
    """Partition of rows of `length` elements into tiles of up to `size`, so many of them a block; each keeps `kept`."""

    rows: int
    length: int
    size: int
    abreast: int
    kept: int

    @property
    def per_row(self) -> int:
        return -(-self.length // self.size)

    @property
    def left(self) -> int:
        """Elements of a row that are kept."""
        last = self.length - (self.per_row - 1) * self.size
        return (self.per_row - 1) * min(self.kept, self.size) + min(self.kept, last)

    @property
    def slots(self) -> int:
        return self.size * self.abreast


class _Phases:
    """The launches of a sort, in sequence."""

    def __init__(self, plan: SortPlan) -> None:
        self.plan = plan
        self.names: list[str] = []
        self.scratch: list[int] = []
        self.waiting: list[tuple[object, int, int]] = []

    def write(self) -> Emitted:
        plan, slots = self.plan, self.plan.slots
        source, length = _SOURCE, plan.length
        while length > slots and 2 * plan.first <= slots:
            tiles = _Tiles(plan.rows, length, slots, 1, plan.first)
            source, length = self._add(tiles, source, self._buffer(plan.rows * tiles.left)), tiles.left
        if length <= slots:
            size = max(EACH, 1 << (length - 1).bit_length())
            few = 1 << (plan.rows - 1).bit_length()
            abreast = max(FEWEST_SLOTS // size, min(slots // 2 // size, few), 1)
            self._add(_Tiles(plan.rows, length, size, abreast, plan.first), source, _RESULT)
        else:
            self._add_merges(source, length, slots)
        scratch = tuple((str(e), size) for size in self.scratch for e in plan.elements)
        for number, (what, source, target) in enumerate(self.waiting):
            self._emit(number, what, source, target, scratch)
        return launched(self.names, scratch)

    def _add_merges(self, source: int, length: int, slots: int) -> None:
        levels = (-(-length // slots) - 1).bit_length()
        size = self.plan.rows * length
        whole = self.plan.first == length
        first = self._buffer(size)
        buffers = [_RESULT if whole else first, first if whole or levels < 2 else self._buffer(size)]
        targets = [_RESULT if left == 0 else buffers[left % 2] for left in reversed(range(levels + 1))]
        source = self._add(_Tiles(self.plan.rows, length, slots, 1, slots), source, targets[0])
        for level, target in enumerate(targets[1:]):
            source = self._add(slots << level, source, target)

    def _buffer(self, size: int) -> int:
        self.scratch.append(size)
        return len(self.scratch) - 1

    def _add(self, what: object, source: int, target: int) -> int:
        self.waiting.append((what, source, target))
        return target

    def _emit(self, number: int, what: object, source: int, target: int, scratch: tuple[tuple[str, int], ...]) -> None:
        plan = self.plan
        name = plan.kernel.impl_name if len(self.waiting) == 1 else f"{plan.kernel.impl_name}_{number}"
        self.names.append(name)
        if isinstance(what, _Tiles):
            launch = Launch(-(-what.rows * what.per_row // what.abreast), what.slots // EACH, plan.shared(what.slots))
            with kernel_function(plan.kernel, launch, name, scratch) as arguments:
                elements = SortElements(plan, arguments)
                _Block(plan, elements, what.slots).sort(what, _at(elements, source), _at(elements, target))
            return
        assert isinstance(what, int)
        wanted = plan.first if target == _RESULT else plan.length
        blocks = plan.rows * -(-wanted // plan.slots)
        with kernel_function(
            plan.kernel, Launch(blocks, plan.slots // EACH, plan.shared(plan.slots)), name, scratch
        ) as arguments:
            elements = SortElements(plan, arguments)
            _Block(plan, elements, plan.slots).merge(what, wanted, _at(elements, source), _at(elements, target))


_SOURCE, _RESULT = -1, -2


def _at(elements: SortElements, number: int) -> Values:
    """Return the arrays of a number: inputs, results, or scratch."""
    count = len(elements.results)
    if number < 0:
        return elements.sources if number == _SOURCE else elements.results
    return elements.scratch[number * count : (number + 1) * count]


class _Block:
    """One thread's part of a block whose elements lie in shared memory."""

    def __init__(self, plan: SortPlan, elements: SortElements, slots: int) -> None:
        self.plan, self.elements, self.slots = plan, elements, slots
        self.threads = slots // EACH
        self.cuts = shared_buffer(ir.IntegerType.get_signless(32), 2, 0)
        self.places: Values = []
        at = NUMBERS_BYTES
        for element in plan.elements:
            self.places.append(shared_buffer(element, slots, at))
            at += slots * max(1, cg.bits_of(element) // 8)

    def read(self, at: Value) -> Values:
        """Load the element in a slot."""
        return [cg.load(place, at) for place in self.places]

    def put(self, values: Values, at: Value) -> None:
        """Store an element into a slot."""
        for value, place in zip(values, self.places, strict=True):
            cg.store(value, place, at)

    # ---- one tile ----------------------------------------------------------------------------------------------------

    def sort(self, tiles: _Tiles, sources: Values, targets: Values) -> None:
        """Sort tiles, of one row or of several."""
        for iteration in range(EACH):
            slot = thread_index() + iteration * self.threads
            row, tile, local, _ = self._tile(tiles, slot)
            place = cg.minimum(row * tiles.length + tile * tiles.size + local, tiles.rows * tiles.length - 1)
            self.put([cg.load(source, place) for source in sources], slot)
        gpu.barrier()
        slot = thread_index() * EACH
        *_, local, valid = self._tile(tiles, slot)
        self._sort_own(slot, local, valid)
        gpu.barrier()
        bits = EACH.bit_length()
        with cg.loop(bits, (min(tiles.size, tiles.length) - 1).bit_length() + 1) as level:
            width = cg.index(1) << (level.iv - 1)
            start = cg.minimum((local >> level.iv) << level.iv, valid)
            middle, end = cg.minimum(start + width, valid), cg.minimum(start + width * 2, valid)
            base = slot - local
            runs = MergeRuns(base + start, middle - start, base + middle, end - middle)
            low, high = (cg.minimum(at, end) - start for at in (local, local + EACH))
            self._merge_own(runs, low, high, level.iv, slot)
            gpu.barrier()
        for iteration in range(EACH):
            slot = thread_index() + iteration * self.threads
            row, tile, local, valid = self._tile(tiles, slot)
            with cg.when(local.lt(cg.minimum(valid, tiles.kept))):
                place = row * tiles.left + tile * min(tiles.kept, tiles.size) + local
                for value, target in zip(self.read(slot), targets, strict=True):
                    cg.store(value, target, place)

    def _tile(self, tiles: _Tiles, slot: Value) -> tuple[Value, Value, Value, Value]:
        """Return a slot's row, tile and position in it, and the tile's number of elements."""
        number = block_index() * tiles.abreast + slot // tiles.size
        row, tile = cg.split_index(number, [tiles.rows, tiles.per_row])
        valid = cg.minimum(cg.index(tiles.length) - tile * tiles.size, tiles.size)
        valid = cg.select(number.lt(tiles.rows * tiles.per_row), valid, cg.index(0))
        return row, tile, slot % tiles.size, valid

    def _sort_own(self, slot: Value, local: Value, valid: Value) -> None:
        """Sort a thread's elements by odd-even transposition, a sorting network of neighbour exchanges; stable."""
        own = [self.read(slot + n) for n in range(EACH)]
        for iteration in range(EACH):
            for n in range(iteration % 2, EACH - 1, 2):
                a, b = own[n], own[n + 1]
                swapped = (local + n + 1).lt(valid) & self.elements.less(b, a)
                own[n] = [cg.select(swapped, y, x) for x, y in zip(a, b, strict=True)]
                own[n + 1] = [cg.select(swapped, x, y) for x, y in zip(a, b, strict=True)]
        for n, values in enumerate(own):
            self.put(values, slot + n)

    def _merge_own(self, runs: MergeRuns, low: Value, high: Value, trip_count: Index, slot: Value) -> None:
        """Merge a thread's part of two runs in place; a barrier separates all loads from the stores."""
        left = merge_path(self.elements, self.read, runs, low, trip_count)
        if self.plan.by_keys:
            made = merge_elements(self.elements, self.read, runs, left, low - left)
            gpu.barrier()
            self._put_own(made, slot)
            return
        end = merge_path(self.elements, self.read, runs, high, trip_count)
        fitting = self._in_all_threads(cuts_fit(left, end, high - low))
        own = MergeRuns(runs.left, end, runs.right, high - end)
        made = merge_elements(self.elements, self.read, own, left, low - left)
        gpu.barrier()
        with cg.when(fitting):
            self._put_own(made, slot)

    def _put_own(self, made: list[Values], slot: Value) -> None:
        for n, values in enumerate(made):
            self.put(values, slot + n)

    def _in_all_threads(self, condition: Value) -> Value:
        """Return whether a predicate holds in every thread of the block."""
        i32 = ir.IntegerType.get_signless(32)
        broken = cg.select(condition, cg.constant(0, i32), cg.constant(1, i32))
        (any_,) = reduce_block([broken], lambda a, b: [a[0] | b[0]], self.threads // WARP, 16)
        return any_.eq(0)

    # ---- runs in global memory ---------------------------------------------------------------------------------------

    def merge(self, width: int, wanted: int, sources: Values, targets: Values) -> None:
        """Emit one tile of the merge of two runs of `width` elements."""
        length, slots = self.plan.length, self.slots
        row, tile = cg.split_index(block_index(), [self.plan.rows, -(-wanted // slots)])
        base, first = row * length, tile * slots
        start = first // (2 * width) * (2 * width)
        middle, end = cg.minimum(start + width, length), cg.minimum(start + 2 * width, length)
        runs = MergeRuns(base + start, middle - start, base + middle, end - middle)
        low = first - start
        high = cg.minimum(low + slots, end - start)

        def read(at: Value) -> Values:
            return [cg.load(source, at) for source in sources]

        trip_count = width.bit_length()
        whole = None if self.plan.by_keys else self._all_fit(runs, read, end - start, trip_count, width)
        mine = cg.select((thread_index() % 2).eq(0), low, high)
        found = merge_path(self.elements, read, runs, mine, trip_count)
        with cg.when(thread_index().lt(2)):
            cg.store(cg.cast_index(found, self.cuts.element), self.cuts, thread_index())
        gpu.barrier()
        left, left_end = (cg.cast_index(cg.load(self.cuts, n), low.type) for n in range(2))
        count = high - low
        if whole is not None:  # copied unmerged: first the left run, then the right one
            left, left_end = (
                cg.select(whole, found, cg.minimum(at, middle - start)) for found, at in ((left, low), (left_end, high))
            )
        left_count = cg.minimum(cg.maximum(left_end - left, 0), count)
        right = runs.right + (low - left)
        for iteration in range(EACH):
            slot = thread_index() + iteration * self.threads
            at = cg.minimum(slot, count - 1)
            place = cg.select(at.lt(left_count), runs.left + left + at, right + (at - left_count))
            self.put(read(cg.minimum(place, self.plan.rows * length - 1)), slot)
        gpu.barrier()
        slot = thread_index() * EACH
        inside = MergeRuns(cg.index(0), left_count, left_count, count - left_count)
        self._merge_own(inside, cg.minimum(slot, count), cg.minimum(slot + EACH, count), slots.bit_length(), slot)
        gpu.barrier()
        for iteration in range(EACH):
            slot = thread_index() + iteration * self.threads
            with cg.when(slot.lt(count) & (first + slot).lt(wanted)):
                for value, target in zip(self.read(slot), targets, strict=True):
                    cg.store(value, target, row * wanted + first + slot)

    def _all_fit(self, runs: MergeRuns, read: Read, count: Value, trip_count: int, width: int) -> Value:
        """Return whether all tiles of two runs begin in both where those before them end."""
        true = cg.constant(1, ir.IntegerType.get_signless(1))
        with cg.loop(thread_index() * self.slots, cg.index(2 * width), self.threads * self.slots, [true]) as iteration:
            low, high = (cg.minimum(at, count) for at in (iteration.iv, iteration.iv + self.slots))
            left, end = (merge_path(self.elements, read, runs, at, trip_count) for at in (low, high))
            iteration.yields(iteration.args[0] & cuts_fit(left, end, high - low))
        return self._in_all_threads(iteration.results[0])
