"""XLA's typed foreign function interface (FFI): the description of a handler's call for the native runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects.constants import dense_values
from stablexla.dialects.contexts import stablehlo_context
from stablexla.dialects.custom_calls import CustomCallTarget
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.errors import CompileError
from stablexla.dialects.shapes import Shape
from stablexla.targets.runtime._runtime import FfiCall

ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
"""XLA's numbers of attribute kinds."""

# XLA's numbers of element types.
NUMBERS = {
    "pred": 1,
    "s1": 30,
    "s2": 26,
    "s4": 21,
    "s8": 2,
    "s16": 3,
    "s32": 4,
    "s64": 5,
    "u1": 31,
    "u2": 27,
    "u4": 22,
    "u8": 6,
    "u16": 7,
    "u32": 8,
    "u64": 9,
    "f16": 10,
    "f32": 11,
    "f64": 12,
    "bf16": 16,
    "c64": 15,
    "c128": 18,
    "f8e5m2": 19,
    "f8e3m4": 29,
    "f8e4m3": 28,
    "f8e4m3fn": 20,
    "f8e4m3b11fnuz": 23,
    "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25,
    "f4e2m1fn": 32,
    "f8e8m0fnu": 33,
}

FORM = "form"
"""Key of a call's form in its description, where the call can be made without MLIR."""

Row = tuple[str, int, int, int, object]


def ffi_call(target: CustomCallTarget, call: Mapping[str, Any]) -> FfiCall:
    """Instantiate a handler for a call of a target.

    Raises:
        CompileError: the handler refuses, or cannot be handed an attribute.
    """
    form = json.dumps(with_form(call)[FORM])
    try:
        return FfiCall(target.name, target.stages, form)
    except RuntimeError as error:
        raise CompileError(f"custom call {target.name!r} refuses to be instantiated: {error}") from None


def with_form(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the form to the description of a call: element types and extents of its arrays, its attributes as bytes.

    Raises:
        CompileError: a handler cannot be handed an attribute.
    """
    if FORM in call:
        return call
    attributes = hlo_ir.Attribute.parse(call["keywords"], stablehlo_context())
    rows = _rows({named.name: named.attr for named in hlo_ir.DictAttr(attributes)})
    inputs, outputs = ([_form(text) for text in side] for side in call["shapes"])
    return {**call, FORM: {"inputs": inputs, "outputs": outputs, "attributes": rows}}


def _form(text: str) -> tuple[int, tuple[int, ...]]:
    shape = Shape.parse(text)
    return NUMBERS[shape.element_type.name], shape.dimensions


def _rows(attributes: Mapping[str, Any]) -> list[Row]:
    """Return attributes sorted by name, as handlers look them up."""
    return [_row(name, attributes[name]) for name in sorted(attributes)]


def _row(name: str, attribute: Any) -> Row:
    if isinstance(attribute, hlo_ir.DictAttr):
        return name, DICTIONARY, 0, 0, _rows({named.name: named.attr for named in attribute})
    if isinstance(attribute, hlo_ir.ArrayAttr):
        return name, DICTIONARY, 0, 0, _rows({str(i): each for i, each in enumerate(attribute)})
    if isinstance(attribute, hlo_ir.StringAttr | hlo_ir.FlatSymbolRefAttr):
        return name, STRING, 0, 0, attribute.value.encode().hex()
    if isinstance(attribute, hlo_ir.UnitAttr):
        return _scalar(name, "i1", True)
    if isinstance(attribute, hlo_ir.BoolAttr):
        return _scalar(name, "i1", attribute.value)
    if isinstance(attribute, hlo_ir.IntegerAttr | hlo_ir.FloatAttr):
        return _scalar(name, str(attribute.type), attribute.value)
    for kind, element in _LISTS.items():
        if isinstance(attribute, kind):
            return _array(name, element, np.array(list(attribute), BY_MLIR[element].dtype))
    element = str(getattr(getattr(attribute, "type", None), "element_type", ""))
    if element in BY_MLIR:
        values = dense_values(attribute, BY_MLIR[element], tuple(attribute.type.shape))
        return _array(name, element, values)
    raise CompileError(f"custom_call: handlers cannot be given the attribute {name} = {attribute}")


_LISTS: dict[Any, str] = {
    hlo_ir.DenseBoolArrayAttr: "i1",
    hlo_ir.DenseI8ArrayAttr: "i8",
    hlo_ir.DenseI16ArrayAttr: "i16",
    hlo_ir.DenseI32ArrayAttr: "i32",
    hlo_ir.DenseI64ArrayAttr: "i64",
    hlo_ir.DenseF32ArrayAttr: "f32",
    hlo_ir.DenseF64ArrayAttr: "f64",
}


def _scalar(name: str, element: str, value: object) -> Row:
    known = BY_MLIR.get(element)
    if known is None or known.name not in NUMBERS:
        raise CompileError(f"custom_call: handlers cannot be given the attribute {name} of type {element}")
    return name, SCALAR, NUMBERS[known.name], 1, np.array(value, known.dtype).tobytes().hex()


def _array(name: str, element: str, values: Any) -> Row:
    return name, ARRAY, NUMBERS[BY_MLIR[element].name], int(values.size), np.ascontiguousarray(values).tobytes().hex()
