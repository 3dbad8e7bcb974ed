"""Rewrite of LLVM's bf16 to i16: by now such values are only moved, for which x86 without bf16 calls a library."""

from __future__ import annotations

import mlir.ir as ir
import numpy as np

from stablexla.dialects.constants import dense_values
from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.math.small_floats import NO_BF16
from stablexla.lowering.support.operations import walk
from stablexla.targets.pipeline.passes import module_pass

# Operations whose attributes hold types or numbers.
WITH_TYPES = frozenset(["llvm.mlir.constant", "llvm.getelementptr", "llvm.alloca", "llvm.func"])


@module_pass("stablexla-bf16-as-bits", "gives bf16 values in LLVM's dialect the type of their bits")
def bf16_as_bits(module: ir.Module) -> None:
    """Replace the type everywhere: values, function signatures, constants, element types of address arithmetic.

    A module that an earlier pass has marked as free of bf16 is not searched.
    """
    if NO_BF16 in module.operation.attributes:
        del module.operation.attributes[NO_BF16]
        return
    replaced: dict[ir.Type, ir.Type | None] = {}

    def retype(value: ir.Value) -> None:
        type_ = value.type
        if type_ not in replaced:
            replaced[type_] = _bits(type_) if "bf16" in str(type_) else None
        other = replaced[type_]
        if other is not None:
            value.set_type(other)

    for op in walk(module.operation):
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    retype(argument)
        for result in op.results:
            if not _is_for_an_intrinsic(op):
                retype(result)
        if op.name in WITH_TYPES:
            for name, attribute in list(op.attributes.items()):
                if "bf16" in str(attribute):
                    op.attributes[name] = _attribute(attribute)


def _is_for_an_intrinsic(op: ir.Operation) -> bool:
    """Whether a bitcast to bf16 is used by intrinsics alone."""
    uses = list(op.results[0].uses) if op.name == "llvm.bitcast" else []
    return bool(uses) and all(use.owner.name == "llvm.call_intrinsic" for use in uses)


def _bits(type_: ir.Type) -> ir.Type:
    return ir.Type.parse(str(type_).replace("bf16", "i16"))


def _attribute(attribute: ir.Attribute) -> ir.Attribute:
    """Return the attribute with bf16 types and numbers replaced."""
    if isinstance(attribute, ir.TypeAttr):
        return ir.TypeAttr.get(_bits(attribute.value))
    if isinstance(attribute, ir.FloatAttr):
        bits = np.float32(attribute.value).view(np.uint32) >> 16  # exact: the value is a bf16's
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(16), int(bits.astype(np.uint16).view(np.int16)))
    if isinstance(attribute, ir.DenseElementsAttr):
        values = dense_values(attribute, BY_NAME["bf16"], tuple(attribute.type.shape))
        return ir.DenseElementsAttr.get(np.ascontiguousarray(values).view(np.int16), type=_bits(attribute.type))
    return attribute
