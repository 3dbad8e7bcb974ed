"""Let products of integers read narrow operands as they are: the extension becomes a part of the product's body.

Dot-product instructions multiply narrow integers and sum them in 32 bits. JAX's and PyTorch's programs write such a
product as one of narrow operands with wide sums, or extend the operands first, which is the same number.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.operations import body_of, defining, is_tensor, program_of
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.group import blocks_of
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass

EXTENSIONS = ("arith.extsi", "arith.extui")


@module_pass("stablexla-widen-in-products", "makes extensions of integers a part of the products that multiply them")
def widen_in_products(module: ir.Module) -> None:
    """Give products the operands of extensions, and their bodies the extensions."""
    for function in program_of(module):
        operations = [view.operation for block in blocks_of(function) for view in block.operations]
        products = [op for op in operations if is_generic(op) and classify(op) is Kind.CONTRACTION]
        widened = [_widen(op, number) for op in products for number in range(2)]
        if any(widened):
            drop_unused(function)


def _widen(product: ir.Operation, number: int) -> bool:
    """Take an operand's extension into the body; return whether it has one."""
    if len(product.operands) != 3 or not is_tensor(product.operands[number]):
        return False
    maker, argument = defining(product.operands[number]), product.regions[0].blocks[0].arguments[number]
    if maker is None or not _is_extension(maker) or any(not _multiplies(use.owner) for use in argument.uses):
        return False
    extension = body_of(maker)[0]
    product.operands[number] = maker.operands[0]
    argument.set_type(maker.operands[0].type.element_type)
    with product.context, product.location, ir.InsertionPoint.at_block_begin(product.regions[0].blocks[0]):
        wide = extension.clone()
    argument.replace_all_uses_except(wide.results[0], wide.operation)
    wide.operands[0] = argument
    return True


def _is_extension(op: ir.Operation) -> bool:
    """Whether an operation extends each integer of an array in place."""
    if not is_generic(op) or len(op.results) != 1 or not is_tensor(op.operands[0]):
        return False
    loops, body = loops_of(op), body_of(op)
    if loops.num_inputs != 1 or any(loops.reduced) or loops.maps[0] != loops.maps[1] or body[0].name not in EXTENSIONS:
        return False
    block = op.regions[0].blocks[0]
    return len(body) == 2 and bool(body[0].operands[0] == block.arguments[0])


def _multiplies(use: ir.Operation) -> bool:
    return bool(use.operation.name == "arith.muli")
