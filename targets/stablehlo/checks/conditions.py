"""Conditions under which an operation shows a NaN, an infinity or a misused integer, emitted behind it in StableHLO.

A condition of an element-wise operation is `Pointwise`: not emitted yet, so that one operation can compute it together
with what is made of it. Any other is a scalar.
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
    block,
    broadcast,
    compare,
    constant,
    convert,
    elementwise,
    emit,
    i64s,
    number,
    operation,
    reduce,
    return_,
    tensor,
)
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.value_checks import DIVISION, ERRORS, INDICES, NAN, OVERFLOW, SHIFTS
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    element_of,
    has_inf,
    has_nan,
    is_elementwise,
    is_number,
    splat_of,
)

Value = Any


@dataclass(frozen=True)
class Pointwise:
    """A condition on elements of arrays of one shape at the same index.

    Attributes:
        values: the arrays.
        compute: emits it on scalars, one for each array.
        result: an array that shows a NaN, or something that is not finite, wherever the condition holds; or None.
    """

    values: tuple[Value, ...]
    compute: Callable[..., Value]
    result: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the arrays."""
        return tuple(self.values[0].type.shape)

    def emitted(self) -> Value:
        """Emit an array of pred; of scalars a scalar."""
        return mapped(self.values, ir.IntegerType.get_signless(1), self.compute)


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
    type_ = ir.RankedTensorType.get([], ir.IntegerType.get_signless(bits))
    choice = operation("stablehlo.if", [condition], [type_], regions=2)
    with block(choice.regions[0]):
        return_([compute()])
    with block(choice.regions[1]):
        return_([number(type_, "0")])
    return choice.results[0]


class Conditions:
    """Makes conditions at the insertion point; knows which arrays it has looked through already."""

    def __init__(self) -> None:
        self._any: list[dict[tuple[Value, str], Value]] = [{}]

    def enter(self) -> None:
        """Begin a region: its values are not seen outside."""
        self._any.append({})

    def leave(self) -> None:
        """End a region."""
        self._any.pop()

    def of(self, checked: Checked, kinds: Sequence[str]) -> list[Value | Pointwise]:
        """Return conditions of which one holds where the operation shows one of the kinds."""
        if checked.is_alone and kinds[0] in ERRORS:
            return [self._unsound(checked.op, tuple(kinds) == (NAN,))]
        made = [self._condition(checked.op, kind) for kind in checked.kinds if kind in kinds]
        return _joined([value for value in made if value is not None])

    def _condition(self, op: Any, kind: str) -> Value | Pointwise | None:
        if kind in (DIVISION, SHIFTS):
            return Pointwise((op.operands[1],), _is_zero if kind == DIVISION else _is_wide)
        if kind == INDICES:
            return _OUT_OF_RANGE[op.name](op)
        if is_elementwise(op):
            return _made_here(op, kind)
        shown = [self._flag(result, kind) for result in op.results if is_number(result) and _can_show(result, kind)]
        if not shown:
            return None
        operands = _operands(op, kind)
        stored = [value for value in operands if _is_stored(value)]
        near = [self._none(value, kind) for value in operands if value not in stored]
        return self._only_if(_all_of([one_of(shown), *near]), stored, kind)

    def _only_if(self, condition: Value, stored: Sequence[Value], kind: str) -> Value:
        """Return a condition, and that arrays in memory are sound, which are looked through only where it holds."""
        if not stored:
            return condition
        self.enter()
        made = choose(condition, lambda: _all_of([self._none(value, kind) for value in stored]))
        self.leave()
        return made

    def _unsound(self, op: Any, nan_alone: bool) -> Value | Pointwise:
        """Return where results are NaN, or not finite."""
        made = [Pointwise((v,), is_nan if nan_alone else is_not_finite) for v in op.results if is_number(v)]
        return made[0] if len(made) == 1 else one_of([any_of(condition) for condition in made])

    def _flag(self, value: Value, kind: str) -> Value:
        """Return whether any element shows a kind."""
        return self._seen(value, kind, lambda: any_of(Pointwise((value,), lambda x: _shows(x, kind))))

    def _none(self, value: Value, kind: str) -> Value:
        """Return whether all elements are numbers, or finite."""
        what, is_bad = ("number", is_nan) if kind == NAN else ("finite", is_not_finite)
        return self._seen(value, what, lambda: elementwise("not", any_of(Pointwise((value,), is_bad))))

    def _seen(self, value: Value, what: str, make: Callable[[], Value]) -> Value:
        for scope in self._any:
            if (value, what) in scope:
                return scope[value, what]
        made = self._any[-1][value, what] = make()
        return made


def _made_here(op: Any, kind: str) -> Pointwise:
    """Return where an element shows a kind while those of the operands are sound."""
    operands = _operands(op, kind)
    place = {"stablehlo.divide": 1, "stablehlo.power": 0}.get(op.name) if kind == OVERFLOW else None
    poles = [] if place is None else [op.operands[place]]  # an infinite quotient by zero is no overflow

    def compute(made: Value, *others: Value) -> Value:
        taken, at_pole = others[: len(operands)], others[len(operands) :]
        sound = [_each(value, "number" if kind == NAN else "finite") for value in taken]
        return _all_of([_shows(made, kind), *sound, *(compare(x, _splat(x, "0"), "NE", None) for x in at_pole)])

    return Pointwise((op.results[0], *operands, *poles), compute, op.results[0])


def _is_stored(value: Value) -> bool:
    """Return whether an array is in memory whatever reads it: no kernel that reads it computes it as well."""
    return bool(value.type.rank) and (isinstance(value.owner, ir.Block) or value.owner.operation.name in _STORED)


_STORED = frozenset(
    [
        *("stablehlo.while", "stablehlo.if", "stablehlo.case", "stablehlo.dot_general", "stablehlo.convolution"),
        *("stablehlo.gather", "stablehlo.scatter", "stablehlo.sort", "stablehlo.fft", "stablehlo.custom_call"),
        *("stablehlo.cholesky", "stablehlo.triangular_solve", "stablehlo.constant"),
    ]
)


def _operands(op: Any, kind: str) -> list[Value]:
    """Return the operands that may hold a NaN, or something that is not finite."""
    numbers = dict.fromkeys(value for value in op.operands if is_number(value) and not _is_finite_constant(value))
    return [value for value in numbers if kind != NAN or _has_nan(value)]


def is_nan(value: Value) -> Value:
    """Return where the elements are NaN: they do not equal themselves."""
    return compare(value, value, "NE", "FLOAT")


def is_not_finite(value: Value) -> Value:
    """Return where the elements are NaN or infinite."""
    return elementwise("not", _each(value, "finite"))


def any_of(condition: Value | Pointwise) -> Value:
    """Return whether a condition holds anywhere; rows first, which a kernel of rows computes beside its own."""
    value = condition.emitted() if isinstance(condition, Pointwise) else condition
    rank = value.type.rank
    if not rank:
        return value
    no = constant(tensor(value.type, []), "false")
    if rank > 1 and value.type.shape[-1] >= LEAST_ROW:
        value = reduce(value, no, [rank - 1], "or")
    return reduce(value, no, list(range(value.type.rank)), "or")


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
        return one_of([_shows(part, kind) for part in _parts(value)])
    if element.name in _INFINITY:  # one comparison
        return compare(elementwise("abs", value), constant(value.type, _INFINITY[element.name]), "EQ", "FLOAT")
    is_finite = emit("stablehlo.is_finite", [value], [_preds(value)])
    return elementwise("and", elementwise("not", is_finite), compare(value, value, "EQ", "FLOAT"))


_INFINITY = {"f16": "0x7C00", "bf16": "0x7F80", "f32": "0x7F800000", "f64": "0x7FF0000000000000"}


def _each(value: Value, what: str) -> Value:
    """Return where elements are numbers, or finite."""
    element = element_of(value)
    assert element is not None
    if what == "number" or not has_inf(element.part):
        return compare(value, value, "EQ", "FLOAT")
    if element.is_complex:
        return _all_of([_each(part, what) for part in _parts(value)])
    return emit("stablehlo.is_finite", [value], [_preds(value)])


def _is_finite_constant(value: Value) -> bool:
    number_ = splat_of(value)
    return number_ is not None and isfinite(number_)


def _parts(value: Value) -> list[Value]:
    part = ir.RankedTensorType.get(list(value.type.shape), value.type.element_type.element_type)
    return [emit(f"stablehlo.{name}", [value], [part]) for name in ("real", "imag")]


def _preds(value: Value) -> Any:
    return ir.RankedTensorType.get(list(value.type.shape), ir.IntegerType.get_signless(1))


def _joined(conditions: Sequence[Value | Pointwise]) -> list[Value | Pointwise]:
    """Return one condition in place of several, if all are scalars, or all of one shape."""
    if len(conditions) < 2:
        return list(conditions)
    pointwise = [each for each in conditions if isinstance(each, Pointwise)]
    if not pointwise:
        return [one_of(conditions)]
    if len(pointwise) < len(conditions) or len({each.shape for each in pointwise}) > 1:
        return list(conditions)
    values = tuple(dict.fromkeys(value for each in pointwise for value in each.values))

    def compute(*scalars: Value) -> Value:
        at = dict(zip(values, scalars, strict=True))
        return one_of([each.compute(*(at[value] for value in each.values)) for each in pointwise])

    return [Pointwise(values, compute, pointwise[0].result)]


def _all_of(conditions: Sequence[Value]) -> Value:
    made = conditions[0]
    for other in conditions[1:]:
        made = elementwise("and", made, other)
    return made


def one_of(conditions: Sequence[Value]) -> Value:
    """Return where one of the conditions holds."""
    made = conditions[0]
    for other in conditions[1:]:
        made = elementwise("or", made, other)
    return made


# ---- integers --------------------------------------------------------------------------------------------------------


def _splat(like: Value, text: str) -> Value:
    if text == "0":
        return broadcast(number(like.type, text), list(like.type.shape))
    return constant(like.type, text)


def _is_zero(value: Value) -> Value:
    return compare(value, _splat(value, "0"), "EQ", None)


def _is_wide(amount: Value) -> Value:
    """Return whether a number of bits to shift by is the type's width or more."""
    unsigned = _unsigned(amount)
    return compare(unsigned, _splat(unsigned, str(_width(amount))), "GE", "UNSIGNED")


def _width(value: Value) -> int:
    return int(value.type.element_type.width)


def _unsigned(value: Value) -> Value:
    """Return the bits as an unsigned number."""
    element = ir.IntegerType.get_unsigned(_width(value))
    type_ = ir.RankedTensorType.get(list(value.type.shape), element)
    return value if value.type == type_ else emit("stablehlo.bitcast_convert", [value], [type_])


def _outside(starts: Sequence[Value], limits: Sequence[int]) -> Value:
    """Return whether a scalar start is below 0 or above its limit."""
    return one_of([_beyond(start, np.int64(limit)) for start, limit in zip(starts, limits, strict=True)])


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
