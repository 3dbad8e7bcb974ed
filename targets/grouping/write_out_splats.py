"""Materialize splats: `tensor.splat` and splat constants become a `linalg.generic` that stores a scalar."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.generic import elementwise_loops
from stablexla.lowering.support.operations import is_tensor, program_of, walk
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-write-out-splats", "turns splats into loops that store a scalar")
def write_out_splats(module: ir.Module) -> None:
    """Rewrite `tensor.splat` and splat constants; a constant array would be loaded element by element."""
    for op in [op for function in program_of(module) for op in walk(function)]:
        if op.name == "tensor.splat":
            _write_out(op, op.operands[0])
        elif op.name == "arith.constant" and is_tensor(op.results[0]) and op.attributes["value"].is_splat:
            with op.context, op.location, ir.InsertionPoint(op):
                element = op.results[0].type.element_type
                _write_out(op, arith.ConstantOp(element, op.attributes["value"].get_splat_value()).result)


def _write_out(op: ir.Operation, scalar: ir.Value) -> None:
    """Replace a splat by a loop nest that stores its scalar."""
    with op.context, op.location, ir.InsertionPoint(op):
        made = elementwise_loops([scalar], op.results[0].type, lambda elements: elements[0])
    op.results[0].replace_all_uses_with(made)
    erase(op)
