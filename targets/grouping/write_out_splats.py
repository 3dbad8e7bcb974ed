"""Materialize splats: `tensor.splat` and splat constants become a `linalg.generic` that stores a scalar."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.constants import is_splat
from stablexla.lowering.support.generic import elementwise_loops
from stablexla.lowering.support.operations import is_tensor
from stablexla.targets.grouping.patterns import pattern_pass


@pattern_pass(
    "stablexla-write-out-splats", "turns splats into loops that store a scalar", "tensor.splat", "arith.constant"
)
def write_out_splats(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Rewrite `tensor.splat` and splat constants; a constant array would be loaded element by element."""
    type_ = op.results[0].type
    if op.name == "tensor.splat":
        scalar = op.operands[0]
    elif is_tensor(op.results[0]) and is_splat(op.attributes["value"]):
        scalar = arith.ConstantOp(type_.element_type, op.attributes["value"].get_splat_value()).result
    else:
        return None
    return [elementwise_loops([scalar], type_, lambda elements: elements[0])]
