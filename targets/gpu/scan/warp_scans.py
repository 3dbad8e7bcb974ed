"""Warp-level scans, and scans of a block, by shuffles.

Threads exchange the totals of ever larger groups, as in a reduction; each adds those of the groups before its own. So
the order of combination is kept, and the total is found on the way.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.gpu.threads import WARP, Join, shuffle_xor, thread_index


def scan_warp(values: list[Value], join: Join, nothing: list[Value]) -> tuple[list[Value], list[Value]]:
    """Return the exclusive scan over the warp's threads, and the total.

    Args:
        nothing: the identity, which the first thread gets.
    """
    lane = thread_index() % WARP
    before, whole, offset = nothing, values, 1
    while offset < WARP:
        other = [shuffle_xor(v, offset) for v in whole]
        upper = _has_bits(lane, offset)
        none_yet = (lane % offset).eq(0)
        extended = [cg.select(none_yet, o, j) for o, j in zip(other, join(other, before), strict=True)]
        before = [cg.select(upper, e, b) for e, b in zip(extended, before, strict=True)]
        first = [cg.select(upper, o, w) for o, w in zip(other, whole, strict=True)]
        second = [cg.select(upper, w, o) for o, w in zip(other, whole, strict=True)]
        whole = join(first, second)
        offset *= 2
    return before, whole


def _has_bits(lane: Value, bits: int) -> Value:
    number = arith.index_cast(ir.IntegerType.get_signless(32), lane.ssa)
    return (Value(number) & bits).ne(0)
