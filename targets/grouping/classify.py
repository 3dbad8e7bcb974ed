"""Classification of tensor operations for grouping: element-wise map, reduction, contraction, transpose, ..."""

from __future__ import annotations

from enum import Enum

import mlir.ir as ir

from stablexla.lowering.rules.convolution import CONVOLUTION
from stablexla.lowering.support.operations import body_of
from stablexla.targets.grouping.loops import Loops, is_generic, loops_of


class Kind(Enum):
    """Kinds of operations, and of the groups that they start."""

    MAP = "loop"
    ROW_REDUCTION = "row"
    REDUCTION = "reduce"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    TRANSPOSE = "transpose"
    GENERAL = "general"


def classify(op: ir.Operation) -> Kind:
    """Return the kind of an operation on tensors."""
    if op.name == "tensor.extract_slice" and op.operands[0].type.rank == op.results[0].type.rank:
        return Kind.MAP
    if not is_generic(op):
        return Kind.GENERAL
    if CONVOLUTION in op.attributes:
        return Kind.CONVOLUTION
    loops = loops_of(op)
    if any("scf." in inner.name for inner in body_of(op)):
        return Kind.GENERAL
    if not any(loops.reduced):
        return Kind.TRANSPOSE if _is_transpose(op, loops) else Kind.MAP
    if _is_contraction(op, loops):
        return Kind.CONTRACTION
    if not all(isinstance(e, ir.AffineDimExpr) for m in loops.maps[loops.num_inputs :] for e in m.results):
        return Kind.GENERAL
    first = loops.reduced.index(True)
    if all(loops.reduced[first:]):
        return Kind.ROW_REDUCTION
    last = len(loops.reduced) - 1 - loops.reduced[::-1].index(True)
    return Kind.REDUCTION if all(loops.reduced[first : last + 1]) else Kind.GENERAL


def _is_transpose(op: ir.Operation, loops: Loops) -> bool:
    """Match a map that only permutes dimensions."""
    if loops.num_inputs != 1 or len(body_of(op)) != 1:
        return False
    map_ = loops.maps[0]
    return bool(map_.is_permutation) and map_ != loops.identity


def _is_contraction(op: ir.Operation, loops: Loops) -> bool:
    """Match a contraction: a sum of products of two inputs, which may be cast first, and of which one is read again.

    Where each element of the result has its own elements of both, as in a batch of dot products, nothing is read twice:
    these are reductions, which fuse with what is around them. So are sums of one array's elements, each multiplied by
    what is the same all along the sum.
    """
    if loops.num_inputs != 2 or len(op.results) != 1:
        return False
    if not all(isinstance(e, ir.AffineDimExpr) for m in loops.maps for e in m.results):
        return False
    kept = {d for d, reduced in enumerate(loops.reduced) if not reduced and loops.extents[d] != 1}
    read = [{e.position for e in map_.results} for map_ in loops.maps[:2]]
    if all(kept <= loops_read for loops_read in read):
        return False
    summed = {d for d, reduced in enumerate(loops.reduced) if reduced and loops.extents[d] != 1}
    if summed and any(mine <= other and not mine & summed for mine, other in (read, read[::-1])):
        return False
    casts = ("arith.extf", "arith.extsi", "arith.extui", "arith.truncf", "arith.trunci")
    names = [o.name for o in body_of(op) if o.name not in casts]
    return names in (["arith.mulf", "arith.addf", "linalg.yield"], ["arith.muli", "arith.addi", "linalg.yield"])
