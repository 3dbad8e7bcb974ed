"""Emit elementwise kernels as vectorized loop nests: every result element is computed from operand elements.

The innermost loop runs along the last dimension; work items are the iterations of the outer loops, or blocks of the
innermost loop where that is long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from itertools import count as counting
from math import lcm, prod

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math import EXPANSIONS
from stablexla.lowering.math.logistic import names_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Store, analyze_nest, collapse_loops, in_place
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.scope import LoopScope, lanes_for, widest_lanes
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.vector_loops import (
    LoopPart,
    WorkItems,
    estimate_ns,
    grain_of,
    unroll_factor,
    vector_loop,
)
from stablexla.targets.cpu.emitters import emitter

# Elements in a block of a long innermost loop; a multiple of every vector width and unroll factor.
BLOCK = Gate("elementwise.block", 8192, eager=1)
# The most vectors in a cycle of repeating operands, and the most instructions in one iteration of its loop.
MOST_CYCLE, MOST_INSTRUCTIONS = 16, 200
# The same for merged short loops: 200 take no less time, and 4% more to compile (brax's ants).
MOST_PLACED = 100
# Prefetch heuristic: streams at least this long, for bodies of at least this many instructions.
STREAM_BYTES = Gate("elementwise.stream-bytes", 1 << 20, eager=1)
HEAVY = Gate("elementwise.heavy", 8, eager=1)
# Bodies of so many instructions on 16-bit numbers are dependency chains, an operation and its rounding after the other,
# and the processor's reorder window holds one and a half iterations: each operation is done on two registers (gelu of
# bf16: 39 to 22 ms of 16M numbers). f32 bodies are wider than deep, and lose by it.
LONG = Gate("elementwise.long", 24, eager=1)
# Latency-bound functions, whose instructions wait for each other more than for a free unit. Two registers of them at a
# time take less on AVX2: 16M sines 7.5 to 6.4 ms, tanh 5.9 to 5.7, exp 4.0 to 3.8; but erf 4.8 to 5.3, log 5.6 to 6.0.
WAITING = frozenset(("math.cos", "math.exp", "math.sin", "math.tanh"))


@dataclass(frozen=True)
class OperandCycle:
    """Operands that repeat every `extent` elements, such as a few channels: `period` is that times whole vectors."""

    extent: int
    period: int
    loads: tuple[Load, ...]


@dataclass(frozen=True)
class ShortLoops:
    """Short innermost loops that were merged, and the arrays that do not lie in line along them.

    Lanes of these are in the same places of each `period` elements: loads and shuffles put them there.

    Attributes:
        extents: of the merged loops.
        strides: along them, of each of these arrays.
    """

    extents: tuple[int, ...]
    period: int
    strides: dict[Load, tuple[int, ...]]

    def load(self, node: Load, buffer: Value, base: Value, number: int, lanes: int, count: int | None) -> Value:
        """Load vector `number` of a period, whose first element is at `base`."""
        first = number * lanes
        places = [self._place(node, first + lane) for lane in range(lanes if count is None else count)]
        return _load_places(buffer, base, places, lanes)

    def spans(self, node: Load, lanes: int) -> Iterator[int]:
        """Yield for each vector of a period how far its elements are apart."""
        for first in range(0, self.period, lanes):
            places = [self._place(node, t) for t in range(first, min(first + lanes, prod(self.extents)))]
            yield max(places) - min(places) + 1

    def _place(self, node: Load, element: int) -> int:
        total = 0
        for extent, stride in zip(self.extents[:0:-1], self.strides[node][:0:-1], strict=True):
            element, index = divmod(element, extent)
            total += index * stride
        return total + element * self.strides[node][0]


def _load_places(buffer: Value, base: Value, places: Sequence[int], lanes: int) -> Value:
    """Load the elements at base + place: from one vector or two where they are close, else one by one."""
    low, high = min(places), max(places)
    if low == high:
        return cg.splat(cg.load(buffer, base + low), lanes)
    padded = [*places, *[low] * (lanes - len(places))]
    if high - low < lanes:
        near = cg.load_lanes(buffer, base + low, lanes, high - low + 1)
        return cg.shuffle(near, near, [place - low for place in padded])
    if high - low < 2 * lanes:
        last = high - lanes + 1
        one, other = (cg.load(buffer, base + start, lanes) for start in (low, last))
        return cg.shuffle(one, other, [p - low if p - low < lanes else lanes + p - last for p in padded])
    each = {place: cg.load(buffer, base + place).ssa for place in dict.fromkeys(places)}
    return Value(vector.from_elements(cg.vector_of(lanes, buffer.element), [each[place] for place in padded]))


@dataclass(frozen=True)
class _Plan:
    """The schedule of an elementwise loop nest."""

    nest: LoopNest
    lanes: int
    unroll: int
    items: WorkItems
    nontemporal: frozenset[int]
    prefetched: tuple[Load, ...]
    block: int
    cycle: OperandCycle | None = None
    short: ShortLoops | None = None

    @property
    def extent(self) -> int:
        """Trip count of the innermost loop."""
        return self.nest.extents[-1]

    @property
    def inner(self) -> int:
        """Index of the innermost loop."""
        return len(self.nest.extents) - 1


@emitter("loop", "row", "reduce", "general", priority=20)
def emit_loop(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit kernels whose operations are all elementwise over one loop nest."""
    nest = analyze_nest(kernel, parts=True)
    if nest is None or not _is_elementwise(nest):
        return None
    pairs = in_place(kernel, nest)
    plan = _plan(nest, target)
    with kernel.phase(target) as arguments:
        if plan.items.count and plan.extent:
            _write(plan, arguments, target)
    items = plan.items.count if plan.extent else 0
    cost = estimate_ns(_cost(nest), plan.extent, _bytes(nest) * plan.extent, target) / plan.items.blocks
    return Emitted(items=items, grain=grain_of(cost, items), in_place=pairs)


def _is_elementwise(nest: LoopNest) -> bool:
    everything = frozenset(range(len(nest.extents)))
    return not nest.folds and all(place.domain == everything for place in nest.stores)


def _cost(nest: LoopNest) -> int:
    return sum(node.cost for node in nest.maps)


def _bytes(nest: LoopNest) -> int:
    """Return the bytes loaded and stored in each iteration of the innermost loop."""
    inner = len(nest.extents) - 1
    places: Sequence[Load | Store] = [*nest.loads, *nest.stores]
    return sum(cg.bits_of(place.element) // 8 for place in places if place.strides[inner])


def _plan(nest: LoopNest, target: CpuTarget) -> _Plan:
    cycle = _cycle(nest, target)
    short = _short_loops(nest, target) if cycle is None else None
    lanes = widest_lanes(nest, target) if cycle else _placed_lanes(nest, target) if short else lanes_for(nest, target)
    *outer, extent = nest.extents
    repeated = cycle or short
    one = repeated is None and lanes == widest_lanes(nest, target)
    if one and extent % (2 * lanes) == 0 and (_is_long(nest) or _waits(nest, target)):
        lanes *= 2
    unroll = unroll_factor(_cost(nest), extent // lanes if lanes else 1)
    # The hardware prefetcher keeps ahead of short bodies; behind long ones it falls back.
    heavy = _cost(nest) >= HEAVY()
    block = rounded_up(BLOCK(), unroll * max(1, lanes))
    if repeated is not None:
        unroll, block = repeated.period // lanes, max(1, BLOCK() // repeated.period) * repeated.period
    blocks = -(-extent // block) if extent >= 2 * block else 1
    items = WorkItems(tuple(range(len(outer))), tuple(outer), blocks)
    nontemporal = frozenset(p.result for p in nest.stores if lanes and _is_nontemporal(p, nest, lanes, target))
    prefetched = tuple(node for node in nest.loads if _is_stream(node, nest)) if lanes and heavy else ()
    return _Plan(nest, lanes, unroll, items, nontemporal, prefetched, block, cycle, short)


def _is_long(nest: LoopNest) -> bool:
    """Return whether 16-bit numbers go through a long dependency chain."""
    places: Sequence[Load | Store] = [*nest.loads, *nest.stores]
    return _cost(nest) >= LONG() and all(cg.bits_of(place.element) == 16 for place in places)


def _waits(nest: LoopNest, target: CpuTarget) -> bool:
    """Return whether 32-bit numbers go through a latency-bound function, better unrolled by two registers."""
    places: Sequence[Load | Store] = [*nest.loads, *nest.stores]
    names = (names_of(op.operation for op in node.block.operations) for node in nest.maps)
    functions = {*chain.from_iterable(names)} & EXPANSIONS.keys()
    narrow = all(cg.bits_of(place.element) == 32 for place in places) and target.vector_bits == 256
    return narrow and len(functions) == 1 and functions <= WAITING


def _cycle(nest: LoopNest, target: CpuTarget) -> OperandCycle | None:
    """Merge the two innermost loops if the inner one is short and operands at most repeat along the other."""
    if len(nest.extents) < 2 or nest.extents[-1] < 2:
        return None
    outer, inner = len(nest.extents) - 2, len(nest.extents) - 1
    extent, total = nest.extents[inner], nest.extents[inner] * nest.extents[outer]
    repeated = [node for node in nest.loads if not node.strides[outer] and node.deps == {inner}]
    running = [node for node in nest.loads if node not in repeated]
    strides = [node.strides for node in running] + [place.strides for place in nest.stores]
    in_line = all(s[outer] == s[inner] * extent for s in strides)
    counted = any(d in (outer, inner) for node in nest.maps for d in node.indices.values())
    lanes = widest_lanes(nest, target)
    vectors = lcm(extent, lanes) // lanes
    vectors *= max(1, unroll_factor(_cost(nest), 4) // vectors)
    period = vectors * lanes
    if not in_line or counted or extent > 16 * lanes or total < 4 * period:
        return None
    if vectors > MOST_CYCLE or vectors * _cost(nest) > MOST_INSTRUCTIONS:
        return None
    collapse_loops(nest, [[d] for d in range(outer)] + [[outer, inner]])
    return OperandCycle(extent, period, tuple(repeated))


def _placed_lanes(nest: LoopNest, target: CpuTarget) -> int:
    """Return the lanes of vectors whose elements are put in place by shuffles.

    Not 64: to lower one that repeats bytes of a register of 512 bits, LLVM 22 goes on for ever
    (https://github.com/llvm/llvm-project/issues/224266).
    """
    return min(32, widest_lanes(nest, target))


def _short_loops(nest: LoopNest, target: CpuTarget) -> ShortLoops | None:
    """Merge innermost loops that are together longer than a vector, if the last one is shorter."""
    lanes, last = _placed_lanes(nest, target), len(nest.extents) - 1
    arrays: list[Load | Store] = [*nest.loads, *nest.stores]
    complex_ = any(isinstance(place.element, ir.ComplexType) for place in arrays)
    if not 1 < nest.extents[last] < lanes or complex_ or 0 in nest.extents:
        return None
    found = None
    for first in range(last - 1, -1, -1):
        merged, extents = range(first, last + 1), tuple(nest.extents[first:])
        whole = {place: tuple(place.strides[first:]) for place in arrays}
        in_line = {place for place, strides in whole.items() if strides == _in_line(extents, strides[-1])}
        if any(d in merged for node in nest.maps for d in node.indices.values()) or not in_line >= {*nest.stores}:
            break
        period = min(lcm(prod(extents[1:]), lanes), -(-prod(extents) // lanes) * lanes)
        short = ShortLoops(extents, period, {node: whole[node] for node in nest.loads if node not in in_line})
        near = all(
            strides[-1] not in (0, 1) or max(short.spans(node, lanes)) <= 2 * lanes
            for node, strides in short.strides.items()
        )
        vectors = period // lanes
        if near and vectors <= MOST_CYCLE and vectors * (_cost(nest) + len(short.strides)) <= MOST_PLACED:
            found = short
    if found is not None:
        kept = len(nest.extents) - len(found.extents)
        collapse_loops(nest, [*([d] for d in range(kept)), range(kept, last + 1)])
        for node in found.strides:  # it varies along the loop, whatever its last stride was
            node.strides = (*node.strides[:-1], node.strides[-1] or 1)
    return found


def _in_line(extents: Sequence[int], stride: int) -> tuple[int, ...]:
    """Return the strides of loops of these extents that are one loop of this stride."""
    return tuple(stride * prod(extents[d + 1 :]) for d in range(len(extents)))


def _is_nontemporal(place: Store, nest: LoopNest, lanes: int, target: CpuTarget) -> bool:
    """Return whether a result takes non-temporal stores: large, its vectors aligned and as wide as a register."""
    size = cg.bits_of(place.element) // 8
    register = target.vector_bits // 8
    width = min(lanes * size, cg.MOST_ALIGNED)
    aligned = all(stride * size % width == 0 for stride in place.strides[:-1])
    whole = width in (register, 2 * register)
    return aligned and whole and prod(nest.extents) * size >= target.nontemporal_bytes


def _is_stream(node: Load, nest: LoopNest) -> bool:
    size = cg.bits_of(node.element) // 8
    return node.strides[-1] == 1 and prod(nest.extents[d] for d in node.deps) * size >= STREAM_BYTES()


# --- writing ------------------------------------------------------------------------------------------------


def _write(plan: _Plan, arguments: KernelArguments, target: CpuTarget) -> None:
    top = LoopScope(arguments)
    tables = _tables(plan, top)
    if not plan.items.dims and plan.items.blocks > 1:
        # One long loop: a call's work items are one piece of it.
        lo, hi = arguments.lo * plan.block, arguments.hi * plan.block
        piece = LoopPart(lo, hi, arguments.hi.eq(plan.items.blocks))
        _write_row(plan, top, target, tables, piece)
        return
    with arguments.items(plan.items.count) as item:
        at, block = plan.items.split(item)
        part = None
        if plan.items.blocks > 1:
            start = block * plan.block
            part = LoopPart(start, start + plan.block, block.eq(plan.items.blocks - 1))
        _write_row(plan, top.inside(at), target, tables, part)


def _tables(plan: _Plan, top: LoopScope) -> dict[Load, Value]:
    """Tabulate one whole cycle of each repeating operand on the stack."""
    if plan.cycle is None:
        return {}
    tables = {node: cg.alloca(plan.cycle.period, node.element) for node in plan.cycle.loads}
    with cg.loop(0, plan.cycle.period) as turn:
        for node, table in tables.items():
            here = top.inside({plan.inner: turn.iv % plan.cycle.extent})
            cg.store(here.value((node, 0)), table, turn.iv)
    return tables


def _write_row(
    plan: _Plan, row: LoopScope, target: CpuTarget, tables: dict[Load, Value], part: LoopPart | None
) -> None:
    """Emit the innermost loop."""
    nest, inner = plan.nest, plan.inner
    row.prepare([place.ref for place in nest.stores], frozenset((inner,)), plan.lanes)
    for place in nest.stores:
        row.address(place)
    bases: dict[Load, Value] = {}
    vector = counting()  # vectors are emitted in order, first those of an iteration, then those of the remainder

    def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
        here = row.inside({inner: at}, lane=inner, lanes=plan.lanes, count=count)
        number = next(vector) % plan.unroll
        for node, table in tables.items():
            here.put(node, [cg.load(table, number * plan.lanes, plan.lanes)])
        if plan.short is not None:
            if number == 0:  # of a period
                turn = at // prod(plan.short.extents[1:])
                bases.update({node: row.address(node) + turn * s[0] for node, s in plan.short.strides.items()})
            for node, base in bases.items():
                buffer = row.arguments.inputs[node.buffer]
                here.put(node, [plan.short.load(node, buffer, base, number, plan.lanes, count)])
        if count is None:
            _prefetch(plan, here, target)
        values = [here.value(place.ref) for place in nest.stores]
        for place, value in zip(nest.stores, values, strict=True):
            here.store(place, value, place.result in plan.nontemporal)
        return []

    vector_loop(plan.extent, plan.lanes, step, [[]] * plan.unroll, part)


def _prefetch(plan: _Plan, here: LoopScope, target: CpuTarget) -> None:
    for node in plan.prefetched:
        size = cg.bits_of(node.element) // 8
        cg.prefetch(here.arguments.inputs[node.buffer], here.address(node) + target.prefetch_bytes // size)
