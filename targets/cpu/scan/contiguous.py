"""Scans with any combiner along contiguous elements: in the lanes of a vector, or in groups of transposed vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, KernelArguments
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.blocked_reduction import blocked_scan
from stablexla.targets.codegen.vector_loops import estimate_ns, grain_of
from stablexla.targets.cpu.scan.plan import ScanPlan, ScanWriter, Values, emit_three_phase_scan
from stablexla.targets.cpu.scan.prefix_scan import BLOCK, MANY

# (start of a group, accumulators before it) -> accumulators of the group.
_Iteration = Callable[[Value, Values], Values]


class _Lines:
    """Scans along contiguous lines; the accumulators are broadcast to all lanes."""

    def __init__(self, plan: ScanPlan, arguments: KernelArguments) -> None:
        self.plan, self.writer = plan, ScanWriter(plan, arguments)
        # LLVM must not see that lanes without a predecessor are dead: it leaves in them whatever is there, and
        # arithmetic on denormal numbers takes a hundred cycles.
        self._zero = cg.opaque(cg.constant(0, ir.IntegerType.get_signless(32)))

    def place(self, line: Value, at: Value, count: int) -> Value:
        """Return the index of the vector that comes at `at` in the order of the scan."""
        first = line * self.plan.extent
        return first + (cg.index(self.plan.extent - count) - at if self.plan.backwards else at)

    def scan(self, line: Value, start: Value, stop: Value, last: Value | None, before: Values, first: Value) -> None:
        """Scan a part of a line.

        Args:
            last: whether it is the line's last part; None if it is the only one.
            before: the total of everything before it.
            first: whether no element precedes it.
        """
        plan, lanes = self.plan, self.plan.lanes
        whole = plan.extent // lanes * lanes
        if not whole:
            self._step(line, start, plan.extent, before, first)
            return
        totals = self._step(line, start, lanes, before, first)
        begin, totals = self._groups(
            start + lanes, cg.minimum(stop, whole), totals, lambda at, before: self._scan_group(line, at, before)
        )
        with cg.loop(begin, cg.minimum(stop, whole), lanes, totals) as vectors:
            vectors.yields(*self._step(line, vectors.iv, lanes, vectors.args, None))
        if whole == plan.extent:
            return
        if last is None:
            self._step(line, cg.index(whole), plan.extent - whole, vectors.results, None)
        else:
            with cg.branch(last, otherwise=False).then:
                self._step(line, cg.index(whole), plan.extent - whole, vectors.results, None)

    def _step(self, line: Value, at: Value, count: int, before: Values, first: Value | None) -> Values:
        """Scan one vector; `first` says whether no element precedes it, None that one does."""
        lanes, place = self.plan.lanes, self.place(line, at, count)
        scanned = self._in_lanes(self.writer.read(place, count), count, self.plan.backwards)
        end = 0 if self.plan.backwards else count - 1
        ends = [cg.shuffle(v, v, [end] * lanes) for v in scanned]
        if first is None:
            values, totals = self.writer.combine(before, scanned), self.writer.combine(before, ends)
        else:
            before = [cg.select(first, v, b) for v, b in zip(scanned, before, strict=True)]
            values = [
                cg.select(first, v, c) for v, c in zip(scanned, self.writer.combine(before, scanned), strict=True)
            ]
            totals = [cg.shuffle(v, v, [end] * lanes) for v in values]
        self.writer.write(values, place, count)
        return totals

    def _groups(self, start: Value, stop: Value, totals: Values, body: _Iteration) -> tuple[Value, Values]:
        """Emit `body` for whole groups of as many vectors as there are lanes; return their end, and the total there.

        `body` gets the total before a group, and returns the group's total.

        A group is transposed in registers, so that each lane scans contiguous elements one after the other. The
        exclusive prefix of the lanes is found once for the group: two combinations for each vector, where scanning it
        by itself takes five.
        """
        group = self.plan.lanes * self.plan.lanes
        if self.plan.extent < 2 * group:
            return start, totals
        groups = (stop - start) // group
        combine, most = self.writer.combine, self.plan.extent // group
        totals = blocked_scan(
            0, groups, 1, most, totals, combine, lambda iteration, here: body(start + iteration * group, here)
        )
        return start + groups * group, totals

    def _scan_group(self, line: Value, at: Value, before: Values) -> Values:
        lanes = self.plan.lanes
        totals = self._along(line, at)
        ends = self._in_lanes(totals[-1], lanes, backwards=False)
        earlier = self.writer.combine(before, [cg.shuffle(v, v, [max(0, i - 1) for i in range(lanes)]) for v in ends])
        masks = {bits: self._has_neighbour(bits, 1, lanes, backwards=False) for bits in self.plan.widths}
        earlier = [cg.select(masks[cg.bits_of(v.type)], v, b) for v, b in zip(earlier, before, strict=True)]
        made = [self.writer.combine(earlier, values) for values in totals]
        rows = self._turned(made[::-1] if self.plan.backwards else made, self.plan.returned)
        for number, values in enumerate(rows):
            self.writer.write(values, self.place(line, at + number * lanes, lanes), lanes)
        return [cg.shuffle(v, v, [lanes - 1] * lanes) for v in ends]

    def _along(self, line: Value, at: Value) -> list[Values]:
        """Scan the contiguous elements in each lane of a transposed group."""
        lanes = self.plan.lanes
        rows = [self.writer.read(self.place(line, at + number * lanes, lanes), lanes) for number in range(lanes)]
        turned = self._turned(rows, range(len(self.plan.elements)))
        turned = turned[::-1] if self.plan.backwards else turned
        made = turned[:1]
        for values in turned[1:]:
            made.append(self.writer.combine(made[-1], values))
        return made

    def _turned(self, rows: list[Values], numbers: Iterable[int]) -> list[Values]:
        """Transpose a group in registers: vector i holds element i of each row; its own inverse.

        Args:
            numbers: the arrays to transpose.
        """
        made = [list(values) for values in rows]
        for number in numbers:
            for values, turned in zip(made, cg.transpose_registers([v[number] for v in rows]), strict=True):
                values[number] = turned
        return made

    def _in_lanes(self, values: Values, count: int, backwards: bool) -> Values:
        """Scan the lanes of one vector by log-step shuffles (Hillis-Steele), at distances 1, 2, 4 ..."""
        lanes, by = self.plan.lanes, 1
        while by < count:
            moved = [i + by if backwards else i - by for i in range(lanes)]
            places = [i if 0 <= i < count else 0 for i in moved]
            combined = self.writer.combine([cg.shuffle(v, v, places) for v in values], values)
            masks = {bits: self._has_neighbour(bits, by, count, backwards) for bits in self.plan.widths}
            values = [cg.select(masks[cg.bits_of(v.type)], c, v) for v, c in zip(values, combined, strict=True)]
            by *= 2
        return values

    def _has_neighbour(self, bits: int, by: int, count: int, backwards: bool) -> Value:
        """Return the mask of lanes, of elements of so many bits, that have a predecessor at distance `by`."""
        type_ = ir.IntegerType.get_signless(bits)
        zero = Value(arith.trunci(type_, self._zero.ssa) if bits < 32 else self._zero.ssa)
        zero = Value(arith.extui(type_, zero.ssa)) if bits > 32 else zero
        lane = cg.cast_index(cg.iota_vector(self.plan.lanes), cg.vector_of(self.plan.lanes, type_)) + cg.splat(
            zero, self.plan.lanes
        )
        return lane.lt(count - by) if backwards else lane.ge(by)

    def total(self, line: Value, start: Value, stop: Value) -> Values:
        """Reduce the elements of whole vectors to scalars."""
        lanes = self.plan.lanes

        def of_vector(at: Value) -> Values:
            return self._across(self.writer.read(self.place(line, at, lanes), lanes), self.plan.backwards)

        def of_group(at: Value, before: Values) -> Values:
            del before
            return self._across(self._along(line, at)[-1], backwards=False)

        first = of_vector(start)
        begin, totals = self._groups(start + lanes, stop, first, of_group)
        with cg.loop(begin, stop, lanes, totals) as vectors:
            vectors.yields(*self.writer.combine(vectors.args, of_vector(vectors.iv)))
        return vectors.results

    def _across(self, values: Values, backwards: bool) -> Values:
        """Reduce a vector horizontally, keeping the order: of adjacent lanes the first one holds both."""
        lanes, by = self.plan.lanes, 1
        while by < lanes:
            low = [(i + by) % lanes if backwards else i for i in range(lanes)]
            high = [i if backwards else (i + by) % lanes for i in range(lanes)]
            before, after = ([cg.shuffle(v, v, places) for v in values] for places in (low, high))
            values = self.writer.combine(before, after)
            by *= 2
        return [cg.extract(v, 0) for v in values]


def emit_line_scan(plan: ScanPlan) -> Emitted:
    """Emit scans with a line per work item; or, where there are few and long ones, with blocks of them."""
    time = estimate_ns(plan.cost * 6, plan.extent, plan.bytes // plan.outer, plan.target)
    size = rounded_up(BLOCK(), plan.lanes)
    if plan.outer >= MANY() or plan.extent < 2 * size:
        with plan.kernel.phase(plan.target) as arguments:
            lines = _Lines(plan, arguments)
            zero = [cg.constant(0, cg.vector_of(plan.lanes, e)) for e in plan.elements]
            always = cg.constant(1, ir.IntegerType.get_signless(1))
            with arguments.items(plan.outer) as line:
                lines.scan(line, cg.index(0), cg.index(plan.extent), None, zero, always)
        return Emitted(plan.outer, grain_of(time, plan.outer), in_place=plan.in_place)

    def total(arguments: KernelArguments, line: Value, block: Value, at: Value) -> None:
        made = _Lines(plan, arguments).total(line, block * size, block * size + size)
        for value, buffer in zip(made, arguments.scratch, strict=True):
            cg.store(value, buffer, at)

    def scan(arguments: KernelArguments, line: Value, block: Value, last: Value, at: Value) -> None:
        before = [cg.splat(cg.load(buffer, at), plan.lanes) for buffer in arguments.scratch]
        stop = cg.select(last, cg.index(plan.extent), block * size + size)
        _Lines(plan, arguments).scan(line, block * size, stop, last, before, block.eq(0))

    return emit_three_phase_scan(plan, plan.extent // size, plan.outer, 1, time, total, scan)
