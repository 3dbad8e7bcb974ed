"""Conditions under which an operation shows a NaN, an infinity or a misused integer, emitted behind it in StableHLO.

A condition is an array of pred of the result's shape where the operation is element-wise, else a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.hlo import (
    array,
    broadcast,
    compare,
    constant,
    convert,
    elementwise,
    emit,
    number,
    reduce,
    tensor,
)
from stablexla.dialects.value_checks import DIVISION, INDICES, NAN, OVERFLOW, SHIFTS
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    element_of,
    has_inf,
    has_nan,
    is_elementwise,
    is_number,
)

Value = Any


class Conditions:
    """Emits conditions at the insertion point; knows which arrays it has looked through already.

    Args:
        results_alone: whether a NaN in a result is enough, whatever the operands are.
    """

    def __init__(self, results_alone: bool = False) -> None:
        self._results_alone = results_alone
        self._any: list[dict[tuple[Value, str], Value]] = [{}]

    def enter(self) -> None:
        """Begin a region: its values are not seen outside."""
        self._any.append({})

    def leave(self) -> None:
        """End a region."""
        self._any.pop()

    def of(self, checked: Checked, kinds: Sequence[str]) -> list[Value]:
        """Return conditions of which one holds where the operation shows one of the kinds."""
        if self._results_alone:
            return [self._unsound(checked.op, tuple(kinds) == (NAN,))]
        made = [self._condition(checked.op, kind) for kind in checked.kinds if kind in kinds]
        return _joined([value for value in made if value is not None])

    def _condition(self, op: Any, kind: str) -> Value | None:
        if kind == DIVISION:
            return compare(op.operands[1], _splat(op.operands[1], "0"), "EQ", None)
        if kind == SHIFTS:
            amount = op.operands[1]
            unsigned = _unsigned(amount)
            return compare(unsigned, _splat(unsigned, str(_width(amount))), "GE", "UNSIGNED")
        if kind == INDICES:
            return _OUT_OF_RANGE[op.name](op)
        made = [result for result in op.results if is_number(result)]
        if is_elementwise(op):
            return _all_of([_shows(op.results[0], kind), *self._sound(op, kind, _each), *_no_pole(op, kind)])
        shown = [self._flag(result, kind) for result in made if _can_show(result, kind)]
        if not shown:
            return None
        return _all_of([_one_of(shown), *self._sound(op, kind, self._none)])

    def _unsound(self, op: Any, nan_alone: bool) -> Value:
        """Return where results are NaN, or not finite."""
        made = [value for value in op.results if is_number(value)]
        wrong = [is_nan(v) if nan_alone else elementwise("not", _each(v, "finite")) for v in made]
        return wrong[0] if len(wrong) == 1 else _one_of([any_of(condition) for condition in wrong])

    def _sound(self, op: Any, kind: str, holds: Callable[[Value, str], Value]) -> list[Value]:
        """Return that the operands are no NaN, or, for infinities, finite."""
        operands = dict.fromkeys(value for value in op.operands if is_number(value) and not _is_finite_constant(value))
        what = "number" if kind == NAN else "finite"
        return [holds(value, what) for value in operands if what == "finite" or _has_nan(value)]

    def _flag(self, value: Value, kind: str) -> Value:
        """Return whether any element shows a kind."""
        return self._seen(value, f"any {kind}", lambda: any_of(_shows(value, kind)))

    def _none(self, value: Value, what: str) -> Value:
        """Return whether all elements are numbers, or finite."""
        return self._seen(value, what, lambda: elementwise("not", any_of(elementwise("not", _each(value, what)))))

    def _seen(self, value: Value, what: str, make: Callable[[], Value]) -> Value:
        for scope in self._any:
            if (value, what) in scope:
                return scope[value, what]
        made = self._any[-1][value, what] = make()
        return made


def is_nan(value: Value) -> Value:
    """Return where the elements are NaN: they do not equal themselves."""
    return compare(value, value, "NE", "FLOAT")


def any_of(condition: Value) -> Value:
    """Return whether a condition holds anywhere; rows first, which a kernel of rows computes beside its own."""
    rank = condition.type.rank
    if not rank:
        return condition
    no = constant(tensor(condition.type, []), "false")
    if rank > 1 and condition.type.shape[-1] >= LEAST_ROW:
        condition = reduce(condition, no, [rank - 1], "or")
    return reduce(condition, no, list(range(condition.type.rank)), "or")


LEAST_ROW = 16


def _can_show(value: Value, kind: str) -> bool:
    element = element_of(value)
    assert element is not None
    return has_nan(element.part) if kind == NAN or not has_inf(element.part) else True


def _has_nan(value: Value) -> bool:
    element = element_of(value)
    return element is not None and has_nan(element.part)


def _shows(value: Value, kind: str) -> Value:
    element = element_of(value)
    assert element is not None
    if kind == NAN or not has_inf(element.part):  # an overflow is a NaN then
        return is_nan(value)
    if element.is_complex:
        return _one_of([_shows(part, kind) for part in _parts(value)])
    is_finite = emit("stablehlo.is_finite", [value], [_preds(value)])
    return elementwise("and", elementwise("not", is_finite), compare(value, value, "EQ", "FLOAT"))


def _each(value: Value, what: str) -> Value:
    """Return where elements are numbers, or finite."""
    element = element_of(value)
    assert element is not None
    if what == "number" or not has_inf(element.part):
        return compare(value, value, "EQ", "FLOAT")
    if element.is_complex:
        return _all_of([_each(part, what) for part in _parts(value)])
    return emit("stablehlo.is_finite", [value], [_preds(value)])


def _no_pole(op: Any, kind: str) -> list[Value]:
    """Return that an infinity is no quotient by zero."""
    place = {"stablehlo.divide": 1, "stablehlo.power": 0}.get(op.name)
    if kind != OVERFLOW or place is None:
        return []
    return [compare(op.operands[place], _splat(op.operands[place], "0"), "NE", None)]


def _is_finite_constant(value: Value) -> bool:
    """Return whether a value is a finite number of the program's text, or an array of one."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "stablehlo.broadcast_in_dim":
        value = value.owner.operation.operands[0]
    element = element_of(value)  # the bindings read no complex constants
    if isinstance(value.owner, ir.Block) or element is None or not element.is_float:
        return False
    maker = value.owner.operation
    held = ir.DenseElementsAttr(maker.attributes["value"]) if maker.name == "stablehlo.constant" else None
    return held is not None and held.is_splat and isfinite(ir.FloatAttr(held.get_splat_value()).value)


def _parts(value: Value) -> list[Value]:
    part = ir.RankedTensorType.get(list(value.type.shape), value.type.element_type.element_type)
    return [emit(f"stablehlo.{name}", [value], [part]) for name in ("real", "imag")]


def _preds(value: Value) -> Any:
    return ir.RankedTensorType.get(list(value.type.shape), ir.IntegerType.get_signless(1))


def _joined(conditions: Sequence[Value]) -> list[Value]:
    """Return one condition in place of several of one shape."""
    shapes = {tuple(value.type.shape) for value in conditions}
    return [_one_of(conditions)] if len(shapes) == 1 else list(conditions)


def _all_of(conditions: Sequence[Value]) -> Value:
    made = conditions[0]
    for other in conditions[1:]:
        made = elementwise("and", made, other)
    return made


def _one_of(conditions: Sequence[Value]) -> Value:
    made = conditions[0]
    for other in conditions[1:]:
        made = elementwise("or", made, other)
    return made


# ---- integers --------------------------------------------------------------------------------------------------------


def _splat(like: Value, text: str) -> Value:
    if text == "0":
        return broadcast(number(like.type, text), list(like.type.shape))
    return constant(like.type, text)


def _width(value: Value) -> int:
    return int(value.type.element_type.width)


def _unsigned(value: Value) -> Value:
    """Return the bits as an unsigned number."""
    element = ir.IntegerType.get_unsigned(_width(value))
    type_ = ir.RankedTensorType.get(list(value.type.shape), element)
    return value if value.type == type_ else emit("stablehlo.bitcast_convert", [value], [type_])


def _outside(starts: Sequence[Value], limits: Sequence[int]) -> Value:
    """Return whether a scalar start is below 0 or above its limit."""
    return _one_of([_beyond(start, np.int64(limit)) for start, limit in zip(starts, limits, strict=True)])


def _beyond(indices: Value, limits: Any) -> Value:
    """Return where indices are below 0 or above the limits, which have their shape."""
    wide = convert(indices, ir.IntegerType.get_signless(64))
    shape = list(indices.type.shape)
    most = array(np.broadcast_to(np.asarray(limits, np.int64), shape).copy())
    return elementwise("or", compare(wide, most, "GT"), compare(wide, _splat(wide, "0"), "LT"))


def _of_slice(op: Any) -> Value:
    shape = list(op.operands[0].type.shape)
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    return _outside(list(op.operands)[1:], [n - size for n, size in zip(shape, sizes, strict=True)])


def _of_update(op: Any) -> Value:
    shape, part = list(op.operands[0].type.shape), list(op.operands[1].type.shape)
    return _outside(list(op.operands)[2:], [n - size for n, size in zip(shape, part, strict=True)])


def _of_gather(op: Any) -> Value:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    shape = list(op.operands[0].type.shape)
    limits = [shape[d] - sizes[d] for d in numbers.start_index_map]
    return any_of(_beyond_vectors(op.operands[1], numbers.index_vector_dim, limits))


def _of_scatter(op: Any) -> Value:
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    inputs = (len(op.operands) - 1) // 2
    shape, updates = list(op.operands[0].type.shape), list(op.operands[inputs + 1].type.shape)
    left_out = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    windows = iter(updates[d] for d in numbers.update_window_dims)
    sizes = [1 if d in left_out else next(windows) for d in range(len(shape))]
    limits = [shape[d] - sizes[d] for d in numbers.scattered_dims_to_operand_dims]
    return any_of(_beyond_vectors(op.operands[inputs], numbers.index_vector_dim, limits))


def _beyond_vectors(indices: Value, dimension: int, limits: Sequence[int]) -> Value:
    shape = list(indices.type.shape)
    if dimension == len(shape):
        return _beyond(indices, limits[0])
    return _beyond(indices, np.reshape(np.asarray(limits), [-1 if d == dimension else 1 for d in range(len(shape))]))


_OUT_OF_RANGE: dict[str, Callable[[Any], Value]] = {
    "stablehlo.dynamic_slice": _of_slice,
    "stablehlo.dynamic_update_slice": _of_update,
    "stablehlo.gather": _of_gather,
    "stablehlo.scatter": _of_scatter,
}
