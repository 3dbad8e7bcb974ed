"""Inlining of constants whose elements are stored after the program, as `dense_resource`.

MLIR's bindings have no access to them, but its printer does: they are read from the end of the module's text.
"""

from __future__ import annotations

import re
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.constants import dense_attribute
from stablexla.dialects.errors import ParseError, UnsupportedError
from stablexla.dialects.held_arrays import value_of
from stablexla.lowering.support.types import tensor_type

MARK = "dense_resource<"

_USE = re.compile(r'dense_resource<"?(.*?)"?>')
_ENTRY = re.compile(r'^\s*"?(.*?)"?: "0x([0-9A-Fa-f]*)"', re.MULTILINE)
_ALIGNMENT_BYTES = 4


def inline_resources(module: ir.Module, file: str) -> ir.Module:
    """Return the module itself, whose constants now hold their elements.

    Raises:
        ParseError: there are no elements of that name, or not as many as the type has.
        UnsupportedError: they were left out when the program was printed.
    """
    constants: list[Any] = []

    def note(op: Any) -> ir.WalkResult:
        if op.name == "stablehlo.constant" and _is_resource(op):
            constants.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    if constants:
        blobs = _blobs(module)
        for op in constants:
            op.attributes["value"] = _elements(op, blobs, file)
    return module


def _is_resource(constant: Any) -> bool:
    value = value_of(constant)
    if value is None or isinstance(value, ir.DenseElementsAttr):
        return False  # a cast that fails writes the whole attribute into its message
    try:
        ir.DenseResourceElementsAttr(value)
    except (TypeError, ValueError):
        return False
    return True


def _blobs(module: ir.Module) -> dict[str, str]:
    text: str = module.operation.get_asm()
    return dict(_ENTRY.findall(text, max(0, text.rfind("\n{-#"))))


def _elements(op: Any, blobs: dict[str, str], file: str) -> Any:
    match = _USE.match(str(op.attributes["value"]))
    name = match[1] if match else ""
    if name == "__elided__":
        raise UnsupportedError(
            f"{file}: the elements of a constant were left out when the program was printed",
            hint="print it whole, or write bytecode",
        )
    if name not in blobs:
        raise ParseError(f"there are no elements of the name {name!r}", file=file)
    type_ = tensor_type(op.results[0].type)
    data = bytes.fromhex(blobs[name])[_ALIGNMENT_BYTES:]
    if len(data) != type_.size * type_.element.dtype.itemsize:
        raise ParseError(f"{name!r} has {len(data)} bytes, which are not those of {type_}", file=file)
    array = np.frombuffer(data, type_.element.dtype).reshape(type_.shape)
    return dense_attribute(array, op.results[0].type)
