"""Let products of integers read narrow operands as they are: the extension becomes a part of the product's body.

Dot-product instructions multiply narrow integers and sum them in 32 bits. JAX's and PyTorch's programs write such a
product as one of narrow operands with wide sums, or extend the operands first, which is the same number.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import mlir.ir as ir

from stablexla.lowering.support.operations import is_tensor
from stablexla.targets.grouping.classify import is_product
from stablexla.targets.grouping.matchers import GENERIC, converted_in_place, made_by, users_of
from stablexla.targets.grouping.patterns import pattern_pass

EXTENSIONS = frozenset(["arith.extsi", "arith.extui"])


@pattern_pass(
    "stablexla-widen-in-products", "makes extensions of integers a part of the products that multiply them", GENERIC
)
def widen_in_products(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Give products the operands of extensions, and their bodies the extensions."""
    if not is_product(op):
        return None
    factors = list(op.regions[0].blocks[0].arguments)[:2]
    multiplied = [n for n, v in enumerate(factors) if all(user.name == "arith.muli" for user in users_of(v))]
    widened = [convert_inside(op, number, EXTENSIONS) for number in multiplied]
    return () if any(widened) else None


def convert_inside(op: ir.Operation, number: int, names: Container[str]) -> bool:
    """Let an operation read an operand unconverted and its body convert the elements.

    Returns whether the operand is an array that one operation of a name in `names` converts in place.
    """
    maker, argument = made_by(op.operands[number], GENERIC), op.regions[0].blocks[0].arguments[number]
    conversion = converted_in_place(maker) or ()
    if maker is None or len(conversion) != 1 or conversion[0].name not in names or not is_tensor(maker.operands[0]):
        return False
    op.operands[number] = maker.operands[0]
    argument.set_type(maker.operands[0].type.element_type)
    with op.location, ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]):
        converted = conversion[0].clone()
    argument.replace_all_uses_except(converted.results[0], converted.operation)
    converted.operands[0] = argument
    return True
