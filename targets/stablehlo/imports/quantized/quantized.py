"""Legalization of quantized types, `!quant.uniform<i8:f32, 0.5:3>`: integers that stand for real numbers.

Operations that only move elements work on the integers; the others become, as the specification says, dequantize, the
operation, and quantize.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.quantized_types import QuantizedType, is_quantized, quantized_type, storage_of
from stablexla.lowering.rules.devices.roots import ZEROS
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.signature.signature import outer_types
from stablexla.targets.stablehlo.imports.quantized.arithmetic import dequantize, quantize
from stablexla.targets.stablehlo.imports.quantized.products import exact_product

MOVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("all_gather", "all_reduce", "all_to_all", "bitcast_convert", "broadcast", "broadcast_in_dim", "case"),
        *("collective_broadcast", "collective_permute", "collective_reduce", "composite", "concatenate", "constant"),
        *(
            "custom_call",
            "dynamic_broadcast_in_dim",
            "dynamic_gather",
            "dynamic_pad",
            "dynamic_reshape",
            "dynamic_slice",
        ),
        *("dynamic_update_slice", "gather", "get_dimension_size", "get_tuple_element", "if", "map"),
        *("optimization_barrier", "pad", "real_dynamic_slice", "reduce", "reduce_scatter", "reduce_window", "reshape"),
        *("return", "reverse", "scatter", "select", "select_and_scatter", "slice", "sort", "transpose", "tuple"),
        *("while",),
    )
) | {"func.call", "func.return"}
"""Operations that work on the storage integers; those in their regions are legalized one by one."""

_CONVERSIONS = ("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize")
_OTHER_SOURCES = (*_CONVERSIONS, "stablehlo.custom_call", "stablehlo.infeed", "stablehlo.recv")
_SOURCES = frozenset([*_OTHER_SOURCES, "func.func", "stablehlo.constant"])
# An operation that selects one of its operands gives the same integer either way: with scales in these bounds neither
# (q - zero point) * scale nor its quotient by the scale is rounded by as much as half an integer.
_CHOICES = frozenset({"stablehlo.maximum", "stablehlo.minimum"})
_SCALES = (1e-30, 1e30)
# Operations whose operands and results may differ in scale and zero point: these requantize.
_MAY_DIFFER = frozenset({"stablehlo.concatenate", "stablehlo.pad", "stablehlo.select"})
_ROOTED = "stablehlo.collective_reduce"
# Operations that return the number 0 where no device sends, which is the zero point as an integer.
_MAY_FILL = frozenset({"stablehlo.collective_broadcast", "stablehlo.collective_permute"})


@dataclass(frozen=True)
class _Use:
    """An operation with its original quantized types."""

    op: Any
    operands: tuple[Any, ...]
    results: tuple[Any, ...]

    @property
    def quantized(self) -> list[QuantizedType]:
        types = [t for t in (*self.operands, *self.results) if is_quantized(t)]
        return [quantized_type(t.element_type) for t in types]


@module_pass(
    "stablexla-legalize-quantized",
    "turns quantised types into integers, and operations on them into arithmetic on what they stand for",
    side="stablehlo",
    acts_on=lambda held: held.has(*_OTHER_SOURCES) or held.has_type(is_quantized),
)
def legalize_quantized(module: ir.Module) -> None:
    """Rewrite quantized types to storage integers; modules without them are left as they are.

    Raises:
        UnsupportedError: a quantised type that is not uniform by tensor or by axis.
    """
    if not _has_quantized(module):
        return
    uses = _uses(module)
    for use in uses:
        _retype(use)
    for use in uses:
        if not _only_moves(use):
            _compute(use)


def _has_quantized(module: ir.Module) -> bool:
    """Check only sources of quantized arrays: checking all types would take ten times as long."""
    found = False

    def look(op: Any) -> Any:
        nonlocal found
        name = op.name
        if name in _SOURCES:
            types = outer_types(op) if name == "func.func" else [r.type for r in op.results]
            found = name in _CONVERSIONS or any(map(is_quantized, types))
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _uses(module: ir.Module) -> list[_Use]:
    """Return the operations with quantized operands, results or region parameters, in program order."""
    found: list[_Use] = []

    def look(op: Any) -> Any:
        operands, results = [v.type for v in op.operands], [r.type for r in op.results]
        if op.name == "func.func":
            results = outer_types(op)
        if any(is_quantized(t) for t in (*operands, *results)) or _has_quantized_blocks(op):
            found.append(_Use(op.operation, tuple(operands), tuple(results)))
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def _has_quantized_blocks(op: Any) -> bool:
    if op.name == "builtin.module":
        return False
    return any(is_quantized(a.type) for region in op.regions for block in region.blocks for a in block.arguments)


def _only_moves(use: _Use) -> bool:
    if use.op.name == "func.func":
        return True
    if use.op.name in _CHOICES:
        return _chooses_integers(use)
    if use.op.name not in MOVES:
        return False
    if use.op.name in _MAY_FILL and any(any(q.zero_points) for q in use.quantized):
        return False
    return use.op.name not in _MAY_DIFFER or len({q.parameters for q in use.quantized}) == 1


def _chooses_integers(use: _Use) -> bool:
    """Whether all values have one quantized type of f32, scales in bounds, that uses the full range of its storage."""
    types = use.quantized
    one = types[0]
    alike = len(types) == len(use.operands) + len(use.results) and len({(q.parameters, q.axis) for q in types}) == 1
    apart = all(_SCALES[0] <= scale <= _SCALES[1] for scale in one.scales)
    full = one.bits in (8, 16) and one.high - one.low + 1 == 1 << one.bits
    return alike and apart and full and one.expressed == "f32"


def _retype(use: _Use) -> None:
    """Replace quantized types by storage integers in an operation's results and block arguments."""
    op = use.op
    for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)):
        if is_quantized(value.type):
            value.set_type(_storage(value.type))
    if op.name == "func.func":
        type_ = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        inputs, results = ([_storage(t) for t in types] for types in (type_.inputs, type_.results))
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    elif op.name == _ROOTED:
        zeros = [quantized_type(t.element_type).zero_points[0] if is_quantized(t) else 0 for t in use.results]
        op.attributes[ZEROS] = ir.DenseI64ArrayAttr.get(zeros)
    elif op.name == "stablehlo.constant":
        op.attributes["value"] = _stored(op.attributes["value"], op.results[0].type)


def _storage(type_: Any) -> Any:
    """Return a type with storage integers in place of quantized elements."""
    if not is_quantized(type_):
        return type_
    element = storage_of(type_.element_type)
    unknown = ir.Location.unknown(type_.context)
    return ir.RankedTensorType.get(list(type_.shape), element, type_.encoding, loc=unknown)


def _stored(values: Any, type_: Any) -> Any:
    """Return a constant's values with the quantized type's signedness, which MLIR's signless type lacks."""
    if values.type == type_:
        return values
    import numpy as np

    raw = np.array(values).astype(np.int64) & ((1 << type_.element_type.width) - 1)
    width = max(8, type_.element_type.width)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(raw.astype(f"u{width // 8}")), type=type_)


def _compute(use: _Use) -> None:
    """Dequantize the operands, apply the operation, and quantize its results."""
    op = use.op
    with op.location, ir.InsertionPoint(op):
        made = exact_product(op, use.operands, use.results)
        if made is None:
            operands = [_number(v, t) for v, t in zip(op.operands, use.operands, strict=True)]
            made = operands if op.name in _CONVERSIONS else _on_numbers(op, operands, use.results)
        results = [
            quantize(v, quantized_type(t.element_type), _storage(t)) if is_quantized(t) else v
            for v, t in zip(made, use.results, strict=True)
        ]
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


def _number(value: Any, type_: Any) -> Any:
    return dequantize(value, quantized_type(type_.element_type)) if is_quantized(type_) else value


def _on_numbers(op: Any, operands: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    results = [_expressed(t) for t in types]
    attributes = {name: value for name, value in op.attributes.items() if name != "compare_type"}
    return list(ir.Operation.create(op.name, results=results, operands=list(operands), attributes=attributes).results)


def _expressed(type_: Any) -> Any:
    if not is_quantized(type_):
        return type_
    element = ir.Type.parse(quantized_type(type_.element_type).expressed)
    return ir.RankedTensorType.get(list(type_.shape), element, type_.encoding)
