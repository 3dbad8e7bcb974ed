"""Transposes: kernels that load along another dimension than they store, by tiles of 32 x 32 in shared memory.

So both loads and stores are coalesced. The tile's leading dimension is padded by one element, so that columns are free
of bank conflicts.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.loop_nest import LoopNest, Store, analyze_nest
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, shared_buffer, thread_index

TILE, ROWS = 32, 8
PITCH = TILE + 1
LEAST = Gate("gpu-transpose.least", 16, eager=2)
"""Along shorter dimensions most of a tile would be empty."""


@gpu_emitter("transpose", priority=10)
def emit_transpose(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit one result whose inputs are all contiguous along one dimension, which is not the result's last."""
    nest = analyze_nest(kernel)
    if nest is None or nest.folds or len(nest.stores) != 1 or not prod(nest.extents):
        return None
    along = _read_along(nest)
    inner = len(nest.extents) - 1
    (place,) = nest.stores
    if along is None or along == inner or min(nest.extents[along], nest.extents[inner]) < LEAST():
        return None
    if not isinstance(place.element, ir.IntegerType | ir.FloatType):
        return None
    outer = [d for d in range(inner) if d != along]
    tiles = [-(-nest.extents[d] // TILE) for d in (along, inner)]
    blocks = prod(nest.extents[d] for d in outer) * prod(tiles)
    shared = TILE * PITCH * max(1, cg.bits_of(place.element) // 8)
    with kernel_function(kernel, Launch(blocks, TILE * ROWS, shared)) as arguments:
        *at, first, second = cg.split_index(block_index(), [*(nest.extents[d] for d in outer), *tiles])
        scope = LoopScope(arguments).inside(dict(zip(outer, at, strict=True)))
        _write(nest, scope, along, (first * TILE, second * TILE), place)
    return Emitted(blocks, blocks)


def _read_along(nest: LoopNest) -> int | None:
    """Return the dimension of unit stride in all inputs that are not loop-invariant."""
    found = {d for node in nest.loads for d, stride in enumerate(node.strides) if abs(stride) == 1}
    every = all(1 in map(abs, node.strides) for node in nest.loads if any(node.strides))
    return found.pop() if len(found) == 1 and every else None


def _write(nest: LoopNest, scope: LoopScope, along: int, corner: tuple[Value, Value], place: Store) -> None:
    """Emit one tile, from its corner: loaded along one dimension, stored along the other."""
    inner = len(nest.extents) - 1
    x, y = thread_index() % TILE, thread_index() // TILE
    tile = shared_buffer(place.element, TILE * PITCH, 0)
    for row in range(0, TILE, ROWS):
        here = {along: corner[0] + x, inner: corner[1] + (y + row)}
        with cg.when(_inside(nest, here)):
            cg.store(scope.inside(here).value(place.ref), tile, (y + row) * PITCH + x)
    gpu.barrier()
    for row in range(0, TILE, ROWS):
        there = {along: corner[0] + (y + row), inner: corner[1] + x}
        with cg.when(_inside(nest, there)):
            scope.inside(there).store(place, cg.load(tile, x * PITCH + (y + row)))


def _inside(nest: LoopNest, at: dict[int, Value]) -> Value:
    """Return the mask of the tile's elements in bounds."""
    first, second = (position.lt(nest.extents[d]) for d, position in at.items())
    return first & second
