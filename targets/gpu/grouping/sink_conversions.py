"""Sink conversions of small arrays into their users, instead of a kernel of their own.

A 16-bit scale that a normalisation uses in 32 would be converted by a launch, which takes longer than the conversions;
and wide elements take more bandwidth than narrow ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.grouping.matchers import GENERIC, users_of
from stablexla.targets.grouping.patterns import pattern_pass
from stablexla.targets.grouping.widen_in_products import convert_inside

CONVERSIONS = frozenset(["arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp"])
READERS = (Kind.MAP, Kind.ROW_REDUCTION, Kind.REDUCTION)


@pattern_pass("stablexla-sink-conversions", "converts small arrays to wider types where they are read", GENERIC)
def sink_conversions(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Sink widening conversions; arrays as large as the user's result are left alone: fusion converts those."""
    if classify(op) not in READERS:
        return None
    loops, arguments = loops_of(op), list(op.regions[0].blocks[0].arguments)
    small = [n for n in range(loops.num_inputs) if len(loops.maps[n].results) < len(loops.extents)]
    sunk = [convert_inside(op, n, CONVERSIONS) for n in small if users_of(arguments[n])]
    return () if any(sunk) else None
