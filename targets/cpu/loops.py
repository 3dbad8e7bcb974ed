"""Kernels of elementwise operations: every result element is computed from operand elements, in vectors.

The innermost loop runs along the last dimension; work items are the outer loops' indices, or blocks of the innermost
loop where that is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stablexla.targets.cpu.emission import Value, bits_of, emitting, loop, prefetch
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.nests import Load, Nest, Store, analyse
from stablexla.targets.cpu.sweeps import Items, Part, duration, grain_of, sweep, unrolled
from stablexla.targets.cpu.target import CpuTarget
from stablexla.targets.cpu.vector_body import Scope, lanes_for, weight

# Elements of a block of a long innermost loop; a multiple of all lanes and unrollings.
BLOCK = 8192
# Streams at least this long are prefetched.
STREAM_BYTES = 1 << 20


@dataclass(frozen=True)
class _Plan:
    """How the loops of a nest are written."""

    nest: Nest
    lanes: int
    unroll: int
    items: Items
    nontemporal: frozenset[int]
    prefetched: tuple[Load, ...]

    @property
    def extent(self) -> int:
        """Turns of the innermost loop."""
        return self.nest.extents[-1]

    @property
    def inner(self) -> int:
        """Number of the innermost loop."""
        return len(self.nest.extents) - 1


@emitter("loop", "row", "reduce")
def emit_loop(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Takes every kernel whose operations are all elementwise over one set of loops."""
    nest = analyse(kernel)
    if nest is None or not _is_elementwise(nest):
        return None
    plan = _plan(nest, target)
    function, arguments = kernel.declare()
    with emitting(function, target):
        if plan.items.count and plan.extent:
            _write(plan, arguments, target)
    items = plan.items.count if plan.extent else 0
    cost = duration(_cost(nest), plan.extent, _bytes(nest) * plan.extent, target) / plan.items.blocks
    return Emitted(items=items, grain=grain_of(cost, items), in_place=_in_place(kernel, nest))


def _is_elementwise(nest: Nest) -> bool:
    everything = frozenset(range(len(nest.extents)))
    return not nest.folds and all(store.domain == everything for store in nest.stores)


def _cost(nest: Nest) -> int:
    return sum(weight(node.block) for node in nest.maps)


def _bytes(nest: Nest) -> int:
    """Bytes moved for each turn of the innermost loop."""
    inner = len(nest.extents) - 1
    places: Sequence[Load | Store] = [*nest.loads, *nest.stores]
    return sum(bits_of(place.element) // 8 for place in places if place.strides[inner])


def _plan(nest: Nest, target: CpuTarget) -> _Plan:
    lanes = lanes_for(nest, target)
    *outer, extent = nest.extents
    unroll = unrolled(_cost(nest), extent // lanes if lanes else 1)
    blocks = -(-extent // BLOCK) if extent >= 2 * BLOCK else 1
    items = Items(tuple(range(len(outer))), tuple(outer), blocks)
    nontemporal = frozenset(
        store.result for store in nest.stores if lanes and _past_the_caches(store, nest, lanes, target)
    )
    prefetched = tuple(load for load in nest.loads if _is_stream(load, nest)) if lanes else ()
    return _Plan(nest, lanes, unroll, items, nontemporal, prefetched)


def _past_the_caches(store: Store, nest: Nest, lanes: int, target: CpuTarget) -> bool:
    """Whether a result is big, and every whole vector of it aligned and as wide as a register."""
    size = bits_of(store.element) // 8
    register = target.vector_bits // 8
    aligned = all(stride * size % register == 0 for stride in store.strides[:-1])
    return aligned and lanes * size == register and prod(nest.extents) * size >= target.nontemporal_bytes


def _is_stream(load: Load, nest: Nest) -> bool:
    size = bits_of(load.element) // 8
    return load.strides[-1] == 1 and prod(nest.extents[d] for d in load.deps) * size >= STREAM_BYTES


def _in_place(kernel: Kernel, nest: Nest) -> tuple[tuple[int, int], ...]:
    """Results that may overwrite an input: those whose every element replaces the one read at the same place."""
    pairs = []
    for store in nest.stores:
        for number, value in enumerate(kernel.inputs):
            reads = [load for load in nest.loads if load.buffer == number]
            same = all(load.strides == store.strides and not load.offset for load in reads)
            if reads and same and value.type == kernel.results[store.result].type:
                pairs.append((store.result, number))
    return tuple(pairs)


# --- writing ------------------------------------------------------------------------------------------------


def _write(plan: _Plan, arguments: KernelArguments, target: CpuTarget) -> None:
    top = Scope(arguments)
    lo, hi = Value(arguments.lo), Value(arguments.hi)
    if not plan.items.dims and plan.items.blocks > 1:
        # One long loop: the items of a call are one piece of it.
        _write_row(plan, top, target, Part(lo * BLOCK, hi * BLOCK, hi.eq(plan.items.blocks)))
        return
    with loop(lo, hi) as item:
        at, block = plan.items.split(item.iv)
        part = None
        if plan.items.blocks > 1:
            start = block * BLOCK
            part = Part(start, start + BLOCK, block.eq(plan.items.blocks - 1))
        _write_row(plan, top.inside(at), target, part)


def _write_row(plan: _Plan, row: Scope, target: CpuTarget, part: Part | None) -> None:
    """The innermost loop."""
    nest, inner = plan.nest, plan.inner
    row.prepare([store.ref for store in nest.stores], frozenset((inner,)), plan.lanes)
    for store in nest.stores:
        row.address(store)

    def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
        here = row.inside({inner: at}, lane=inner, lanes=plan.lanes, count=count)
        if count is None:
            _prefetch(plan, here, target)
        values = [here.value(store.ref) for store in nest.stores]
        for store, value in zip(nest.stores, values, strict=True):
            here.store(store, value, store.result in plan.nontemporal)
        return []

    sweep(plan.extent, plan.lanes, step, [[]] * plan.unroll, part)


def _prefetch(plan: _Plan, here: Scope, target: CpuTarget) -> None:
    for load in plan.prefetched:
        size = bits_of(load.element) // 8
        prefetch(Value(here.arguments.inputs[load.buffer]), here.address(load) + target.prefetch_bytes // size)


