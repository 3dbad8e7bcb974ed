"""Conditions under which an operation shows a NaN, an infinity or a misused integer, as operations of StableHLO.

A condition is on elements of arrays of one shape, so that one operation can compute it together with what is made of
it, or on whole arrays: a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.value_checks import DIVISION, INDICES, NAN, OVERFLOW, WARNINGS
from stablexla.lowering.support.types import tensor_type
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    has_inf,
    is_elementwise,
    is_finite_constant,
    is_stored,
    numbers_of,
    widest,
)
from stablexla.targets.stablehlo.computations.element_loops import where

Value = Any
Test = Callable[[Value, str], Value]
LEAST_ROW = 16


@dataclass(frozen=True)
class Condition:
    """A condition on values of the program.

    Attributes:
        values: the arrays that it is computed from; those of a pointwise one have one shape.
        compute: emits it as a scalar: from an element of each array at one index, or from the arrays.
        is_pointwise: whether it is one on the elements at each index.
        shown_in: an array that is NaN, or not finite, wherever the condition holds; or None.
    """

    values: tuple[Value, ...]
    compute: Callable[..., Value]
    is_pointwise: bool = True
    shown_in: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the arrays of a pointwise condition; () of any other."""
        return tuple(self.values[0].type.shape) if self.is_pointwise else ()

    def emit(self, at: Mapping[Value, Value]) -> Value:
        """Emit an array of pred, or a scalar, from the values' places in the program with checks."""
        given = [at[value] for value in self.values]
        return mapped(given, self.compute) if self.is_pointwise else self.compute(*given)


def mapped(values: Sequence[Value], compute: Callable[..., Value], element: Any = None) -> Value:
    """Emit one operation that computes an element from those of the arrays at its index: a pred, or of another type."""
    shape = list(values[0].type.shape)
    if not shape:
        return compute(*values)
    made = ir.RankedTensorType.get(shape, hlo.integer_tensor(1).element_type if element is None else element)
    op = hlo.operation("stablehlo.map", values, [made], {"dimensions": hlo.i64s(range(len(shape)))}, regions=1)
    with hlo.block(op.regions[0], [hlo.tensor(value.type, []) for value in values]) as scalars:
        hlo.return_([compute(*scalars)])
    return op.results[0]


def reduced(value: Value, name: str) -> Value:
    """Reduce an array of integers from 0 to a scalar; rows first, which a kernel of rows computes beside its own."""
    rank = value.type.rank
    if not rank:
        return value
    zero = hlo.number(value.type, "0")
    if rank > 1 and value.type.shape[-1] >= LEAST_ROW:
        value = hlo.reduce(value, zero, [rank - 1], name)
    return hlo.reduce(value, zero, range(value.type.rank), name)


def joined(name: str, conditions: Iterable[Value]) -> Value:
    """Join conditions by `and` or `or`."""
    return reduce(partial(hlo.elementwise, name), conditions)


# ---- operations ------------------------------------------------------------------------------------------------------


def condition_of(checked: Checked) -> Condition:
    """Return the condition that holds where an operation shows one of the kinds that it is checked for."""
    op, kinds = checked.op, checked.kinds
    if kinds[0] == INDICES:
        return _out_of_range(op)
    if kinds[0] in WARNINGS:
        return Condition((op.operands[1],), _is_zero if kinds[0] == DIVISION else _is_wide)
    return _bad(checked.alone, widest([checked])) if checked.alone else _made_of_sound(op, kinds)


def on_elements(checked: Checked) -> list[tuple[str, Value, Condition]]:
    """Return conditions on the elements of an operation's results, with the kind and the result.

    Those of operations that are not element-wise do not ask for the operands; for indices there are none.
    """
    op, kinds = checked.op, [kind for kind in checked.kinds if kind != INDICES]
    if is_elementwise(op) and not checked.alone:
        return [(kind, op.results[0], condition_of(replace(checked, kinds=(kind,)))) for kind in kinds]
    shown = [(kind, value) for kind in kinds for value in numbers_of(op.results)]
    return [(kind, value, Condition((value,), partial(_shows, kind=kind))) for kind, value in shown]


def _bad(values: tuple[Value, ...], kind: str) -> Condition:
    """Return the condition that values are NaN, or for any other kind not finite."""
    if len(values) == 1:
        return Condition(values, partial(is_bad, kind=kind))
    return Condition(values, lambda *given: joined("or", [_any(is_bad, v, kind) for v in given]), False)


def _made_of_sound(op: Any, kinds: Sequence[str]) -> Condition:
    """Return the condition that results show a kind while the operands are sound: at the same index, or as a whole.

    Whole arrays in memory are looked through only where the rest holds.
    """
    is_pointwise, results = is_elementwise(op), numbers_of(op.results)
    operands = [value for value in numbers_of(op.operands) if not is_finite_constant(value)]
    stored = [value for value in operands if not is_pointwise and is_stored(value)]
    pole = {"stablehlo.divide": 1, "stablehlo.power": 0}.get(op.name) if OVERFLOW in kinds else None
    poles = [] if pole is None else [op.operands[pole]]  # an infinite quotient by zero is no overflow
    values = tuple(dict.fromkeys([*results, *operands, *poles]))

    def compute(*given: Value) -> Value:
        at = dict(zip(values, given, strict=True))
        holds = (lambda test, value, kind: test(value, kind)) if is_pointwise else _any

        def sound(kind: str, values: Sequence[Value]) -> list[Value]:
            if is_pointwise:
                return [is_sound(at[value], kind) for value in values]
            return [hlo.elementwise("not", _any(is_bad, at[value], kind)) for value in values]

        def shows(kind: str) -> Value:
            shown = joined("or", [holds(_shows, at[value], kind) for value in results])
            near = sound(kind, [value for value in operands if value not in stored])
            finite = [hlo.elementwise("not", _is_zero(at[x])) for x in poles if kind == OVERFLOW]
            shown = joined("and", [shown, *near, *finite])
            none = hlo.number(shown.type, "0")
            return where(shown, lambda: [joined("and", sound(kind, stored))], [none])[0] if stored else shown

        return joined("or", map(shows, kinds))

    return Condition(values, compute, is_pointwise, results[0] if is_pointwise else None)


# ---- floats and complex numbers --------------------------------------------------------------------------------------


def _any(test: Test, value: Value, kind: str) -> Value:
    """Return whether any element of an array is bad, or shows a kind."""
    return reduced(mapped([value], lambda x: test(x, kind)), "or")


def is_bad(value: Value, kind: str, direction: str = "NE") -> Value:
    """Return whether a scalar is NaN, or for any other kind not finite: x - x is NaN, in the fewest instructions."""
    x = value if kind == NAN else hlo.elementwise("subtract", value, value)
    return hlo.compare(x, x, direction, "FLOAT")


is_sound = partial(is_bad, direction="EQ")


def _shows(value: Value, kind: str) -> Value:
    """Return whether a scalar is NaN, or infinite; NaN too in a type without infinities, where it is an overflow."""
    element = tensor_type(value.type).element
    if kind == NAN or not has_inf(element.part):
        return is_bad(value, NAN)
    if element.is_complex:
        part = ir.RankedTensorType.get([], value.type.element_type.element_type)
        return joined("or", [_shows(hlo.emit(f"stablehlo.{name}", [value], [part]), kind) for name in ("real", "imag")])
    infinity = hex(int.from_bytes(np.array(np.inf, element.dtype).tobytes(), "little"))
    return hlo.compare(hlo.elementwise("abs", value), hlo.constant(value.type, infinity), "EQ", "FLOAT")


# ---- integers --------------------------------------------------------------------------------------------------------


def _is_zero(value: Value) -> Value:
    return hlo.compare(value, hlo.number(value.type, "0"), "EQ", None)


def _is_wide(amount: Value) -> Value:
    """Return whether a number of bits to shift by is the type's width or more, or below 0."""
    width = amount.type.element_type.width
    unsigned = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(width))
    bits = hlo.emit("stablehlo.bitcast_convert", [amount], [unsigned])
    return hlo.compare(bits, hlo.constant(unsigned, width), "GE", "UNSIGNED")


def _out_of_range(op: Any) -> Condition:
    """Return whether clamping the indices, as slices and gathers do, changes one of them."""
    starts, room = _ranges(op)

    def changed(indices: Value, most: Any) -> Value:
        wide = hlo.convert(indices, ir.IntegerType.get_signless(64))
        limits = hlo.array(np.broadcast_to(most, list(wide.type.shape)).astype(np.int64, "C"))
        clamped = hlo.emit("stablehlo.clamp", [hlo.number(wide.type, "0"), wide, limits], [wide.type])
        return reduced(hlo.compare(clamped, wide, "NE"), "or")

    return Condition(tuple(starts), lambda *given: joined("or", map(changed, given, room)), is_pointwise=False)


def _ranges(op: Any) -> tuple[list[Value], Any]:
    """Return an operation's arrays of indices, and the largest that are in range for each."""
    operands, shape = list(op.operands), list(op.operands[0].type.shape)
    if op.name == "stablehlo.scatter":
        scattered = ScatterDimensionNumbers.read(op.attributes["scatter_dimension_numbers"])
        indices, updates = operands[len(operands) // 2 :][:2]
        left_out = (*scattered.inserted_window_dims, *scattered.input_batching_dims)
        window = iter([updates.type.shape[d] for d in scattered.update_window_dims])
        sizes = [1 if d in left_out else next(window) for d in range(len(shape))]
        dimensions, vector = scattered.scatter_dims_to_operand_dims, scattered.index_vector_dim
    elif op.name == "stablehlo.dynamic_update_slice":
        sizes = list(operands[1].type.shape)
    else:
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    room = np.subtract(shape, sizes)
    if op.name == "stablehlo.gather":
        gathered = GatherDimensionNumbers.read(op.attributes["dimension_numbers"])
        indices, dimensions, vector = operands[1], gathered.start_index_map, gathered.index_vector_dim
    elif op.name != "stablehlo.scatter":
        return operands[len(operands) - len(shape) :], room
    along = [-1 if d == vector else 1 for d in range(indices.type.rank)]
    return [indices], [room[list(dimensions)].reshape(along)]
