"""Column and multi-axis reductions: over other loops than the innermost one, or several, as for batch statistics.

Accesses are coalesced along the innermost loop. One launch does all passes where there are enough blocks to fill a
chip; else many blocks compute partial sums of every result, and a second launch of the pass combines them.
"""

from __future__ import annotations

from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.loop_nest import analyze_nest
from stablexla.targets.codegen.reductions import SequentialReduction
from stablexla.targets.codegen.row_passes import RowPass, RowPasses, rematerialize_all, schedule_rows
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.codegen.vector_loops import Totals
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.reduction.block_reductions import ReductionPlan, ReductionThread, plan_reduction
from stablexla.targets.gpu.threads import Launch, kernel_function, launched

MOST_SHARED = 48 << 10
MANY_BLOCKS = Gate("gpu-reduction.many-blocks", 256, eager=2)
"""From so many blocks on, a pass is one launch."""
WANTED_BLOCKS = Gate("gpu-reduction.wanted-blocks", 1024, eager=2)
MOST_PARTS = Gate("gpu-reduction.most-parts", 1024, eager=2)
STEPS = Gate("gpu-reduction.steps", 8, eager=1)
"""Iterations of a thread in a part, at least."""


@gpu_emitter("row", "reduce", "general", priority=20)
def emit_columns(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit reductions over the same loops, unless those are the innermost one alone and blocks are many."""
    nest = analyze_nest(kernel)
    chain = schedule_rows(nest) if nest is not None else None
    if nest is None or chain is None or 0 in nest.extents:
        return None
    rematerialize_all(chain)
    walk = plan_reduction(chain)
    ordered = any(isinstance(f, SequentialReduction) for p in chain.passes for f in p.foldings)
    if ordered and not walk.kept:
        return None
    shared = max(walk.shared(_types(p)) for p in chain.passes)
    parts = 1 if ordered else _parts(walk)
    if shared > MOST_SHARED or (parts == 1 and chain.columns == frozenset([chain.inner])):
        return None
    if parts == 1:
        with kernel_function(kernel, Launch(walk.blocks, walk.threads, shared)) as arguments:
            walker = ReductionThread(walk, arguments)
            for now in chain.passes:
                totals = walker.steps(now)
                walker.finish(now, walker.joined(now, totals))
            if chain.row_stores:
                walker.write_rows()
        return Emitted(1, 1, phases=(Phase(kernel.impl_name, walk.blocks, walk.blocks),))
    return _Launches(kernel, replace(walk, parts=parts), shared).emit()


def _parts(walk: ReductionPlan) -> int:
    """Return how many blocks split each reduction: many iterations for few blocks."""
    if walk.blocks >= MANY_BLOCKS():
        return 1
    parts = min(-(-WANTED_BLOCKS() // walk.blocks), walk.steps // (walk.down * STEPS()), MOST_PARTS())
    folded = [t for p in walk.chain.passes for f in p.foldings for t in f.fold.types]
    if parts < 2 or (len(walk.chain.passes) > 1 and any(cg.bits_of(t) < 8 for t in folded)):
        return 1
    steps_each = replace(walk, parts=parts).steps_of_part
    return -(-walk.steps // steps_each)


def _types(now: RowPass) -> list[ir.Type]:
    return [t for f in now.foldings for t in f.types]


class _Launches:
    """Two launches for each reducing pass, one for a pass that only writes."""

    def __init__(self, kernel: Kernel, walk: ReductionPlan, shared: int) -> None:
        self.kernel, self.walk, self.shared = kernel, walk, shared
        self.chain: RowPasses = walk.chain
        self.folding = [p for p in self.chain.passes if p.foldings]
        parts = [(str(t), walk.totals * walk.parts) for p in self.folding for t in _types(p)]
        whole = [(str(t), walk.totals) for p in self._handed_on() for f in p.foldings for t in f.fold.types]
        self.scratch = (*parts, *whole)

    def _handed_on(self) -> list[RowPass]:
        """Return passes whose results a later launch needs."""
        return self.folding if len(self.chain.passes) > 1 else []

    def emit(self) -> Emitted:
        """Emit all launches."""
        names = list[str]()
        for number, now in enumerate(self.chain.passes):
            names.append(f"{self.kernel.impl_name}_parts{number}")
            self._write_parts(names[-1], number, now)
            if now.foldings:
                names.append(f"{self.kernel.impl_name}_whole{number}")
                self._write_whole(names[-1], number, now)
        return launched(names, self.scratch)

    def _write_parts(self, name: str, number: int, now: RowPass) -> None:
        walk = self.walk
        launch = Launch(walk.blocks * walk.parts, walk.threads, walk.shared(_types(now)))
        with kernel_function(self.kernel, launch, name, self.scratch) as arguments:
            walker = ReductionThread(walk, arguments)
            scratch = arguments.scratch
            self._find(walker, number, scratch)
            totals = walker.joined(now, walker.steps(now))
            if not totals:
                return
            with cg.when(walker.first()):
                at = walker.part * walk.totals + walker.place()
                for value, buffer in zip(totals, self._parts_of(number, scratch), strict=True):
                    cg.store(value, buffer, at)

    def _write_whole(self, name: str, number: int, now: RowPass) -> None:
        """Emit the combining launch: a block per group of results, whose threads share the partial sums."""
        walk = replace(self.walk, parts=1)
        launch = Launch(walk.blocks, walk.threads, walk.shared(_types(now)))
        with kernel_function(self.kernel, launch, name, self.scratch) as arguments:
            walker = ReductionThread(walk, arguments)
            scratch = arguments.scratch
            self._find(walker, number, scratch)
            starts = now.start(walker.scope, walker.width)
            join, trip_count = now.join, -(-self.walk.parts // walk.down)

            def body(part: Value, totals: Totals, _: Totals) -> tuple[Totals, Totals]:
                at = part * walk.totals + walker.place()
                return join(totals, [cg.load(b, at, walker.width) for b in self._parts_of(number, scratch)]), []

            made, _ = blocked_reduction(walker.down, self.walk.parts, walk.down, trip_count, starts, join, body)
            walker.finish(now, walker.joined(now, made))
            self._hand_on(walker, now, scratch)
            if now is self.folding[-1] and self.chain.row_stores:
                walker.write_rows()

    def _parts_of(self, number: int, scratch: list[Value]) -> list[Value]:
        """Return the buffers of a pass's partial sums."""
        before = sum(len(_types(p)) for p in self.chain.passes[:number])
        return scratch[before : before + len(_types(self.chain.passes[number]))]

    def _results_of(self, now: RowPass, scratch: list[Value]) -> list[list[Value]]:
        """Return the buffers of a pass's results, per reduction."""
        rest, out = scratch[sum(len(_types(p)) for p in self.folding) :], []
        for one in self.folding:
            for folding in one.foldings:
                count = len(folding.fold.types)
                if one is now:
                    out.append(rest[:count])
                rest = rest[count:]
        return out

    def _hand_on(self, walker: ReductionThread, now: RowPass, scratch: list[Value]) -> None:
        if now not in self._handed_on():
            return
        with cg.when(walker.first()):
            for folding, buffers in zip(now.foldings, self._results_of(now, scratch), strict=True):
                for number, buffer in enumerate(buffers):
                    cg.store(walker.scope.value((folding.fold, number)), buffer, walker.place())

    def _find(self, walker: ReductionThread, number: int, scratch: list[Value]) -> None:
        """Load the results of earlier passes into the scope."""
        for now in self.chain.passes[:number]:
            for folding, buffers in zip(now.foldings, self._results_of(now, scratch), strict=True):
                found = [cg.load(b, walker.place(), walker.width) for b in buffers]
                walker.scope.put(folding.fold, found)
