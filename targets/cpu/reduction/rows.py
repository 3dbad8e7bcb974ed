"""Emit reductions that are all over the same loops, by a schedule: sums and the like, softmax, normalization, argmax.

The reduced loops run once for each pass of the chain, row after row, so that a row stays in the cache between the
passes. Sums of many columns are added up in memory, several rows at a time. Big reductions with few results are cut
into parts of a fixed size, so that threads can share them and the result is the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.loop_nest import Load, Ref, Store, analyze_nest
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.reductions import IndependentReductions
from stablexla.targets.codegen.row_passes import RowPass, RowPasses, in_place_pairs, rematerialize_all, schedule_rows
from stablexla.targets.codegen.schedule import PARALLEL, REDUCED, THREAD, UNROLLED, Schedule, ScheduledKernel, decide
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.codegen.vector_loops import (
    LoopPart,
    Totals,
    WorkItems,
    carried_loop,
    estimate_ns,
    grain_of,
    reduction_tree,
    vector_loop,
)
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.reduction.schedules import choose_schedule, forms_of

# Most bytes of a thread's stack for values that later passes reload.
SCRATCH_BYTES = Gate("rows.scratch-bytes", 256 << 10, eager=64)
# Arrays of at least this size have their next row prefetched.
STREAM_BYTES = Gate("rows.stream-bytes", 1 << 20, eager=1)

# The first index of a vector, and its active lanes if these are not all.
Vector = tuple[Index, int | None]
# What is inside of the reduced loops: (scopes of the rows side by side, accumulators, elements before) -> accumulators.
Body = Callable[[Sequence[LoopScope], list[Totals], Index], list[Totals]]


@emitter("row", "reduce", "general")
def emit_rows(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit kernels whose reductions are all over the same loops."""
    nest = analyze_nest(kernel, parts=True)
    chain = schedule_rows(nest) if nest is not None else None
    if chain is None:
        return None
    chosen, costs = choose_schedule(chain, target), tuple(p.cost for p in chain.passes)
    about = ScheduledKernel(
        kernel.name, kernel.kind, tuple(chain.nest.extents), tuple(sorted(chain.columns)), costs, target.vector_bits
    )
    kernel.schedule = decide(about, chosen, lambda: forms_of(chain, chosen.lanes))
    return RowLoops(chain, kernel.schedule, target).emit(kernel)


class RowLoops:
    """The loops of a chain of passes, emitted by a schedule.

    Args:
        chain: the passes.
        schedule: of its loops.
        target: the machine.
        cached: rows are and stay in a cache: no prefetch, no non-temporal stores.
    """

    def __init__(self, chain: RowPasses, schedule: Schedule, target: CpuTarget, *, cached: bool = False) -> None:
        self.chain, self.schedule, self.target = chain, schedule, target
        self.lanes, self.extents, self.inner = schedule.lanes, chain.nest.extents, chain.inner
        self.columns, self.is_along = sorted(chain.columns), chain.inner in chain.columns
        self._width = max(1, self.lanes)
        first = next(step for step in schedule.steps if step.role != THREAD)
        self._vectors_first = (first.role, first.axis) == (UNROLLED, self.inner)
        self._in_memory = (PARALLEL, self.inner) in schedule.form
        depth, width = self.extents[self.columns[0]], self.extents[self.inner]
        self.part = schedule.size(THREAD, self.columns[0], max(1, depth))
        self.panel = max(1, width) if self.is_along else schedule.size(THREAD, self.inner, max(1, width))
        rows = tuple(d for d in chain.rows if d != self.inner)
        panels = 1 if self.is_along else -(-width // self.panel)
        self.items = WorkItems(rows, tuple(self.extents[d] for d in rows), panels)
        self._parts = -(-depth // self.part)
        # Rows that are kept begin at whole vectors, so that remainders need no masks there.
        self.padded = rounded_up(width, self._width)
        self._scratch: dict[Ref, Value] = {}
        self._nontemporal = {s.result for p in chain.passes for s in p.stores if not cached and self._is_past_caches(s)}
        self.independent = [f for f in chain.passes[0].foldings if isinstance(f, IndependentReductions)]
        self._busiest = None if cached else self._pass_to_prefetch_in()
        if self.is_along and self.lanes and not self._vectors_first:
            for now in chain.passes:
                now.foldings = [f.streaming() if isinstance(f, IndependentReductions) else f for f in now.foldings]

    def _is_past_caches(self, place: Store) -> bool:
        size, register = cg.bits_of(place.element) // 8, self.target.vector_bits // 8
        aligned = all(stride * size % register == 0 for stride in place.strides[:-1])
        return aligned and self.lanes * size == register and prod(self.extents) * size >= self.target.nontemporal_bytes

    def _pass_to_prefetch_in(self) -> RowPass | None:
        """Return the pass that computes most and finds its operands in cache: there the next row is prefetched."""
        streams = self.is_along and self.lanes and not self._vectors_first and prod(self.extents) * 4 >= STREAM_BYTES()
        if not streams or len(self.chain.passes) < 2 or not self.chain.rows:
            return None
        return max(self.chain.passes[1:], key=lambda p: p.cost)

    # --- work items -----------------------------------------------------------------------------------------

    def emit(self, kernel: Kernel) -> Emitted:
        """Emit the kernel's function; two, where work items have parts of the rows."""
        count = self.items.count
        if self._parts > 1 and count:
            return self._emit_parts(kernel)
        with kernel.phase(self.target) as arguments:
            if count:
                self.reserve()
                with arguments.items(count) as item:
                    at, panel = self.items.split(item)
                    self._item(LoopScope(arguments).inside(at), panel)
        pairs = in_place_pairs(kernel, self.chain) if self.is_along or self._vectors_first else ()
        return Emitted(count, grain_of(self._duration(count), count), in_place=pairs)

    def _duration(self, items: int) -> float:
        """Return the estimated nanoseconds for one work item."""
        places: list[Load | Store] = [*self.chain.nest.loads, *(s for p in self.chain.passes for s in p.stores)]
        size = sum(cg.bits_of(place.element) // 8 for place in places if place.strides[self.inner])
        return estimate_ns(self.chain.cost, 1, size, self.target) * prod(self.extents) / max(1, items) + 10

    def _item(self, outer: LoopScope, panel: Value) -> None:
        width, whole = self._width, self.extents[self.inner] // self.panel
        if self._in_memory:
            _Panel(self, outer, self._piece(panel, self.panel, self.items.blocks)).reduce()
        elif self.is_along or not self._vectors_first:
            self.row(outer)
        elif not whole or not (rest := self._vectors(whole * self.panel)):
            first = panel * self.panel
            self.row(outer, [(first + at, None) for at in range(0, self.panel, width)] if whole else self._vectors())
        else:
            first, side = panel * self.panel, cg.branch(panel.lt(whole))
            with side.then:
                self.row(outer.inside({}), [(first + at, None) for at in range(0, self.panel, width)])
            with side.otherwise:
                self.row(outer.inside({}), rest)

    @staticmethod
    def _piece(number: Value, size: int, count: int) -> LoopPart | None:
        return LoopPart(number * size, number * size + size, number.eq(count - 1)) if count > 1 else None

    def _emit_parts(self, kernel: Kernel) -> Emitted:
        """Emit two phases: the partial sums of each part, then their combination."""
        (now,), parts, panels = self.chain.passes, self._parts, self.items.blocks
        columns, lanes = (1, 0) if self.is_along else (self.padded, self.lanes)
        rows, items = self.items.count, self.items.count * parts
        scratch = tuple((str(t), items // panels * columns) for t in now.types)
        names = (kernel.impl_name + "_parts", kernel.impl_name)
        with kernel.phase(self.target, scratch, names[0]) as arguments, arguments.items(items) as item:
            rest, number = item // parts, item % parts
            at, panel = self.items.split(rest)
            base = (item if panels == 1 else rest // panels * parts + number) * columns
            row, part = LoopScope(arguments).inside(at), self._piece(number, self.part, parts)
            if self._in_memory:
                _Panel(self, row, self._piece(panel, self.panel, panels), arguments.scratch, base).add_up(part)
            else:
                for n, (_, totals) in enumerate(self._reduce(now, row, [], part)):
                    for total, buffer in zip(totals, arguments.scratch, strict=True):
                        cg.store(total, buffer, base + n * self._width)
        with kernel.phase(self.target, scratch, names[1]) as arguments, arguments.items(rows) as item:
            at, panel = self.items.split(item)
            first = item // panels * (parts * columns)

            def joined(column: Value, _: int | None) -> Totals:
                buffers, place = arguments.scratch, first + column
                with cg.loop(1, parts, 1, [cg.load(b, place, lanes) for b in buffers]) as turn:
                    turn.yields(*now.join(turn.args, [cg.load(b, place + turn.iv * columns, lanes) for b in buffers]))
                return turn.results

            self.finish_columns(LoopScope(arguments).inside(at), joined, self._piece(panel, self.panel, panels))
        grain = grain_of(self._duration(items), items)
        return Emitted(items, grain, scratch, phases=(Phase(names[0], items, grain), Phase(names[1], rows, rows)))

    # --- the passes over a row --------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Allocate the values that later passes reload, before the first row; too many are rematerialized."""
        kept = [(node, number) for p in self.chain.passes for node in p.saved for number in range(len(node.types))]
        elements = prod(self.padded if d == self.inner else self.extents[d] for d in self.columns)
        elements *= 1 if self.is_along else self.panel
        size = sum(cg.bits_of(node.types[number]) // 8 * elements for node, number in kept)
        if (self.is_along and self._vectors_first) or size > SCRATCH_BYTES():
            rematerialize_all(self.chain)
            return
        for node, number in kept:
            self._scratch[node, number] = cg.alloca(elements, node.types[number])

    def row(self, row: LoopScope, vectors: Sequence[Vector] = ()) -> None:
        """Emit all passes over the row of a scope, or over the rows that some vectors have in their lanes."""
        if self.is_along and self._vectors_first:
            vectors = self._vectors()
        scopes, done = [self.at_vector(row, *vector) for vector in vectors], []
        for now in self.chain.passes:
            done = self._reduce(now, row, scopes)
            for here, totals in done:
                now.finish(here, totals)
        for here, _ in done:
            self._store_rows(here)

    def _vectors(self, first: int = 0) -> list[Vector]:
        extent, width = self.extents[self.inner], self._width
        return [(cg.index(at), extent - at if extent - at < width else None) for at in range(first, extent, width)]

    def at_vector(self, scope: LoopScope, at: Index, count: int | None) -> LoopScope:
        """Return the scope of a vector."""
        return scope.inside({self.inner: at}, lane=self.inner, lanes=self.lanes, count=count)

    def _reduce(
        self, now: RowPass, row: LoopScope, scopes: Sequence[LoopScope], part: LoopPart | None = None
    ) -> list[tuple[LoopScope, Totals]]:
        """Emit the loops of a pass, or of a part; return the accumulators of the row, or of each vector of rows.

        Args:
            scopes: of the vectors, where these are outside of the reduced loops.
        """
        self.prepare(row, now, self.chain.columns | {self.inner})
        if self.is_along:
            unroll = len(scopes) or self.schedule.size(UNROLLED, self.inner, number=self.chain.passes.index(now))
            starts = [now.start(row, self.lanes, u * self.lanes) for u in range(unroll)]
            body = partial(self._side_by_side, now) if scopes else partial(self._sweep, now, part)
            outer = self.columns[:-1]
            sets = self.walk(now, outer, scopes or [row], starts, body, self.span(part) if outer else None)
            return [(row, now.across(row, reduction_tree(sets, now.join)))]
        if scopes:
            for here in scopes:
                self.prepare(here, now, self.chain.columns)
            starts = [now.start(here, self.lanes) for here in scopes]
            sets = self.walk(now, self.columns, scopes, starts, partial(self._side_by_side, now))
            return list(zip(scopes, sets, strict=True))
        vectors = self._vectors()

        def add(rows: Sequence[LoopScope], sets: list[Totals], _: Index) -> list[Totals]:
            more = [self.sum_of_rows(now, rows, *vector) for vector in vectors]
            return [now.join(a, b) for a, b in zip(sets, more, strict=True)]

        sets = self.walk(now, self.columns, [row], [now.start(row, self.lanes)] * len(vectors), add, self.span(part))
        return [(self.at_vector(row, *vector), totals) for vector, totals in zip(vectors, sets, strict=True)]

    def span(self, part: LoopPart | None) -> tuple[Value, Value]:
        """Return the bounds of the outermost reduced loop, in a part of it."""
        extent = self.extents[self.columns[0]]
        return (cg.index(0), cg.index(extent)) if part is None else (part.start, cg.minimum(part.stop, extent))

    def walk(
        self,
        now: RowPass,
        dims: Sequence[int],
        scopes: Sequence[LoopScope],
        sets: list[Totals],
        body: Body,
        span: tuple[Value, Value] | None = None,
        place: Index = 0,
    ) -> list[Totals]:
        """Emit the reduced loops `dims` of a pass around `body`, unrolled as the schedule says.

        Args:
            scopes: of what is side by side so far.
            sets: the accumulators.
            span: the first and last index of the first loop.
            place: the number of elements of a row before these.
        """
        if not dims:
            return body(scopes, sets, place)
        dim, *inside = dims
        extent, unroll = self.extents[dim], self.schedule.size(UNROLLED, dim)
        lo, hi = span or (cg.index(0), cg.index(extent))
        size = prod(self.padded if d == self.inner else self.extents[d] for d in self.columns if d > dim)
        varying = frozenset(inside) if self._vectors_first else frozenset(inside) | {self.inner}

        def turn(at: Value, sets: list[Totals], count: int) -> list[Totals]:
            here = [scope.inside({dim: at + i}) for scope in scopes for i in range(count)]
            for scope in here if varying else ():
                self.prepare(scope, now, varying)
            return self.walk(now, inside, here, sets, body, place=cg.index(place) + at * size)

        main = hi if unroll == 1 else lo + (hi - lo) // unroll * unroll
        sets = carried_loop(lo, main, unroll, sets, partial(turn, count=unroll))
        return carried_loop(main, hi, 1, sets, partial(turn, count=1)) if extent % unroll else sets

    def _side_by_side(
        self, now: RowPass, scopes: Sequence[LoopScope], sets: list[Totals], place: Index
    ) -> list[Totals]:
        """Emit vectors side by side, each with accumulators of its own."""
        first = place * (len(scopes) * self._width)
        each = enumerate(zip(scopes, sets, strict=True))
        return [self._step(now, here, first + v * self._width, totals) for v, (here, totals) in each]

    def _sweep(
        self, now: RowPass, part: LoopPart | None, scopes: Sequence[LoopScope], sets: list[Totals], place: Index
    ) -> list[Totals]:
        """Emit the innermost loop along a row."""

        def step(at: Value, count: int | None, totals: Totals) -> Totals:
            return self._step(now, self.at_vector(scopes[0], at, count), at + place, totals)

        return vector_loop(self.extents[self.inner], self.lanes, step, sets, part if len(self.columns) == 1 else None)

    def _step(self, now: RowPass, here: LoopScope, place: Index, totals: Totals) -> Totals:
        """Emit one vector of a pass; `place` is the index of the values kept for this vector."""
        if now is self._busiest and here.count is None:
            self._prefetch_next_row(here)
        for node in now.reused:
            lanes = self.lanes if here.lane in node.deps else 0
            here.put(node, [cg.load(self._scratch[node, i], place, lanes) for i in range(len(node.types))])
        made = [v for folding, part in now.split(totals) for v in folding.step(here, part)]
        values = [here.value(s.ref) for s in now.stores]
        for node in now.saved:
            for i in range(len(node.types)):
                cg.store(here.value((node, i)), self._scratch[node, i], place)
        for s, value in zip(now.stores, values, strict=True):
            here.store(s, value, s.result in self._nontemporal)
        return made

    def _prefetch_next_row(self, here: LoopScope) -> None:
        next_row = self.chain.rows[-1]
        for node in self.chain.nest.loads:
            if node in self.chain.passes[0].loads and node.strides[self.inner] == 1 and node.strides[next_row]:
                buffer = here.arguments.inputs[node.buffer]
                cg.prefetch(buffer, here.address(node) + node.strides[next_row])

    def sum_of_rows(self, now: RowPass, rows: Sequence[LoopScope], at: Index, count: int | None) -> Totals:
        """Reduce a vector of columns over some rows."""
        here = [self.at_vector(row, at, count) for row in rows]
        sets = [[v for f in self.independent for each in f.values(one, self.lanes) for v in each] for one in here]
        return reduction_tree(sets, now.join)

    def prepare(self, scope: LoopScope, now: RowPass, varying: frozenset[int]) -> None:
        """Hoist the values and addresses of a pass that are invariant in the loops `varying`."""
        scope.prepare(now.refs, varying, self.lanes)
        for s in now.stores:
            scope.address(s)

    def finish_columns(
        self, scope: LoopScope, totals: Callable[[Value, int | None], Totals], panel: LoopPart | None
    ) -> None:
        """Store the results of a row, or of the rows of a panel, from their accumulators."""
        (now,) = self.chain.passes

        def finish(here: LoopScope, totals: Totals) -> None:
            now.finish(here, totals)
            self._store_rows(here)

        if self.is_along:
            finish(scope, totals(cg.index(0), None))
            return
        scope.prepare([s.ref for s in self.chain.row_stores], frozenset((self.inner,)), self.lanes)
        for s in self.chain.row_stores:
            scope.address(s)
        self.each_column(lambda at, count: finish(self.at_vector(scope, at, count), totals(at, count)), panel)

    def each_column(self, do: Callable[[Value, int | None], None], panel: LoopPart | None) -> None:
        """Emit `do(column, count)` for all vectors of a panel."""

        def one(at: Value, count: int | None, _: Totals) -> Totals:
            do(at, count)
            return []

        unroll = self.schedule.size(UNROLLED, self.inner) if self._in_memory else 1
        vector_loop(self.extents[self.inner], self.lanes, one, [[]] * unroll, panel)

    def _store_rows(self, scope: LoopScope) -> None:
        # All are computed before the first is stored: it may alias what another one is computed from.
        values = [scope.value(s.ref) for s in self.chain.row_stores]
        for s, value in zip(self.chain.row_stores, values, strict=True):
            scope.store(s, value)


class _Panel:
    """The accumulators of a panel of columns in memory, and for long sums the compensated sums of whole blocks.

    Args:
        panel: the columns; None for all.
        buffers, base: memory for all columns, those of this row from `base` on; by default the stack, for the panel.
    """

    def __init__(
        self,
        loops: RowLoops,
        scope: LoopScope,
        panel: LoopPart | None,
        buffers: Sequence[Value] = (),
        base: Value | None = None,
    ) -> None:
        self.loops, self.scope, self.panel, self.buffers, self.base = loops, scope, panel, buffers, base
        (self.now,) = loops.chain.passes
        self.origin = panel.start if panel is not None else cg.index(0)
        self.room = loops.padded if panel is None else loops.panel
        self.sums: dict[Value, CompensatedSums] = {}

    def reduce(self) -> None:
        """Emit the reduction of the panel; few rows are added up in one iteration, without accumulators in memory."""
        loops = self.loops
        if not any(step.role == REDUCED for step in loops.schedule.steps):
            loops.prepare(self.scope, self.now, loops.chain.columns | {loops.inner})
            loops.walk(self.now, loops.columns, [self.scope], [[]], self._finish_rows)
            return
        self.buffers = [cg.alloca(self.room, t) for t in self.now.types]
        self.add_up(None)
        loops.finish_columns(self.scope, lambda at, _: self._load(at), self.panel)

    def _finish_rows(self, rows: Sequence[LoopScope], sets: list[Totals], _: Index) -> list[Totals]:
        self.loops.finish_columns(self.scope, partial(self.loops.sum_of_rows, self.now, rows), self.panel)
        return sets

    def add_up(self, part: LoopPart | None) -> None:
        """Add up the rows, or those of a part, from the identity, in blocks that are short enough for running sums."""
        loops, now = self.loops, self.now
        loops.prepare(self.scope, now, loops.chain.columns | {loops.inner})
        depth, *inside = (loops.extents[d] for d in loops.columns)
        abreast = loops.schedule.size(UNROLLED, loops.columns[-1])
        longest = LONGEST_RUNNING_SUM() * abreast
        if depth * prod(inside) > longest:
            operations = [p.operation for f in loops.independent for p in f.parts for _ in p.types]
            for operation, buffer in zip(operations, self.buffers, strict=True):
                if operation == "arith.addf":
                    self.sums[buffer] = CompensatedSums.make(self.room, buffer.element)
        starts = now.start(self.scope, loops.lanes)

        def clear(at: Value, _: int | None) -> None:
            self._store(at, starts)
            for sums in self.sums.values():
                sums.clear(at - self.origin, loops.lanes)

        loops.each_column(clear, self.panel)
        length = max(1, LONGEST_RUNNING_SUM() // -(-prod(inside) // abreast)) if inside else longest
        lo, hi = loops.span(part)
        if not self.sums or loops.part <= length:
            self._add_rows((lo, hi))
        else:
            with cg.loop(lo, hi, length) as block:
                self._add_rows((block.iv, cg.minimum(block.iv + length, hi)))
        if self.sums:
            loops.each_column(self._give, self.panel)

    def _add_rows(self, span: tuple[Value, Value]) -> None:
        def add(rows: Sequence[LoopScope], sets: list[Totals], _: Index) -> list[Totals]:
            def step(at: Value, count: int | None) -> None:
                self._store(at, self.now.join(self._load(at), self.loops.sum_of_rows(self.now, rows, at, count)))

            self.loops.each_column(step, self.panel)
            return sets

        self.loops.walk(self.now, self.loops.columns, [self.scope], [[]], add, span)
        if self.sums:
            self.loops.each_column(self._take, self.panel)

    def _take(self, at: Value, _: int | None) -> None:
        """Add the partial sums of a block of rows to those of the blocks before it."""
        for buffer, sums in self.sums.items():
            sums.add(cg.load(buffer, self._at(at), self.loops.lanes), at - self.origin)
            cg.store(cg.constant(-0.0, cg.vector_of(self.loops.lanes, buffer.element)), buffer, self._at(at))

    def _give(self, at: Value, _: int | None) -> None:
        for buffer, sums in self.sums.items():
            cg.store(sums.result(at - self.origin, self.loops.lanes), buffer, self._at(at))

    def _at(self, column: Value) -> Value:
        return column - self.origin if self.base is None else column + self.base

    def _load(self, at: Value) -> Totals:
        return [cg.load(buffer, self._at(at), self.loops.lanes) for buffer in self.buffers]

    def _store(self, at: Value, totals: Totals) -> None:
        for total, buffer in zip(totals, self.buffers, strict=True):
            cg.store(total, buffer, self._at(at))
