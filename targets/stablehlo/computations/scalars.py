"""Scalarization: replaces elements extracted from arrays by the scalars that they are computed from.

Use-def chains through moves of elements, constants and arithmetic are followed from the extracted element to scalars.
Loops, branches and operations on whole arrays stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects.attributes.attributes import PaddingConfig, integers
from stablexla.dialects.constants import is_splat
from stablexla.dialects.erasing import erase
from stablexla.dialects.held_arrays import value_of
from stablexla.dialects.hlo import emit, tensor
from stablexla.lowering.support.registry import RULES
from stablexla.targets.stablehlo.computations.element_loops import index

Place = tuple[int, ...]
Element = tuple[Any, Place]


def pick_elements(region: Any) -> None:
    """Replace single elements of arrays in a computation by scalars."""
    (block,) = region.blocks
    picker = _Picker(block)
    *operations, _ = (view.operation for view in block.operations)
    for op in operations:
        if op.name == "stablehlo.reshape" and not op.results[0].type.rank:
            with op.location, hlo_ir.InsertionPoint(op):
                value = picker.pick(op.operands[0], (0,) * op.operands[0].type.rank)
            if value is not None:
                op.results[0].replace_all_uses_with(value)
    *operations, _ = (view.operation for view in block.operations)
    for op in reversed(operations):
        used = any(True for result in op.results for _ in result.uses)
        if not used and (op.name in _MOVES or _is_arithmetic(op)):
            erase(op)


class _Picker:
    """Computes single elements of a block's arrays as scalars, each once however many paths lead to it."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._picked: dict[Element, Any] = {}

    def pick(self, value: Any, place: Place) -> Any:
        """Return the element at a place as a scalar; None where it needs the array."""
        waiting = [(value, place)]
        while waiting:
            missing = [] if waiting[-1] in self._picked else self._pick_from_sources(*waiting[-1])
            if missing:
                waiting += missing
            else:
                waiting.pop()
        return self._picked[value, place]

    def _pick_from_sources(self, value: Any, place: Place) -> list[Element]:
        """Compute an element if those that it is made of are there, else return the missing ones."""
        op = self._maker(value)
        found = value if not value.type.rank else None
        if op is not None:
            sources = _sources(op, place)
            if isinstance(sources, list):
                missing = [source for source in sources if source not in self._picked]
                if missing:
                    return missing
                found = _computed(op, [self._picked[source] for source in sources])
            else:
                found = sources
        self._picked[value, place] = found
        return []

    def _maker(self, value: Any) -> Any:
        """Return the block's operation that defines an array; None for other values."""
        inside = value.type.rank and not isinstance(value.owner, hlo_ir.Block)
        return value.owner.operation if inside and value.owner.operation.block == self._block else None


def _sources(op: Any, place: Place) -> Any:
    """Return the elements from which an array's one is computed; a scalar if it needs none, None if it needs arrays."""
    if op.name in _MOVES:
        found = _MOVES[op.name](op, place)
        return [found] if isinstance(found, tuple) else found
    return [(v, place if v.type.rank else ()) for v in op.operands] if _is_arithmetic(op) else None


def _computed(op: Any, operands: list[Any]) -> Any:
    """Compute an operation's element from its operands'."""
    if op.name in _MOVES or any(v is None for v in operands):
        return operands[0] if op.name in _MOVES else None
    attributes = {name: op.attributes[name] for name in op.attributes}
    return emit(op.name, operands, [tensor(op.results[0].type, [])], attributes)


def _is_arithmetic(op: Any) -> bool:
    """Match element-wise arithmetic with one result, on arrays of its shape and scalars."""
    known = op.name in RULES and (RULES[op.name].family == "elementwise" or op.name == "stablehlo.convert")
    return known and not len(op.regions) and len(op.results) == 1


# --- source of the element that a move stores at a place --------------------------------------------------------------


def _broadcast(op: Any, place: Place) -> tuple[Any, Place]:
    (x,), dimensions = op.operands, integers(op.attributes["broadcast_dimensions"])
    return x, tuple(place[d] if n != 1 else 0 for d, n in zip(dimensions, x.type.shape, strict=True))


def _reshape(op: Any, place: Place) -> tuple[Any, Place]:
    (x,) = op.operands
    number = int(np.ravel_multi_index(place, op.results[0].type.shape)) if place else 0
    return x, tuple(int(n) for n in np.unravel_index(number, x.type.shape)) if x.type.rank else ()


def _slice(op: Any, place: Place) -> tuple[Any, Place]:
    starts, strides = (integers(op.attributes[name]) for name in ("start_indices", "strides"))
    return op.operands[0], tuple(s + p * by for s, p, by in zip(starts, place, strides, strict=True))


def _transpose(op: Any, place: Place) -> tuple[Any, Place]:
    order = integers(op.attributes["permutation"])
    return op.operands[0], tuple(place[order.index(d)] for d in range(len(place)))


def _reverse(op: Any, place: Place) -> tuple[Any, Place]:
    (x,), turned = op.operands, integers(op.attributes["dimensions"])
    return x, tuple(n - 1 - p if d in turned else p for d, (p, n) in enumerate(zip(place, x.type.shape, strict=True)))


def _concatenate(op: Any, place: Place) -> tuple[Any, Place]:
    dimension, at = int(op.attributes["dimension"]), list(place)
    for x in op.operands:
        if at[dimension] < x.type.shape[dimension]:
            break
        at[dimension] -= x.type.shape[dimension]
    return x, tuple(at)


def _pad(op: Any, place: Place) -> tuple[Any, Place]:
    (x, padding), config = op.operands, PaddingConfig.read(op.attributes)
    at = [divmod(p - low, gap + 1) for p, low, gap in zip(place, config.low, config.interior, strict=True)]
    inside = all(not rest and 0 <= p < n for (p, rest), n in zip(at, x.type.shape, strict=True))
    return (x, tuple(p for p, _ in at)) if inside else (padding, ())


def _constant(op: Any, _: Place) -> Any:
    values = value_of(op)
    if not is_splat(values):
        return None
    type_ = tensor(op.results[0].type, [])
    one = hlo_ir.DenseElementsAttr.get_splat(type_, values.get_splat_value())
    return emit("stablehlo.constant", [], [type_], {"value": one})


def _iota(op: Any, place: Place) -> Any:
    type_, number = tensor(op.results[0].type, []), place[int(op.attributes["iota_dimension"])]
    return emit("stablehlo.convert", [index(number)], [type_])


_MOVES: dict[str, Callable[[Any, Place], Any]] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
