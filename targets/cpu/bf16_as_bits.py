"""LLVM's bf16 as i16: by now bf16 values are only moved, and LLVM's own handling of the type calls a library to move them."""

from __future__ import annotations

from typing import Any

import mlir.ir as ir
import numpy as np

from stablexla.dialects.constants import dense_values
from stablexla.dialects.element_types import BY_NAME
from stablexla.targets.kernels.classify import walk
from stablexla.targets.passes import module_pass


@module_pass("stablexla-bf16-as-bits", "gives bf16 values in LLVM's dialect the type of their bits")
def bf16_as_bits(module: ir.Module) -> None:
    """Replaces the type everywhere: values, function signatures, constants, element types of address arithmetic."""
    for op in walk(module.operation):
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    _retype(argument)
        for result in op.results:
            _retype(result)
        for name, attribute in list(op.attributes.items()):
            if "bf16" in str(attribute):
                op.attributes[name] = _attribute(attribute)


def _retype(value: Any) -> None:
    if "bf16" in str(value.type):
        value.set_type(_type(value.type))


def _type(type_: ir.Type) -> ir.Type:
    return ir.Type.parse(str(type_).replace("bf16", "i16"))


def _attribute(attribute: ir.Attribute) -> ir.Attribute:
    """The attribute with bf16 types and numbers replaced."""
    if isinstance(attribute, ir.TypeAttr):
        return ir.TypeAttr.get(_type(attribute.value))
    if isinstance(attribute, ir.FloatAttr) and "bf16" in str(attribute.type):
        bits = np.float32(attribute.value).view(np.uint32) >> 16  # the value is a bf16's, so nothing is cut off
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(16), int(bits.astype(np.uint16).view(np.int16)))
    if isinstance(attribute, ir.DenseElementsAttr) and "bf16" in str(attribute.type):
        shape = tuple(attribute.type.shape)
        values = dense_values(attribute, BY_NAME["bf16"], shape)
        return ir.DenseElementsAttr.get(np.ascontiguousarray(values).view(np.int16), type=_type(attribute.type))
    return attribute
