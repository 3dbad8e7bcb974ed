"""The values of StableHLO constants as numpy arrays, for every element type.

jaxlib's attributes give numpy arrays for the common types only. For the rest the attribute's text is read, in which
large arrays are raw bytes in hexadecimal.
"""

from __future__ import annotations

import re
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects.element_types import BY_MLIR, ElementType
from stablexla.dialects.held_arrays import held_array, value_of

_BUFFER_TYPES = {"i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"}
_TEXT = re.compile(r"dense<(.*)> : (?:tensor|vector)<", re.DOTALL)
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|true|false|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")


def dense_values(attribute: Any, element: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of a dense elements attribute, such as the reference interpreter's results."""
    if element.mlir in _BUFFER_TYPES:
        return np.array(attribute).astype(element.dtype, copy=False).reshape(shape)
    return _read_text(str(attribute), element, shape)


def is_splat(attribute: Any) -> bool:
    """Return whether a constant's attribute stores one number for all elements."""
    return bool(getattr(attribute, "is_splat", False))


def splat_value(op: Any, element: ElementType) -> Any:
    """Return the number that all elements of a `stablehlo.constant` are, if it is stored so, else None.

    That of a type that numpy lacks is None: `read_constant` gives a view of one number then.
    """
    if element.mlir not in _BUFFER_TYPES:
        return None
    attribute = op.attributes["value"]
    if not is_splat(attribute):
        return None
    one = hlo_ir.RankedTensorType.get([1], attribute.type.element_type, loc=op.location)
    return dense_values(hlo_ir.DenseElementsAttr.get_splat(one, attribute.get_splat_value()), element, (1,))[0]


def constant_array(value: Any) -> np.ndarray | None:
    """Return the array of a value that a `stablehlo.constant` makes; None for other values."""
    maker = getattr(value.owner, "operation", None)  # that of an argument is a block
    if maker is None or maker.name != "stablehlo.constant":
        return None
    return read_constant(maker, BY_MLIR[str(value.type.element_type)], tuple(value.type.shape))


def read_constant(op: Any, element: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of a `stablehlo.constant` operation, in the host dtype of its element type."""
    held = held_array(value_of(op))
    if held is not None:
        return held.reshape(-1).view(element.dtype).reshape(shape)
    if element.mlir in _BUFFER_TYPES:
        return np.asarray(op.attributes["value"]).astype(element.dtype, copy=False).reshape(shape)
    return _read_text(op.get_asm(large_elements_limit=None, enable_debug_info=False), element, shape)


def _read_text(text: str, element: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    # Of an operation the value comes last, behind other attributes, which may be dense as well.
    match = _TEXT.match(text, max(text.rfind("dense<"), 0))
    assert match is not None, "a constant without dense elements"
    return _parse(match.group(1).strip(), element, shape)


def _parse(text: str, element: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape:
        return np.zeros(shape, element.dtype)
    if text.startswith('"0x'):
        raw = np.frombuffer(bytes.fromhex(text[3:-1]), dtype=np.uint8)
        flat = _from_bytes(raw, element)
    else:
        flat = np.array([_number(t, element.part) for t in _NUMBER.findall(text)]).astype(element.part.dtype)
        if element.is_complex:
            flat = flat.view(element.dtype)
    return np.broadcast_to(flat[0], shape) if flat.size == 1 else np.ascontiguousarray(flat).reshape(shape)


def _from_bytes(raw: np.ndarray, element: ElementType) -> np.ndarray:
    """Decode raw bytes; elements below a byte take one byte each in MLIR's dense elements."""
    return raw.view(element.dtype)


def _number(text: str, element: ElementType) -> Any:
    if text.startswith("0x"):  # the bits of a NaN, an infinity, or of a number without a short decimal form
        bits = int(text, 16)
        width = max(8, element.bits) // 8
        return np.frombuffer(bits.to_bytes(width, "little"), dtype=element.dtype)[0]
    if element.is_float:
        return np.dtype(element.dtype).type(float(text))
    return int(text)
