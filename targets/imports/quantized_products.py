"""Products of quantised arrays, summed as integers: no rounding comes in before the result is scaled.

The sums are carried by floats where these hold all integers that may come up, since processors multiply them faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes import DotDimensionNumbers
from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.quantized_types import QuantizedType, is_quantized, quantized_type
from stablexla.lowering.bounded_values import emit
from stablexla.targets.imports.quantized_arithmetic import centered, convert, spread

EXACT = ("stablehlo.dot_general", "stablehlo.convolution")
"""Operations that are summed so."""


def exact_product(op: Any, operands: Sequence[Any], results: Sequence[Any]) -> list[Any] | None:
    """The numbers that a product stands for; None for other operations, or where integers of 32 bits do not hold it.

    Args:
        op: a dot_general or a convolution of integers.
        operands, results: the types that it had.
    """
    rules = dict(zip(EXACT, (_dot, _convolution), strict=True))
    if op.name not in EXACT or not all(is_quantized(t) for t in (*operands, *results)):
        return None
    left, right = (quantized_type(t.element_type) for t in operands)
    terms, place = rules[op.name](op, operands, right)
    carrier = _carrier(terms * _reach(left) * _reach(right))
    if carrier is None or left.axis is not None or (right.axis is not None and place is None):
        return None
    if (left.expressed, right.expressed) != ("f32", "f32"):
        return None
    numbers = [centered(v, q, carrier) for v, q in zip(op.operands, (left, right), strict=True)]
    type_ = results[0]
    attributes = {name: value for name, value in op.attributes.items() if name not in ("precision_config", "algorithm")}
    summed = ir.RankedTensorType.get(list(type_.shape), ir.Type.parse(carrier), type_.encoding)
    total = convert(emit(op.name, numbers, [summed], attributes), "f32")
    scales = [left.scales[0] * scale for scale in right.scales]
    return [emit("stablehlo.multiply", [total, spread(scales, place, total.type)], [total.type])]


def _reach(quantized: QuantizedType) -> int:
    """The largest that an integer of the type may be apart from its zero point."""
    return max(max(z - quantized.low, quantized.high - z) for z in quantized.zero_points)


def _carrier(largest: int) -> str | None:
    """A type that holds all integers up to there."""
    return "f32" if largest <= 1 << 24 else "i32" if largest < 1 << 31 else None


def _dot(op: Any, operands: Sequence[Any], right: QuantizedType) -> tuple[int, int | None]:
    """How many terms are summed, and which dimension of the result goes with the axis of the right operand."""
    numbers = DotDimensionNumbers.read(op.attributes["dot_dimension_numbers"])
    (left_extents, _), (right_extents, _) = (extents_of(t) for t in operands)
    terms = prod(left_extents[i] for i in numbers.lhs_contracting)
    if right.axis in numbers.rhs_batch:
        return terms, numbers.rhs_batch.index(right.axis)
    free = [i for i in range(len(right_extents)) if i not in (*numbers.rhs_batch, *numbers.rhs_contracting)]
    before = len(left_extents) - len(numbers.lhs_contracting)
    return terms, before + free.index(right.axis) if right.axis in free else None


def _convolution(op: Any, operands: Sequence[Any], right: QuantizedType) -> tuple[int, int | None]:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    extents = extents_of(operands[1])[0]
    terms = prod(n for i, n in enumerate(extents) if i != numbers.kernel_output_feature_dimension)
    place = numbers.output_feature_dimension if right.axis == numbers.kernel_output_feature_dimension else None
    return terms, place
