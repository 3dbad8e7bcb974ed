"""Kernels of running scans with any computation of elements, over several arrays at once and from either end.

Nothing is known to leave an element as it is, so the first vector of a line has nothing before it. Otherwise they are
written as in `window_scan.py`, and their elements stay in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.lowering.operations import walk
from stablexla.targets.cpu.emission import (
    Value,
    alloca,
    bits_of,
    branch,
    cast_index,
    constant,
    emitting,
    extract,
    index,
    is_float,
    load,
    load_lanes,
    loop,
    minimum,
    opaque,
    outside_constant,
    replay,
    select,
    shuffle,
    splat,
    split_index,
    steps,
    store,
    store_lanes,
    transpose_registers,
    vector_of,
)
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.sweeps import Items, Part, duration, grain_of, sweep
from stablexla.targets.cpu.target import CpuTarget
from stablexla.targets.cpu.window_scan import BLOCK, MANY

# Elements of a row whose totals are kept in the nearest cache, of all arrays together.
PANEL_BYTES = 8 << 10
Values = list[Value]
# (where a group begins, totals before it) -> totals after it.
_Turn = Callable[[Value, Values], Values]


@emitter("scan", order=1)
def emit_general_scan(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Takes scans whose computation vectors can do; its kernel's function must carry the totals as they are stored."""
    combination = _combination(kernel) if "returned" in kernel.config else None
    if combination is None:
        return None
    plan = _Plan.of(kernel, combination, target)
    return _emit_lines(plan) if plan.inner == 1 else _emit_rows(plan)


# --- what is computed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Combination:
    """The computation of two elements, out of the body of the innermost loop.

    Attributes:
        before, values: what stands there for the elements of each array.
        results: what they combine to.
        operations: those that make it.
    """

    before: list[ir.Value]
    values: list[ir.Value]
    results: list[ir.Value]
    operations: list[ir.Operation]


def _combination(kernel: Kernel) -> _Combination | None:
    """Reads the loop that carries the totals; None if anything in it is not expected there."""
    loops = [op for op in walk(kernel.func.operation) if op.name == "scf.for"]
    body = loops[-1].regions[0].blocks[0] if loops else None
    count = len([v for v in kernel.inputs if isinstance(v.type, ir.RankedTensorType)])
    if body is None or len(body.arguments) != 1 + count + len(kernel.results):
        return None
    before = list(body.arguments)[1 : 1 + count]
    read = {op.operands[0]: op.results[0] for op in walk(loops[-1]) if op.name == "tensor.extract"}
    arrays = [read.get(array) for array in kernel.inputs[:count]]
    results = list(body.operations[len(body.operations) - 1].operands)[:count]
    operations = _makers(results, {*before, *(v for v in arrays if v is not None), *kernel.inputs})
    if operations is None:
        return None
    # An array that is never combined from its own elements is not read either: any value stands for it.
    return _Combination(
        before, [v if v is not None else b for v, b in zip(arrays, before, strict=True)], results, operations
    )


def _makers(results: Sequence[ir.Value], given: set[ir.Value]) -> list[ir.Operation] | None:
    """The operations that make `results` out of what is given, in order; None if vectors cannot do one of them."""
    found: dict[ir.Value, ir.Operation] = {}
    waiting = [(value, False) for value in results]
    while waiting:
        value, ready = waiting.pop()
        if value in given or value in found:
            continue
        if isinstance(value.owner, ir.Block):
            return None
        op = value.owner.operation
        if op.name.split(".")[0] not in ("arith", "math") or len(op.results) != 1:
            return None
        if any(not _fits_lanes(v.type) for v in (value, *op.operands)):
            return None
        if ready:
            found[value] = op
        else:
            waiting += [(value, True), *((operand, False) for operand in op.operands)]
    return list(found.values())


def _fits_lanes(type_: ir.Type) -> bool:
    return isinstance(type_, ir.IntegerType | ir.FloatType)


@dataclass(frozen=True)
class _Plan:
    """A scan of `outer` times `extent` rows of `inner` elements, of several arrays.

    Attributes:
        returned: numbers of the arrays whose scans are results.
        positive_zeros: whether zeros are added to the results.
    """

    kernel: Kernel
    combination: _Combination
    target: CpuTarget
    outer: int
    extent: int
    inner: int
    backwards: bool
    returned: tuple[int, ...]
    positive_zeros: bool
    elements: tuple[ir.Type, ...]
    lanes: int

    @staticmethod
    def of(kernel: Kernel, combination: _Combination, target: CpuTarget) -> _Plan:
        """The plan of a kernel."""
        config = kernel.config
        outer, extent, inner = config["extents"]
        elements = tuple(v.type for v in combination.before)
        lanes = max(2, target.vector_bits // max(32, *(bits_of(e) for e in elements)))
        width = extent if inner == 1 else inner
        while lanes > 2 and lanes // 2 >= width:
            lanes //= 2
        backwards, returned, zeros = config["backwards"], tuple(config["returned"]), config["positive_zeros"]
        return _Plan(kernel, combination, target, outer, extent, inner, backwards, returned, zeros, elements, lanes)

    @property
    def bytes(self) -> int:
        """Bytes of the arrays and of the results."""
        numbers = [*range(len(self.elements)), *self.returned]
        return self.outer * self.extent * self.inner * sum(bits_of(self.elements[n]) for n in numbers) // 8

    @property
    def cost(self) -> int:
        """Instructions of one combination."""
        return 1 + len(self.combination.operations)

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """A result may lie where its array did: each place is read before it is written, and never after."""
        return tuple(enumerate(self.returned))


class _Writer:
    """What is written inside one function."""

    def __init__(self, plan: _Plan, arguments: KernelArguments) -> None:
        self.plan = plan
        self.arrays = [Value(v) for v in arguments.inputs[: len(plan.elements)]]
        self.results = [Value(v) for v in arguments.results]
        self._uniforms = dict(zip(plan.kernel.inputs, map(Value, arguments.inputs), strict=True))

    def combine(self, before: Values, values: Values) -> Values:
        """Elements, or vectors of them, after what came before."""
        combination, lanes = self.plan.combination, values[0].lanes
        made: dict[ir.Value, Value] = dict(zip(combination.values, values, strict=True))
        made.update(zip(combination.before, before, strict=True))

        def look_up(operand: ir.Value) -> Value:
            if operand not in made:
                made[operand] = splat(self._uniforms[operand], lanes)
            return made[operand]

        for op in combination.operations:
            if op.name == "arith.constant":
                made[op.results[0]] = splat(outside_constant(op.results[0]), lanes)
            else:
                (made[op.results[0]],) = replay(op, [look_up(v) for v in op.operands], lanes)
        return [look_up(v) for v in combination.results]

    def read(self, at: Value, count: int) -> Values:
        """The elements at a place."""
        return [load_lanes(array, at, self.plan.lanes, count) for array in self.arrays]

    def write(self, totals: Values, at: Value, count: int) -> None:
        """Writes those totals that are results."""
        for number, result in zip(self.plan.returned, self.results, strict=True):
            value = totals[number]
            if self.plan.positive_zeros and is_float(value.type):
                value = _plus_zero(value)
            store_lanes(value, result, at, count)


def _plus_zero(value: Value) -> Value:
    if bits_of(value.type) >= 32:
        return value + constant(0.0, value.type)
    wide = Value(arith.extf(vector_of(value.lanes, ir.F32Type.get()), value.ssa))
    return Value(arith.truncf(value.type, (wide + constant(0.0, wide.type)).ssa))


# --- along neighbouring elements ----------------------------------------------------------------------------------


class _Lines:
    """Scans along lines of neighbouring elements; the totals are carried in all lanes."""

    def __init__(self, plan: _Plan, arguments: KernelArguments) -> None:
        self.plan, self.writer = plan, _Writer(plan, arguments)
        # LLVM must not see that lanes without a neighbour are not needed: it leaves in them what happens to be there,
        # and arithmetic on denormal numbers takes a hundred cycles.
        self._zero = opaque(constant(0, ir.IntegerType.get_signless(32)))

    def place(self, line: Value, at: Value, count: int) -> Value:
        """Where the vector lies that comes at `at` in the order of the scan."""
        first = line * self.plan.extent
        return first + (index(self.plan.extent - count) - at if self.plan.backwards else at)

    def scan(self, line: Value, start: Value, stop: Value, last: Value | None, before: Values, first: Value) -> None:
        """Scans a part of a line.

        Args:
            last: whether it is the line's last part; None if it is the only one.
            before: what everything before it comes to.
            first: whether there is nothing before it.
        """
        plan, lanes = self.plan, self.plan.lanes
        whole = plan.extent // lanes * lanes
        if not whole:
            self._step(line, start, plan.extent, before, first)
            return
        totals = self._step(line, start, lanes, before, first)
        begin, totals = self._groups(
            start + lanes, minimum(stop, whole), totals, lambda at, before: self._scan_group(line, at, before)
        )
        with loop(begin, minimum(stop, whole), lanes, totals) as vectors:
            vectors.yields(*self._step(line, vectors.iv, lanes, vectors.args, None))
        if whole == plan.extent:
            return
        if last is None:
            self._step(line, index(whole), plan.extent - whole, vectors.results, None)
        else:
            with branch(last, otherwise=False).then:
                self._step(line, index(whole), plan.extent - whole, vectors.results, None)

    def _step(self, line: Value, at: Value, count: int, before: Values, first: Value | None) -> Values:
        """Scans one vector; `first` says whether there is nothing before it, None that there is something."""
        lanes, place = self.plan.lanes, self.place(line, at, count)
        scanned = self._in_lanes(self.writer.read(place, count), count, self.plan.backwards)
        end = 0 if self.plan.backwards else count - 1
        ends = [shuffle(v, v, [end] * lanes) for v in scanned]
        if first is None:
            values, totals = self.writer.combine(before, scanned), self.writer.combine(before, ends)
        else:
            before = [select(first, v, b) for v, b in zip(scanned, before, strict=True)]
            values = [select(first, v, c) for v, c in zip(scanned, self.writer.combine(before, scanned), strict=True)]
            totals = [shuffle(v, v, [end] * lanes) for v in values]
        self.writer.write(values, place, count)
        return totals

    def _groups(self, start: Value, stop: Value, totals: Values, body: _Turn) -> tuple[Value, Values]:
        """Does `body` for whole groups of as many vectors as there are lanes; where they end, and the totals there.

        A group is turned in registers, so that each lane goes through neighbours one after the other. What comes before
        a lane is found once for the group: two combinations for each vector, where scanning it by itself takes five.
        """
        group = self.plan.lanes * self.plan.lanes
        if self.plan.lanes < 4 or self.plan.extent < 2 * group:
            return start, totals
        groups = (stop - start) // group
        with loop(0, groups, 1, totals) as turn:
            turn.yields(*body(start + turn.iv * group, turn.args))
        return start + groups * group, turn.results

    def _scan_group(self, line: Value, at: Value, before: Values) -> Values:
        lanes = self.plan.lanes
        totals = self._along(line, at)
        scanned = self._in_lanes(totals[-1], lanes, backwards=False)
        earlier = [shuffle(v, v, [max(0, i - 1) for i in range(lanes)]) for v in scanned]
        first = [lanes, *range(1, lanes)]
        earlier = [shuffle(v, b, first) for v, b in zip(self.writer.combine(before, earlier), before, strict=True)]
        made = [self.writer.combine(earlier, values) for values in totals]
        rows = self._turned(made[::-1] if self.plan.backwards else made, self.plan.returned)
        for number, values in enumerate(rows):
            self.writer.write(values, self.place(line, at + number * lanes, lanes), lanes)
        return self.writer.combine(before, [shuffle(v, v, [lanes - 1] * lanes) for v in scanned])

    def _along(self, line: Value, at: Value) -> list[Values]:
        """The scans of the neighbours in each lane of a turned group."""
        lanes = self.plan.lanes
        rows = [self.writer.read(self.place(line, at + number * lanes, lanes), lanes) for number in range(lanes)]
        turned = self._turned(rows, range(len(self.plan.elements)))
        turned = turned[::-1] if self.plan.backwards else turned
        made = turned[:1]
        for values in turned[1:]:
            made.append(self.writer.combine(made[-1], values))
        return made

    def _turned(self, rows: list[Values], numbers: Iterable[int]) -> list[Values]:
        """Vectors of neighbours as vectors of what comes first in each, second ...; or back again.

        Args:
            numbers: the arrays that it is wanted of.
        """
        made = [list(values) for values in rows]
        for number in numbers:
            for values, turned in zip(made, transpose_registers([v[number] for v in rows]), strict=True):
                values[number] = turned
        return made

    def _in_lanes(self, values: Values, count: int, backwards: bool) -> Values:
        """The scan of the lanes of one vector, by steps of 1, 2, 4 ..."""
        lanes, by = self.plan.lanes, 1
        while by < count:
            moved = [i + by if backwards else i - by for i in range(lanes)]
            places = [i if 0 <= i < count else 0 for i in moved]
            combined = self.writer.combine([shuffle(v, v, places) for v in values], values)
            widths = {bits_of(v.type) for v in values}
            masks = {bits: self._has_neighbour(bits, by, count, backwards) for bits in widths}
            values = [select(masks[bits_of(v.type)], c, v) for v, c in zip(values, combined, strict=True)]
            by *= 2
        return values

    def _has_neighbour(self, bits: int, by: int, count: int, backwards: bool) -> Value:
        """In which lanes, of elements of so many bits, there is one that comes `by` earlier."""
        type_ = ir.IntegerType.get_signless(bits)
        zero = Value(arith.trunci(type_, self._zero.ssa) if bits < 32 else self._zero.ssa)
        zero = Value(arith.extui(type_, zero.ssa)) if bits > 32 else zero
        lane = cast_index(steps(self.plan.lanes), vector_of(self.plan.lanes, type_)) + splat(zero, self.plan.lanes)
        return lane.lt(count - by) if backwards else lane.ge(by)

    def total(self, line: Value, start: Value, stop: Value) -> Values:
        """What the elements of whole vectors come to, as scalars."""
        lanes = self.plan.lanes

        def of_vector(at: Value) -> Values:
            return self._across(self.writer.read(self.place(line, at, lanes), lanes), self.plan.backwards)

        def of_group(at: Value, before: Values) -> Values:
            return self.writer.combine(before, self._across(self._along(line, at)[-1], backwards=False))

        first = of_vector(start)
        begin, totals = self._groups(start + lanes, stop, first, of_group)
        with loop(begin, stop, lanes, totals) as vectors:
            vectors.yields(*self.writer.combine(vectors.args, of_vector(vectors.iv)))
        return vectors.results

    def _across(self, values: Values, backwards: bool) -> Values:
        """What the lanes of a vector come to. Of those that are next to each other the first one keeps both."""
        lanes, by = self.plan.lanes, 1
        while by < lanes:
            low = [(i + by) % lanes if backwards else i for i in range(lanes)]
            high = [i if backwards else (i + by) % lanes for i in range(lanes)]
            before, after = ([shuffle(v, v, places) for v in values] for places in (low, high))
            values = self.writer.combine(before, after)
            by *= 2
        return [extract(v, 0) for v in values]


def _emit_lines(plan: _Plan) -> Emitted:
    """A line for each item; or, where there are few and long ones, blocks of them."""
    time = duration(plan.cost * 6, plan.extent, plan.bytes // plan.outer, plan.target)
    if plan.outer >= MANY or plan.extent < 2 * BLOCK:
        function, arguments = plan.kernel.declare()
        with emitting(function, plan.target):
            lines = _Lines(plan, arguments)
            nothing = [constant(0, vector_of(plan.lanes, e)) for e in plan.elements]
            always = constant(1, ir.IntegerType.get_signless(1))
            with loop(Value(arguments.lo), Value(arguments.hi)) as line:
                lines.scan(line.iv, index(0), index(plan.extent), None, nothing, always)
        return Emitted(plan.outer, grain_of(time, plan.outer), in_place=plan.in_place)

    def total(arguments: KernelArguments, line: Value, block: Value, at: Value) -> None:
        made = _Lines(plan, arguments).total(line, block * BLOCK, block * BLOCK + BLOCK)
        for value, buffer in zip(made, arguments.scratch, strict=True):
            store(value, Value(buffer), at)

    def scan(arguments: KernelArguments, line: Value, block: Value, last: Value, at: Value) -> None:
        before = [splat(load(Value(buffer), at), plan.lanes) for buffer in arguments.scratch]
        stop = select(last, index(plan.extent), block * BLOCK + BLOCK)
        _Lines(plan, arguments).scan(line, block * BLOCK, stop, last, before, block.eq(0))

    return _emit_blocks(plan, plan.extent // BLOCK, plan.outer, 1, time, total, scan)


# --- along other dimensions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Panels:
    """How rows are cut: panels of `width` elements, `count` of them."""

    width: int
    count: int

    @staticmethod
    def of(plan: _Plan) -> _Panels:
        """Panels whose totals stay in the nearest cache, and several of them where there are few rows side by side."""
        step = 4 * plan.lanes
        most = PANEL_BYTES * 8 // sum(map(bits_of, plan.elements))
        if plan.outer < MANY:
            most = min(most, plan.inner // 4)
        width = max(1, most // step) * step
        return _Panels(width, -(-plan.inner // width)) if width < plan.inner else _Panels(plan.inner, 1)

    def part(self, panel: Value) -> Part | None:
        """One of them as a piece of the row."""
        if self.count == 1:
            return None
        return Part(panel * self.width, panel * self.width + self.width, panel.eq(self.count - 1))


class _Rows:
    """Scans down a panel of rows; what the rows so far come to lies in buffers, from element `at` on."""

    def __init__(self, plan: _Plan, arguments: KernelArguments, totals: Values, at: Value, part: Part | None) -> None:
        self.plan, self.writer, self.part = plan, _Writer(plan, arguments), part
        self.totals, self.at = totals, at if part is None else at - part.start

    def begin(self, line: Value, row: Value, *, written: bool) -> None:
        """Takes a row as the totals."""

        def step(column: Value, count: int | None, _: Values) -> Values:
            place, number = self._place(line, row, column), count or self.plan.lanes
            values = self.writer.read(place, number)
            self._store(values, column, number)
            if written:
                self.writer.write(values, place, number)
            return []

        sweep(self.plan.inner, self.plan.lanes, step, [[]] * 4, self.part)

    def rows(self, line: Value, start: Value, stop: Value, *, written: bool) -> None:
        """Adds rows to the totals."""
        with loop(start, stop) as row:

            def step(column: Value, count: int | None, _: Values) -> Values:
                place, number = self._place(line, row.iv, column), count or self.plan.lanes
                before = [load_lanes(b, self.at + column, self.plan.lanes, number) for b in self.totals]
                values = self.writer.combine(before, self.writer.read(place, number))
                self._store(values, column, number)
                if written:
                    self.writer.write(values, place, number)
                return []

            sweep(self.plan.inner, self.plan.lanes, step, [[]] * 4, self.part)

    def _store(self, values: Values, column: Value, count: int) -> None:
        for value, buffer in zip(values, self.totals, strict=True):
            store_lanes(value, buffer, self.at + column, count)

    def _place(self, line: Value, row: Value, column: Value) -> Value:
        if self.plan.backwards:
            row = index(self.plan.extent - 1) - row
        return (line * self.plan.extent + row) * self.plan.inner + column


def _emit_rows(plan: _Plan) -> Emitted:
    """A panel for each item; or, where there are few and long ones, blocks of their rows."""
    panels = _Panels.of(plan)
    items = Items((0,), (plan.outer,), panels.count)
    rows = max(1, BLOCK // panels.width)
    time = duration(plan.cost + 2, plan.extent * panels.width, plan.bytes // items.count, plan.target)
    if items.count >= MANY or plan.extent < 2 * rows:
        function, arguments = plan.kernel.declare()
        with emitting(function, plan.target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
            at, panel = items.split(item.iv)
            totals = [alloca(panels.width, element) for element in plan.elements]
            scan = _Rows(plan, arguments, totals, index(0), panels.part(panel))
            scan.begin(at[0], index(0), written=True)
            scan.rows(at[0], index(1), index(plan.extent), written=True)
        return Emitted(items.count, grain_of(time, items.count), in_place=plan.in_place)

    def rows_of(arguments: KernelArguments, line: Value, at: Value) -> tuple[_Rows, Value]:
        places, panel = items.split(line)
        buffers = [Value(buffer) for buffer in arguments.scratch]
        return _Rows(plan, arguments, buffers, at, panels.part(panel)), places[0]

    def total(arguments: KernelArguments, line: Value, block: Value, at: Value) -> None:
        scan, outer = rows_of(arguments, line, at)
        scan.begin(outer, block * rows, written=False)
        scan.rows(outer, block * rows + 1, block * rows + rows, written=False)

    def scan(arguments: KernelArguments, line: Value, block: Value, last: Value, at: Value) -> None:
        scan, outer = rows_of(arguments, line, at)
        first = branch(block.eq(0), [ir.IndexType.get()])
        with first.then:
            scan.begin(outer, index(0), written=True)
            first.yields(index(1))
        with first.otherwise:
            first.yields(block * rows)
        stop = select(last, index(plan.extent), block * rows + rows)
        scan.rows(outer, first.results[0], stop, written=True)

    return _emit_blocks(plan, plan.extent // rows, items.count, panels.width, time, total, scan)


# --- blocks -------------------------------------------------------------------------------------------------------

# (arguments, line, block, where the totals of the block lie) -> None, and the same with whether it is the last one.
_Total = Callable[[KernelArguments, Value, Value, Value], None]
_Scan = Callable[[KernelArguments, Value, Value, Value, Value], None]


def _emit_blocks(plan: _Plan, blocks: int, lines: int, width: int, time: float, total: _Total, scan: _Scan) -> Emitted:
    """The totals of all blocks but the last, then what comes before each block, and then the blocks.

    Args:
        width: elements of the total of a block.
        time: nanoseconds that a line takes.
    """
    kernel = plan.kernel
    scratch = tuple((str(element), lines * blocks * width) for element in plan.elements)
    names = [kernel.impl_name + suffix for suffix in ("_totals", "_before", "")]
    function, arguments = kernel.declare(scratch, names[0])
    with emitting(function, plan.target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
        line, block = split_index(item.iv, [lines, blocks - 1])
        total(arguments, line, block, (line * blocks + block) * width)
    function, arguments = kernel.declare(scratch, names[1])
    with emitting(function, plan.target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
        _combine_totals(plan, arguments, item.iv * blocks * width, blocks, width)
    function, arguments = kernel.declare(scratch, names[2])
    with emitting(function, plan.target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
        line, block = split_index(item.iv, [lines, blocks])
        scan(arguments, line, block, block.eq(blocks - 1), (line * blocks + block) * width)
    grain = grain_of(time / blocks, lines * blocks)
    phases = (
        (names[0], lines * (blocks - 1), grain),
        (names[1], lines, lines),
        (names[2], lines * blocks, grain),
    )
    return Emitted(lines * blocks, grain, scratch, in_place=plan.in_place, phases=phases)


def _combine_totals(plan: _Plan, arguments: KernelArguments, first: Value, blocks: int, width: int) -> None:
    """Puts what comes before each block of a line, but for the first, in place of the block's total."""
    writer, buffers = _Writer(plan, arguments), [Value(buffer) for buffer in arguments.scratch]
    with loop(0, width) as column:
        start = first + column.iv
        with loop(1, blocks - 1, 1, [load(buffer, start) for buffer in buffers]) as block:
            place = start + block.iv * width
            values = [load(buffer, place) for buffer in buffers]
            for before, buffer in zip(block.args, buffers, strict=True):
                store(before, buffer, place)
            block.yields(*writer.combine(block.args, values))
        for before, buffer in zip(block.results, buffers, strict=True):
            store(before, buffer, start + (blocks - 1) * width)
