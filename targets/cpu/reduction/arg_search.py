"""Emitter of argmax and argmin along a contiguous dimension: reduce to the best value, then search its index.

The best value of each cache block costs as many instructions as a maximum reduction; only the first block that holds it
is searched for the index, and that block is still cached. Long rows are split into parts of a fixed size, one work item
each.
"""

from __future__ import annotations

import math

import mlir.ir as ir
from mlir.dialects import arith, scf, vector
from mlir.dialects import math as math_ops

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Load, Map, Ref, analyze_nest, reachable
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.reductions import ArgReduction
from stablexla.targets.codegen.row_passes import RowPasses, schedule_rows
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.vector_loops import WorkItems, estimate_ns, grain_of
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.grouping.loops import is_generic, reduces

# Vectors of a block and of one iteration (unroll factor), and the prefetch distance. 4096 rows of 4096 floats take
# 2.34 ms with blocks of 256 vectors, 2.18 ms with these, and 1.95 ms with prefetch; their sum reduction takes 1.88 ms.
BLOCK = Gate("arg-search.block", 64, eager=1)
UNROLL, AHEAD_BYTES = 4, 8 << 10
# Blocks of a part of a long row, and the number of rows from which on rows alone occupy all threads.
BLOCKS_OF_PART = Gate("arg-search.blocks-of-part", 64, eager=1)
ENOUGH_ROWS = Gate("arg-search.enough-rows", 16, eager=2)

Best = list[Value]


@emitter("row", "reduce", "general", priority=40)
def emit_arg_search(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit one argmax or argmin over the innermost loop, for rows of at least two iterations of vectors."""
    if not any(len(op.results) == 2 and is_generic(op) and reduces(op) for op in kernel.ops):
        return None
    nest = analyze_nest(kernel)
    chain = schedule_rows(nest) if nest is not None else None
    if nest is None or chain is None or len(chain.passes) != 1 or chain.passes[0].stores or 0 in nest.extents:
        return None
    (folding, *others) = chain.passes[0].foldings
    if others or not isinstance(folding, ArgReduction) or chain.columns != {chain.inner}:
        return None
    lanes = _lanes(folding, target)
    if cg.bits_of(folding.selection.type) < 32 or nest.extents[-1] < 2 * UNROLL * lanes:
        return None
    search = _Search(chain, folding, lanes, target)
    items = WorkItems(chain.rows, tuple(nest.extents[d] for d in chain.rows))
    time = (
        estimate_ns(chain.cost, search.extent, search.extent * cg.bits_of(folding.selection.stored) // 8, target) + 20
    )
    if items.count < ENOUGH_ROWS() and search.parts > 1:
        return _emit_parts(kernel, search, items, time)
    with kernel.phase(target) as arguments, arguments.items(items.count) as item:
        row = LoopScope(arguments).inside(items.split(item)[0])
        search.prepare(row)
        search.finish(row, search.best_block(row, cg.index(0), cg.index(search.blocks)))
    return Emitted(items.count, grain_of(time, items.count))


def _lanes(folding: ArgReduction, target: CpuTarget) -> int:
    """Return the vector width of the widest type that the compared values are computed in; indices are scalars."""
    nodes = list(reachable([folding.fold.operands[folding.selection.value]]))
    bits = [cg.bits_of(folding.selection.type)]
    bits += [cg.bits_of(node.element) for node in nodes if isinstance(node, Load)]
    bits += [cg.bits_of(t) for node in nodes if isinstance(node, Map) for t in node.types]
    return max(2, target.vector_bits // max(bits))


def _emit_parts(kernel: Kernel, search: _Search, rows: WorkItems, time: float) -> Emitted:
    """Emit two phases: the best block of each part of a row, then the reduction over the parts and the search."""
    scratch = tuple((str(t), rows.count * search.parts) for t in search.types)
    names = (kernel.impl_name + "_parts", kernel.impl_name)
    items = WorkItems(rows.dims, rows.extents, search.parts)
    with kernel.phase(search.target, scratch, names[0]) as arguments, arguments.items(items.count) as item:
        at, part = items.split(item)
        row = LoopScope(arguments).inside(at)
        search.prepare(row)
        first = part * BLOCKS_OF_PART()
        best = search.best_block(row, first, cg.minimum(first + BLOCKS_OF_PART(), search.blocks))
        for value, buffer in zip(best, arguments.scratch, strict=True):
            cg.store(value, buffer, item)
    with kernel.phase(search.target, scratch, names[1]) as arguments, arguments.items(rows.count) as item:
        row = LoopScope(arguments).inside(rows.split(item)[0])
        search.prepare(row)
        search.finish(row, search.best_part(arguments, item * search.parts))
    grain = grain_of(time / search.parts, items.count)
    phases = (Phase(names[0], items.count, grain), Phase(names[1], rows.count, rows.count))
    return Emitted(items.count, grain, scratch, phases=phases)


@dataclass
class _Search:
    """Code of the search in one row: its best value, and the first index that holds it."""

    chain: RowPasses
    folding: ArgReduction
    lanes: int
    target: CpuTarget

    @property
    def extent(self) -> int:
        """Elements of a row."""
        return self.chain.length

    @property
    def vectors(self) -> int:
        """Vectors of a row; the last one may overlap the one before."""
        return -(-self.extent // self.lanes)

    @property
    def block(self) -> int:
        """Vectors of a block: whole iterations of its loop."""
        return rounded_up(BLOCK(), UNROLL)

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.vectors // self.block)

    @property
    def parts(self) -> int:
        """Parts of a row."""
        return -(-self.blocks // BLOCKS_OF_PART())

    @property
    def types(self) -> list[ir.Type]:
        """Types of a best value and of its block number."""
        return [self.folding.selection.type, ir.IntegerType.get_signless(32)]

    @property
    def ref(self) -> Ref:
        """The compared value."""
        return self.folding.fold.operands[self.folding.selection.value]

    def prepare(self, row: LoopScope) -> None:
        """Hoist the values that are invariant along the row."""
        row.prepare([self.ref], frozenset((self.chain.inner,)), self.lanes)

    def value(self, row: LoopScope, number: Value) -> Value:
        """Load vector number `number` of a row; numbers beyond the end give the last vector."""
        at = number * self.lanes
        if self.extent % (self.lanes * UNROLL):
            at = cg.minimum(at, self.extent - self.lanes)
        here = row.inside({self.chain.inner: at}, lane=self.chain.inner, lanes=self.lanes)
        return self.folding.selection.widened(cg.splat(here.value(self.ref), self.lanes))

    @property
    def streams(self) -> list[Load]:
        """Unit-stride loads of arrays larger than L2, which are worth a prefetch."""
        nodes = [
            node for node in reachable([self.ref]) if isinstance(node, Load) and node.strides[self.chain.inner] == 1
        ]
        size = math.prod(self.chain.nest.extents)
        return [node for node in nodes if size * cg.bits_of(node.element) // 8 > self.target.l2_bytes]

    def prefetch(self, row: LoopScope, number: Value) -> None:
        """Prefetch the streams some vectors ahead of this one."""
        here = row.inside({self.chain.inner: number * self.lanes})
        for node in self.streams:
            ahead = AHEAD_BYTES * 8 // cg.bits_of(node.element)
            cg.prefetch(here.arguments.inputs[node.buffer], here.address(node) + ahead)

    def better(self, new: Best, old: Best) -> Best:
        """Select the better of two candidates; on a tie the old one."""
        take = self.folding.selection.better(new[0], old[0])
        return [cg.select(take, n, o) for n, o in zip(new, old, strict=True)]

    # --- the best value ---------------------------------------------------------------------------------------

    def best_block(self, row: LoopScope, first: Value, last: Value) -> Best:
        """Reduce some blocks to the best value and the first block that holds it."""
        worst = cg.constant(self.folding.selection.worst(), self.types[0])
        with cg.loop(first, last, 1, [worst, cg.cast_index(first, self.types[1])]) as block:
            found = [self._best_of(row, block.iv), cg.cast_index(block.iv, self.types[1])]
            block.yields(*self.better(found, block.args))
        return block.results

    def _best_of(self, row: LoopScope, block: Value) -> Value:
        """Reduce a block to its best value, in ABREAST accumulators; NaN if the block holds one."""
        worst = cg.constant(self.folding.selection.worst(), cg.vector_of(self.lanes, self.types[0]))
        floats = cg.is_float(worst.type)
        flags = cg.vector_of(self.lanes, ir.IntegerType.get_signless(cg.bits_of(worst.type)))
        starts = [worst] * UNROLL + [cg.constant(0, flags)] * (UNROLL // 2 if floats else 0)
        last = cg.minimum((block + 1) * self.block, self.vectors)
        with cg.loop(block * self.block, last, UNROLL, starts) as turn:
            for u in range(UNROLL):
                self.prefetch(row, turn.iv + u)
            values = [self.value(row, turn.iv + u) for u in range(UNROLL)]
            best = [self._extreme(v, b) for v, b in zip(values, turn.args, strict=False)]
            nans = []
            for pair, before in enumerate(turn.args[UNROLL:]):
                a, b = values[2 * pair : 2 * pair + 2]  # one comparison tells whether either is a NaN
                unordered = arith.cmpf(arith.CmpFPredicate.UNO, a.ssa, b.ssa)
                nans.append(before | Value(arith.extsi(flags, unordered)))
            turn.yields(*best, *nans)
        totals, nans = turn.results[:UNROLL], turn.results[UNROLL:]
        while len(totals) > 1:
            totals = [self._extreme(a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
        extreme = self._across(totals[0])
        if not nans:
            return extreme
        some = nans[0] | nans[1]
        any_nan = Value(vector.reduction(some.element, vector.CombiningKind.OR, some.ssa)).ne(0)
        return cg.select(any_nan, cg.constant(float("nan"), extreme.type), extreme)

    def _extreme(self, a: Value, b: Value) -> Value:
        """Select the larger or smaller value by one instruction, which does not propagate NaN."""
        selection = self.folding.selection
        if cg.is_float(a.type):
            return cg.select(a.gt(b) if selection.largest else a.lt(b), a, b)
        return cg.select(selection.better(a, b), a, b)

    def _across(self, value: Value) -> Value:
        lanes = value.lanes
        while lanes > 1:
            half = lanes // 2
            low, high = cg.shuffle(value, value, range(half)), cg.shuffle(value, value, range(half, lanes))
            value, lanes = self._extreme(low, high), half
        return cg.extract(value, 0)

    def best_part(self, arguments: KernelArguments, first: Value) -> Best:
        """Reduce the parts of a row to the best block."""
        buffers = arguments.scratch
        with cg.loop(1, self.parts, 1, [cg.load(b, first) for b in buffers]) as part:
            part.yields(*self.better([cg.load(b, first + part.iv) for b in buffers], part.args))
        return part.results

    # --- its index --------------------------------------------------------------------------------------------

    def finish(self, row: LoopScope, best: Best) -> None:
        """Find the best value's index in its block, and store the results."""
        place = self._place(row, best)
        here = row.inside({self.chain.inner: place})
        found = self.folding.selection.widened(here.value(self.ref))
        row.put(self.folding.fold, self.folding.finish(row, [found, cg.cast_index(place, self.types[1])]))
        values = [row.value(s.ref) for s in self.chain.row_stores]
        for s, value in zip(self.chain.row_stores, values, strict=True):
            row.store(s, value)

    def _place(self, row: LoopScope, best: Best) -> Value:
        """Search a block for the first index that holds the value."""
        index_type = ir.IndexType.get()
        first = cg.cast_index(best[1], index_type) * self.block
        wanted = cg.splat(best[0], self.lanes)
        search = scf.WhileOp([index_type], [first.ssa])
        before, after = (
            region.blocks.append(index_type, arg_locs=[ir.Location.unknown()]) for region in search.regions
        )
        with ir.InsertionPoint(before):
            at = Value(before.arguments[0])
            hits = self._hits(row, at, wanted)
            some = hits[0]
            for other in hits[1:]:
                some = some | other
            wide = Value(arith.extsi(cg.vector_of(self.lanes, ir.IntegerType.get_signless(32)), some.ssa))
            none = Value(vector.reduction(wide.element, vector.CombiningKind.OR, wide.ssa)).eq(0)
            scf.ConditionOp(none.ssa, [at.ssa])
        with ir.InsertionPoint(after):
            scf.YieldOp([(Value(after.arguments[0]) + UNROLL).ssa])
        group = Value(search.results[0])
        found: Value | None = None
        for u, hit in reversed(list(enumerate(self._hits(row, group, wanted)))):
            lane = self._first_lane(hit)
            at = (group + u) * self.lanes
            if self.extent % (self.lanes * UNROLL):
                at = cg.minimum(at, self.extent - self.lanes)
            here = at + cg.cast_index(lane, index_type)
            found = here if found is None else cg.select(lane.lt(self.lanes), here, found)
        assert found is not None
        return found

    def _hits(self, row: LoopScope, group: Value, wanted: Value) -> list[Value]:
        return [self.folding.selection.equal(self.value(row, group + u), wanted) for u in range(UNROLL)]

    def _first_lane(self, hit: Value) -> Value:
        """Count trailing zeros of a mask: the first true lane, or the lane count or more when there is none."""
        bits = ir.IntegerType.get_signless(self.lanes)
        packed = vector.extract(vector.bitcast(ir.VectorType.get([1], bits), hit.ssa), [], [0])
        i32 = ir.IntegerType.get_signless(32)
        wide = packed if self.lanes == 32 else arith.extui(i32, packed)
        return Value(math_ops.cttz(wide))
