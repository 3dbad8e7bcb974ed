"""Emit row passes: reductions whose results feed elementwise operations, as in softmax, normalization, argmax.

The reduced loops run once for each pass of the chain, row after row, so that a row stays in the cache between the
passes. Vectors lie along the reduced loop when that is the innermost one, else across rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Load, Ref, Store, analyze_nest
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.reductions import IndependentReductions, SequentialReduction
from stablexla.targets.codegen.row_passes import RowPass, RowPasses, in_place_pairs, rematerialize_all, schedule_rows
from stablexla.targets.codegen.scope import LoopScope, lanes_for
from stablexla.targets.codegen.vector_loops import (
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

# Most bytes of a thread's stack for values that later passes reload.
SCRATCH_BYTES = Gate("rows.scratch-bytes", 256 << 10, eager=64)
# Arrays of at least this size have their next row prefetched.
STREAM_BYTES = Gate("rows.stream-bytes", 1 << 20, eager=1)
# Rows of up to this many vectors stay in registers.
SHORT_ROW = Gate("rows.short-row", 4, eager=1)


# --- the emitter ------------------------------------------------------------------------------------------------


@emitter("row", "reduce", "general")
def emit_rows(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit kernels whose reductions are all over the same loops."""
    nest = analyze_nest(kernel, parts=True)
    chain = schedule_rows(nest) if nest is not None else None
    if nest is None or chain is None:
        return None
    lanes = lanes_for(nest, target)
    along = chain.inner in chain.columns
    if along and _are_16_bit(chain) and chain.nest.extents[chain.inner] % (2 * lanes) == 0:
        # Whole registers of results allow non-temporal stores, and two dependency chains of roundings overlap.
        lanes *= 2
    writer: AlongRowPasses | _AcrossRows
    writer = AlongRowPasses(chain, lanes, target) if along else _AcrossRows(chain, lanes, target)
    with kernel.phase(target) as arguments:
        if writer.items.count:
            writer.write(arguments)
    count = writer.items.count
    return Emitted(count, grain_of(writer.duration(), count), in_place=in_place_pairs(kernel, chain))


def _are_16_bit(chain: RowPasses) -> bool:
    """Return whether rows of 16-bit numbers become such rows."""
    stores = [s for p in chain.passes for s in p.stores]
    places: list[Load | Store] = [*chain.nest.loads, *stores]
    return bool(stores) and all(cg.bits_of(p.element) == 16 for p in places if p.strides[chain.inner])


class _Rows:
    """State shared by both vectorizations, along and across rows: one step of a pass."""

    def __init__(self, chain: RowPasses, lanes: int, target: CpuTarget) -> None:
        self.chain, self.lanes, self.target = chain, lanes, target
        self._scratch: dict[Ref, Value] = {}
        self._nontemporal = {s.result for p in chain.passes for s in p.stores if self._past_the_caches(s)}

    def _past_the_caches(self, place: Store) -> bool:
        size, extents = cg.bits_of(place.element) // 8, self.chain.nest.extents
        register = self.target.vector_bits // 8
        aligned = all(stride * size % register == 0 for stride in place.strides[:-1])
        return aligned and self.lanes * size == register and prod(extents) * size >= self.target.nontemporal_bytes

    def _allocate(self, elements: int) -> None:
        """Allocate `elements` of each value that is kept; rematerialize them all if that is too much."""
        kept = [(node, number) for p in self.chain.passes for node in p.saved for number in range(len(node.types))]
        if sum(cg.bits_of(node.types[number]) // 8 * elements for node, number in kept) > SCRATCH_BYTES():
            rematerialize_all(self.chain)
            return
        for node, number in kept:
            self._scratch[node, number] = cg.alloca(elements, node.types[number])

    def _step(self, now: RowPass, here: LoopScope, place: Index, totals: Totals) -> Totals:
        """Emit one vector of a pass; `place` is the index of the values kept for this vector."""
        for node in now.reused:
            lanes = self.lanes if here.lane in node.deps else 0
            here.put(node, [cg.load(self._scratch[node, i], place, lanes) for i in range(len(node.types))])
        made: Totals = []
        for folding in now.foldings:
            count = len(folding.types)
            made += folding.step(here, totals[len(made) : len(made) + count])
        values = [here.value(s.ref) for s in now.stores]
        for node in now.saved:
            for i in range(len(node.types)):
                cg.store(here.value((node, i)), self._scratch[node, i], place)
        for s, value in zip(now.stores, values, strict=True):
            here.store(s, value, s.result in self._nontemporal)
        return made

    def _starts(self, now: RowPass, scope: LoopScope, lanes: int, offset: int = 0) -> Totals:
        return flat([f.start(scope, lanes, offset) for f in now.foldings])

    def _join(self, now: RowPass, sets: list[Totals]) -> Totals:
        if not now.foldings:
            return []
        split = [[t for _, t in now.split(totals)] for totals in sets]
        each = [reduction_tree([s[i] for s in split], f.join) for i, f in enumerate(now.foldings)]
        return flat(each)

    def _prepare(self, scope: LoopScope, now: RowPass, varying: frozenset[int]) -> None:
        scope.prepare(now.refs, varying, self.lanes)
        for s in now.stores:
            scope.address(s)

    def _store_rows(self, scope: LoopScope) -> None:
        # All are computed before the first is stored: it may alias what another one is computed from.
        values = [scope.value(s.ref) for s in self.chain.row_stores]
        for s, value in zip(self.chain.row_stores, values, strict=True):
            scope.store(s, value)


# --- vectors along the rows ---------------------------------------------------------------------------------------


class AlongRowPasses(_Rows):
    """Vectorize along rows: the innermost loop is reduced, and lanes are reduced horizontally at its end.

    Args:
        chain: the passes.
        lanes: lanes of a vector.
        target: the machine.
        cached: rows are and stay in a cache: no prefetch, no non-temporal stores.
    """

    def __init__(self, chain: RowPasses, lanes: int, target: CpuTarget, *, cached: bool = False) -> None:
        in_order = any(isinstance(f, SequentialReduction) for p in chain.passes for f in p.foldings)
        if in_order:
            lanes = 0
        super().__init__(chain, lanes, target)
        rows = chain.rows
        self.items = WorkItems(rows, tuple(chain.nest.extents[d] for d in rows))
        self._columns = sorted(chain.columns)
        extent = chain.nest.extents[chain.inner]
        self._vectors = -(-extent // lanes) if lanes else extent
        self._short = not in_order and len(self._columns) == 1 and 0 < self._vectors <= SHORT_ROW()
        # Rows that are kept begin at whole vectors, so that remainders need no masks there.
        self._padded = self._vectors * max(1, lanes)
        self._busiest = None if cached else self._pass_to_prefetch_in()
        if cached:
            self._nontemporal = set()
        if lanes and not self._short:
            for now in chain.passes:
                now.foldings = [f.streaming() if isinstance(f, IndependentReductions) else f for f in now.foldings]

    def _pass_to_prefetch_in(self) -> RowPass | None:
        """Return the pass that computes most and finds its operands in cache: there the next row is prefetched."""
        size = self.chain.length * prod(n for d, n in enumerate(self.chain.nest.extents) if d in self.chain.rows)
        if self._short or not self.lanes or len(self.chain.passes) < 2 or size * 4 < STREAM_BYTES():
            return None
        return max(self.chain.passes[1:], key=lambda p: p.cost)

    def _step(self, now: RowPass, here: LoopScope, place: Index, totals: Totals) -> Totals:
        if now is self._busiest and here.count is None:
            next_row = self.chain.rows[-1]
            for node in self.chain.passes[0].loads:
                if node.strides[self.chain.inner] == 1 and node.strides[next_row]:
                    buffer = here.arguments.inputs[node.buffer]
                    cg.prefetch(buffer, here.address(node) + node.strides[next_row])
        return super()._step(now, here, place, totals)

    def duration(self) -> float:
        """Return the estimated nanoseconds for one row."""
        chain = self.chain
        moved = [node.element for node in chain.nest.loads if node.strides[chain.inner]]
        moved += [s.element for p in chain.passes for s in p.stores if s.strides[chain.inner]]
        size = sum(cg.bits_of(element) // 8 for element in moved)
        return estimate_ns(chain.cost, chain.length, size * chain.length, self.target) + 10

    def write(self, arguments: KernelArguments) -> None:
        """Emit all work items."""
        self.reserve()
        top = LoopScope(arguments)
        with arguments.items() as item:
            at, _ = self.items.split(item)
            self.row(top.inside(at))

    def reserve(self) -> None:
        """Allocate the values that later passes over a row reload; to be called before the first row."""
        if self._short:
            rematerialize_all(self.chain)
        else:
            outer = prod(self.chain.nest.extents[d] for d in self._columns[:-1])
            self._allocate(outer * self._padded)

    def row(self, row: LoopScope) -> None:
        """Emit all passes over the row of the scope."""
        vectors = self._vectors_of(row) if self._short else None
        for now in self.chain.passes:
            self._prepare(row, now, self.chain.columns)
            if vectors is not None:
                sets = []
                for u, (here, at) in enumerate(vectors):
                    starts = self._starts(now, row, self.lanes, u * self.lanes)
                    sets.append(self._step(now, here, at, starts))
            else:
                sets = self._walk(now, row, self._columns, self._sets(now, row), cg.index(0))
            for folding, totals in now.split(self._join(now, sets)):
                row.put(folding.fold, folding.finish(row, folding.across(row, totals)))
        self._store_rows(row)

    def _vectors_of(self, row: LoopScope) -> list[tuple[LoopScope, Index]]:
        """Return the vectors of a short row, whose values stay in registers from pass to pass."""
        inner, width = self.chain.inner, max(1, self.lanes)
        extent = self.chain.nest.extents[inner]
        out: list[tuple[LoopScope, Index]] = []
        for at in range(0, extent, width):
            count = extent - at if extent - at < width else None
            out.append((row.inside({inner: at}, lane=inner, lanes=self.lanes, count=count), at))
        return out

    def _sets(self, now: RowPass, row: LoopScope) -> list[Totals]:
        unroll = unroll_factor(now.cost, self._vectors) if self.lanes else 1
        return [self._starts(now, row, self.lanes, u * self.lanes) for u in range(unroll)]

    def _walk(
        self, now: RowPass, scope: LoopScope, dims: Sequence[int], sets: list[Totals], place: Index
    ) -> list[Totals]:
        """Emit the loops `dims` of a pass; `place` counts the elements of the row before them."""
        extent = self.chain.nest.extents[dims[0]]
        if len(dims) == 1:

            def step(at: Value, count: int | None, totals: Totals) -> Totals:
                here = scope.inside({dims[0]: at}, lane=dims[0], lanes=self.lanes, count=count)
                return self._step(now, here, at + place, totals)

            return vector_loop(extent, self.lanes, step, sets)
        width = prod(self.chain.nest.extents[d] for d in dims[1:-1]) * self._padded

        def deeper(at: Value, sets: list[Totals]) -> list[Totals]:
            here = scope.inside({dims[0]: at})
            self._prepare(here, now, frozenset(dims[1:]))
            return self._walk(now, here, dims[1:], sets, cg.index(place) + at * width)

        return carried_loop(cg.index(0), cg.index(extent), 1, sets, deeper)


# --- vectors across rows --------------------------------------------------------------------------------------------


class _AcrossRows(_Rows):
    """Vectorize across rows: the innermost loop is over rows, and each lane reduces a row of its own, in order."""

    def __init__(self, chain: RowPasses, lanes: int, target: CpuTarget) -> None:
        super().__init__(chain, lanes, target)
        extent, width = chain.nest.extents[chain.inner], max(1, lanes)
        whole = extent // width
        self._abreast = unroll_factor(max(p.cost for p in chain.passes), whole)
        self._panels = whole // self._abreast
        rest = range(self._panels * self._abreast * width, extent, width)
        # First index and number of lanes of each remainder vector after the last whole panel.
        self._rest = [(at, extent - at if extent - at < width else None) for at in rest]
        outer = [d for d in chain.rows if d != chain.inner]
        blocks = self._panels + bool(self._rest)
        self.items = WorkItems(tuple(outer), tuple(chain.nest.extents[d] for d in outer), blocks)

    def duration(self) -> float:
        """Return the estimated nanoseconds for one panel."""
        chain, elements = self.chain, self.chain.length * self._abreast * max(1, self.lanes)
        size = sum(cg.bits_of(node.element) // 8 for node in chain.nest.loads)
        return estimate_ns(chain.cost, elements, size * elements, self.target) + 10

    def write(self, arguments: KernelArguments) -> None:
        """Emit all work items."""
        self._allocate(self.chain.length * max(self._abreast, len(self._rest)) * max(1, self.lanes))
        top, inner, width = LoopScope(arguments), self.chain.inner, max(1, self.lanes)
        with arguments.items() as item:
            at, panel = self.items.split(item)
            outer = top.inside(at)
            first = panel * (self._abreast * width)
            whole: list[tuple[Value, int | None]] = [(first + v * width, None) for v in range(self._abreast)]
            rest = [(cg.index(at), count) for at, count in self._rest]
            if not self._rest or not self._panels:
                self._panel(outer, inner, whole if self._panels else rest)
                return
            side = cg.branch(panel.lt(self._panels))
            with side.then:
                self._panel(outer, inner, whole)
            with side.otherwise:
                self._panel(outer, inner, rest)

    def _panel(self, outer: LoopScope, inner: int, vectors: Sequence[tuple[Value, int | None]]) -> None:
        columns = self.chain.columns
        across = LoopScope(outer.arguments, {}, outer)
        rows = [across.inside({inner: at}, lane=inner, lanes=self.lanes, count=count) for at, count in vectors]
        for now in self.chain.passes:
            self._prepare(across, now, columns | {inner})
            for row in rows:
                self._prepare(row, now, columns)
            sets = [self._starts(now, row, self.lanes) for row in rows]
            sets = self._walk(now, rows, sorted(columns), sets, cg.index(0))
            for row, totals in zip(rows, sets, strict=True):
                for folding, part in now.split(totals):
                    row.put(folding.fold, folding.finish(row, part))
        for row in rows:
            self._store_rows(row)

    def _walk(
        self, now: RowPass, rows: Sequence[LoopScope], dims: Sequence[int], sets: list[Totals], place: Value
    ) -> list[Totals]:
        """Emit the loops `dims` of a pass, for adjacent vectors; `place` counts the elements before them."""
        if not dims:
            width = max(1, self.lanes)
            first = place * (len(rows) * width)
            return [
                self._step(now, row, first + v * width, totals)
                for v, (row, totals) in enumerate(zip(rows, sets, strict=True))
            ]
        size = prod(self.chain.nest.extents[d] for d in dims[1:])

        def deeper(at: Value, sets: list[Totals]) -> list[Totals]:
            here = [row.inside({dims[0]: at}) for row in rows]
            return self._walk(now, here, dims[1:], sets, place + at * size)

        return carried_loop(cg.index(0), cg.index(self.chain.nest.extents[dims[0]]), 1, sets, deeper)
