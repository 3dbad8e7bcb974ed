"""StableHLO's tensor types in the `tensor` stage: value type and storage type of an element.

Arithmetic is on values in SSA form; storage is the form in memory, where each element takes at least a byte.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.dialects.element_types import BY_MLIR, BY_NAME, ElementType
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.tensor_types import TensorType as TensorType  # it is named from here

TOKEN = TensorType(BY_NAME["u8"], (0,))
"""The placeholder type of a token: an empty array, whose use-def chain orders the operations."""


def is_token(type_: Any) -> bool:
    """Whether a StableHLO type is that of a token."""
    return str(type_) == "!stablehlo.token"


def tensor_type(type_: Any) -> TensorType:
    """Parse a StableHLO tensor type.

    Raises:
        UnsupportedError: a dynamic extent, or a type that is no tensor of one of XLA's element types.
    """
    known = kept_with_contexts("tensor types")
    found: TensorType | None = known.get(type_)
    if found is None:
        found = known[type_] = _read(type_)
    return found


def _read(type_: Any) -> TensorType:
    """Parse a type, cached by `tensor_type`: to have it printed takes long."""
    if not isinstance(type_, hlo_ir.RankedTensorType):
        if is_token(type_):
            return TOKEN
        raise UnsupportedError(f"a value of type {type_} has no lowering")
    element = BY_MLIR.get(str(type_.element_type))
    if element is None and "!quant." in str(type_.element_type):
        raise UnsupportedError(
            f"a quantised type has no lowering: {type_}", hint="the pass stablexla-legalize-quantized, before this one"
        )
    if element is None:
        raise UnsupportedError(f"the element type {type_.element_type} has no lowering")
    if not type_.has_static_shape:
        raise UnsupportedError(f"a dynamic shape has no lowering: {type_}")
    tensor = TensorType(element, tuple(type_.shape))
    if tensor.size * element.bytes >= 2**63:
        raise UnsupportedError(f"an array of 2^63 bytes or more has no lowering: {type_}")
    return tensor


def value_type(element: ElementType) -> ir.Type:
    """Return the type of an element in SSA form; integers are signless, those below a byte kept extended in i8."""
    if element.is_pred:
        return ir.IntegerType.get_signless(1)
    if element.is_integer:
        return ir.IntegerType.get_signless(max(8, element.bits))
    return parsed_type(element.mlir)


def parsed_type(text: str) -> ir.Type:
    """Return a type by its text, which is parsed once for a context."""
    known = kept_with_contexts("types")
    found: ir.Type | None = known.get((text, ir.Context.current))
    if found is None:
        found = known[text, ir.Context.current] = ir.Type.parse(text)
    return found


def storage_type(element: ElementType) -> ir.Type:
    """Return the type of an element in a tensor or buffer, of a byte at least."""
    if element.bits < 8:
        return ir.IntegerType.get_signless(8)
    return value_type(element)


def tensor_storage(type_: TensorType) -> ir.RankedTensorType:
    """Return the upstream tensor type of a StableHLO tensor."""
    return ir.RankedTensorType.get(type_.shape, storage_type(type_.element))


def ssa_type(type_: TensorType) -> ir.Type:
    """Return the type of a StableHLO tensor in SSA form: a scalar when its rank is 0, else a tensor."""
    return value_type(type_.element) if type_.rank == 0 else tensor_storage(type_)
