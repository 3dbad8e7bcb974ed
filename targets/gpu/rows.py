"""Kernels with reductions along rows: softmax, normalisation, sums. A warp or a block works on a row.

Where a row's vectors can be dealt out evenly, each thread keeps its own in registers from pass to pass; else every pass
reads them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stablexla.targets.cpu.chains import Chain, Pass, chain_of, keep_nothing
from stablexla.targets.cpu.emission import Value, bits_of, index, loop, when
from stablexla.targets.cpu.folding import Folding, InOrder
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.nests import Load, Store, analyse
from stablexla.targets.cpu.sweeps import Items, Totals, flat, joined
from stablexla.targets.cpu.vector_body import Scope
from stablexla.targets.gpu.arguments import thread_of
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.emitters import Launch, gpu_emitter
from stablexla.targets.gpu.warps import WARP, block, over_block, shared_bytes, thread

MOST_THREADS = 512
MOST_KEPT = 8
"""Vectors of a row that a thread keeps."""
WARPS_ABREAST = 4
"""Rows of one warp each that a block works on."""


@dataclass(frozen=True)
class Plan:
    """How a row is dealt out.

    Attributes:
        lanes: elements of a vector; 1 is a scalar.
        threads: that work on a row.
        kept: vectors that each of them has; 0 when they are read again in every pass.
        abreast: rows that a block works on.
    """

    lanes: int
    threads: int
    kept: int
    abreast: int


@gpu_emitter("row", "reduce", "general")
def emit_rows(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Takes kernels whose reductions are all along the innermost loop."""
    nest = analyse(kernel)
    chain = chain_of(nest) if nest is not None else None
    if chain is None or chain.columns != frozenset([chain.inner]) or not prod(chain.nest.extents):
        return None
    if any(isinstance(f, InOrder) for p in chain.passes for f in p.foldings):
        return None
    writer = _Rows(chain)
    rows = writer.items.count
    launch = Launch(-(-rows // writer.plan.abreast), writer.plan.threads * writer.plan.abreast, writer.shared)
    with thread_of(kernel, launch) as arguments:
        writer.write(arguments)
    return Emitted(rows, rows)


def plan_of(chain: Chain) -> Plan:
    """Rows of up to some hundred elements are one warp's, so that nobody waits."""
    nest, length = chain.nest, chain.length
    places: list[Load | Store] = [*nest.loads, *(s for p in chain.passes for s in p.stores)]
    widest = max(bits_of(place.element) for place in places)
    lanes = max(1, min(8, 128 // widest))
    while length % lanes:
        lanes //= 2
    vectors = length // lanes
    for threads in (WARP << n for n in range(10) if WARP << n <= MOST_THREADS):
        if vectors % threads == 0 and vectors // threads <= MOST_KEPT:
            return Plan(lanes, threads, vectors // threads, WARPS_ABREAST if threads == WARP else 1)
    threads = WARP
    while threads < MOST_THREADS and threads * 4 < vectors:
        threads *= 2
    return Plan(lanes, threads, 0, WARPS_ABREAST if threads == WARP else 1)


class _Rows:
    """What one thread does for its row."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.plan = chain, plan_of(chain)
        keep_nothing(chain)
        rows = chain.rows
        self.items = Items(rows, tuple(chain.nest.extents[d] for d in rows))
        self._warps = self.plan.threads // WARP
        sizes = [shared_bytes([t for f in p.foldings for t in f.types], self._warps) for p in chain.passes]
        self._places = [sum(sizes[:i]) for i in range(len(sizes))]
        self.shared = sum(sizes) if self._warps > 1 else 0

    def write(self, arguments: KernelArguments) -> None:
        """A row, if there is one for this thread."""
        top, rows = Scope(arguments), self.items.count
        if self.plan.abreast == 1:
            self._row(top.inside(self.items.split(block())[0]), thread())
            return
        row = block() * self.plan.abreast + thread() // WARP
        with when(row.lt(rows)):
            self._row(top.inside(self.items.split(row)[0]), thread() % WARP)

    def _row(self, row: Scope, me: Value) -> None:
        lanes, inner = self.plan.lanes, self.chain.inner
        width = 0 if lanes == 1 else lanes
        own = [
            row.inside({inner: (me + self.plan.threads * k) * lanes}, lane=inner, lanes=width)
            for k in range(self.plan.kept)
        ]
        for number, now in enumerate(self.chain.passes):
            row.prepare(now.refs, self.chain.columns, width)
            starts = flat([f.start(row, width) for f in now.foldings])
            if own:
                totals = self._kept(now, own, starts)
            else:
                totals = self._read_again(now, row, me, starts)
            for folding, part in parts_of(now, totals):
                place = self._places[number] + self._before(now, folding)
                part = over_block(folding.across(row, part), folding.join, self._warps, place)
                row.put(folding.fold, folding.finish(row, part))
        with when(me.eq(0)):
            values = [row.inside({}).value(s.ref) for s in self.chain.row_stores]
            for s, value in zip(self.chain.row_stores, values, strict=True):
                row.inside({}).store(s, value)

    def _before(self, now: Pass, folding: Folding) -> int:
        """Bytes of shared memory of the pass's reductions before this one."""
        number = now.foldings.index(folding)
        return shared_bytes([t for f in now.foldings[:number] for t in f.types], self._warps)

    def _kept(self, now: Pass, own: list[Scope], starts: Totals) -> Totals:
        sets = [step(now, here, starts) for here in own]
        each = [[part for _, part in parts_of(now, totals)] for totals in sets]
        return flat([joined([s[i] for s in each], f.join) for i, f in enumerate(now.foldings)])

    def _read_again(self, now: Pass, row: Scope, me: Value, starts: Totals) -> Totals:
        lanes, inner = self.plan.lanes, self.chain.inner
        with loop(me * lanes, index(self.chain.length), self.plan.threads * lanes, starts) as turn:
            here = row.inside({inner: turn.iv}, lane=inner, lanes=0 if lanes == 1 else lanes)
            turn.yields(*step(now, here, turn.args))
        return turn.results


def step(now: Pass, here: Scope, totals: Totals) -> Totals:
    """One vector of a pass."""
    made: Totals = []
    for folding in now.foldings:
        count = len(folding.types)
        made += folding.step(here, totals[len(made) : len(made) + count])
    values = [here.value(s.ref) for s in now.stores]
    for s, value in zip(now.stores, values, strict=True):
        here.store(s, value)
    return made


def parts_of(now: Pass, totals: Totals) -> list[tuple[Folding, Totals]]:
    """The totals of each reduction."""
    out, first = [], 0
    for folding in now.foldings:
        out.append((folding, totals[first : first + len(folding.types)]))
        first += len(folding.types)
    return out
