"""Work distribution of column reductions: threads side by side along the innermost loop, and in steps along others.

Where the innermost loop is reduced as well, all threads share one accumulator; else each column of threads has its own.
A block's share follows from the extents alone, so that results do not depend on the chip.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.loop_nest import Load, Store
from stablexla.targets.codegen.reductions import SequentialReduction, VectorReduction
from stablexla.targets.codegen.row_passes import RowPass, RowPasses
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.codegen.sums.blocked_reduction import BLOCK, blocked_reduction
from stablexla.targets.codegen.vector_loops import Totals, WorkItems
from stablexla.targets.gpu.reduction.rows import combine_vector, store_vector
from stablexla.targets.gpu.threads import (
    WARP,
    access_lanes,
    block_index,
    coordinates,
    reduce_block,
    reduction_shared_bytes,
    shared_buffer,
    thread_index,
)

THREADS = 256
ENOUGH = Gate("gpu-reduction.enough", 1 << 17, eager=1)
"""Threads that fill every chip, and need not share reductions."""
SHORT = Gate("gpu-reduction.short", 16, eager=1)
"""Up to so many steps are one thread's."""
ABREAST = 4
"""Loads that a thread has in flight at a time (unroll factor)."""


@dataclass(frozen=True)
class ReductionPlan:
    """A block's share.

    Attributes:
        chain: what is computed.
        lanes: vector width along the innermost loop.
        across: threads side by side along the innermost loop, where that one is kept; else 1.
        down: threads that share the steps.
        parts: blocks that share the steps.
    """

    chain: RowPasses
    lanes: int
    across: int
    down: int
    parts: int = 1

    @property
    def kept(self) -> bool:
        """Whether the innermost loop is kept (parallel)."""
        return self.chain.inner not in self.chain.columns

    @property
    def width(self) -> int:
        """Vectors of the innermost loop."""
        return self.chain.nest.extents[-1] // self.lanes

    @property
    def alone(self) -> bool:
        """Whether each thread has columns to itself; a block's threads then continue in the next row."""
        return self.kept and self.down == 1

    @property
    def tiles(self) -> int:
        """Blocks side by side along the innermost loop."""
        return -(-self.width // self.across) if self.kept else 1

    @property
    def outer(self) -> WorkItems:
        """The other kept loops."""
        dims = tuple(d for d in self.chain.rows if d != self.chain.inner)
        return WorkItems(dims, tuple(self.chain.nest.extents[d] for d in dims))

    @property
    def steps(self) -> int:
        """Vectors reduced to one."""
        return self.chain.length // (1 if self.kept else self.lanes)

    @property
    def steps_of_part(self) -> int:
        """Steps of a part: whole iterations of the block's threads."""
        stride = self.down * ABREAST
        return -(-self.steps // (self.parts * stride)) * stride

    @property
    def blocks(self) -> int:
        """Blocks of each part."""
        return -(-self.outer.count * self.width // self.across) if self.alone else self.outer.count * self.tiles

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.across * self.down

    @property
    def totals(self) -> int:
        """Results of all blocks together."""
        return self.outer.count * (self.width * self.lanes if self.kept else 1)

    def shared(self, types: list[ir.Type]) -> int:
        """Return a block's shared memory for accumulators of these types, in bytes."""
        if not self.kept:
            return reduction_shared_bytes(types, self.threads // WARP) if self.threads > WARP else 0
        return sum(self._bytes(t) for t in types) if self.down > 1 else 0

    def _bytes(self, type_: ir.Type) -> int:
        return -(-self.threads * self.lanes * max(1, cg.bits_of(type_) // 8) // 16) * 16


def plan_reduction(chain: RowPasses) -> ReductionPlan:
    """Choose the shares of blocks that need no synchronization."""
    lanes = _lanes(chain)
    if chain.inner in chain.columns:
        threads = WARP
        while threads < THREADS and threads * ABREAST < chain.length // lanes:
            threads *= 2
        return ReductionPlan(chain, lanes, 1, threads)
    width, length = chain.nest.extents[-1] // lanes, chain.length
    outer = prod(chain.nest.extents[d] for d in chain.rows if d != chain.inner)
    ordered = any(isinstance(f, SequentialReduction) for p in chain.passes for f in p.foldings)
    if ordered or length <= SHORT() or outer * width >= (ENOUGH() // 4 if length <= SHORT() * 16 else ENOUGH()):
        return ReductionPlan(chain, lanes, min(THREADS, -(-outer * width // WARP) * WARP), 1)
    across = width if width <= 64 else min((64, 48, 32), key=lambda n: (-(-width // n) * n, -n))
    return ReductionPlan(chain, lanes, across, max(1, min(THREADS // across, -(-length // ABREAST))))


def _lanes(chain: RowPasses) -> int:
    """Return the vector width of a 16-byte access; 1 where rows are not aligned to accesses."""
    nest, inner = chain.nest, chain.inner
    stores = [*chain.row_stores, *(s for p in chain.passes for s in p.stores)]
    places: list[Load | Store] = [*nest.loads, *stores]
    if any(inner in s.domain and s.strides[inner] != 1 for s in stores):
        return 1
    return access_lanes(max(cg.bits_of(place.element) for place in places), nest.extents[inner])


class ReductionThread:
    """One thread's part of its block's share."""

    def __init__(self, walk: ReductionPlan, arguments: KernelArguments) -> None:
        self.walk, self.chain = walk, walk.chain
        self.inside: Value | None = None
        self._joins = 0
        places, column = self._places()
        at = dict(zip(walk.outer.dims, places, strict=True))
        self.row = _number(places, walk.outer.extents)
        self.scope = LoopScope(arguments).inside(at)
        if walk.kept:
            self.column, inner = column, self.chain.inner
            self.scope = self.scope.inside({inner: column * walk.lanes}, lane=inner, lanes=self.lanes)

    def _places(self) -> tuple[list[Value], Value]:
        """Return the kept loops' indices. Threads out of bounds repeat the last one, and store nothing."""
        walk, me = self.walk, thread_index()
        if walk.alone:
            count = walk.outer.count * walk.width
            number, self.part = cg.split_index(block_index(), [walk.blocks, walk.parts])
            self.down = cg.index(0)
            item = self._clamped(number * walk.threads + me, count, count % walk.threads)
            *places, column = coordinates(item, [*walk.outer.extents, walk.width])
            return places, column
        self.down, across = (me // walk.across, me % walk.across) if walk.across > 1 else (me, cg.index(0))
        *places, tile, self.part = cg.split_index(block_index(), [*walk.outer.extents, walk.tiles, walk.parts])
        column = tile * walk.across + across
        return places, self._clamped(column, walk.width, walk.width % walk.across) if walk.kept else column

    def _clamped(self, number: Value, extent: int, rest: int) -> Value:
        if not rest:
            return number
        self.inside = number.lt(extent)
        return cg.minimum(number, extent - 1)

    @property
    def lanes(self) -> int:
        """Vector width, 0 for scalars."""
        return 0 if self.walk.lanes == 1 else self.walk.lanes

    @property
    def width(self) -> int:
        """Vector width of a block's results, 0 for scalars."""
        return self.lanes if self.walk.kept else 0

    def place(self) -> Value:
        """Return the number of the block's or the column's result among all."""
        walk = self.walk
        return self.row * (walk.width * walk.lanes) + self.column * walk.lanes if walk.kept else self.row

    def at(self, step: Value) -> LoopScope:
        """Return the scope of a step."""
        dims, inner = sorted(self.chain.columns), self.chain.inner
        extents = [self.chain.nest.extents[d] for d in dims]
        if self.walk.kept:
            places = coordinates(step, extents)
            return self.scope.inside(dict(zip(dims, places, strict=True)))
        extents[-1] //= self.walk.lanes
        at = dict(zip(dims, coordinates(step, extents), strict=True))
        at[inner] = at[inner] * self.walk.lanes
        return self.scope.inside(at, lane=inner, lanes=self.lanes)

    def starts(self, now: RowPass) -> Totals:
        """Return the identities of a pass's combiners."""
        return now.start(self.scope, self.lanes)

    def steps(self, now: RowPass) -> Totals:
        """Return the thread's partial sums of a pass, over the block's part."""
        walk = self.walk
        self.scope.prepare(now.refs, self.chain.columns, self.lanes)
        first = self.part * walk.steps_of_part
        last = cg.minimum(first + walk.steps_of_part, walk.steps)
        stride = walk.down * ABREAST
        begin, totals = first + self.down, self.starts(now)
        if walk.steps >= stride:
            totals, (begin,) = self._several(now, begin, last - (stride - walk.down), stride, totals)
            if not walk.steps % stride:  # parts are whole iterations
                return totals
        with cg.loop(begin, last, walk.down, totals) as one:
            one.yields(*self._step(now, one.iv, one.args))
        return one.results

    def _several(self, now: RowPass, begin: Value, last: Value, stride: int, starts: Totals) -> tuple[Totals, Totals]:
        """Accumulate unrolled by some steps; returns the accumulators, and the first step of the remainder."""

        def several(at: Value, totals: Totals, _: Totals) -> tuple[Totals, Totals]:
            for k in range(ABREAST):
                totals = self._step(now, at + self.walk.down * k, totals)
            return totals, [at + stride]

        trip_count = self.walk.steps_of_part // stride
        ordered = any(isinstance(f, SequentialReduction) for f in now.foldings)
        block = max(1, trip_count) if ordered else max(1, BLOCK() // ABREAST)
        return blocked_reduction(begin, last, stride, trip_count, starts, now.join, several, [begin], block)

    def _step(self, now: RowPass, step: Value, totals: Totals) -> Totals:
        here = self.at(step)
        made = combine_vector(now, here, totals)
        store_vector(now, here, self.inside)
        return made

    def joined(self, now: RowPass, totals: Totals) -> Totals:
        """Reduce over all threads that share the accumulators; each gets the result."""
        walk = self.walk
        if walk.shared([t for f in now.foldings for t in f.types]):
            if self._joins:
                gpu.barrier()  # the previous reduction has been read
            self._joins += 1
        made, first = list[Value](), 0
        for folding, part in now.split(totals):
            if walk.kept:
                made += self._over_rows(folding, part, first)
                first += sum(walk._bytes(t) for t in folding.types)
            else:
                warps = walk.threads // WARP
                made += reduce_block(folding.across(self.scope, part), folding.join, warps, first)
                first += reduction_shared_bytes(folding.types, warps)
        return made

    def _over_rows(self, folding: VectorReduction, totals: Totals, first: int) -> Totals:
        """Reduction tree over the threads of a column, in shared memory."""
        walk, buffers = self.walk, list[Value]()
        if walk.down == 1:
            return totals
        for type_ in folding.types:
            buffers.append(shared_buffer(type_, walk.threads * walk.lanes, first))
            first += walk._bytes(type_)
        me = thread_index() * walk.lanes
        _keep(totals, buffers, me)
        gpu.barrier()
        half = 1 << (walk.down - 1).bit_length() - 1
        while half:
            with cg.when(self.down.lt(min(half, walk.down - half))):
                own = [cg.load(b, me, self.lanes) for b in buffers]
                other = [cg.load(b, me + half * walk.across * walk.lanes, self.lanes) for b in buffers]
                _keep(folding.join(own, other), buffers, me)
            gpu.barrier()
            half //= 2
        column = thread_index() % walk.across * walk.lanes
        return [cg.load(b, column, self.lanes) for b in buffers]

    def finish(self, now: RowPass, totals: Totals) -> None:
        """Define the results of a pass's reductions in the scope."""
        for folding, part in now.split(totals):
            self.scope.put(folding.fold, folding.finish(self.scope, part))

    def first(self) -> Value:
        """Return the mask of threads that store their result."""
        alone = self.down.eq(0)
        return alone if self.inside is None else alone & self.inside

    def write_rows(self) -> None:
        """Store what is stored once for each result."""
        with cg.when(self.first()):
            inside, stores = self.scope.inside({}), self.chain.row_stores
            for place, value in zip(stores, [inside.value(s.ref) for s in stores], strict=True):
                inside.store(place, value)


def _number(places: list[Value], extents: tuple[int, ...]) -> Value:
    number = cg.index(0)
    for place, extent in zip(places, extents, strict=True):
        number = number * extent + place
    return number


def _keep(values: Totals, buffers: list[Value], at: Value) -> None:
    for value, buffer in zip(values, buffers, strict=True):
        cg.store(value, buffer, at)
