"""`stablehlo.custom_call @shape_assertion`: what a producer demands of shapes, checked as soon as they are known."""

from __future__ import annotations

import re
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.lowering.context import place_of
from stablexla.lowering.operations import erase
from stablexla.targets.imports.shape_values import constant_of
from stablexla.targets.inlining import operations_of

TARGET = "shape_assertion"
_PLACE = re.compile(r"\{(\d+)(?:[,:][^{}]*)?\}")


def check_shape_assertions(module: ir.Module) -> None:
    """Removes the assertions that hold.

    Raises:
        ExecutionError: one does not; the error has its text.
        UnsupportedError: what one asserts is not known from the shapes alone.
    """
    for op in operations_of(module, "stablehlo.custom_call"):
        if str(ir.StringAttr(op.attributes["call_target_name"]).value) != TARGET or len(op.results):
            continue
        values = [constant_of(operand) for operand in op.operands]
        if not values or any(v is None or v.size != 1 for v in values):
            raise UnsupportedError(
                f"what it asserts depends on more than the shapes of the arguments{place_of(op.location)}",
                operation="shape_assertion",
            )
        holds, *numbers = [int(v.item()) for v in values if v is not None]
        if not holds:
            raise ExecutionError(assertion_text(_text(op), numbers))
        erase(op)


def _text(op: Any) -> str:
    attributes = op.attributes
    if "error_message" not in attributes:
        return "a shape assertion does not hold"
    return str(ir.StringAttr(attributes["error_message"]).value)


def assertion_text(text: str, numbers: list[int]) -> str:
    """The text of an assertion with its places filled.

    >>> assertion_text("expected b >= 2, but b = {0}", [1])
    'expected b >= 2, but b = 1'
    """
    return _PLACE.sub(lambda m: str(numbers[int(m[1])]) if int(m[1]) < len(numbers) else m[0], text)
