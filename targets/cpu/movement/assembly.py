"""Emitter of assemblies (pad, concatenate, stack, update-slice): stores the result line by line.

A line consists of adjacent segments: elements of boxes, background between them, or interleaved boxes. Large results
take non-temporal stores. Work items are blocks of lines, or parts of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Load, Map, Ref
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.scope import LoopScope, widest_lanes
from stablexla.targets.codegen.vector_loops import estimate_ns, grain_of
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.movement.boxes import Assembly, Box, match_assembly
from stablexla.targets.cpu.movement.lines import copy_line, fill_line
from stablexla.targets.cpu.shared import SharedFunctions

# Bytes of a block of lines; elements of a part of a longer line.
BLOCK_BYTES = Gate("assembly.block-bytes", 32 << 10, eager=64)
PART = Gate("assembly.part", 16 << 10, eager=16)
# Bodies heavier than this are not duplicated for peeled unaligned ends of a line.
HEAVY = 24


@emitter("general", priority=30)
def emit_assembly(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit insertions into an uninitialized array or a splat, or an update of one block of an array."""
    whole = match_assembly(kernel)
    if whole is None or any(_segments(whole, band) is None for band in _bands(whole)):
        return None
    writer = _Writer(whole, target, SharedFunctions(kernel, target))
    with kernel.phase(target) as arguments:
        writer.write(arguments)
    items = prod(writer.extents)
    cost = 1 + sum(node.cost for box in whole.boxes for node in box.nest.maps)
    elements = max(1, writer.elements // max(1, items))
    time = estimate_ns(cost, elements, 2 * elements * writer.size, target)
    updates = ((0, whole.base),) if whole.base is not None else ()
    return Emitted(items, grain_of(time, items), updates=updates)


# --- segments of a line ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Segment:
    """Elements [start, stop) of a line: of one box, of the background (no boxes), or of interleaved boxes.

    `first` is the index in the box of the first element.
    """

    start: int
    stop: int
    boxes: tuple[Box | None, ...]
    first: int = 0

    @property
    def weight(self) -> int:
        """Approximate instructions for each vector."""
        return sum(node.cost for box in self.boxes if box is not None for node in box.nest.maps)


def _bands(whole: Assembly) -> list[list[Box]]:
    """Group the boxes by the lines that they cover."""
    bands: dict[object, list[Box]] = {}
    for box in whole.boxes:
        bands.setdefault(box.rows(), []).append(box)
    return list(bands.values())


def _segments(whole: Assembly, band: Sequence[Box]) -> list[_Segment] | None:
    """Split a line of a band into segments, in order; None for steps without code here."""
    if whole.base is not None:
        if len(band) > 1 or band[0].steps[-1] != 1:
            return None
        return [_Segment(0, band[0].sizes[-1], (band[0],))]
    line, at, segments = whole.shape[-1], 0, []
    apart = max(box.steps[-1] for box in band)
    if apart > 1:
        pieces = _woven(band, apart, whole.background is not None)
    else:
        pieces = [_Segment(_first(box), box.ends(len(box.sizes) - 1), (box,)) for box in band]
    if pieces is None:
        return None
    for piece in sorted(pieces, key=lambda s: s.start):
        if piece.start > at:
            segments.append(_Segment(at, piece.start, ()))
        segments.append(piece)
        at = piece.stop
    if at < line:
        segments.append(_Segment(at, line, ()))
    return segments


def _first(box: Box) -> int:
    start = box.starts[-1]
    assert isinstance(start, int)
    return start


def _woven(band: Sequence[Box], apart: int, filled: bool) -> list[_Segment] | None:
    """Interleave boxes element by element, and append the remainder of the longer ones; None for other patterns."""
    first = min(_first(box) for box in band)
    slots: list[Box | None] = [None] * apart
    for box in band:
        slot = _first(box) - first
        if slot >= apart or apart > 4 or (box.steps[-1] != apart and box.sizes[-1] > 1):
            return None
        slots[slot] = box
    if None in slots and not filled:
        return None
    turns = min(box.sizes[-1] for box in band)
    if None in slots:  # the line may end behind the last element of a box
        turns -= 1
    most = max(box.sizes[-1] for box in band)
    if most > turns + 1 or turns < 1:
        return None
    segments = [_Segment(first, first + turns * apart, tuple(slots))]
    for slot, one in enumerate(slots):
        if one is not None and one.sizes[-1] > turns:
            at = first + turns * apart + slot
            segments.append(_Segment(at, at + 1, (one,), turns))
    return segments


_Band = tuple[list[Box], list[_Segment]]


# --- writing --------------------------------------------------------------------------------------------------------


class _Writer:
    """Code of the work items: stores of the lines' segments."""

    def __init__(self, whole: Assembly, target: CpuTarget, functions: SharedFunctions) -> None:
        self.whole, self.target, self.functions = whole, target, functions
        self.size = cg.bits_of(whole.element) // 8
        self.bands = [(band, _segments(whole, band) or []) for band in _bands(whole)]
        rows = whole.boxes[0].sizes[:-1] if whole.base is not None else whole.shape[:-1]
        self.line = whole.boxes[0].sizes[-1] if whole.base is not None else whole.shape[-1]
        self.elements = prod(rows) * self.line
        self.strides = [prod(whole.shape[d + 1 :]) for d in range(len(whole.shape))]
        self.outer: list[int] = rows[:-1]
        self.last: int = rows[-1] if rows else 1
        self.has_rows = bool(rows)
        self.block = max(1, min(self.last, BLOCK_BYTES() // max(1, self.line * self.size)))
        self.parts = -(-self.line // PART()) if self.line >= 2 * PART() else 1
        self.extents = [*self.outer, -(-self.last // self.block), self.parts]
        self.nontemporal = whole.base is None and prod(whole.shape) * self.size >= target.nontemporal_bytes
        # Written by functions of the library: a hundred such kernels take two thirds of the time to compile, then.
        in_order = whole.base is None and not self.nontemporal and not isinstance(whole.element, ir.ComplexType)
        self.is_line = in_order and prod(rows) == 1

    def write(self, arguments: KernelArguments) -> None:
        """Emit the loop over work items."""
        self.result = arguments.results[0]
        top = LoopScope(arguments)
        with arguments.split_items(self.extents) as (*outer, block, part):
            low, high = cg.index(0), cg.index(self.line)
            if self.parts > 1:
                low = part * PART()
                high = cg.minimum(low + PART(), self.line)
            first = block * self.block
            with cg.loop(first, cg.minimum(first + self.block, self.last)) as row:
                at = [*outer, row.iv] if self.has_rows else []
                self._row(top, at, low, high)

    def _row(self, top: LoopScope, at: list[Value], low: Value, high: Value) -> None:
        """Emit the part [low, high) of the line at `at`."""
        if self.whole.base is not None:
            self._line(top, at, self.bands[0], low, high)
            return
        self._choose(top, at, list(self.bands), low, high)

    def _choose(self, top: LoopScope, at: list[Value], bands: list[_Band], low: Value, high: Value) -> None:
        if not bands:
            if self.whole.background is not None:
                self._line(top, at, ([], [_Segment(0, self.line, ())]), low, high)
            return
        first, *rest = bands
        condition = self._lies_on(first[0][0], at)
        if condition is None:
            self._line(top, at, first, low, high)
            return
        side = cg.branch(condition)
        with side.then:
            self._line(top, at, first, low, high)
        with side.otherwise:
            self._choose(top, at, rest, low, high)

    def _lies_on(self, box: Box, at: list[Value]) -> Value | None:
        """Emit the test whether a line crosses a box; None when every line does."""
        found: Value | None = None
        for d, place in enumerate(at):
            start, size, step = box.starts[d], box.sizes[d], box.steps[d]
            assert isinstance(start, int)
            if (start, size, step) == (0, self.whole.shape[d], 1):
                continue
            conditions = []
            if start:
                conditions.append(place.ge(start))
            if box.ends(d) < self.whole.shape[d]:
                conditions.append(place.lt(box.ends(d)))
            if step > 1 and size > 1:
                conditions.append(((place - start) % step).eq(0))
            for each in conditions:
                found = each if found is None else found & each
        return found

    def _line(self, top: LoopScope, at: list[Value], band: _Band, low: Value, high: Value) -> None:
        boxes, segments = band
        rows = {id(box): top.inside(self._inside(box, at)) for box in boxes}
        start = cg.index(0)
        for d, place in enumerate(at):
            if self.whole.base is not None:
                place = self._start(top, boxes[0], d) + place * boxes[0].steps[d]
            start = start + place * self.strides[d]
        if self.whole.base is not None:
            start = start + self._start(top, boxes[0], len(at))
        for segment in segments:
            self._segment(top, rows, segment, start, low, high)

    def _start(self, top: LoopScope, box: Box, d: int) -> Value:
        start = box.starts[d]
        return cg.index(start) if isinstance(start, int) else top.argument(start.arg_number)

    def _inside(self, box: Box, at: list[Value]) -> dict[int, Index]:
        """Return the box's loop indices for a line."""
        if self.whole.base is not None:
            return dict(enumerate(at))
        places: dict[int, Index] = {}
        for d, place in enumerate(at):
            start = box.starts[d]
            assert isinstance(start, int)
            places[d] = cg.index(0) if box.sizes[d] == 1 else (place - start) // box.steps[d]
        return places

    def _segment(
        self, top: LoopScope, rows: dict[int, LoopScope], segment: _Segment, line: Value, low: Value, high: Value
    ) -> None:
        """Emit the intersection of a segment with [low, high) of its line."""
        apart = max(1, len(segment.boxes))
        count = (segment.stop - segment.start) // apart
        begin, end = cg.index(0), cg.index(count)
        if self.parts > 1:
            begin = cg.maximum(low - segment.start, 0)
            end = cg.minimum(cg.maximum(high - segment.start, 0), segment.stop - segment.start)
            if apart > 1:
                begin, end = (begin + (apart - 1)) // apart, (end + (apart - 1)) // apart
        lanes = min([self._lanes(), *(widest_lanes(box.nest, self.target) for box in segment.boxes if box is not None)])
        while lanes > count:
            lanes //= 2
        inner = len(self.whole.shape) - 1
        sources: list[tuple[LoopScope, Ref]] = []
        for box in segment.boxes or (None,):
            if box is None:
                assert self.whole.background is not None
                sources.append((top, self.whole.background))
            else:
                rows[id(box)].prepare([box.ref], frozenset((inner,)), lanes)
                sources.append((rows[id(box)], box.ref))
        place = line + segment.start
        if self.is_line and count > 1 and self._shared(sources, segment, place, (begin, end)):
            return

        def put(at: Value, width: int, nontemporal: bool) -> None:
            values = []
            for row, ref in sources:
                here = row.inside({inner: at + segment.first}, lane=inner, lanes=width)
                values.append(cg.splat(here.value(ref), width))
            for number, value in enumerate(_in_turns(values)):
                cg.store(value, self.result, place + at * apart + number * max(1, width), nontemporal)

        if lanes <= 1:
            with cg.loop(begin, end) as turn:
                put(turn.iv, 0, False)
            return
        past = self.nontemporal and apart == 1 and lanes == self._lanes() and segment.weight <= HEAVY
        lines_aligned = all(stride % lanes == 0 for stride in self.strides[:-1]) and self.parts == 1
        straight = lines_aligned and segment.start % lanes == 0 and count % lanes == 0
        _cover(begin, end, lanes, put, place if past else None, straight=straight and self.nontemporal)

    def _shared(
        self, sources: list[tuple[LoopScope, Ref]], segment: _Segment, place: Value, part: tuple[Value, Value]
    ) -> bool:
        """Have a function of the library write part of a segment; False unless it is a copy or one number."""
        if len(sources) != 1:
            return False
        ((row, ref),), (begin, end) = sources, part
        count = cg.maximum(end - begin, 0)  # an item's part may begin behind the segment
        node, _ = _copied(ref)
        inner = len(self.whole.shape) - 1
        if isinstance(node, Load) and node.strides[inner] == 1:
            at = row.inside({inner: begin + segment.first}).address(node)
            source = row.arguments.inputs[node.buffer]
            copy_line(self.functions, source, at, self.result, place + begin, count)
        elif not node.deps:
            fill_line(self.functions, row.value(ref), self.result, place + begin, count)
        else:
            return False
        return True

    def _lanes(self) -> int:
        return max(1, int(self.target.vector_bits // cg.bits_of(self.whole.element)))


def _copied(ref: Ref) -> Ref:
    """Return what a value is a copy of, through bodies that yield an operand."""
    node, number = ref
    while isinstance(node, Map):
        yielded = terminator_of(node.block).operands[number]
        if not isinstance(yielded, ir.BlockArgument) or yielded.owner != node.block:
            break
        node, number = node.operands[yielded.arg_number]
    return node, number


def _in_turns(values: list[Value]) -> list[Value]:
    """Interleave the elements of the given vectors by shuffles into as many vectors; scalars stay as they are."""
    if len(values) == 1 or not values[0].lanes:
        return values
    lanes, count = values[0].lanes, len(values)
    if count == 4:
        a, b, c, d = values
        even, odd = _in_turns([a, c]), _in_turns([b, d])
        return [v for pair in zip(even, odd, strict=True) for v in _in_turns(list(pair))]
    made = []
    for number in range(count):
        wanted = [divmod(number * lanes + lane, count) for lane in range(lanes)]
        two = cg.shuffle(values[0], values[1], [turn + lanes * (which == 1) for turn, which in wanted])
        if count == 3:
            two = cg.shuffle(
                two, values[2], [lanes + t if which == 2 else here for here, (t, which) in enumerate(wanted)]
            )
        made.append(two)
    return made


def _cover(
    begin: Value,
    end: Value,
    lanes: int,
    put: Callable[[Value, int, bool], None],
    place: Value | None,
    *,
    straight: bool,
) -> None:
    """Call `put` for all of [begin, end) in vectors; the last vector overlaps the one before.

    Args:
        place: the address of element 0, where aligned vectors take non-temporal stores.
        straight: all vectors are whole and aligned.
    """
    length = end - begin
    if straight:
        with cg.loop(begin, end, lanes) as turn:
            put(turn.iv, lanes, True)
        return
    if cg.known(length) is None:
        side = cg.branch(length.ge(lanes))
        with side.then:
            _vectors(begin, end, lanes, put, place)
        with side.otherwise, cg.loop(begin, end) as turn:
            put(turn.iv, 0, False)
        return
    _vectors(begin, end, lanes, put, place)


def _vectors(
    begin: Value, end: Value, lanes: int, put: Callable[[Value, int, bool], None], place: Value | None
) -> None:
    if place is None:
        with cg.loop(begin, end, lanes) as turn:
            put(cg.minimum(turn.iv, end - lanes), lanes, False)
        return
    # Unaligned lines: peel an unaligned first vector, then aligned non-temporal stores, then an unaligned last vector.
    put(begin, lanes, False)
    first = begin + (cg.index(lanes) - (place + begin) % lanes) % lanes
    with cg.loop(first, end - (lanes - 1), lanes) as turn:
        put(turn.iv, lanes, True)
    put(end - lanes, lanes, False)
