"""Classification of tensor operations for grouping: element-wise map, reduction, contraction, transpose, ..."""

from __future__ import annotations

from enum import Enum

import mlir.ir as ir

from stablexla.lowering.rules.convolution import CONVOLUTION
from stablexla.lowering.support.operations import body_of
from stablexla.targets.grouping.loops import Loops, is_generic, loops_of, reduces
from stablexla.targets.grouping.matchers import sums_products


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
    if sums_products(op, loops):
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


def is_product(op: ir.Operation | None) -> bool:
    """Whether an operation is a contraction."""
    return op is not None and is_generic(op) and reduces(op) and classify(op) is Kind.CONTRACTION
