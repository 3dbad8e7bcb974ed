"""Kernels with reductions that hand their results on to elementwise operations: softmax, normalisation, argmax.

The loops that are reduced over are walked once for each link of the chain, row after row, so that a row stays in the
cache between the passes. Vectors lie along the reduced loop when that is the innermost one, else across rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from stablexla.targets.cpu.emission import Index, Value, alloca, bits_of, branch, emitting, index, load, loop, store
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.folding import Folding, InOrder, OneByOne, match_folding
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.nests import Fold, Load, Map, Nest, Node, Ref, Store, analyse, reachable
from stablexla.targets.cpu.sweeps import Items, Totals, duration, flat, grain_of, joined, sweep, unrolled
from stablexla.targets.cpu.target import CpuTarget
from stablexla.targets.cpu.vector_body import Scope, lanes_for, weight

# What takes more instructions than this is kept for later passes over the row, in memory of the thread.
DEAR = 8
SCRATCH_BYTES = 256 << 10
# Rows of up to this many vectors stay in registers.
SHORT_ROW = 4


@dataclass
class Pass:
    """One walk over a row: reductions that it completes, results that it writes, values kept and found again."""

    foldings: list[Folding] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    saved: list[Map] = field(default_factory=list)
    reused: list[Map] = field(default_factory=list)
    loads: set[Load] = field(default_factory=set)
    cost: int = 0

    @property
    def refs(self) -> list[Ref]:
        """What is evaluated at each place."""
        return [ref for f in self.foldings for ref in f.fold.operands] + [s.ref for s in self.stores]


@dataclass
class Chain:
    """The passes over a row, and what is written once for each row."""

    nest: Nest
    columns: frozenset[int]
    passes: list[Pass]
    row_stores: list[Store]

    @property
    def rows(self) -> tuple[int, ...]:
        """The loops over rows."""
        return tuple(d for d in range(len(self.nest.extents)) if d not in self.columns)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(self.nest.extents[d] for d in self.columns)

    @property
    def inner(self) -> int:
        """The innermost loop, which vectors lie along."""
        return len(self.nest.extents) - 1

    @property
    def cost(self) -> int:
        """About how many vector instructions all passes take for each vector."""
        return sum(p.cost for p in self.passes)


# --- what is done in which pass -------------------------------------------------------------------------------


def chain_of(nest: Nest) -> Chain | None:
    """The passes of a nest with reductions, or None if its reductions are over different loops."""
    folds = nest.folds
    if not folds or any(fold.reduced != folds[0].reduced for fold in folds):
        return None
    columns = folds[0].reduced
    everything = frozenset(range(len(nest.extents)))
    full = [s for s in nest.stores if s.domain == everything]
    by_row = [s for s in nest.stores if s.domain == everything - columns]
    if len(full) + len(by_row) != len(nest.stores) or any(fold.domain != everything for fold in folds):
        return None
    inner = len(nest.extents) - 1
    if inner not in columns and any(inner not in fold.deps for fold in folds):
        return None  # a reduction that is the same in all lanes
    stages = _stages(nest)
    passes = [Pass() for _ in range(1 + max(stages[n] for n in nest.nodes))]
    for fold in folds:
        passes[stages[fold] - 1].foldings.append(match_folding(fold))
    for place in full:
        passes[stages[place.ref[0]]].stores.append(place)
    chain = Chain(nest, columns, [p for p in passes if p.foldings or p.stores], by_row)
    _note_costs(chain)
    return chain


def _stages(nest: Nest) -> dict[Node, int]:
    """After how many passes a value is known for the row, or can be computed at each place of it."""
    stages: dict[Node, int] = {}
    for node in nest.nodes:
        operands = [*node.operands, *(node.starts if isinstance(node, Fold) else [])] if isinstance(node, Map) else []
        before = max((stages[operand] for operand, _ in operands), default=0)
        stages[node] = before + 1 if isinstance(node, Fold) else before
    return stages


def _note_costs(chain: Chain) -> None:
    """Finds what each pass evaluates, and which dear values a later pass takes from an earlier one."""
    first: dict[Map, Pass] = {}
    for now in chain.passes:
        waiting, seen = [node for node, _ in now.refs], set()
        now.cost = sum(weight(f.fold.block) for f in now.foldings)
        while waiting:
            node = waiting.pop()
            if node in seen or not node.deps & chain.columns:
                continue
            seen.add(node)
            if isinstance(node, Load):
                now.loads.add(node)
                now.cost += 1
            elif isinstance(node, Map) and node in first and _tree_cost(node, chain.columns) >= DEAR:
                now.reused.append(node)
                now.cost += 1
                if node not in first[node].saved:
                    first[node].saved.append(node)
            elif isinstance(node, Map):
                first.setdefault(node, now)
                now.cost += weight(node.block)
                waiting += [operand for operand, _ in node.operands]


def _tree_cost(node: Map, columns: frozenset[int]) -> int:
    """What it takes to compute a value once more from memory."""
    nodes = [n for n in reachable([(node, 0)]) if n.deps & columns]
    return sum(weight(n.block) if isinstance(n, Map) else 1 for n in nodes)


def keep_nothing(chain: Chain) -> None:
    """Has every pass compute everything anew."""
    for one in chain.passes:
        one.loads = {n for n in reachable(one.refs) if isinstance(n, Load) and n.deps & chain.columns}
        one.saved, one.reused = [], []


def in_place(kernel: Kernel, chain: Chain) -> tuple[tuple[int, int], ...]:
    """Results that may overwrite an input: no later pass reads it, and each element is read where it is replaced."""
    pairs = []
    for number, value in enumerate(kernel.inputs):
        reads = [node for node in chain.nest.loads if node.buffer == number]
        for place in chain.nest.stores:
            same = all(node.strides == place.strides and not node.offset for node in reads)
            if reads and same and value.type == kernel.results[place.result].type and _last_reader(chain, reads, place):
                pairs.append((place.result, number))
    return tuple(pairs)


def _last_reader(chain: Chain, reads: Sequence[Load], place: Store) -> bool:
    """Whether nothing is read after the pass that writes a result."""
    if place in chain.row_stores:
        return True
    writer = next(i for i, p in enumerate(chain.passes) if place in p.stores)
    return not any(node in p.loads for p in chain.passes[writer + 1 :] for node in reads)


# --- the emitter ------------------------------------------------------------------------------------------------


@emitter("row", "reduce")
def emit_rows(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Takes kernels whose reductions are all over the same loops."""
    nest = analyse(kernel)
    chain = chain_of(nest) if nest is not None else None
    if nest is None or chain is None:
        return None
    lanes = lanes_for(nest, target)
    along = chain.inner in chain.columns
    writer: _AlongRows | _AcrossRows
    writer = _AlongRows(chain, lanes, target) if along else _AcrossRows(chain, lanes, target)
    function, arguments = kernel.declare()
    with emitting(function, target):
        if writer.items.count:
            writer.write(arguments)
    count = writer.items.count
    return Emitted(count, grain_of(writer.duration(), count), in_place=in_place(kernel, chain))


class _Rows:
    """What the two ways of lying vectors share: what is done at one place of a pass."""

    def __init__(self, chain: Chain, lanes: int, target: CpuTarget) -> None:
        self.chain, self.lanes, self.target = chain, lanes, target
        self._scratch: dict[Ref, Value] = {}
        self._nontemporal = {s.result for p in chain.passes for s in p.stores if self._past_the_caches(s)}

    def _past_the_caches(self, place: Store) -> bool:
        size, extents = bits_of(place.element) // 8, self.chain.nest.extents
        register = self.target.vector_bits // 8
        aligned = all(stride * size % register == 0 for stride in place.strides[:-1])
        return aligned and self.lanes * size == register and prod(extents) * size >= self.target.nontemporal_bytes

    def _allocate(self, elements: int) -> None:
        """Makes room for `elements` of each value that is kept; recomputes them all if that is too much."""
        kept = [(node, number) for p in self.chain.passes for node in p.saved for number in range(len(node.types))]
        if sum(bits_of(node.types[number]) // 8 * elements for node, number in kept) > SCRATCH_BYTES:
            keep_nothing(self.chain)
            return
        for node, number in kept:
            self._scratch[node, number] = alloca(elements, node.types[number])

    def _step(self, now: Pass, here: Scope, place: Index, totals: Totals) -> Totals:
        """One vector of a pass; `place` is where the values kept for this vector lie."""
        for node in now.reused:
            lanes = self.lanes if here.lane in node.deps else 0
            here.put(node, [load(self._scratch[node, i], place, lanes) for i in range(len(node.types))])
        made: Totals = []
        for folding in now.foldings:
            count = len(folding.types)
            made += folding.step(here, totals[len(made) : len(made) + count])
        values = [here.value(s.ref) for s in now.stores]
        for node in now.saved:
            for i in range(len(node.types)):
                store(here.value((node, i)), self._scratch[node, i], place)
        for s, value in zip(now.stores, values, strict=True):
            here.store(s, value, s.result in self._nontemporal)
        return made

    def _starts(self, now: Pass, scope: Scope, lanes: int, offset: int = 0) -> Totals:
        return flat([f.start(scope, lanes, offset) for f in now.foldings])

    def _parts(self, now: Pass, totals: Totals) -> list[tuple[Folding, Totals]]:
        """The totals of each reduction."""
        out, first = [], 0
        for folding in now.foldings:
            out.append((folding, totals[first : first + len(folding.types)]))
            first += len(folding.types)
        return out

    def _join(self, now: Pass, sets: list[Totals]) -> Totals:
        if not now.foldings:
            return []
        split = [[t for _, t in self._parts(now, totals)] for totals in sets]
        each = [joined([s[i] for s in split], f.join) for i, f in enumerate(now.foldings)]
        return flat(each)

    def _prepare(self, scope: Scope, now: Pass, varying: frozenset[int]) -> None:
        scope.prepare(now.refs, varying, self.lanes)
        for s in now.stores:
            scope.address(s)

    def _store_rows(self, scope: Scope) -> None:
        for s in self.chain.row_stores:
            scope.store(s, scope.value(s.ref))


# --- vectors along the rows ---------------------------------------------------------------------------------------


class _AlongRows(_Rows):
    """The innermost loop is reduced: lanes are summed up at its end."""

    def __init__(self, chain: Chain, lanes: int, target: CpuTarget) -> None:
        if any(isinstance(f, InOrder) for p in chain.passes for f in p.foldings):
            lanes = 0
        super().__init__(chain, lanes, target)
        rows = chain.rows
        self.items = Items(rows, tuple(chain.nest.extents[d] for d in rows))
        self._columns = sorted(chain.columns)
        extent = chain.nest.extents[chain.inner]
        self._vectors = -(-extent // lanes) if lanes else extent
        self._short = len(self._columns) == 1 and 0 < self._vectors <= SHORT_ROW
        # Rows that are kept begin at whole vectors, so that tails need no masks there.
        self._padded = self._vectors * max(1, lanes)
        if lanes and not self._short:
            for now in chain.passes:
                now.foldings = [f.streaming() if isinstance(f, OneByOne) else f for f in now.foldings]

    def duration(self) -> float:
        """Nanoseconds for one row."""
        chain = self.chain
        moved = [*chain.nest.loads, *(s for p in chain.passes for s in p.stores)]
        size = sum(bits_of(place.element) // 8 for place in moved if place.strides[chain.inner])
        return duration(chain.cost, chain.length, size * chain.length, self.target) + 10

    def write(self, arguments: KernelArguments) -> None:
        """All items."""
        if self._short:
            keep_nothing(self.chain)
        else:
            outer = prod(self.chain.nest.extents[d] for d in self._columns[:-1])
            self._allocate(outer * self._padded)
        top = Scope(arguments)
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            at, _ = self.items.split(item.iv)
            self._row(top.inside(at))

    def _row(self, row: Scope) -> None:
        vectors = self._vectors_of(row) if self._short else None
        for now in self.chain.passes:
            self._prepare(row, now, self.chain.columns)
            if vectors is not None:
                sets = []
                for u, (here, at) in enumerate(vectors):
                    starts = self._starts(now, row, self.lanes, u * self.lanes)
                    sets.append(self._step(now, here, at, starts))
            else:
                sets = self._walk(now, row, self._columns, self._sets(now, row), index(0))
            for folding, totals in self._parts(now, self._join(now, sets)):
                row.put(folding.fold, folding.finish(row, folding.across(row, totals)))
        self._store_rows(row)

    def _vectors_of(self, row: Scope) -> list[tuple[Scope, Index]]:
        """The places of a short row; what is computed there stays in registers from pass to pass."""
        inner, width = self.chain.inner, max(1, self.lanes)
        extent = self.chain.nest.extents[inner]
        out: list[tuple[Scope, Index]] = []
        for at in range(0, extent, width):
            count = extent - at if extent - at < width else None
            out.append((row.inside({inner: at}, lane=inner, lanes=self.lanes, count=count), at))
        return out

    def _sets(self, now: Pass, row: Scope) -> list[Totals]:
        unroll = unrolled(now.cost, self._vectors) if self.lanes else 1
        return [self._starts(now, row, self.lanes, u * self.lanes) for u in range(unroll)]

    def _walk(self, now: Pass, scope: Scope, dims: Sequence[int], sets: list[Totals], place: Index) -> list[Totals]:
        """The loops `dims` of a pass; `place` counts the elements of the row before them."""
        extent = self.chain.nest.extents[dims[0]]
        if len(dims) == 1:

            def step(at: Value, count: int | None, totals: Totals) -> Totals:
                here = scope.inside({dims[0]: at}, lane=dims[0], lanes=self.lanes, count=count)
                return self._step(now, here, at + place, totals)

            return sweep(extent, self.lanes, step, sets)
        width = prod(self.chain.nest.extents[d] for d in dims[1:-1]) * self._padded
        count = len(sets[0])
        with loop(0, extent, 1, flat(sets)) as turn:
            here = scope.inside({dims[0]: turn.iv})
            self._prepare(here, now, frozenset(dims[1:]))
            inner = [turn.args[u * count : (u + 1) * count] for u in range(len(sets))]
            made = self._walk(now, here, dims[1:], inner, index(place) + turn.iv * width)
            turn.yields(*flat(made))
        return [turn.results[u * count : (u + 1) * count] for u in range(len(sets))]


# --- vectors across rows --------------------------------------------------------------------------------------------


class _AcrossRows(_Rows):
    """The innermost loop is over rows: each lane is a row of its own, and keeps its order."""

    def __init__(self, chain: Chain, lanes: int, target: CpuTarget) -> None:
        super().__init__(chain, lanes, target)
        extent, width = chain.nest.extents[chain.inner], max(1, lanes)
        whole = extent // width
        self._abreast = unrolled(max(p.cost for p in chain.passes), whole)
        self._panels = whole // self._abreast
        rest = range(self._panels * self._abreast * width, extent, width)
        # First index and number of lanes of each vector behind the last whole panel.
        self._rest = [(at, extent - at if extent - at < width else None) for at in rest]
        outer = [d for d in chain.rows if d != chain.inner]
        blocks = self._panels + bool(self._rest)
        self.items = Items(tuple(outer), tuple(chain.nest.extents[d] for d in outer), blocks)

    def duration(self) -> float:
        """Nanoseconds for one panel."""
        chain, elements = self.chain, self.chain.length * self._abreast * max(1, self.lanes)
        size = sum(bits_of(node.element) // 8 for node in chain.nest.loads)
        return duration(chain.cost, elements, size * elements, self.target) + 10

    def write(self, arguments: KernelArguments) -> None:
        """All items."""
        self._allocate(self.chain.length * max(self._abreast, len(self._rest)) * max(1, self.lanes))
        top, inner, width = Scope(arguments), self.chain.inner, max(1, self.lanes)
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            at, panel = self.items.split(item.iv)
            outer = top.inside(at)
            first = panel * (self._abreast * width)
            whole: list[tuple[Value, int | None]] = [(first + v * width, None) for v in range(self._abreast)]
            rest = [(index(at), count) for at, count in self._rest]
            if not self._rest or not self._panels:
                self._panel(outer, inner, whole if self._panels else rest)
                return
            side = branch(panel.lt(self._panels))
            with side.then:
                self._panel(outer, inner, whole)
            with side.otherwise:
                self._panel(outer, inner, rest)

    def _panel(self, outer: Scope, inner: int, vectors: Sequence[tuple[Value, int | None]]) -> None:
        columns = self.chain.columns
        across = Scope(outer.arguments, {}, outer)
        rows = [across.inside({inner: at}, lane=inner, lanes=self.lanes, count=count) for at, count in vectors]
        for now in self.chain.passes:
            self._prepare(across, now, columns | {inner})
            for row in rows:
                self._prepare(row, now, columns)
            sets = [self._starts(now, row, self.lanes) for row in rows]
            sets = self._walk(now, rows, sorted(columns), sets, index(0))
            for row, totals in zip(rows, sets, strict=True):
                for folding, part in self._parts(now, totals):
                    row.put(folding.fold, folding.finish(row, part))
        for row in rows:
            self._store_rows(row)

    def _walk(
        self, now: Pass, rows: Sequence[Scope], dims: Sequence[int], sets: list[Totals], place: Value
    ) -> list[Totals]:
        """The loops `dims` of a pass, for vectors side by side; `place` counts the elements before them."""
        if not dims:
            width = max(1, self.lanes)
            first = place * (len(rows) * width)
            return [
                self._step(now, row, first + v * width, totals)
                for v, (row, totals) in enumerate(zip(rows, sets, strict=True))
            ]
        count = len(sets[0])
        size = prod(self.chain.nest.extents[d] for d in dims[1:])
        with loop(0, self.chain.nest.extents[dims[0]], 1, flat(sets)) as turn:
            here = [row.inside({dims[0]: turn.iv}) for row in rows]
            inner = [turn.args[u * count : (u + 1) * count] for u in range(len(sets))]
            made = self._walk(now, here, dims[1:], inner, place + turn.iv * size)
            turn.yields(*flat(made))
        return [turn.results[u * count : (u + 1) * count] for u in range(len(sets))]
