"""Conditions under which an operation shows a NaN, an infinity or a misused integer, emitted in StableHLO.

A condition is on elements of arrays of one shape, so that one operation can compute it together with what is made of
it, or on whole arrays: a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.hlo import (
    array,
    block,
    compare,
    constant,
    convert,
    elementwise,
    emit,
    i64s,
    integer_tensor,
    number,
    operation,
    reduce,
    return_,
    tensor,
)
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.value_checks import DIVISION, INDICES, INF, NAN, OVERFLOW, WARNINGS
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    element_of,
    has_inf,
    is_elementwise,
    is_finite_constant,
    is_stored,
    numbers_of,
)

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
        return (
            mapped(given, integer_tensor(1).element_type, self.compute) if self.is_pointwise else self.compute(*given)
        )


def mapped(values: Sequence[Value], element: Any, compute: Callable[..., Value]) -> Value:
    """Emit one operation that computes an element from those of the arrays at its index."""
    shape = list(values[0].type.shape)
    if not shape:
        return compute(*values)
    dimensions = {"dimensions": i64s(range(len(shape)))}
    op = operation("stablehlo.map", values, [ir.RankedTensorType.get(shape, element)], dimensions, regions=1)
    with block(op.regions[0], [tensor(value.type, []) for value in values]) as scalars:
        return_([compute(*scalars)])
    return op.results[0]


def choose(condition: Value, compute: Callable[[], Value], bits: int = 1) -> Value:
    """Emit a branch: an integer that is computed where a condition holds, else 0."""
    type_ = integer_tensor(bits)
    choice = operation("stablehlo.if", [condition], [type_], regions=2)
    for region, make in zip(choice.regions, (compute, lambda: number(type_, "0")), strict=True):
        with block(region):
            return_([make()])
    return choice.results[0]


def reduced(value: Value, name: str) -> Value:
    """Reduce an array of integers from 0 to a scalar; rows first, which a kernel of rows computes beside its own."""
    rank = value.type.rank
    if not rank:
        return value
    zero = number(value.type, "0")
    if rank > 1 and value.type.shape[-1] >= LEAST_ROW:
        value = reduce(value, zero, [rank - 1], name)
    return reduce(value, zero, range(value.type.rank), name)


def joined(name: str, conditions: Sequence[Value]) -> Value:
    """Join conditions by `and` or `or`."""
    made, *others = conditions
    for other in others:
        made = elementwise(name, made, other)
    return made


# ---- operations ------------------------------------------------------------------------------------------------------


def condition_of(checked: Checked, kinds: Sequence[str]) -> Condition | None:
    """Return the condition that holds where an operation shows one of the kinds; None if it shows none of them."""
    op, own = checked.op, [kind for kind in checked.kinds if kind in kinds]
    if not own:
        return None
    if own[0] == INDICES:
        return _out_of_range(op)
    if own[0] in WARNINGS:
        return Condition((op.operands[1],), _is_zero if own[0] == DIVISION else _is_wide)
    if checked.is_alone:
        return bad(numbers_of(op.results), NAN if tuple(kinds) == (NAN,) else INF)
    return _made_of_sound(op, own)


def on_elements(checked: Checked) -> list[tuple[str, Value, Condition]]:
    """Return conditions on the elements of an operation's results, with the kind and the result.

    Those of operations that are not element-wise do not ask for the operands; for indices there are none.
    """
    op, kinds = checked.op, [kind for kind in checked.kinds if kind != INDICES]
    if is_elementwise(op) and not checked.is_alone:
        return [(kind, op.results[0], made) for kind in kinds if (made := condition_of(checked, (kind,))) is not None]
    shown = [(kind, value) for kind in kinds for value in numbers_of(op.results)]
    return [(kind, value, Condition((value,), partial(_shows, kind=kind))) for kind, value in shown]


def bad(values: Sequence[Value], kind: str) -> Condition:
    """Return the condition that values are NaN, or for any other kind not finite."""
    if len(values) == 1:
        return Condition(tuple(values), partial(is_bad, kind=kind))
    return Condition(tuple(values), lambda *found: joined("or", [_any(is_bad, v, kind) for v in found]), False)


def _made_of_sound(op: Any, kinds: Sequence[str]) -> Condition:
    """Return the condition that results show a kind while the operands are sound: at the same index, or as a whole.

    Whole arrays in memory are looked through only where the rest holds.
    """
    is_pointwise, results = is_elementwise(op), numbers_of(op.results)
    operands = [value for value in numbers_of(op.operands) if not is_finite_constant(value)]
    stored = [] if is_pointwise else [value for value in operands if is_stored(value)]
    place = {"stablehlo.divide": 1, "stablehlo.power": 0}.get(op.name) if OVERFLOW in kinds else None
    poles = [] if place is None else [op.operands[place]]  # an infinite quotient by zero is no overflow
    values = tuple(dict.fromkeys([*results, *operands, *poles]))

    def compute(*given: Value) -> Value:
        at = dict(zip(values, given, strict=True))

        def any_shows(value: Value, kind: str) -> Value:
            return _shows(at[value], kind) if is_pointwise else _any(_shows, at[value], kind)

        def sound(operands: Sequence[Value], kind: str) -> list[Value]:
            if is_pointwise:
                return [_is_sound(at[value], kind) for value in operands]
            return [elementwise("not", _any(is_bad, at[value], kind)) for value in operands]

        def shows(kind: str) -> Value:
            found = joined("or", [any_shows(value, kind) for value in results])
            found = joined("and", [found, *sound([value for value in operands if value not in stored], kind)])
            if kind == OVERFLOW and poles:
                found = joined("and", [found, *(elementwise("not", _is_zero(at[pole])) for pole in poles)])
            return choose(found, lambda: joined("and", sound(stored, kind))) if stored else found

        return joined("or", [shows(kind) for kind in kinds])

    return Condition(values, compute, is_pointwise, results[0] if is_pointwise else None)


# ---- floats and complex numbers --------------------------------------------------------------------------------------


def _any(holds: Test, value: Value, kind: str) -> Value:
    """Return whether any element of an array is bad, or shows a kind."""
    return reduced(mapped([value], integer_tensor(1).element_type, partial(holds, kind=kind)), "or")


def _is_sound(value: Value, kind: str) -> Value:
    """Return whether a scalar is a number, for NaN, or finite."""
    element = element_of(value)
    if kind == NAN or not has_inf(element.part):
        return compare(value, value, "EQ", "FLOAT")
    if element.is_complex:
        return joined("and", [_is_sound(part, kind) for part in _parts(value)])
    return emit("stablehlo.is_finite", [value], [integer_tensor(1)])


def is_bad(value: Value, kind: str) -> Value:
    """Return whether a scalar is NaN, or for any other kind not finite."""
    if kind == NAN:
        return compare(value, value, "NE", "FLOAT")
    return elementwise("not", _is_sound(value, kind))


def _shows(value: Value, kind: str) -> Value:
    """Return whether a scalar is NaN, or infinite; NaN too in a type without infinities, where it is an overflow."""
    element = element_of(value)
    if kind == NAN or not has_inf(element.part):
        return is_bad(value, NAN)
    if element.is_complex:
        return joined("or", [_shows(part, kind) for part in _parts(value)])
    if element.name in _INFINITY:  # one comparison
        return compare(elementwise("abs", value), constant(value.type, _INFINITY[element.name]), "EQ", "FLOAT")
    return joined("and", [is_bad(value, kind), _is_sound(value, NAN)])


_INFINITY = {"f16": "0x7C00", "bf16": "0x7F80", "f32": "0x7F800000", "f64": "0x7FF0000000000000"}


def _parts(value: Value) -> list[Value]:
    part = ir.RankedTensorType.get([], value.type.element_type.element_type)
    return [emit(f"stablehlo.{name}", [value], [part]) for name in ("real", "imag")]


# ---- integers --------------------------------------------------------------------------------------------------------


def _is_zero(value: Value) -> Value:
    return compare(value, number(value.type, "0"), "EQ", None)


def _is_wide(amount: Value) -> Value:
    """Return whether a number of bits to shift by is the type's width or more, or below 0."""
    width = amount.type.element_type.width
    unsigned = emit(
        "stablehlo.bitcast_convert", [amount], [ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(width))]
    )
    return compare(unsigned, constant(unsigned.type, width), "GE", "UNSIGNED")


def _out_of_range(op: Any) -> Condition:
    """Return whether an index points to a slice or window that is not all in the array."""
    room, starts = _RANGES[op.name](op, np.array(op.operands[0].type.shape, np.int64))

    def compute(*given: Value) -> Value:
        return joined("or", [reduced(_beyond(*each), "or") for each in zip(given, room, strict=True)])

    return Condition(tuple(starts), compute, is_pointwise=False)


def _beyond(indices: Value, most: Any) -> Value:
    """Return where indices are out of range: where clamping them, as operations do, changes them."""
    wide = convert(indices, ir.IntegerType.get_signless(64))
    limits = array(np.broadcast_to(most, list(wide.type.shape)).astype(np.int64, "C"))
    clamped = emit("stablehlo.clamp", [number(wide.type, "0"), wide, limits], [wide.type])
    return compare(clamped, wide, "NE")


def _of_slice(op: Any, shape: Any) -> tuple[Any, Sequence[Value]]:
    return shape - list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"])), list(op.operands)[1:]


def _of_update(op: Any, shape: Any) -> tuple[Any, Sequence[Value]]:
    return shape - list(op.operands[1].type.shape), list(op.operands)[2:]


def _of_gather(op: Any, shape: Any) -> tuple[Any, Sequence[Value]]:
    numbers = GatherDimensionNumbers.read(op.attributes["dimension_numbers"])
    room = shape - list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    return _of_vectors(room[list(numbers.start_index_map)], op.operands[1], numbers.index_vector_dim)


def _of_scatter(op: Any, shape: Any) -> tuple[Any, Sequence[Value]]:
    numbers = ScatterDimensionNumbers.read(op.attributes["scatter_dimension_numbers"])
    indices, updates = list(op.operands)[len(op.operands) // 2 :][:2]
    left_out = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    windows = iter([updates.type.shape[d] for d in numbers.update_window_dims])
    room = shape - [1 if d in left_out else next(windows) for d in range(len(shape))]
    return _of_vectors(room[list(numbers.scatter_dims_to_operand_dims)], indices, numbers.index_vector_dim)


def _of_vectors(room: Any, indices: Value, dimension: int) -> tuple[Any, Sequence[Value]]:
    return [room.reshape([-1 if d == dimension else 1 for d in range(indices.type.rank)])], [indices]


_RANGES: dict[str, Callable[[Any, Any], tuple[Any, Sequence[Value]]]] = {
    "stablehlo.dynamic_slice": _of_slice,
    "stablehlo.dynamic_update_slice": _of_update,
    "stablehlo.gather": _of_gather,
    "stablehlo.scatter": _of_scatter,
}
