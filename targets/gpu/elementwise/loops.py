"""Elementwise kernels, vectorized: a thread computes one 16-byte access of neighbouring elements."""

from __future__ import annotations

from math import prod

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Store, analyze_nest, in_place
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, access_lanes, coordinates, grid_loop, kernel_function, unlaunched


@gpu_emitter("loop", "row", "reduce", "transpose", "general")
def emit_loop(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit kernels whose operations are all elementwise over one loop nest."""
    nest = analyze_nest(kernel)
    everything = frozenset(range(len(nest.extents))) if nest is not None else frozenset()
    if nest is None or nest.folds or any(place.domain != everything for place in nest.stores):
        return None
    if not prod(nest.extents):
        return unlaunched(kernel)
    *outer, extent = nest.extents
    lanes = elementwise_lanes(nest)
    pieces = -(-extent // lanes)
    items = prod(outer) * pieces
    with kernel_function(kernel, Launch.for_items(items)) as arguments:
        top = LoopScope(arguments)
        with grid_loop(items) as item:
            *places, piece = coordinates(item.iv, [*outer, pieces])
            row = top.inside(dict(enumerate(places)))
            _write(nest, row, piece * lanes, lanes)
    return Emitted(items, items, in_place=in_place(kernel, nest))


def elementwise_lanes(nest: LoopNest) -> int:
    """Return the vector width: one access of the widest elements; 1 where rows are not aligned to accesses."""
    places: list[Load | Store] = [*nest.loads, *nest.stores]
    widest = max(cg.bits_of(place.element) for place in places)
    lanes = access_lanes(widest)
    aligned = len(nest.extents) == 1 or nest.extents[-1] % lanes == 0
    return lanes if aligned and nest.extents[-1] >= lanes else 1


def _write(nest: LoopNest, row: LoopScope, at: Value, lanes: int) -> None:
    """Emit the elements from `at` on, with a masked tail at the end of the row."""
    inner, extent = len(nest.extents) - 1, nest.extents[-1]
    if lanes == 1 or extent % lanes == 0:
        _at(nest, row.inside({inner: at}, lane=inner, lanes=0 if lanes == 1 else lanes))
        return
    side = cg.branch((at + lanes).le(extent))
    with side.then:
        _at(nest, row.inside({inner: at}, lane=inner, lanes=lanes))
    with side.otherwise:
        for i in range(extent % lanes):
            _at(nest, row.inside({inner: at + i}))


def _at(nest: LoopNest, here: LoopScope) -> None:
    values = [here.value(place.ref) for place in nest.stores]
    for place, value in zip(nest.stores, values, strict=True):
        here.store(place, value)
