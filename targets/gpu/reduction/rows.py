"""Row reductions: softmax, normalisation, sums along the innermost loop. A warp or a block works on a row.

Each thread keeps its vectors of the row in registers between the passes; only very long rows are loaded in every pass.
Threads of one warp may share several short rows.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import reduce
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Load, Store, analyze_nest
from stablexla.targets.codegen.reductions import SequentialReduction, VectorReduction
from stablexla.targets.codegen.row_passes import RowPass, RowPasses, rematerialize_all, schedule_rows
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.codegen.vector_loops import Totals, WorkItems, flat, reduction_tree
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import (
    WARP,
    Launch,
    access_lanes,
    block_index,
    coordinates,
    kernel_function,
    reduce_block,
    reduce_warp,
    reduction_shared_bytes,
    thread_index,
)

MOST_THREADS = Gate("gpu-rows.most-threads", 512, eager=32)
MOST_KEPT = Gate("gpu-rows.most-kept", 8, eager=1)
"""Vectors of a row that a thread keeps in registers, at most."""
WARPS_ABREAST = 4
"""Warps of a block, where each works on a row or more."""


@dataclass(frozen=True)
class RowPlan:
    """Assignment of a row to threads.

    Attributes:
        lanes: vector width; 1 is a scalar.
        threads: that work on a row.
        kept: vectors that each of them keeps, of which the last ones may be masked; 0 when every pass loads them.
        abreast: rows that a block works on.
    """

    lanes: int
    threads: int
    kept: int
    abreast: int


@gpu_emitter("row", "reduce", "general", priority=10)
def emit_rows(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit kernels whose reductions are all along the innermost loop."""
    nest = analyze_nest(kernel)
    chain = schedule_rows(nest) if nest is not None else None
    if chain is None or chain.columns != frozenset([chain.inner]) or not prod(chain.nest.extents):
        return None
    if any(isinstance(f, SequentialReduction) for p in chain.passes for f in p.foldings):
        return None
    writer = _Rows(chain)
    rows = writer.items.count
    launch = Launch(-(-rows // writer.plan.abreast), writer.plan.threads * writer.plan.abreast, writer.shared)
    with kernel_function(kernel, launch) as arguments:
        writer.write(arguments)
    return Emitted(rows, rows)


def plan_rows(chain: RowPasses) -> RowPlan:
    """Choose the plan; rows of up to some hundred elements take a warp or a part of one, without barriers."""
    nest, length = chain.nest, chain.length
    places: list[Load | Store] = [*nest.loads, *(s for p in chain.passes for s in p.stores)]
    widest = max((cg.bits_of(place.element) for place in places), default=32)  # none: a constant's sum for another pass
    lanes = access_lanes(widest, length)
    vectors = length // lanes
    if vectors <= WARP * MOST_KEPT():
        few = [n for n in (32, 16, 8, 4, 2, 1) if -(-vectors // n) <= MOST_KEPT()]
        # The most threads that leave few idle: then loads are coalesced.
        busy = [n for n in few if -(-vectors // n) * n * 3 <= vectors * 4]
        threads = max(busy, default=min(few, key=lambda n: -(-vectors // n) * n))
        return RowPlan(lanes, threads, -(-vectors // threads), WARPS_ABREAST * WARP // threads)
    most = 1 << max(WARP, MOST_THREADS()).bit_length() - 1
    for threads in (WARP << n for n in range(1, 10) if WARP << n <= most):
        if -(-vectors // threads) <= MOST_KEPT():
            return RowPlan(lanes, threads, -(-vectors // threads), 1)
    return RowPlan(lanes, most, 0, 1)


class _Rows:
    """One thread's part of its row."""

    def __init__(self, chain: RowPasses) -> None:
        self.chain, self.plan = chain, plan_rows(chain)
        rematerialize_all(chain)
        rows = chain.rows
        self.items = WorkItems(rows, tuple(chain.nest.extents[d] for d in rows))
        self._warps = -(-self.plan.threads // WARP)
        sizes = [reduction_shared_bytes([t for f in p.foldings for t in f.types], self._warps) for p in chain.passes]
        self._places = [sum(sizes[:i]) for i in range(len(sizes))]
        self.shared = sum(sizes) if self._warps > 1 else 0

    def write(self, arguments: KernelArguments) -> None:
        """Emit a row. Threads beyond the last row repeat it, as their warp's shuffles need them, and store nothing."""
        top, rows, threads = LoopScope(arguments), self.items.count, self.plan.threads
        row, me, inside = block_index(), thread_index(), None
        if self.plan.abreast > 1:
            row, me = row * self.plan.abreast + me // threads, me % threads
            if rows % self.plan.abreast:
                inside = row.lt(rows)
                row = cg.minimum(row, rows - 1)
        places = coordinates(row, self.items.extents) if self.items.extents else ()
        self._row(top.inside(dict(zip(self.items.dims, places, strict=True))), me, inside)

    def _row(self, row: LoopScope, me: Value, inside: Value | None) -> None:
        width = 0 if self.plan.lanes == 1 else self.plan.lanes
        own = [self._own(row, me, k, inside) for k in range(self.plan.kept)]
        for number, now in enumerate(self.chain.passes):
            row.prepare(now.refs, self.chain.columns, width)
            starts = now.start(row, width)
            if own:
                totals = self._kept(now, own, starts, inside)
            else:
                totals = self._read_again(now, row, me, starts)
            for folding, part in now.split(totals):
                place = self._places[number] + self._before(now, folding)
                part = folding.across(row, part)
                if self._warps > 1:
                    part = reduce_block(part, folding.join, self._warps, place)
                else:
                    part = reduce_warp(part, folding.join, self.plan.threads)
                row.put(folding.fold, folding.finish(row, part))
        with cg.when(me.eq(0) if inside is None else me.eq(0) & inside):
            values = [row.inside({}).value(s.ref) for s in self.chain.row_stores]
            for s, value in zip(self.chain.row_stores, values, strict=True):
                row.inside({}).store(s, value)

    def _own(self, row: LoopScope, me: Value, number: int, inside: Value | None) -> tuple[LoopScope, Value | None]:
        """Return the scope of one of the vectors that a thread keeps, and its mask, if there is one."""
        lanes, inner, threads = self.plan.lanes, self.chain.inner, self.plan.threads
        vectors, place, within = self.chain.length // lanes, me + threads * number, None
        if threads * (number + 1) > vectors:
            within = place.lt(vectors)
            place = cg.minimum(place, vectors - 1)
        return row.inside({inner: place * lanes}, lane=inner, lanes=0 if lanes == 1 else lanes), within

    def _before(self, now: RowPass, folding: VectorReduction) -> int:
        """Return the offset of a reduction in the pass's shared memory."""
        number = now.foldings.index(folding)
        return reduction_shared_bytes([t for f in now.foldings[:number] for t in f.types], self._warps)

    def _kept(
        self, now: RowPass, own: list[tuple[LoopScope, Value | None]], starts: Totals, inside: Value | None
    ) -> Totals:
        sets = []
        for here, within in own:
            made = combine_vector(now, here, starts)
            sets.append(
                made if within is None else [cg.select(within, a, b) for a, b in zip(made, starts, strict=True)]
            )
        for here, within in own:
            conditions = [c for c in (within, inside) if c is not None]
            store_vector(now, here, reduce(Value.__and__, conditions) if conditions else None)
        each = [[part for _, part in now.split(totals)] for totals in sets]
        return flat([reduction_tree([s[i] for s in each], f.join) for i, f in enumerate(now.foldings)])

    def _read_again(self, now: RowPass, row: LoopScope, me: Value, starts: Totals) -> Totals:
        """Emit a pass that loads the row again. A whole block has the row, so every thread is inside."""
        lanes, inner = self.plan.lanes, self.chain.inner
        step = self.plan.threads * lanes

        def body(at: Value, totals: Totals, _: Totals) -> tuple[Totals, Totals]:
            here = row.inside({inner: at}, lane=inner, lanes=0 if lanes == 1 else lanes)
            made = combine_vector(now, here, totals)
            store_vector(now, here, None)
            return made, []

        trip_count = -(-self.chain.length // step)
        length = cg.index(self.chain.length)
        return blocked_reduction(me * lanes, length, step, trip_count, starts, now.join, body)[0]


def combine_vector(now: RowPass, here: LoopScope, totals: Totals) -> Totals:
    """Combine one more vector into a pass's accumulators."""
    made: Totals = []
    for folding in now.foldings:
        count = len(folding.types)
        made += folding.step(here, totals[len(made) : len(made) + count])
    return made


def store_vector(now: RowPass, here: LoopScope, condition: Value | None) -> None:
    """Store a vector of a pass's results, masked."""
    values = [here.value(s.ref) for s in now.stores]
    with cg.when(condition) if condition is not None and values else nullcontext():
        for s, value in zip(now.stores, values, strict=True):
            here.store(s, value)
