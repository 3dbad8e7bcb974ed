"""Constant folding of shape computations.

StableHLO's refinement pass folds the commonest operations on integers; here are floats, reductions and indexing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.attributes.attributes import integers, word
from stablexla.dialects.constants import read_constant
from stablexla.dialects.element_types import BY_MLIR
from stablexla.lowering.support.types import tensor_type
from stablexla.targets.stablehlo.inlining import operations_of

Array = npt.NDArray[Any]
Rule = Callable[..., Array]
MOST_ELEMENTS = 4096
"""Limit on the elements of an array in a shape computation."""

READERS = (
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_conv",
    "stablehlo.dynamic_gather",
    "stablehlo.dynamic_iota",
    "stablehlo.dynamic_pad",
    "stablehlo.dynamic_reshape",
    "stablehlo.real_dynamic_slice",
    "stablehlo.custom_call",
)
"""Operations whose result extents, or whose refusal, depend on operand values."""


def constant_of(value: Any) -> Array | None:
    """Return the value of a constant; None for other values, or types that shape computations do not use."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "stablehlo.constant" or not _is_small(value.type):
        return None
    type_ = tensor_type(value.type)
    return read_constant(op, type_.element, type_.shape)


def evaluate_shapes(module: ir.Module) -> bool:
    """Fold operands of operations with dynamic results to constants where they follow from constants.

    Returns:
        Whether there was any.
    """
    known: dict[Any, Array | None] = {}
    changed = False
    for name in READERS:
        for op in operations_of(module, name):
            for place, operand in enumerate(op.operands):
                if not _is_integer(operand.type) or constant_of(operand) is not None:
                    continue
                found = _value(operand, known)
                if found is not None:
                    op.operands[place] = _constant(found, operand.type, op)
                    changed = True
    return changed


def _is_small(type_: Any) -> bool:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return False
    return str(type_.element_type) in BY_MLIR and int(np.prod(type_.shape)) <= MOST_ELEMENTS


def _is_integer(type_: Any) -> bool:
    return _is_small(type_) and isinstance(type_.element_type, ir.IntegerType)


def _constant(value: Array, type_: Any, before: Any) -> Any:
    with before.location, ir.InsertionPoint(before):
        if type_.element_type.width == 1:
            dense = ir.DenseElementsAttr.get(value.astype(bool), type=type_.element_type, shape=type_.shape)
        else:
            dense = ir.DenseElementsAttr.get(np.ascontiguousarray(value), type=type_)
        return ir.Operation.create("stablehlo.constant", results=[type_], attributes={"value": dense}).results[0]


def _value(value: Any, known: dict[Any, Array | None]) -> Array | None:
    """Evaluate a value, if it follows from constants by the rules below."""
    if value not in known:
        known[value] = constant_of(value)
        if known[value] is None:
            known[value] = _evaluate(value, known)
    return known[value]


def _evaluate(value: Any, known: dict[Any, Array | None]) -> Array | None:
    op = value.owner
    if isinstance(op, ir.Block) or len(op.results) != 1 or not _is_small(value.type) or op.name not in RULES:
        return None
    operands = [_value(v, known) for v in op.operands]
    if any(o is None for o in operands):
        return None
    type_ = tensor_type(value.type)
    with np.errstate(all="ignore"):
        found = RULES[op.name](op, *operands)
        return None if found is None else np.asarray(found).astype(type_.element.dtype).reshape(type_.shape)


def _slice(op: Any, x: Array) -> Array:
    limits = zip(*(integers(op.attributes[f"{k}"]) for k in ("start_indices", "limit_indices", "strides")), strict=True)
    return x[tuple(slice(*own) for own in limits)]


def _dynamic_slice(op: Any, x: Array, *starts: Array) -> Array:
    sizes = integers(op.attributes["slice_sizes"])
    first = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(s, s + size) for s, size in zip(first, sizes, strict=True))]


def _broadcast_in_dim(op: Any, x: Array) -> Array:
    places = integers(op.attributes["broadcast_dimensions"])
    shape = op.results[0].type.shape
    spread = [1] * len(shape)
    for extent, place in zip(x.shape, places, strict=True):
        spread[place] = extent
    return np.broadcast_to(x.reshape(spread), shape)


def _iota(op: Any) -> Array:
    shape, place = op.results[0].type.shape, int(op.attributes["iota_dimension"])
    along = np.arange(shape[place]).reshape([-1 if i == place else 1 for i in range(len(shape))])
    return np.broadcast_to(along, shape)


def _compare(op: Any, x: Array, y: Array) -> Array:
    direction = word(op.attributes["comparison_direction"])
    names = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"}
    result: Array = getattr(np, names[direction])(x, y)
    return result


def _convert(op: Any, x: Array) -> Array | None:
    to = BY_MLIR[str(op.results[0].type.element_type)]
    if to.is_integer and x.dtype.kind not in "iub" and not np.isfinite(x.astype(np.float64)).all():
        return None
    return x


def _reduce(op: Any, x: Array, initial: Array) -> Array | None:
    """Evaluate a reduction whose combiner is one binary operation."""
    body = [inner.operation for inner in op.regions[0].blocks[0].operations]
    if len(body) != 2 or body[0].name not in _FOLDS or len(op.operands) != 2:
        return None
    fold = _FOLDS[body[0].name]
    axes = integers(op.attributes["dimensions"])
    result: Array = fold(fold.reduce(x, axis=axes, initial=None) if x.size else initial, initial)
    return result


def _divide(op: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind == "f" or x.dtype.kind not in "iu":
        return np.asarray(x / y)
    safe = np.where(y == 0, 1, y)
    quotient = np.where((x % safe != 0) & ((x < 0) != (safe < 0)), x // safe + 1, x // safe)
    return np.where(y == 0, -1, quotient)


def _remainder(op: Any, x: Array, y: Array) -> Array:
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda op, *operands: np.asarray(function(*operands))


_FOLDS: dict[str, Any] = {
    "stablehlo.add": np.add,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.multiply": np.multiply,
    "stablehlo.or": np.bitwise_or,
}
RULES: dict[str, Any] = {
    **{name: _plain(function) for name, function in _FOLDS.items()},
    "stablehlo.abs": _plain(np.abs),
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.ceil": _plain(np.ceil),
    "stablehlo.clamp": _plain(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "stablehlo.compare": _compare,
    "stablehlo.concatenate": lambda op, *parts: np.concatenate(parts, int(op.attributes["dimension"])),
    "stablehlo.convert": _convert,
    "stablehlo.divide": _divide,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.floor": _plain(np.floor),
    "stablehlo.iota": _iota,
    "stablehlo.negate": _plain(np.negative),
    "stablehlo.not": _plain(np.invert),
    "stablehlo.power": _plain(np.float_power),
    "stablehlo.reduce": _reduce,
    "stablehlo.remainder": _remainder,
    "stablehlo.reshape": lambda op, x: x.reshape(op.results[0].type.shape),
    "stablehlo.reverse": lambda op, x: np.flip(x, integers(op.attributes["dimensions"])),
    "stablehlo.round_nearest_afz": _plain(lambda x: np.trunc(x + np.copysign(0.5, x))),
    "stablehlo.round_nearest_even": _plain(np.rint),
    "stablehlo.select": _plain(np.where),
    "stablehlo.sign": _plain(np.sign),
    "stablehlo.slice": _slice,
    "stablehlo.sqrt": _plain(np.sqrt),
    "stablehlo.subtract": _plain(np.subtract),
    "stablehlo.transpose": lambda op, x: np.transpose(x, integers(op.attributes["permutation"])),
    "stablehlo.xor": _plain(np.bitwise_xor),
}
"""Evaluation rules of operations on constant operands."""
