"""Emit reduction-only kernels: sums and the like over any loops, with an elementwise prologue and epilogue.

Two things are done here that the general row kernels do not do. Reductions over outer loops (column reductions) add
several rows at a time to accumulators in L1, and big reductions with few results are split into blocks of a fixed size
(partial sums), so that threads can share them and the result is the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Ref, analyze_nest
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.reductions import (
    ArgReduction,
    IndependentReductions,
    VectorReduction,
    split_by_reduction,
)
from stablexla.targets.codegen.row_passes import RowPasses, schedule_rows
from stablexla.targets.codegen.scope import LoopScope, lanes_for
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.codegen.vector_loops import (
    MOST_UNROLLED,
    LoopPart,
    Totals,
    WorkItems,
    carried_loop,
    estimate_ns,
    flat,
    grain_of,
    reduction_tree,
    unroll_factor,
    vector_loop,
)
from stablexla.targets.cpu.emitters import emitter

# Elements in a block of a long row that is shared by threads.
LONG_BLOCK = Gate("reduction.long-block", 32768, eager=1)
# A reduction with fewer work items than this is split if each of its parts is at least PART elements.
PART = Gate("reduction.part", 65536, eager=8)
FEW_ITEMS = Gate("reduction.few-items", 16, eager=2)
MOST_PARTS = Gate("reduction.most-parts", 64, eager=2)
# Accumulators of a panel of columns stay in L1.
PANEL_BYTES = Gate("reduction.panel-bytes", 16 << 10, eager=1)


@emitter("row", "reduce", "general", priority=10)
def emit_reduction(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit kernels of a single pass whose accumulators can be combined."""
    nest = analyze_nest(kernel, parts=True)
    chain = schedule_rows(nest) if nest is not None else None
    if nest is None or chain is None or len(chain.passes) != 1 or chain.passes[0].stores or 0 in nest.extents:
        return None
    lanes = lanes_for(nest, target)
    foldings = chain.passes[0].foldings
    if chain.inner in chain.columns:
        if not all(isinstance(f, IndependentReductions | ArgReduction) for f in foldings) or not lanes:
            return None
        return _emit_long(kernel, _Long(chain, lanes, target))
    totals = [f for f in foldings if isinstance(f, IndependentReductions)]
    if len(totals) != len(foldings):
        return None
    return _emit_deep(kernel, _Deep(chain, totals, lanes, target), target)


class _Reduction:
    """State shared by row reductions (_Long) and column reductions (_Deep)."""

    def __init__(self, chain: RowPasses, foldings: Sequence[VectorReduction], lanes: int, target: CpuTarget) -> None:
        self.chain, self.foldings, self.lanes, self.target = chain, foldings, lanes, target
        self.types = [t for f in foldings for t in f.types]
        self.extents = chain.nest.extents
        self.inner = chain.inner

    @property
    def refs(self) -> list[Ref]:
        """The values evaluated in each iteration."""
        return self.chain.passes[0].refs

    def bytes(self) -> int:
        """Return the bytes loaded for one element."""
        return sum(cg.bits_of(node.element) // 8 for node in self.chain.nest.loads if node.strides[self.inner])

    def scratch(self, elements: int) -> tuple[tuple[str, int], ...]:
        """Return scratch buffers for that many partial results."""
        return tuple((str(t), elements) for t in self.types)

    def join(self, a: Totals, b: Totals) -> Totals:
        """Combine the accumulators of two parts, of all reductions."""
        return flat([f.join(x, y) for f, x, y in zip(self.foldings, self.split(a), self.split(b), strict=True)])

    def split(self, totals: Totals) -> list[Totals]:
        """Split the accumulators by reduction."""
        return split_by_reduction(self.foldings, totals)

    def finish(self, scope: LoopScope, totals: Totals) -> None:
        """Emit the epilogue: store the results computed from the accumulators at `scope`."""
        for folding, part in zip(self.foldings, self.split(totals), strict=True):
            scope.put(folding.fold, folding.finish(scope, part))
        values = [scope.value(place.ref) for place in self.chain.row_stores]
        for place, value in zip(self.chain.row_stores, values, strict=True):
            scope.store(place, value)


Span = tuple[Value, Value]


# --- row reductions: few long rows --------------------------------------------------------------------------------


class _Long(_Reduction):
    """Row reductions along the innermost loop, split into blocks or iterations of an outer reduced loop."""

    def __init__(self, chain: RowPasses, lanes: int, target: CpuTarget) -> None:
        foldings = [f.streaming() if isinstance(f, IndependentReductions) else f for f in chain.passes[0].foldings]
        super().__init__(chain, foldings, lanes, target)
        self.columns = sorted(chain.columns)
        rows = chain.rows
        extents = tuple(self.extents[d] for d in rows)
        self.rows = WorkItems(rows, extents)
        # A part is a block of the only reduced loop, whole iterations of it, or some iterations of the outermost one.
        self.block = rounded_up(LONG_BLOCK(), MOST_UNROLLED * lanes)
        outermost = self.extents[self.columns[0]]
        self.part_turns = -(-self.block * outermost // chain.length)
        self.parts = -(-outermost // self.part_turns)
        self.items = WorkItems(rows, extents, self.parts)

    @property
    def pays(self) -> bool:
        """Whether the cost model favors splitting rows."""
        return self.rows.count < FEW_ITEMS() and self.chain.length >= 2 * self.block and self.parts > 1

    def part(self, row: LoopScope, part: Value) -> Totals:
        """Return the partial sums of one part of a row."""
        vectors = min(self.block, self.extents[self.inner]) // self.lanes
        unroll = unroll_factor(self.chain.cost, vectors)
        sets = [flat([f.start(row, self.lanes, u * self.lanes) for f in self.foldings]) for u in range(unroll)]
        row.prepare(self.refs, self.chain.columns, self.lanes)
        start = part * self.part_turns
        if len(self.columns) == 1:
            sets = self._sweep(row, sets, LoopPart(start, start + self.block, part.eq(self.parts - 1)))
        else:
            stop = cg.minimum(start + self.part_turns, self.extents[self.columns[0]])
            sets = self._walk(row, self.columns, sets, (start, stop))
        return self._across(row, reduction_tree(sets, self.join))

    def _across(self, row: LoopScope, totals: Totals) -> Totals:
        return flat([f.across(row, part) for f, part in zip(self.foldings, self.split(totals), strict=True)])

    def _walk(self, scope: LoopScope, dims: Sequence[int], sets: list[Totals], span: Span) -> list[Totals]:
        def deeper(at: Value, sets: list[Totals]) -> list[Totals]:
            here = scope.inside({dims[0]: at})
            here.prepare(self.refs, frozenset(dims[1:]), self.lanes)
            if len(dims) == 2:
                return self._sweep(here, sets, None)
            return self._walk(here, dims[1:], sets, (cg.index(0), cg.index(self.extents[dims[1]])))

        return carried_loop(*span, 1, sets, deeper)

    def _sweep(self, scope: LoopScope, sets: list[Totals], part: LoopPart | None) -> list[Totals]:
        def step(at: Value, count: int | None, totals: Totals) -> Totals:
            here = scope.inside({self.inner: at}, lane=self.inner, lanes=self.lanes, count=count)
            return flat([f.step(here, t) for f, t in zip(self.foldings, self.split(totals), strict=True)])

        return vector_loop(self.extents[self.inner], self.lanes, step, sets, part)


def _emit_long(kernel: Kernel, plan: _Long) -> Emitted | None:
    if not plan.pays:
        return None
    scratch = plan.scratch(plan.items.count)
    names = (kernel.impl_name + "_parts", kernel.impl_name)
    with kernel.phase(plan.target, scratch, names[0]) as arguments, arguments.items() as item:
        at, part = plan.items.split(item)
        for total, buffer in zip(plan.part(LoopScope(arguments).inside(at), part), arguments.scratch, strict=True):
            cg.store(total, buffer, item)
    with kernel.phase(plan.target, scratch, names[1]) as arguments, arguments.items() as item:
        at, _ = plan.rows.split(item)
        row = LoopScope(arguments).inside(at)
        first = item * plan.parts
        plan.finish(row, _joined_parts(plan, arguments, first, 1, 0))
    length = plan.chain.length // plan.parts
    time = estimate_ns(plan.chain.cost, length, plan.bytes() * length, plan.target)
    return _two_phases(names, plan.items.count, grain_of(time, plan.items.count), plan.rows.count, scratch)


def _joined_parts(plan: _Long | _Deep, arguments: KernelArguments, first: Value, stride: int, lanes: int) -> Totals:
    """Combine the partial sums of a row, in order; their places are `stride` apart."""
    buffers = arguments.scratch
    totals = [cg.load(b, first, lanes) for b in buffers]
    with cg.loop(1, plan.parts, 1, totals) as turn:
        more = [cg.load(b, first + turn.iv * stride, lanes) for b in buffers]
        turn.yields(*plan.join(turn.args, more))
    return turn.results


def _two_phases(
    names: tuple[str, str], items: int, grain: int, rows: int, scratch: tuple[tuple[str, int], ...]
) -> Emitted:
    phases = (Phase(names[0], items, grain), Phase(names[1], rows, rows))
    return Emitted(items, grain, scratch, phases=phases)


# --- column reductions: many rows, added up -----------------------------------------------------------------------


@dataclass
class _Place:
    """The location of a panel's accumulators: buffers, in which column `column` lies at base + column - origin."""

    buffers: list[Value]
    base: Value
    origin: Value

    def at(self, column: Value) -> Value:
        """Return the place of a column's accumulators."""
        return column - self.origin + self.base


class _Deep(_Reduction):
    """Column reductions: the reduced loops lie outside the innermost one, and rows are added up, several at a time."""

    def __init__(
        self, chain: RowPasses, foldings: Sequence[IndependentReductions], lanes: int, target: CpuTarget
    ) -> None:
        super().__init__(chain, foldings, lanes, target)
        self.totals = list(foldings)
        self.columns = sorted(chain.columns)
        self.abreast = 4 if chain.cost <= 8 else 2 if chain.cost <= 16 else 1
        width = self.extents[self.inner]
        step = max(1, lanes)
        self.padded = -(-width // step) * step
        room = PANEL_BYTES() // max(1, sum(max(8, cg.bits_of(t)) // 8 for t in self.types))
        self.panel = room // 256 * 256 or rounded_up(max(1, room), step)
        panels = -(-width // self.panel)
        outer = [d for d in chain.rows if d != self.inner]
        self.outer = WorkItems(tuple(outer), tuple(self.extents[d] for d in outer), panels)
        self.parts, self.rows_of_part = self._cut()
        self.items = WorkItems(self.outer.dims, (*self.outer.extents, panels), self.parts)

    def _cut(self) -> tuple[int, int]:
        """Return the number of parts that the outermost reduced loop is split into, and the trip count of each."""
        depth = self.extents[self.columns[0]]
        if self.outer.count >= FEW_ITEMS():
            return 1, depth
        wanted = min(MOST_PARTS(), prod(self.extents) // PART(), depth // (4 * self.abreast))
        if wanted < 2:
            return 1, depth
        rows = -(-depth // wanted)
        rows = -(-rows // self.abreast) * self.abreast
        return -(-depth // rows), rows

    @property
    def shallow(self) -> bool:
        """Whether all rows can be added in one iteration."""
        return len(self.columns) == 1 and self.extents[self.columns[0]] <= self.abreast

    @property
    def in_registers(self) -> bool:
        """Whether the accumulators of all columns fit in half of the registers."""
        vectors = self.padded // max(1, self.lanes) * len(self.types)
        return vectors <= self.target.num_vector_registers // 2

    def panel_part(self, panel: Value) -> LoopPart | None:
        """Return the columns of a panel."""
        panels = self.outer.blocks
        if panels == 1:
            return None
        start = panel * self.panel
        return LoopPart(start, start + self.panel, panel.eq(panels - 1))

    def columns_do(self, step: Callable[[Value, int | None], None], part: LoopPart | None) -> None:
        """Emit the loop `step(column, count)` over all vectors of a panel."""

        def one(at: Value, count: int | None, _: Totals) -> Totals:
            step(at, count)
            return []

        vector_loop(self.extents[self.inner], self.lanes, one, [[]], part)

    def at_column(self, scope: LoopScope, at: Value, count: int | None) -> LoopScope:
        """Return the scope of a vector of columns."""
        return scope.inside({self.inner: at}, lane=self.inner, lanes=self.lanes, count=count)

    # --- accumulation -------------------------------------------------------------------------------------

    def prepare(self, scope: LoopScope) -> None:
        """Hoist the values that are invariant over rows and columns."""
        scope.prepare(self.refs, self.chain.columns | {self.inner}, self.lanes)

    def rows_at(self, scope: LoopScope, first: Value, count: int) -> list[LoopScope]:
        """Return the scopes of adjacent rows, with their addresses computed."""
        rows = [scope.inside({self.columns[-1]: first + i}) for i in range(count)]
        for row in rows:
            row.prepare(self.refs, frozenset((self.inner,)), self.lanes)
        return rows

    def sum_of_rows(self, rows: Sequence[LoopScope], at: Value, count: int | None) -> Totals:
        """Reduce a vector of columns over some rows."""
        sets = [
            flat([v for f in self.totals for v in f.values(self.at_column(row, at, count), self.lanes)]) for row in rows
        ]
        return reduction_tree(sets, self.join)

    def add_up(self, scope: LoopScope, place: _Place, part: LoopPart | None, span: Span) -> None:
        """Accumulate the rows of `span` of the outermost reduced loop, from the identity."""
        self.prepare(scope)
        starts = flat([f.start(scope, self.lanes) for f in self.totals])

        def clear(at: Value, count: int | None) -> None:
            for buffer, total in zip(place.buffers, starts, strict=True):
                cg.store(total, buffer, place.at(at))

        self.columns_do(clear, part)
        panel = _Panel(self, place, part)
        panel.clear()
        self._add_blocks(scope, self.columns, panel, span)
        panel.finish()

    def _add_blocks(self, scope: LoopScope, dims: Sequence[int], panel: _Panel, span: Span) -> None:
        """Accumulate rows in blocks short enough for running sums, whose partial sums are added to the panel's."""
        additions = -(-prod(self.extents[d] for d in dims[1:]) // self.abreast) if len(dims) > 1 else 1
        length = max(1, LONGEST_RUNNING_SUM() // additions) if len(dims) > 1 else LONGEST_RUNNING_SUM() * self.abreast
        turns_here = self.rows_of_part if dims[0] == self.columns[0] else self.extents[dims[0]]
        if not panel.sums:
            self._add_rows(scope, dims, panel.place, panel.part, span)
        elif turns_here <= length:
            self._add_rows(scope, dims, panel.place, panel.part, span)
            panel.take()
        elif length:
            with cg.loop(*span, length) as block:
                end = cg.minimum(block.iv + length, span[1])
                self._add_rows(scope, dims, panel.place, panel.part, (block.iv, end))
                panel.take()
        else:
            with cg.loop(*span) as turn:
                inner = (cg.index(0), cg.index(self.extents[dims[1]]))
                self._add_blocks(scope.inside({dims[0]: turn.iv}), dims[1:], panel, inner)

    def _add_rows(
        self, scope: LoopScope, dims: Sequence[int], place: _Place, part: LoopPart | None, span: Span
    ) -> None:
        lo, hi = span
        if len(dims) > 1:
            with cg.loop(lo, hi) as turn:
                inner = (cg.index(0), cg.index(self.extents[dims[1]]))
                self._add_rows(scope.inside({dims[0]: turn.iv}), dims[1:], place, part, inner)
            return
        main = lo + (hi - lo) // self.abreast * self.abreast
        with cg.loop(lo, main, self.abreast) as turn:
            self._add(self.rows_at(scope, turn.iv, self.abreast), place, part)
        if self.abreast > 1 and self.extents[dims[0]] % self.abreast:
            with cg.loop(main, hi) as turn:
                self._add(self.rows_at(scope, turn.iv, 1), place, part)

    def _add(self, rows: Sequence[LoopScope], place: _Place, part: LoopPart | None) -> None:
        def step(at: Value, count: int | None) -> None:
            where = place.at(at)
            before = [cg.load(b, where, self.lanes) for b in place.buffers]
            made = self.join(before, self.sum_of_rows(rows, at, count))
            for buffer, total in zip(place.buffers, made, strict=True):
                cg.store(total, buffer, where)

        self.columns_do(step, part)

    def finish_panel(self, scope: LoopScope, place: _Place, part: LoopPart | None) -> None:
        """Store the results of a panel."""
        scope.prepare([s.ref for s in self.chain.row_stores], frozenset((self.inner,)), self.lanes)
        for s in self.chain.row_stores:
            scope.address(s)

        def step(at: Value, count: int | None) -> None:
            totals = [cg.load(b, place.at(at), self.lanes) for b in place.buffers]
            self.finish(self.at_column(scope, at, count), totals)

        self.columns_do(step, part)

    # --- strategies -----------------------------------------------------------------------------------------

    def write_shallow(self, scope: LoopScope, part: LoopPart | None) -> None:
        """Emit the case of few rows: one iteration sums and finishes them."""
        self.prepare(scope)
        rows = self.rows_at(scope, cg.index(0), self.extents[self.columns[0]])

        def step(at: Value, count: int | None) -> None:
            self.finish(self.at_column(scope, at, count), self.sum_of_rows(rows, at, count))

        self.columns_do(step, part)

    def vectors(self) -> list[tuple[Value, int | None]]:
        """Return the first column and the number of lanes of each vector of columns."""
        width, step = self.extents[self.inner], max(1, self.lanes)
        return [(cg.index(at), None if at + step <= width else width - at) for at in range(0, width, step)]

    def totals_in_registers(self, scope: LoopScope, span: Span) -> list[Totals]:
        """Accumulate each vector of columns over the rows of `span`, in registers."""
        self.prepare(scope)
        starts = flat([f.start(scope, self.lanes) for f in self.totals])
        return self._walk(scope, self.columns, [starts] * len(self.vectors()), span)

    def _walk(self, scope: LoopScope, dims: Sequence[int], sets: list[Totals], span: Span) -> list[Totals]:
        lo, hi = span
        if len(dims) > 1:
            inner = (cg.index(0), cg.index(self.extents[dims[1]]))

            def deeper(at: Value, sets: list[Totals]) -> list[Totals]:
                return self._walk(scope.inside({dims[0]: at}), dims[1:], sets, inner)

            return carried_loop(lo, hi, 1, sets, deeper)

        def add(at: Value, sets: list[Totals], count: int) -> list[Totals]:
            rows = self.rows_at(scope, at, count)
            sums = [self.sum_of_rows(rows, column, lanes) for column, lanes in self.vectors()]
            return [self.join(totals, more) for totals, more in zip(sets, sums, strict=True)]

        main = lo + (hi - lo) // self.abreast * self.abreast
        sets = carried_loop(lo, main, self.abreast, sets, lambda at, sets: add(at, sets, self.abreast))
        if self.extents[dims[0]] % self.abreast:
            sets = carried_loop(main, hi, 1, sets, lambda at, sets: add(at, sets, 1))
        return sets

    def write_in_registers(self, scope: LoopScope) -> None:
        """Emit the case of few columns: the accumulators stay in registers."""
        sets = self.totals_in_registers(scope, (cg.index(0), cg.index(self.extents[self.columns[0]])))
        for (at, count), totals in zip(self.vectors(), sets, strict=True):
            self.finish(self.at_column(scope, at, count), totals)

    def write_part(self, scope: LoopScope, place: _Place, part: LoopPart | None, span: Span) -> None:
        """Store the partial sums of some rows to `place`."""
        if not self.in_registers:
            self.add_up(scope, place, part, span)
            return
        sets = self.totals_in_registers(scope, span)
        for (at, _), totals in zip(self.vectors(), sets, strict=True):
            for buffer, total in zip(place.buffers, totals, strict=True):
                cg.store(total, buffer, place.at(at))

    def write_panel(self, scope: LoopScope, part: LoopPart | None) -> None:
        """Emit the case of many columns: a panel's accumulators lie on the thread's stack."""
        origin = part.start if part is not None else cg.index(0)
        buffers = [cg.alloca(min(self.panel, self.padded), t) for t in self.types]
        place = _Place(buffers, cg.index(0), origin)
        self.add_up(scope, place, part, (cg.index(0), cg.index(self.extents[self.columns[0]])))
        self.finish_panel(scope, place, part)


class _Panel:
    """A panel's accumulators, and for long sums the compensated sums of whole blocks of rows."""

    def __init__(self, plan: _Deep, place: _Place, part: LoopPart | None) -> None:
        self.plan, self.place, self.part = plan, place, part
        self.origin = part.start if part is not None else cg.index(0)
        long = prod(plan.extents[d] for d in plan.columns) > LONGEST_RUNNING_SUM() * plan.abreast
        self.sums: dict[Value, CompensatedSums] = {}
        if long:
            operations = [p.operation for f in plan.totals for p in f.parts for _ in p.types]
            for operation, buffer in zip(operations, place.buffers, strict=True):
                if operation == "arith.addf":
                    self.sums[buffer] = CompensatedSums.make(min(plan.panel, plan.padded), buffer.element)

    def clear(self) -> None:
        """Initialize the sums to the identity."""
        self._each(lambda sums, _, at, lanes: sums.clear(at - self.origin, lanes))

    def take(self) -> None:
        """Add the partial sums of a block of rows to those of the blocks before it."""

        def one(sums: CompensatedSums, buffer: Value, at: Value, lanes: int) -> None:
            sums.add(cg.load(buffer, self.place.at(at), lanes), at - self.origin)
            cg.store(cg.constant(-0.0, cg.vector_of(lanes, buffer.element)), buffer, self.place.at(at))

        self._each(one)

    def finish(self) -> None:
        """Store the sums of all blocks back to the accumulators."""
        self._each(lambda sums, b, at, lanes: cg.store(sums.result(at - self.origin, lanes), b, self.place.at(at)))

    def _each(self, do: Callable[[CompensatedSums, Value, Value, int], None]) -> None:
        def step(at: Value, _: int | None) -> None:
            for buffer, sums in self.sums.items():
                do(sums, buffer, at, self.plan.lanes)

        if self.sums:
            self.plan.columns_do(step, self.part)


def _emit_deep(kernel: Kernel, plan: _Deep, target: CpuTarget) -> Emitted:
    time = estimate_ns(plan.chain.cost, 1, plan.bytes(), target) * prod(plan.extents)
    if plan.parts > 1:
        return _emit_deep_parts(kernel, plan, time)
    with kernel.phase(target) as arguments, arguments.items() as item:
        at, panel = plan.outer.split(item)
        scope, part = LoopScope(arguments).inside(at), plan.panel_part(panel)
        if plan.shallow:
            plan.write_shallow(scope, part)
        elif plan.in_registers:
            plan.write_in_registers(scope)
        else:
            plan.write_panel(scope, part)
    return Emitted(plan.outer.count, grain_of(time / plan.outer.count, plan.outer.count))


def _emit_deep_parts(kernel: Kernel, plan: _Deep, time: float) -> Emitted:
    """Emit two phases: the partial sums of each part, then their combination."""
    scratch = plan.scratch(prod(plan.outer.extents) * plan.parts * plan.padded)
    names = (kernel.impl_name + "_parts", kernel.impl_name)
    with kernel.phase(plan.target, scratch, names[0]) as arguments, arguments.items() as item:
        rest, number = item // plan.parts, item % plan.parts
        at, panel = plan.outer.split(rest)
        part = plan.panel_part(panel)
        base = ((rest // plan.outer.blocks) * plan.parts + number) * plan.padded
        place = _Place(arguments.scratch, base, cg.index(0))
        first = number * plan.rows_of_part
        last = cg.minimum(first + plan.rows_of_part, plan.extents[plan.columns[0]])
        plan.write_part(LoopScope(arguments).inside(at), place, part, (first, last))
    with kernel.phase(plan.target, scratch, names[1]) as arguments, arguments.items() as item:
        at, panel = plan.outer.split(item)
        scope, part = LoopScope(arguments).inside(at), plan.panel_part(panel)
        base = (item // plan.outer.blocks) * (plan.parts * plan.padded)

        def step(column: Value, count: int | None) -> None:
            totals = _joined_parts(plan, arguments, base + column, plan.padded, plan.lanes)
            plan.finish(plan.at_column(scope, column, count), totals)

        plan.columns_do(step, part)
    items = plan.items.count
    return _two_phases(names, items, grain_of(time / items, items), plan.outer.count, scratch)
