"""Rewrite of bitcasts between layouts: the same bytes, with another shape, element type or dimension order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.mhlo.registry import rewrites

_TILED = ":T("
"""How XLA prints tiles in a shape's layout."""


@rewrites("mhlo.bitcast")
def bitcast(op: Any) -> Sequence[Any] | None:
    """Transpose to the physical layout, reinterpret, and transpose to the result's logical dimensions.

    Layouts with tiles, which only other devices than CPUs and GPUs have, are left alone.
    """
    if "xla_shape" in op.attributes and _TILED in str(op.attributes["xla_shape"]):
        return None
    operand, result = op.operands[0], op.results[0].type
    source, target = _major_to_minor(op, "source_layout", operand.type), _major_to_minor(op, "result_layout", result)
    linear = _reinterpret(_transpose(operand, source), result.element_type, [result.shape[d] for d in target])
    return None if linear is None else [_transpose(linear, np.argsort(target).tolist())]


def _major_to_minor(op: Any, name: str, type_: Any) -> list[int]:
    if name not in op.attributes:
        return list(range(type_.rank))
    return [int(d) for d in reversed(list(ir.DenseIntElementsAttr(op.attributes[name])))]


def _transpose(value: Any, order: Sequence[int]) -> Any:
    return value if list(order) == sorted(order) else stablehlo.transpose(value, list(order))


def _reinterpret(value: Any, element: Any, shape: Sequence[int]) -> Any | None:
    """Bitcast row-major elements to another type and shape.

    None where their bytes differ in number, or one of them is complex, which StableHLO does not convert.
    """
    given = value.type.element_type
    before, after, count = _bytes(given), _bytes(element), prod(value.type.shape)
    if before * count != after * prod(shape):
        return None
    if given == element:
        return hlo.reshape(value, shape)
    if isinstance(given, ir.ComplexType) or isinstance(element, ir.ComplexType):
        return None
    if ir.IntegerType.get_signless(1) in (given, element):  # a byte with 0 or 1 in it
        return hlo.convert(hlo.reshape(value, shape), element)
    if before < after:
        of_bytes, to = hlo.reshape(value, [prod(shape), after // before]), [prod(shape)]
    else:
        of_bytes, to = hlo.reshape(value, [count]), [count, before // after] if before > after else [count]
    return hlo.reshape(stablehlo.bitcast_convert(ir.RankedTensorType.get(to, element), of_bytes), shape)


def _bytes(element: Any) -> int:
    """Return the size of an element in memory."""
    if isinstance(element, ir.ComplexType):
        return 2 * _bytes(element.element_type)
    return -(-int(element.width) // 8)
