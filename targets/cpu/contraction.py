"""The emitter of contractions: which way of computing fits a product's shape."""

from __future__ import annotations

import math

import mlir.ir as ir

from stablexla.targets.cpu.contraction_match import Contraction, match_contraction
from stablexla.targets.cpu.contraction_output import compute_type
from stablexla.targets.cpu.contraction_packed import PackedPlan, emit_packed
from stablexla.targets.cpu.contraction_tiles import ShortPlan, Tile, choose_tile, emit_short
from stablexla.targets.cpu.emission import bits_of, emitting
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.cpu.target import CpuTarget


@emitter("contraction")
def emit_contraction(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Products of two arrays with elementwise operations after them; None for sums of any other form."""
    with kernel.func.context, ir.Location.unknown():
        contraction = match_contraction(kernel)
        if contraction is None:
            return None
        if math.prod(contraction.shape) == 0:
            return _emit_nothing(kernel, target)
        return emit_short(kernel, contraction, target, plan_short(contraction, target))


def _emit_nothing(kernel: Kernel, target: CpuTarget) -> Emitted:
    function, _ = kernel.declare()
    with emitting(function, target):
        pass
    return Emitted(items=1, grain=1)


# Bytes of packed rhs beyond which every item packs its own.
SHARED_LIMIT = 512 << 20


def plan_packed(c: Contraction, target: CpuTarget, depth: int = 256, rows: int = 126, columns: int = 2048) -> PackedPlan:
    """Blocks of about 256 steps of k; lhs blocks of a quarter of L2."""
    element = compute_type(c)
    lanes = target.vector_bits // bits_of(element)
    tile = Tile(6, 4 if target.num_vector_registers >= 32 else 2)
    width = tile.vectors * lanes
    depth = _balanced(c.k.extent, depth, lanes)
    rows = _balanced(c.m.extent, rows, tile.rows)
    row_blocks = math.ceil(c.m.extent / rows)
    wanted = math.ceil(4 * target.num_threads / (row_blocks * c.batches)) if target.num_threads > 1 else 1
    columns = min(columns, max(8 * width, math.ceil(c.n.extent / wanted)))
    columns = _balanced(c.n.extent, columns, width)
    group = 0 if row_blocks > 1 else 4 * width
    return PackedPlan(tile, depth, rows, columns, group)


def _balanced(extent: int, block: int, multiple: int) -> int:
    """The size of equal blocks of at most about `block`, a multiple of `multiple`."""
    blocks = max(1, math.ceil(extent / block))
    return max(1, math.ceil(extent / blocks / multiple)) * multiple


def plan_short(c: Contraction, target: CpuTarget) -> ShortPlan:
    lanes = target.vector_bits // bits_of(compute_type(c))
    tile = choose_tile(c.m.extent, c.n.extent, lanes, target.num_vector_registers)
    return ShortPlan(tile, 10**9, c.n.extent, c.n.b != 1)
