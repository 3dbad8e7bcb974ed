"""Conversion of any attribute to a plain Python value: number, string, tuple, dictionary or array."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.constants import dense_values
from stablexla.dialects.element_types import BY_MLIR

_VALUES = (hlo_ir.BoolAttr, hlo_ir.IntegerAttr, hlo_ir.FloatAttr, hlo_ir.StringAttr, hlo_ir.FlatSymbolRefAttr)
_ROWS = (
    hlo_ir.DenseBoolArrayAttr,
    hlo_ir.DenseI8ArrayAttr,
    hlo_ir.DenseI16ArrayAttr,
    hlo_ir.DenseI32ArrayAttr,
    hlo_ir.DenseI64ArrayAttr,
    hlo_ir.DenseF32ArrayAttr,
    hlo_ir.DenseF64ArrayAttr,
)


def plain(attribute: Any) -> Any:
    """Convert an attribute to a Python value; to its text where there is none.

    >>> from stablexla.dialects.contexts import stablehlo_context
    >>> text = "{axis = 1 : i64, mode = [\\"a\\", 0.5], flag}"
    >>> plain(hlo_ir.Attribute.parse(text, stablehlo_context())) == {"axis": 1, "mode": ("a", 0.5), "flag": True}
    True
    """
    if isinstance(attribute, hlo_ir.UnitAttr):
        return True
    if isinstance(attribute, _VALUES):
        return attribute.value
    if isinstance(attribute, hlo_ir.ArrayAttr):
        return tuple(plain(each) for each in attribute)
    if isinstance(attribute, hlo_ir.DictAttr):
        return {named.name: plain(named.attr) for named in attribute}
    if isinstance(attribute, _ROWS):
        return tuple(attribute)
    type_ = getattr(attribute, "type", None)
    element = BY_MLIR.get(str(getattr(type_, "element_type", "")))
    if isinstance(type_, hlo_ir.RankedTensorType) and element is not None:
        return dense_values(attribute, element, tuple(type_.shape))
    return str(attribute)
