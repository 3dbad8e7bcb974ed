"""Let products and convolutions of integers read narrow operands as they are: the extension becomes a part of the body.

Convolutions of floats read images of bytes as they are, too.

Dot-product instructions multiply narrow integers and sum them in 32 bits. JAX's and PyTorch's programs write such a
product as one of narrow operands with wide sums, or extend the operands first, which is the same number.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.erasing import erase
from stablexla.lowering.rules.convolution import CONVOLUTION
from stablexla.lowering.support.operations import body_of, constant_attribute, is_tensor
from stablexla.lowering.support.unit_dimensions import differ_only_in_units, with_dimensions
from stablexla.targets.grouping.classify import is_product
from stablexla.targets.grouping.matchers import GENERIC, converted_in_place, made_by, users_of
from stablexla.targets.grouping.patterns import pattern_pass

EXTENSIONS = frozenset(["arith.extsi", "arith.extui"])
TO_FLOATS = frozenset(["arith.sitofp", "arith.uitofp"])


@pattern_pass(
    "stablexla-widen-in-products", "makes extensions of integers a part of the products that multiply them", GENERIC
)
def widen_in_products(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Give products and convolutions the operands of extensions, and their bodies the extensions."""
    is_convolution = CONVOLUTION in op.attributes
    if not is_convolution and not is_product(op):
        return None
    factors = list(op.regions[0].blocks[0].arguments)[: 1 if is_convolution else 2]
    multiplied = [n for n, v in enumerate(factors) if all(user.name == "arith.muli" for user in users_of(v))]
    widened = [convert_inside(op, number, EXTENSIONS) for number in multiplied]
    widened.append(is_convolution and _widen_image(op))
    return () if any(widened) else None


def convert_inside(op: ir.Operation, number: int, names: Container[str]) -> bool:
    """Let an operation read an operand unconverted and its body convert the elements.

    Returns whether the operand is an array that one operation of a name in `names` converts in place.
    """
    found, argument = _converted(op.operands[number], names), op.regions[0].blocks[0].arguments[number]
    if found is None:
        return False
    array, conversion = found
    op.operands[number] = array
    argument.set_type(array.type.element_type)
    with op.location, ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]):
        converted = conversion.clone()
    argument.replace_all_uses_except(converted.results[0], converted.operation)
    converted.operands[0] = argument
    return True


def _converted(value: ir.Value, names: Container[str]) -> tuple[ir.Value, ir.Operation] | None:
    """Return the array that one operation of a name in `names` converts in place to `value`, and that operation."""
    maker = made_by(value, GENERIC)
    conversion = converted_in_place(maker) or ()
    if maker is None or len(conversion) != 1 or conversion[0].name not in names or not is_tensor(maker.operands[0]):
        return None
    return maker.operands[0], conversion[0]


def _is_zero(value: ir.Value) -> bool:
    attribute = constant_attribute(value)
    return attribute is not None and attribute.value == 0


def _widen_image(op: ir.Operation) -> bool:
    """Let a convolution's body load elements of the image unconverted; the padding becomes a zero of their type."""
    reads = [o for o in body_of(op) if o.name == "tensor.extract"]
    if len(reads) != 1:
        return False
    image = reads[0].operands[0]
    reshape = made_by(image, "tensor.expand_shape")
    source = image if reshape is None else reshape.operands[0]
    units = differ_only_in_units(source.type.shape, image.type.shape)
    found = _converted(source, EXTENSIONS | TO_FLOATS) if units else None
    users = users_of(reads[0].results[0]) if found is not None else []
    if found is None or len(users) != 1 or users[0].name not in ("arith.select", "arith.muli", "arith.mulf"):
        return False
    if found[1].name in TO_FLOATS and found[0].type.element_type.width > 8:
        return False
    (read,), (array, conversion), (user,) = reads, found, users
    is_padded = user.name == "arith.select"
    if is_padded and (user.operands[1] != read.results[0] or not _is_zero(user.operands[2])):
        return False
    with op.location, ir.InsertionPoint(op):
        array = with_dimensions(array, image.type.shape)
    with op.location, ir.InsertionPoint(user if is_padded else read):
        value = narrow = tensor.extract(array, list(read.operands)[1:])
        if is_padded:
            zero = arith.constant(narrow.type, ir.IntegerAttr.get(narrow.type, 0))
            value = arith.select(user.operands[0], narrow, zero)
        converted = conversion.clone()
    converted.operands[0] = value
    (user if is_padded else read).results[0].replace_all_uses_with(converted.results[0])
    for old in [user, read] if is_padded else [read]:
        erase(old)
    return True
