"""Emit prefix scans (cumsum and the like) with one known combiner, along any dimension and from either end of it.

Along contiguous elements a vector is scanned in its lanes, and the prefix before it is added to all of them. Along any
other dimension vectors lie across it. Long scans are split into blocks of a fixed size, in three phases: the totals of
all blocks, the exclusive scan of these, and then the scan of each block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.scan.line_scan import ScanConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.combiners import combine_values, identity
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM, add_compensation, two_sum
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.codegen.vector_loops import (
    MOST_UNROLLED,
    LoopPart,
    WorkItems,
    estimate_ns,
    grain_of,
    vector_loop,
)
from stablexla.targets.cpu.emitters import emitter

# Elements in a block of a long scan, and the number of independent scans from which on blocks are needless.
BLOCK = Gate("scan.block", 8192, eager=1)
MANY = Gate("scan.many", 8, eager=2)
# Registers of a square transposed in registers: LLVM takes minutes over 64 of 64 bytes, and a fifth of a second over
# 32.
MOST_TURNED = 32
# Rows of at most this many vectors are carried in registers; longer ones are tiled into panels of so many elements.
MOST_CARRIED = Gate("scan.most-carried", 8, eager=1)
PANEL = Gate("scan.panel", 1024, eager=1)
# Streams at least this long are prefetched.
STREAM_BYTES = Gate("scan.stream-bytes", 1 << 20, eager=1)
# The result may alias the operand: each element is loaded before it is overwritten, and never after.
IN_PLACE = ((0, 0),)


@emitter("scan", priority=10)
def emit_scan(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit scans of integers and of floats of 32 and 64 bits by one operation."""
    plan = _plan(kernel, target)
    if plan is None:
        return None
    if plan.inner == 1:
        return _emit(kernel, _Lines(plan), target)
    if -(-plan.inner // plan.lanes) <= MOST_CARRIED():
        return _emit(kernel, _Rows(plan), target)
    return _emit_panels(kernel, plan, target)


# --- the schedule -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """A scan of `outer` times `extent` rows of `inner` elements.

    Attributes:
        name: the combiner.
        stored: the storage type; sums of narrow floats are accumulated in `element`.
        identity: of the combiner.
        starts: whether there is an initial value, which is the kernel's second input.
        positive_zeros: whether zeros are added to the results.
    """

    outer: int
    extent: int
    inner: int
    backwards: bool
    name: str
    unsigned: bool
    starts: bool
    positive_zeros: bool
    stored: ir.Type
    element: ir.Type
    identity: float
    lanes: int
    target: CpuTarget

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
        return self.outer * self.extent * self.inner * cg.bits_of(self.stored) // 8

    @property
    def is_long(self) -> bool:
        """Whether these are sums that are too long for one running sum without compensation."""
        return self.name == "add" and cg.is_float(self.element) and self.extent > LONGEST_RUNNING_SUM()

    def read(self, source: Value, at: Value, count: int | None = None) -> Value:
        """Load a vector of elements, of which the first `count` are active."""
        if self.stored == self.element:
            return cg.load_lanes(source, at, self.lanes, self.lanes if count is None else count, self.identity)
        value = cg.load_lanes(source, at, self.lanes, self.lanes if count is None else count)
        wide = cg.to_float(value, self.element)
        return wide if count is None else cg.select(cg.mask(self.lanes, count), wide, self.identities(self.lanes))

    def write(
        self, value: Value, result: Value, at: Value, count: int | None = None, nontemporal: bool = False
    ) -> None:
        """Store a vector of results, or the first `count` of its lanes."""
        value = self.finished(value)
        value = cg.to_float(value, self.stored) if self.stored != self.element else value
        if count is None:
            cg.store(value, result, at, nontemporal)
        else:
            cg.store_lanes(value, result, at, count)

    def carry(self, pair: Sequence[Value], more: Value) -> tuple[Value, Value]:
        """Add to a loop-carried total, and to its rounding error where that is kept."""
        total, error = pair
        if not self.is_long:
            return self.join(total, more), error
        made, off = two_sum(total.ssa, more.ssa)
        return Value(made), error + Value(off)

    def exact(self, total: Value, error: Value) -> Value:
        """Return the value of a loop-carried total, compensated if it is long."""
        return Value(add_compensation(total.ssa, error.ssa)) if self.is_long else total

    def join(self, a: Value, b: Value) -> Value:
        """Combine two scalars or vectors."""
        return combine_values(self.name, a, b, unsigned=self.unsigned)

    def identities(self, lanes: int) -> Value:
        """Return the identity, in all lanes."""
        return cg.constant(self.identity, cg.vector_of(lanes, self.element))

    def finished(self, total: Value) -> Value:
        """Return a total as it is stored."""
        return total + cg.constant(0.0, total.type) if self.positive_zeros else total

    def begin(self, arguments: KernelArguments, lanes: int) -> Value:
        """Return the initial value of a scan, in all lanes."""
        if not self.starts:
            return self.identities(lanes)
        return cg.splat(cg.to_float(arguments.inputs[1], self.element), lanes)


def _plan(kernel: Kernel, target: CpuTarget) -> _Plan | None:
    config = kernel.config(ScanConfig)
    element = kernel.inputs[0].type.element_type
    name, unsigned = config.computation, config.unsigned
    with kernel.func.context:
        short = name == "add" and isinstance(element, ir.BF16Type | ir.F16Type)
        stored, element = element, ir.F32Type.get() if short else element
    neutral = identity(name, element, unsigned=unsigned) if name and config.whole_bytes else None
    if neutral is None or len(kernel.results) != 1:
        return None
    outer, extent, inner = config.outer, config.extent, config.inner
    lanes = target.vector_bits // cg.bits_of(element)
    width = extent if inner == 1 else inner
    while lanes > 2 and (lanes // 2 >= width or (inner == 1 and lanes > MOST_TURNED)):
        lanes //= 2
    starts, zeros = config.start, config.positive_zeros and cg.is_float(element)
    return _Plan(
        *(outer, extent, inner, config.backwards, name, unsigned, starts, zeros),
        *(stored, element, neutral, lanes, target),
    )


# --- along contiguous elements ------------------------------------------------------------------------------------


class _Lines:
    """Scans along contiguous lines. The loop-carried prefix is one number, broadcast to all lanes.

    Attributes:
        step: elements in one iteration of the loop over a block, which holds a whole number of them.
    """

    carried = 1

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.step = MOST_UNROLLED * plan.lanes
        self.cost = 4 + 2 * plan.lanes.bit_length()
        size = cg.bits_of(plan.stored) // 8
        in_line = plan.extent * size % 64 == 0 and plan.lanes * size == plan.target.vector_bits // 8
        self.nontemporal = in_line and plan.bytes >= plan.target.nontemporal_bytes
        self.ahead = plan.target.prefetch_bytes // size if plan.extent * size >= STREAM_BYTES() else 0

    def place(self, line: Value, at: Value, count: int | None) -> Value:
        """Return the index of the vector that comes at `at` in the order of the scan."""
        first = line * self.plan.extent
        if not self.plan.backwards:
            return first + at
        return first + (cg.index(self.plan.extent) - at - (self.plan.lanes if count is None else count))

    def total(self, arguments: KernelArguments, line: Value, part: LoopPart) -> list[Value]:
        """Reduce the elements of a block."""
        plan, source = self.plan, arguments.inputs[0]

        def step(at: Value, count: int | None, totals: list[Value]) -> list[Value]:
            return [plan.join(totals[0], plan.read(source, self.place(line, at, count), count))]

        starts = [[plan.identities(plan.lanes)] for _ in range(MOST_UNROLLED)]
        sets = vector_loop(plan.extent, plan.lanes, step, starts, part)
        (first, *rest) = [values[0] for values in sets]
        for other in rest:
            first = plan.join(first, other)
        return [_across(plan, first)]

    def scan(self, arguments: KernelArguments, line: Value, part: LoopPart | None, before: Sequence[Value]) -> None:
        """Scan a block; `before` is the exclusive prefix: the total of all blocks before it."""
        plan = self.plan
        source, result = arguments.inputs[0], arguments.results[0]
        last = [0 if plan.backwards else plan.lanes - 1] * plan.lanes

        def step(at: Value, count: int | None, totals: list[Value]) -> list[Value]:
            place = self.place(line, at, count)
            if count is None and self.ahead:
                cg.prefetch(source, place - self.ahead if plan.backwards else place + self.ahead)
            scanned = self._in_lanes(plan.read(source, place, count))
            plan.write(plan.join(plan.exact(*totals), scanned), result, place, count, self.nontemporal)
            return [*plan.carry(totals, cg.shuffle(scanned, scanned, last))]

        totals = [cg.splat(before[0], plan.lanes), plan.identities(plan.lanes)]
        group = plan.lanes * plan.lanes
        if plan.lanes < 4 or plan.extent < group:
            vector_loop(plan.extent, plan.lanes, step, [totals], part)
            return
        start, stop = (
            (cg.index(0), cg.index(plan.extent)) if part is None else (part.start, cg.minimum(part.stop, plan.extent))
        )
        groups = (stop - start) // group
        with cg.loop(0, groups, 1, totals) as iteration:
            iteration.yields(*self._scan_group(source, result, line, start + iteration.iv * group, iteration.args))
        final = cg.constant(1, ir.IntegerType.get_signless(1)) if part is None else part.last
        rest = LoopPart(start + groups * group, stop, final)
        vector_loop(plan.extent, plan.lanes, step, [iteration.results], rest)

    def _scan_group(self, source: Value, result: Value, line: Value, at: Value, totals: Sequence[Value]) -> list[Value]:
        """Scan as many vectors as there are lanes, transposed so that each lane scans contiguous elements."""
        plan, lanes = self.plan, self.plan.lanes
        places = [self.place(line, at + number * lanes, None) for number in range(lanes)]
        if self.ahead:
            for place in places:
                cg.prefetch(source, place - self.ahead if plan.backwards else place + self.ahead)
        order = slice(None, None, -1 if plan.backwards else 1)
        made = cg.transpose_registers([plan.read(source, place) for place in places])[order]
        for number in range(1, lanes):
            made[number] = plan.join(made[number - 1], made[number])
        scanned, by = made[-1], 1
        while by < lanes:
            places_by = [lanes + i - by if i >= by else 0 for i in range(lanes)]
            scanned = plan.join(cg.shuffle(plan.identities(lanes), scanned, places_by), scanned)
            by *= 2
        earlier = cg.shuffle(plan.identities(lanes), scanned, [lanes + i - 1 if i else 0 for i in range(lanes)])
        earlier = plan.join(plan.exact(*totals), earlier)
        rows = cg.transpose_registers([plan.join(earlier, value) for value in made][order])
        for place, value in zip(places, rows, strict=True):
            plan.write(value, result, place, None, self.nontemporal)
        return [*plan.carry(totals, cg.shuffle(scanned, scanned, [lanes - 1] * lanes))]

    def _in_lanes(self, value: Value) -> Value:
        """Scan the lanes of one vector by log-step shuffles (Hillis-Steele), at distances 1, 2, 4 ..."""
        plan, lanes, by = self.plan, self.plan.lanes, 1
        while by < lanes:
            if plan.backwards:
                places = [lanes + i + by if i + by < lanes else 0 for i in range(lanes)]
            else:
                places = [lanes + i - by if i >= by else 0 for i in range(lanes)]
            value = plan.join(cg.shuffle(plan.identities(lanes), value, places), value)
            by *= 2
        return value


def _across(plan: _Plan, value: Value) -> Value:
    """Reduce the lanes of a vector horizontally."""
    lanes = value.lanes
    while lanes > 1:
        lanes //= 2
        value = plan.join(value, cg.shuffle(value, value, [(i + lanes) % value.lanes for i in range(value.lanes)]))
    return cg.extract(value, 0)


# --- along other dimensions ---------------------------------------------------------------------------------------


class _Rows:
    """Scans over rows that are short enough to be carried in registers."""

    step = 1

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.carried = -(-plan.inner // plan.lanes)
        self.cost = 4

    def total(self, arguments: KernelArguments, line: Value, part: LoopPart) -> list[Value]:
        """Reduce the rows of a block, in vectors along a row."""

        def body(row: Value, totals: list[Value]) -> list[Value]:
            return [self.plan.join(t, v) for t, v in zip(totals, self._read(arguments, line, row), strict=True)]

        start = [self.plan.identities(self.plan.lanes)] * self.carried
        return self._over(part, start, body)

    def scan(self, arguments: KernelArguments, line: Value, part: LoopPart | None, before: Sequence[Value]) -> None:
        """Scan a block of rows, after the prefix `before`."""
        result, plan = arguments.results[0], self.plan
        low, high = (cg.index(0), cg.index(plan.extent)) if part is None else (part.start, part.stop)
        totals = [cg.splat(v, plan.lanes) for v in before]
        if not plan.is_long:
            self._over(
                LoopPart(low, high, cg.index(0)), totals, lambda row, t: self._write(arguments, result, line, row, t)
            )
            return
        # Each block of rows is scanned from the identity, and the prefix before it is added to all of it.
        start = [plan.identities(plan.lanes)] * self.carried
        with cg.loop(low, cg.minimum(high, plan.extent), LONGEST_RUNNING_SUM(), [*totals, *start]) as block:
            pairs = list(zip(block.args[: self.carried], block.args[self.carried :], strict=True))
            base = [plan.exact(*pair) for pair in pairs]

            def body(row: Value, totals: list[Value]) -> list[Value]:
                return self._write(arguments, result, line, row, totals, base)

            made = self._over(
                LoopPart(block.iv, cg.minimum(block.iv + LONGEST_RUNNING_SUM(), high), cg.index(0)), start, body
            )
            carried = [plan.carry(pair, more) for pair, more in zip(pairs, made, strict=True)]
            block.yields(*(total for total, _ in carried), *(error for _, error in carried))

    def _write(
        self,
        arguments: KernelArguments,
        result: Value,
        line: Value,
        row: Value,
        totals: list[Value],
        base: Sequence[Value] = (),
    ) -> list[Value]:
        """Add a row to the running totals and store them, combined with the prefix before them."""
        plan = self.plan
        totals = [plan.join(t, v) for t, v in zip(totals, self._read(arguments, line, row), strict=True)]
        for number, value in enumerate(totals):
            place, count = self._place(line, row, number)
            whole = plan.join(base[number], value) if base else value
            plan.write(whole, result, place, None if count == plan.lanes else count)
        return totals

    def _over(
        self, part: LoopPart | None, start: list[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        low, high = (cg.index(0), cg.index(self.plan.extent)) if part is None else (part.start, part.stop)
        high = cg.minimum(high, self.plan.extent)
        with cg.loop(low, high, 1, start) as rows:
            rows.yields(*body(rows.iv, rows.args))
        return rows.results

    def _place(self, line: Value, row: Value, number: int) -> tuple[Value, int]:
        """Return the index of a vector of a row, and how many of its lanes are the row's."""
        plan = self.plan
        if plan.backwards:
            row = cg.index(plan.extent - 1) - row
        first = number * plan.lanes
        return (line * plan.extent + row) * plan.inner + first, min(plan.lanes, plan.inner - first)

    def _read(self, arguments: KernelArguments, line: Value, row: Value) -> list[Value]:
        source, plan = arguments.inputs[0], self.plan
        places = [self._place(line, row, number) for number in range(self.carried)]
        return [plan.read(source, place, None if count == plan.lanes else count) for place, count in places]


def _emit(kernel: Kernel, scans: _Lines | _Rows, target: CpuTarget) -> Emitted:
    """Emit one scan per work item; or, where there are few and long ones, one block of a scan."""
    plan = scans.plan
    rows_of_block = rounded_up(max(1, BLOCK() // plan.inner), scans.step)
    time = estimate_ns(scans.cost, plan.extent * plan.inner, 2 * plan.bytes // plan.outer, target)
    if plan.outer >= MANY() or plan.extent < 2 * rows_of_block:
        with kernel.phase(target) as arguments, arguments.items(plan.outer) as line:
            scans.scan(arguments, line, None, [plan.begin(arguments, plan.lanes)] * scans.carried)
        return Emitted(plan.outer, grain_of(time, plan.outer), in_place=IN_PLACE)
    blocks = -(-plan.extent // rows_of_block)
    items = WorkItems((0,), (plan.outer,), blocks)
    lanes = 0 if plan.inner == 1 else plan.lanes
    width = scans.carried * max(1, lanes)
    scratch = ((str(plan.element), items.count * width),)
    names = [kernel.impl_name + suffix for suffix in ("_totals", "_before", "")]

    def part_of(block: Value) -> LoopPart:
        return LoopPart(block * rows_of_block, block * rows_of_block + rows_of_block, block.eq(blocks - 1))

    with kernel.phase(target, scratch, names[0]) as arguments, arguments.items(items.count) as item:
        at, block = items.split(item)
        for number, total in enumerate(scans.total(arguments, at[0], part_of(block))):
            cg.store(total, arguments.scratch[0], item * width + number * max(1, lanes))
    with kernel.phase(target, scratch, names[1]) as arguments, arguments.items(plan.outer) as line:
        _scan_totals(plan, arguments, line * blocks, blocks, width, lanes)
    with kernel.phase(target, scratch, names[2]) as arguments, arguments.items(items.count) as item:
        at, block = items.split(item)
        places = [item * width + number * max(1, lanes) for number in range(scans.carried)]
        before = [cg.load(arguments.scratch[0], place, lanes) for place in places]
        scans.scan(arguments, at[0], part_of(block), before)
    grain = grain_of(time / blocks, items.count)
    counts = ((items.count, grain), (plan.outer, plan.outer), (items.count, grain))
    phases = tuple(Phase(name, *count) for name, count in zip(names, counts, strict=True))
    return Emitted(items.count, grain, scratch, in_place=IN_PLACE, phases=phases)


def _scan_totals(plan: _Plan, arguments: KernelArguments, first: Value, blocks: int, width: int, lanes: int) -> None:
    """Replace the block totals of a line by their exclusive scan."""
    buffer = arguments.scratch[0]
    for offset in range(0, width, max(1, lanes)):
        with cg.loop(0, blocks, 1, [plan.begin(arguments, lanes), plan.identities(lanes)]) as block:
            place = (first + block.iv) * width + offset
            total = cg.load(buffer, place, lanes)
            cg.store(plan.exact(*block.args), buffer, place)
            block.yields(*plan.carry(block.args, total))


def _emit_panels(kernel: Kernel, plan: _Plan, target: CpuTarget) -> Emitted:
    """Emit scans over long rows: each row of a panel is computed from the one before it, which is still in cache."""
    wanted = PANEL() if plan.outer >= MANY() else max(MOST_CARRIED() * plan.lanes, min(PANEL(), plan.inner // 4))
    width = max(1, wanted // (4 * plan.lanes)) * 4 * plan.lanes
    panels = -(-plan.inner // width)
    items = WorkItems((0,), (plan.outer,), panels)
    with kernel.phase(target) as arguments, arguments.items(items.count) as item:
        at, panel = items.split(item)
        part = None if panels == 1 else LoopPart(panel * width, panel * width + width, panel.eq(panels - 1))
        _write_panel(plan, arguments, at[0], part, width)
    time = estimate_ns(4, plan.extent * width, 2 * plan.bytes // items.count, target)
    return Emitted(items.count, grain_of(time, items.count), in_place=IN_PLACE)


def _write_panel(plan: _Plan, arguments: KernelArguments, line: Value, part: LoopPart | None, width: int) -> None:
    source, result = arguments.inputs[0], arguments.results[0]
    begin = plan.begin(arguments, plan.lanes)
    if plan.is_long or plan.stored != plan.element:
        _write_long_panel(plan, arguments, line, part, width)
        return

    def row_at(row: Value) -> Value:
        return (line * plan.extent + (cg.index(plan.extent - 1) - row if plan.backwards else row)) * plan.inner

    def write_row(row: Value, before: Callable[[Value, int | None], Value]) -> None:
        first = row_at(row)

        def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
            lanes = plan.lanes if count is None else count
            value = cg.load_lanes(source, first + at, plan.lanes, lanes, plan.identity)
            cg.store_lanes(plan.finished(plan.join(before(at, count), value)), result, first + at, lanes)
            return []

        vector_loop(plan.inner, plan.lanes, step, [[]] * 4, part)

    write_row(cg.index(0), lambda at, count: begin)
    with cg.loop(1, plan.extent) as row:
        above = row_at(row.iv - 1)
        write_row(
            row.iv,
            lambda at, count: cg.load_lanes(result, above + at, plan.lanes, plan.lanes if count is None else count),
        )


def _write_long_panel(plan: _Plan, arguments: KernelArguments, line: Value, part: LoopPart | None, width: int) -> None:
    """Emit sums in blocks of rows: each is scanned from the identity, then the prefix before it is added."""
    source, result = arguments.inputs[0], arguments.results[0]
    sums, room = CompensatedSums.make(width, plan.element), cg.alloca(width, plan.element)
    origin = part.start if part is not None else cg.index(0)

    def columns(do: Callable[[Value, Value, int | None], None]) -> None:
        def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
            do(at, at - origin, count)
            return []

        vector_loop(plan.inner, plan.lanes, step, [[]] * 4, part)

    def begin(_: Value, place: Value, __: int | None) -> None:
        sums.clear(place, plan.lanes)
        cg.store(plan.begin(arguments, plan.lanes), sums.totals, place)

    columns(begin)
    with cg.loop(0, plan.extent, LONGEST_RUNNING_SUM()) as block:
        columns(lambda _, place, __: cg.store(plan.identities(plan.lanes), room, place))
        with cg.loop(block.iv, cg.minimum(block.iv + LONGEST_RUNNING_SUM(), plan.extent)) as iteration:
            row = cg.index(plan.extent - 1) - iteration.iv if plan.backwards else iteration.iv
            first = (line * plan.extent + row) * plan.inner

            def one(at: Value, place: Value, count: int | None, first: Value = first) -> None:
                total = plan.join(cg.load(room, place, plan.lanes), plan.read(source, first + at, count))
                cg.store(total, room, place)
                plan.write(plan.join(sums.result(place, plan.lanes), total), result, first + at, count)

            columns(one)
        columns(lambda _, place, __: sums.add(cg.load(room, place, plan.lanes), place))
