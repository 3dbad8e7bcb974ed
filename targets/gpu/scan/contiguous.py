"""Scans along contiguous elements: a warp or a block iterates over a line in chunks, some neighbours for each thread.

A thread scans its own elements, a warp scans its threads' totals by shuffles, warps exchange theirs in shared memory,
and the chunk's total is carried on. Few long lines are split into parts in three launches: one reduces the parts, one
scans their totals, and one scans the parts. The order of combination follows from the lengths alone.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, KernelArguments
from stablexla.targets.codegen.sums.blocked_reduction import blocked_scan
from stablexla.targets.gpu.scan.plan import ScanElements, ScanPlan, Values
from stablexla.targets.gpu.threads import (
    WARP,
    Launch,
    block_index,
    kernel_function,
    launched,
    scan_warp,
    shared_buffer,
    thread_index,
)

# (position of the first in scan order) -> elements of a thread; and the same with the elements to be stored.
_Read = Callable[[Value], list[Values]]
_Write = Callable[[Value, list[Values]], None]

THREADS = 256
BITS = 128
MOST_EACH = 8
SHORT = Gate("gpu-scan.short", 512, eager=1)
"""Longest lines that one warp scans."""
ABREAST = 4
"""Lines of one warp each that a block works on."""
FEW = Gate("gpu-scan.few", 64, eager=2)
LONG = Gate("gpu-scan.long", 1 << 14, eager=1)
CHUNKS = Gate("gpu-scan.chunks", 4, eager=1)
MOST_PARTS = Gate("gpu-scan.most-parts", 512, eager=2)
"""Fewer lines than FEW, longer than LONG, are split into at most MOST_PARTS parts of CHUNKS chunks or more."""


@dataclass(frozen=True)
class LineDistribution:
    """Assignment of a line to threads, each with so many neighbouring elements of a chunk."""

    threads: int
    each: int
    vectors: bool

    @staticmethod
    def of(plan: ScanPlan) -> LineDistribution:
        each = max(4, min(MOST_EACH, BITS // plan.widest))
        vectors = each * plan.widest <= BITS and plan.extent % each == 0
        threads = WARP
        while plan.extent > SHORT() and threads < THREADS and threads * each < plan.extent:
            threads *= 2
        return LineDistribution(threads, each, vectors)

    @property
    def chunk(self) -> int:
        """Elements of a chunk, of all threads."""
        return self.threads * self.each

    @property
    def warps(self) -> int:
        return self.threads // WARP


def emit_lines(plan: ScanPlan) -> Emitted:
    """Emit a scan with a warp or a block for each line; few long ones in parts."""
    deal = LineDistribution.of(plan)
    chunks = -(-plan.extent // deal.chunk)
    parts = min(MOST_PARTS(), -(-chunks // CHUNKS()))
    if plan.outer < FEW() and plan.extent >= LONG() and parts > 1:
        return _emit_parts(plan, deal, -(-chunks // parts) * deal.chunk)
    abreast = ABREAST if deal.warps == 1 else 1
    launch = Launch(-(-plan.outer // abreast), deal.threads * abreast, _shared(plan, deal))
    with kernel_function(plan.kernel, launch) as arguments:
        lines = ScanLines(plan, deal, arguments)
        line = block_index() if abreast == 1 else block_index() * abreast + thread_index() // WARP
        with cg.when(line.lt(plan.outer)):
            before = lines.writer.starts() if plan.starts else None
            lines.scan(line, cg.index(0), cg.index(plan.extent), before, cg.truth(plan.starts), written=True)
    return Emitted(1, 1)


def _emit_parts(plan: ScanPlan, deal: LineDistribution, size: int) -> Emitted:
    parts = -(-plan.extent // size)
    kernel = plan.kernel
    scratch = tuple((str(e), plan.outer * parts) for e in plan.totals)
    names = [f"{kernel.impl_name}_{suffix}" for suffix in ("totals", "before", "parts")]
    shared = _shared(plan, deal)
    with kernel_function(
        kernel, Launch(plan.outer * (parts - 1), deal.threads, shared), names[0], scratch
    ) as arguments:
        line, part = cg.split_index(block_index(), [plan.outer, parts - 1])
        totals = ScanLines(plan, deal, arguments).scan(
            line, part * size, part * size + size, None, cg.truth(False), written=False
        )
        with cg.when(thread_index().eq(0)):
            for value, place in zip(totals, arguments.scratch, strict=True):
                cg.store(value, place, line * parts + part)
    with kernel_function(kernel, Launch(plan.outer, deal.threads, shared), names[1], scratch) as arguments:
        lines = ScanLines(plan, deal, arguments)
        before = lines.writer.starts() if plan.starts else None
        lines.scan_totals(arguments.scratch, block_index() * parts, parts - 1, before)
    with kernel_function(kernel, Launch(plan.outer * parts, deal.threads, shared), names[2], scratch) as arguments:
        line, part = cg.split_index(block_index(), [plan.outer, parts])
        lines = ScanLines(plan, deal, arguments)
        first = part.eq(0)
        place = cg.select(first, line * parts, line * parts + part - 1)
        before = [cg.load(v, place) for v in arguments.scratch]
        if plan.starts:
            before = [cg.select(first, s, b) for s, b in zip(lines.writer.starts(), before, strict=True)]
        stop = cg.minimum(part * size + size, plan.extent)
        exists = cg.truth(True) if plan.starts else part.gt(0)
        lines.scan(line, part * size, stop, before, exists, written=True)
    return launched(names, scratch)


def _shared(plan: ScanPlan, deal: LineDistribution) -> int:
    """Return shared memory for the warps' totals, double-buffered, so that one barrier a chunk is enough."""
    return 0 if deal.warps == 1 else 8 * 2 * deal.warps * len(plan.elements)


class ScanLines:
    """Scans along lines inside one function."""

    def __init__(self, plan: ScanPlan, deal: LineDistribution, arguments: KernelArguments) -> None:
        self.plan, self.deal, self.writer = plan, deal, ScanElements(plan, arguments)
        self.me = thread_index() % deal.threads
        self.places: Values = []
        if deal.warps > 1:
            size = 2 * deal.warps
            self.places = [shared_buffer(e, size, 8 * size * n) for n, e in enumerate(plan.totals)]

    def scan(
        self, line: Value, start: Value, stop: Value, before: Values | None, exists: Value, *, written: bool
    ) -> Values:
        """Scan a part of a line; return its total, the carried prefix included.

        Args:
            before: the carried prefix, if there is any.
            exists: whether there is.
        """
        each, first = self.deal.each, line * self.plan.extent

        def read(at: Value) -> list[Values]:
            if self.deal.vectors:
                return self._vectors(first, cg.minimum(at, self.plan.extent - each))
            return [self.writer.read(self._place(first, cg.minimum(at + j, self.plan.extent - 1))) for j in range(each)]

        def write(at: Value, made: list[Values]) -> None:
            if not written:
                return
            if self.deal.vectors:
                with cg.when(at.lt(stop)):
                    self._write_vectors(first, at, made)
                return
            for j, values in enumerate(made):
                with cg.when((at + j).lt(stop)):
                    self.writer.write(values, self._place(first, at + j))

        return self._chunks(start, stop, before, exists, read, write)

    def scan_totals(self, buffers: Values, first: Value, count: int, before: Values | None) -> None:
        """Scan the totals of parts, in place."""
        each = self.deal.each

        def read(at: Value) -> list[Values]:
            return [[cg.load(b, first + cg.minimum(at + j, max(0, count - 1))) for b in buffers] for j in range(each)]

        def write(at: Value, made: list[Values]) -> None:
            if self.deal.warps == 1:
                gpu.barrier()  # all threads beyond the end have read the last total, too
            for j, values in enumerate(made):
                with cg.when((at + j).lt(count)):
                    for value, buffer in zip(values, buffers, strict=True):
                        cg.store(value, buffer, first + at + j)

        self._chunks(cg.index(0), cg.index(count), before, cg.truth(before is not None), read, write)

    def _chunks(
        self, start: Value, stop: Value, before: Values | None, exists: Value, read: _Read, write: _Write
    ) -> Values:
        """Iterate over chunks: load, scan, store."""
        chunk = self.deal.chunk
        carried = before if before is not None else [cg.constant(0, e) for e in self.plan.totals]

        def body(first: Value, here: Values) -> Values:
            at, number = first + self.me * self.deal.each, (first - start) // chunk
            made, totals = self._chunk(read(at), here, exists | number.gt(0), number % 2)
            write(at, made)
            return totals

        trip_count = -(-self.plan.extent // chunk)
        return blocked_scan(start, stop, chunk, trip_count, carried, self.writer.combine, body, exists=exists)

    def _chunk(
        self, elements: list[Values], carried: Values, exists: Value, half: Value
    ) -> tuple[list[Values], Values]:
        """Return the scanned elements of this thread, and the chunk's total."""
        combine = self.writer.combine
        own = elements[:1]
        for values in elements[1:]:
            own.append(combine(own[-1], values))
        lane, warp = self.me % WARP, self.me // WARP
        before, whole = scan_warp(own[-1], combine, own[-1])
        if self.deal.warps == 1:
            totals, there = whole, exists
        else:
            with cg.when(lane.eq(0)):
                for value, place in zip(whole, self.places, strict=True):
                    cg.store(value, place, half * self.deal.warps + warp)
            gpu.barrier()
            totals, *rest = [
                [cg.load(place, half * self.deal.warps + number) for place in self.places]
                for number in range(self.deal.warps)
            ]
            earlier = totals
            for number, found in enumerate(rest, 1):
                earlier = _either(warp.ge(number), totals, earlier)
                totals = combine(totals, found)
            carried = _either(warp.gt(0), _joined(combine, exists, carried, earlier), carried)
            there = exists | warp.gt(0)
        inside = lane.gt(0)
        before = _either(there, _either(inside, combine(carried, before), carried), before)
        there = there | inside
        return [_joined(combine, there, before, values) for values in own], totals

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _place(self, first: Value, at: Value) -> Value:
        return first + (cg.index(self.plan.extent - 1) - at if self.plan.backwards else at)

    def _vector_place(self, first: Value, at: Value) -> Value:
        return first + (cg.index(self.plan.extent - self.deal.each) - at if self.plan.backwards else at)

    def _order(self) -> list[int]:
        lanes = list(range(self.deal.each))
        return lanes[::-1] if self.plan.backwards else lanes

    def _vectors(self, first: Value, at: Value) -> list[Values]:
        found = [cg.load(array, self._vector_place(first, at), self.deal.each) for array in self.writer.arrays]
        return [self.writer.widened([cg.extract(vector, lane) for vector in found]) for lane in self._order()]

    def _write_vectors(self, first: Value, at: Value, made: list[Values]) -> None:
        rows = [self.writer.finished(values) for values in made]
        for number, result in enumerate(self.writer.results):
            vector = cg.splat(cg.constant(0, rows[0][number].type), self.deal.each)
            for lane, row in zip(self._order(), rows, strict=True):
                vector = cg.insert(row[number], vector, lane)
            cg.store(vector, result, self._vector_place(first, at))


def _either(condition: Value, yes: Values, no: Values) -> Values:
    return [cg.select(condition, y, n) for y, n in zip(yes, no, strict=True)]


def _joined(combine: Callable[[Values, Values], Values], exists: Value, before: Values, values: Values) -> Values:
    """Combine values with the carried prefix, if there is any."""
    return _either(exists, combine(before, values), values)
