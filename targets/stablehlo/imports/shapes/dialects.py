"""Conversion to StableHLO of size computations in the dialects shape, tensor and arith, as PyTorch exporters emit.

An `index`, or an integer, becomes a scalar array; a shape an array of s64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.inlining import inline_block
from stablexla.lowering.rules.calls.jax_calls import SHAPE_ASSERTION
from stablexla.lowering.support.context import place_of
from stablexla.targets.stablehlo.imports.shapes.calls import replace_value
from stablexla.targets.stablehlo.imports.shapes.values import constant_of

PREFIXES = ("shape.", "tensor.", "arith.", "scf.", "ub.", "cf.assert")
_CASTS = ("extsi", "extui", "index_cast", "index_castui", "trunci")
_ARITHMETIC = {
    "addi": "add",
    "andi": "and",
    "divsi": "divide",
    "divui": "divide",
    "maxsi": "maximum",
    "minsi": "minimum",
    "muli": "multiply",
    "ori": "or",
    "remsi": "remainder",
    "remui": "remainder",
    "subi": "subtract",
}
_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE", "LT", "LE", "GT", "GE")
"""By the numbers of arith's predicates; sizes are not negative, so that signedness makes no difference."""


def shapes_to_stablehlo(module: ir.Module) -> None:
    """Convert all operations of these dialects.

    Raises:
        UnsupportedError: one that is not among those that sizes are computed with.
    """
    found = _foreign(module)
    for op in found:
        rule = RULES.get(op.name)
        if rule is None:
            raise UnsupportedError(f"it is not known here{place_of(op.location)}", operation=op.name)
        with op.location, ir.InsertionPoint(op):
            made = rule(op, list(op.operands))
        for old, new in zip(op.results, made, strict=True):
            if new is not None:
                replace_value(old, new)
    for op in reversed(found):
        erase(op)


def _foreign(module: ir.Module) -> list[Any]:
    """Return the operations of these dialects in program order."""
    found: list[Any] = []

    def look(op: Any) -> Any:
        if op.name.startswith(PREFIXES):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def _integer(type_: Any) -> Any:
    """Convert `index` and integer types to an element type."""
    return ir.IntegerType.get_signless(64) if str(type_) == "index" else type_


def array_of(type_: Any) -> Any:
    """Convert a type of these dialects to an array type."""
    if isinstance(type_, ir.RankedTensorType):
        return ir.RankedTensorType.get(list(type_.shape), _integer(type_.element_type))
    return ir.RankedTensorType.get([], _integer(type_))


def _numbers(values: Sequence[int]) -> Any:
    """Create a constant array of s64."""
    return hlo.array(np.array(values, np.int64))


def _constant(op: Any, operands: list[Any]) -> list[Any]:
    value, type_ = op.attributes["value"], op.results[0].type
    if isinstance(type_, ir.RankedTensorType) and str(type_.element_type) != "index":
        return [hlo.emit("stablehlo.constant", [], [type_], {"value": value})]
    array = array_of(type_)
    text = str(value).rsplit(":", 1)[0].strip().removeprefix("dense<").removesuffix(">")
    return [hlo.constant(array, text)]


def _const_shape(op: Any, operands: list[Any]) -> list[Any]:
    return [_numbers([int(n) for n in ir.DenseIntElementsAttr(op.attributes["shape"])])]


def _cast(op: Any, operands: list[Any]) -> list[Any]:
    return [hlo.convert(operands[0], array_of(op.results[0].type).element_type)]


def _compute(op: Any, operands: list[Any]) -> list[Any]:
    name = _ARITHMETIC[op.name.removeprefix("arith.")]
    return [hlo.elementwise(name, *operands)]


def _compare(op: Any, operands: list[Any]) -> list[Any]:
    direction = _DIRECTIONS[int(ir.IntegerAttr(op.attributes["predicate"]).value)]
    lhs, rhs = operands
    return [hlo.compare(lhs, rhs, direction, kind=None)]


def _select(op: Any, operands: list[Any]) -> list[Any]:
    return [hlo.select(*operands)]


def _require(op: Any, operands: list[Any]) -> list[Any]:
    """Convert to a shape assertion; the witness is unused."""
    _assert(op, operands)
    return [None]


def _assert(op: Any, operands: list[Any]) -> list[Any]:
    attributes = {
        "call_target_name": ir.StringAttr.get(SHAPE_ASSERTION),
        "error_message": op.attributes["msg"],
        "has_side_effect": ir.BoolAttr.get(True),
    }
    ir.Operation.create("stablehlo.custom_call", operands=operands, attributes=attributes)
    return []


def _size(x: Any, place: int) -> Any:
    size = stablehlo.get_dimension_size(x, place)
    return hlo.convert(size, ir.IntegerType.get_signless(64))


def _dim(op: Any, operands: list[Any]) -> list[Any]:
    return [_size(operands[0], _known(op, operands[1]))]


def _known(op: Any, value: Any) -> int:
    found = constant_of(value)
    if found is None:
        raise UnsupportedError(f"its index is no constant{place_of(op.location)}", operation=op.name)
    return int(found)


def _shape_of(op: Any, operands: list[Any]) -> list[Any]:
    (x,) = operands
    return [_row([_size(x, place) for place in range(x.type.rank)])]


def _row(scalars: Sequence[Any]) -> Any:
    """Concatenate scalars to an array of rank 1."""
    if not scalars:
        return _numbers([])
    parts = [hlo.reshape(s, [1]) for s in scalars]
    return stablehlo.concatenate(parts, 0) if len(parts) > 1 else parts[0]


def _from_elements(op: Any, operands: list[Any]) -> list[Any]:
    return [hlo.reshape(_row(operands), array_of(op.results[0].type).shape)]


def _element(x: Any, place: int) -> Any:
    one = stablehlo.slice(x, [place], [place + 1], [1])
    return hlo.reshape(one, [])


def _extract(op: Any, operands: list[Any]) -> list[Any]:
    x, *places = operands
    if len(places) > 1:
        raise UnsupportedError(f"an array of rank {len(places)}{place_of(op.location)}", operation=op.name)
    return [_element(x, _known(op, places[0])) if places else x]


def _num_elements(op: Any, operands: list[Any]) -> list[Any]:
    (shape,) = operands
    extents = [_element(shape, i) for i in range(shape.type.shape[0])]
    one = hlo.reshape(_numbers([1]), [])
    return [reduce(lambda x, y: hlo.elementwise("multiply", x, y), extents, one)]


def _broadcast(op: Any, operands: list[Any]) -> list[Any]:
    """Broadcast two shapes: extent 1 takes the other's; trailing dimensions are aligned."""
    rank = max(shape.type.shape[0] for shape in operands)
    aligned = []
    for shape in operands:
        missing = rank - shape.type.shape[0]
        aligned.append(stablehlo.concatenate([_numbers([1] * missing), shape], 0) if missing else shape)
    ones = _numbers([1] * rank)

    def both(x: Any, y: Any) -> Any:
        return hlo.select(hlo.compare(x, ones, "EQ", kind=None), y, x)

    return [reduce(both, aligned)]


def _same(op: Any, operands: list[Any]) -> list[Any]:
    return operands


def _witness(op: Any, operands: list[Any]) -> list[Any]:
    """Drop the witness: its condition is checked by the operations that use the shapes."""
    return [None]


def _assuming(op: Any, operands: list[Any]) -> list[Any]:
    """Inline the region's operations; its terminator's operands are the results."""
    return inline_block(op.regions[0].blocks[0], [], op)


def _end(op: Any, operands: list[Any]) -> list[Any]:
    return []


RULES: dict[str, Callable[[Any, list[Any]], list[Any]]] = {
    **{f"arith.{name}": _cast for name in _CASTS},
    **{f"arith.{name}": _compute for name in _ARITHMETIC},
    **{f"shape.{name}": _same for name in ("from_extent_tensor", "index_to_size", "size_to_index", "to_extent_tensor")},
    **{f"shape.{name}": _witness for name in ("assuming_all", "const_witness", "cstr_broadcastable", "cstr_eq")},
    "shape.cstr_require": _require,
    "arith.cmpi": _compare,
    "arith.constant": _constant,
    "arith.select": _select,
    "cf.assert": _assert,
    "shape.assuming": _assuming,
    "shape.assuming_yield": _end,
    "shape.broadcast": _broadcast,
    "shape.const_shape": _const_shape,
    "shape.dim": _dim,
    "shape.get_extent": _extract,
    "shape.num_elements": _num_elements,
    "shape.shape_of": _shape_of,
    "tensor.cast": _same,
    "tensor.dim": _dim,
    "tensor.extract": _extract,
    "tensor.from_elements": _from_elements,
}
