"""Reductions of few long rows: many blocks take parts of a row each, and a second launch joins what they found.

The parts follow from the row's length alone, so that results do not depend on the chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from stablexla.targets.cpu.chains import Chain, Pass, chain_of, keep_nothing
from stablexla.targets.cpu.emission import Value, index, load, loop, minimum, split_index, store, when
from stablexla.targets.cpu.folding import InOrder
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.nests import analyse
from stablexla.targets.cpu.sweeps import Items, Totals, flat
from stablexla.targets.cpu.vector_body import Scope
from stablexla.targets.gpu.arguments import thread_of
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.emitters import Launch, gpu_emitter
from stablexla.targets.gpu.rows import parts_of, plan_of, step
from stablexla.targets.gpu.warps import WARP, block, over_block, shared_bytes, thread

THREADS = 256
VECTORS = 8
"""Vectors of a row that a thread takes at least."""
MOST_PARTS = 256
MOST_ROWS = 64
"""With more rows than these, a block a row keeps the chip busy."""


@dataclass(frozen=True)
class Cut:
    """How rows are cut: so many parts of so many elements, walked in vectors of `lanes`."""

    parts: int
    length: int
    lanes: int


@gpu_emitter("row", "reduce", "general", first=True)
def emit_split(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Takes kernels of one pass along the innermost loop that write nothing but its reductions' results."""
    nest = analyse(kernel)
    chain = chain_of(nest) if nest is not None else None
    if chain is None or chain.columns != frozenset([chain.inner]) or len(chain.passes) != 1:
        return None
    (only,) = chain.passes
    rows = Items(chain.rows, tuple(chain.nest.extents[d] for d in chain.rows))
    cut = cut_of(chain)
    if only.stores or not 0 < rows.count <= MOST_ROWS or cut.parts < 2:
        return None
    if any(isinstance(f, InOrder) for f in only.foldings):
        return None
    keep_nothing(chain)
    types = [t for f in only.foldings for t in f.types]
    scratch = tuple((str(t), rows.count * cut.parts) for t in types)
    shared = shared_bytes(types, THREADS // WARP)
    names = f"{kernel.impl_name}_parts", f"{kernel.impl_name}_whole"
    writer = _Split(chain, only, rows, cut)
    with thread_of(kernel, Launch(rows.count * cut.parts, THREADS, shared), names[0], scratch) as arguments:
        writer.write_parts(arguments)
    with thread_of(kernel, Launch(rows.count, THREADS, shared), names[1], scratch) as arguments:
        writer.write_whole(arguments)
    return Emitted(1, 1, scratch=scratch, phases=tuple((name, rows.count, rows.count) for name in names))


def cut_of(chain: Chain) -> Cut:
    """Parts of whole turns of a block's threads."""
    lanes = plan_of(chain).lanes
    turn = THREADS * lanes
    parts = min(MOST_PARTS, -(-chain.length // (turn * VECTORS)))
    length = -(-chain.length // (parts * turn)) * turn
    return Cut(-(-chain.length // length), length, lanes)


class _Split:
    """What one thread does in either launch."""

    def __init__(self, chain: Chain, only: Pass, rows: Items, cut: Cut) -> None:
        self.chain, self.only, self.rows, self.cut = chain, only, rows, cut

    def write_parts(self, arguments: KernelArguments) -> None:
        """The totals of one part of a row."""
        row, part = split_index(block(), [self.rows.count, self.cut.parts])
        scope = Scope(arguments).inside(self.rows.split(row)[0])
        lanes, inner = self.cut.lanes, self.chain.inner
        width = 0 if lanes == 1 else lanes
        scope.prepare(self.only.refs, self.chain.columns, width)
        first = part * self.cut.length
        last = minimum(first + self.cut.length, index(self.chain.length))
        starts = flat([f.start(scope, width) for f in self.only.foldings])
        with loop(first + thread() * lanes, last, THREADS * lanes, starts) as turn:
            here = scope.inside({inner: turn.iv}, lane=inner, lanes=width)
            turn.yields(*step(self.only, here, turn.args))
        found = self._joined(scope, turn.results)
        with when(thread().eq(0)):
            for value, place in zip(found, arguments.scratch, strict=True):
                store(value, Value(place), row * self.cut.parts + part)

    def write_whole(self, arguments: KernelArguments) -> None:
        """What the totals of all parts of a row come to."""
        row = block()
        scope = Scope(arguments).inside(self.rows.split(row)[0])
        starts = flat([f.start(scope, 0) for f in self.only.foldings])
        with loop(thread(), index(self.cut.parts), THREADS, starts) as turn:
            at = row * self.cut.parts + turn.iv
            found = [load(Value(place), at) for place in arguments.scratch]
            pairs = zip(parts_of(self.only, turn.args), parts_of(self.only, found), strict=True)
            turn.yields(*flat([f.join(a, b) for (f, a), (_, b) in pairs]))
        totals = self._joined(scope, turn.results)
        for folding, part in parts_of(self.only, totals):
            scope.put(folding.fold, folding.finish(scope, part))
        with when(thread().eq(0)):
            inside = scope.inside({})
            values = [inside.value(s.ref) for s in self.chain.row_stores]
            for s, value in zip(self.chain.row_stores, values, strict=True):
                inside.store(s, value)

    def _joined(self, scope: Scope, totals: Totals) -> Totals:
        """The totals of all threads of the block."""
        made, first = list[Value](), 0
        for folding, part in parts_of(self.only, totals):
            made += over_block(folding.across(scope, part), folding.join, THREADS // WARP, first)
            first += shared_bytes(folding.types, THREADS // WARP)
        return made
