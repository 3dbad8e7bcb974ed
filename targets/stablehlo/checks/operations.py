"""Which operations can make a NaN or an infinity out of values that are none, by their names and types."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import jaxlib.mlir.ir as ir
import ml_dtypes
import numpy as np

from stablexla.dialects.constants import is_splat, read_constant, splat_value
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import TRAITS, OpTraits, bare
from stablexla.dialects.value_checks import DIVISION, ERRORS, INDICES, INF, NAN, OVERFLOW, SHIFTS, WARNINGS
from stablexla.lowering.support.operations import defining, terminator_of
from stablexla.lowering.support.types import tensor_type

Path = tuple[tuple[Any, int], ...]
CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_OF_INTEGERS = {
    DIVISION: ("divide", "remainder"),
    INDICES: ("dynamic_slice", "dynamic_update_slice", "gather", "scatter"),
    SHIFTS: ("shift_left", "shift_right_arithmetic", "shift_right_logical"),
}
_STORED = "while if case dot_general convolution gather scatter sort fft custom_call cholesky triangular_solve constant"
_MOVES = "broadcast_in_dim reshape transpose convert negate slice reverse"


def element_of(value: Any) -> ElementType | None:
    """Return the element type of an array; None of tokens and of types that are none of XLA's."""
    try:
        return tensor_type(value.type).element
    except UnsupportedError:
        return None


def numbers_of(values: Iterable[Any]) -> list[Any]:
    """Return the arrays, each once, of floats or complex numbers of a type that has a NaN."""
    elements = {value: element_of(value) for value in values}
    return [v for v, e in elements.items() if e is not None and (e.is_float or e.is_complex) and e.part.bits > 6]


def has_inf(element: ElementType) -> bool:
    """Return whether a type has infinities."""
    return element.bits > 8 or element.name in ("f8e5m2", "f8e4m3", "f8e3m4")


def traits_of(op: Any) -> OpTraits:
    """Return the facts of an operation; of a composite, which is lowered whole, those of the composite."""
    name = str(ir.StringAttr(op.attributes["name"]).value) if op.name == "stablehlo.composite" else op.name
    return TRAITS.get(name, OpTraits())


def is_elementwise(op: Any) -> bool:
    """Return whether an element of the result depends on the operands' elements at its index alone."""
    if not traits_of(op).is_elementwise or len(op.results) != 1:
        return False
    shape = list(op.results[0].type.shape)
    return all(list(value.type.shape) == shape for value in op.operands)


def is_stored(value: Any) -> bool:
    """Return whether an array is in memory whatever reads it: no kernel that reads it computes it as well."""
    maker = defining(value)
    return bool(value.type.rank) and (maker is None or bare(maker.name) in _STORED.split())


def kinds_at(op: Any, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return those of the kinds that an operation may show."""
    return tuple(kind for kind in kinds if (_makes(op, kind) if kind in ERRORS else _misuses(op, kind)))


def _misuses(op: Any, kind: str) -> bool:
    if bare(op.name) not in _OF_INTEGERS[kind]:
        return False
    element = element_of(op.results[0])
    return kind == INDICES or (element is not None and element.is_integer)


def _makes(op: Any, kind: str) -> bool:
    makes = traits_of(op).makes.split()
    if not makes or op.name in CONTROL or not numbers_of(op.results):
        return False
    is_complex = any(element is not None and element.is_complex for element in map(element_of, op.operands))
    if op.name == "stablehlo.convert" or (op.name in _ARITHMETIC and not is_complex):
        taken = tuple((tensor_type(v.type).element.part, splat_of(v)) for v in dict.fromkeys(op.operands))
        return _makes_of_extremes(op.name, tensor_type(op.results[0].type).element.part, taken, kind)
    if is_complex:
        return kind != OVERFLOW or "pole" not in makes
    return not {NAN: {"nan"}, OVERFLOW: {"inf"}}.get(kind, {"inf", "pole"}).isdisjoint(makes)


@functools.cache
def _makes_of_extremes(
    name: str, made: ElementType, taken: tuple[tuple[ElementType, float | None], ...], kind: str
) -> bool:
    """Return whether NumPy makes it of the extreme numbers of types, or of numbers of the program's text.

    So x * x makes no NaN but of one, and x / 768 no infinity but of one.

    Args:
        taken: types and numbers of the operands, without those that are the same as another.
    """
    x, *others = (_extremes(*each, kind) for each in taken)
    with np.errstate(all="ignore"):
        y = others[0][:, None] if others else x
        wide = (x.astype(made.dtype) if name == "stablehlo.convert" else _ARITHMETIC[name](x, y)).astype(np.float64)
    return bool((np.isinf(wide) if kind != NAN and has_inf(made) else np.isnan(wide)).any())


def _extremes(element: ElementType, number: float | None, kind: str) -> Any:
    """Return a number, or else the extreme ones of a type: no NaN, and for kinds of infinities finite ones alone."""
    if number is not None and not 0 < abs(number) < _SURELY_NORMAL:
        numbers = [number]
    elif element.is_float:
        most = float(ml_dtypes.finfo(element.dtype).max)  # type: ignore[no-untyped-call]
        numbers = [most, -most, 1.0, 0.0, np.inf, -np.inf]
    else:
        numbers = [2.0 ** (element.bits - element.is_signed)]
    with np.errstate(all="ignore"):
        found = np.array(numbers).astype(element.dtype if element.is_float else np.float64)
        wide = found.astype(np.float64)
    return found[~np.isnan(wide) if kind == NAN else np.isfinite(wide)]


_SURELY_NORMAL = 1e-4
"""Constants below it, which may be flushed to zero, are taken for any number."""
_ARITHMETIC = {f"stablehlo.{name}": getattr(np, name) for name in ("add", "subtract", "multiply", "divide")}


def splat_of(value: Any) -> float | None:
    """Return the float that is each element of a constant of the program's text, or of an array of one."""
    maker = defining(value)
    while maker is not None and maker.name == "stablehlo.broadcast_in_dim":
        maker = defining(maker.operands[0])
    element = None if maker is None or maker.name != "stablehlo.constant" else element_of(maker.results[0])
    if element is None or not element.is_float:  # the bindings read no complex constants
        return None
    value = maker.attributes["value"]
    return float(ir.FloatAttr(value.get_splat_value()).value) if is_splat(value) else None


def is_finite_constant(value: Any) -> bool:
    """Return whether each element of a value is one finite number of the program's text."""
    number = splat_of(value)
    return number is not None and isfinite(number)


@dataclass(frozen=True)
class Checked:
    """An operation that is checked.

    Attributes:
        number: from 1, in program order.
        op: the operation.
        kinds: those that it may show and is checked for.
        path: the regions around it, outermost first: the operation, and which of its regions.
        alone: values of which a NaN, or what is not finite, is enough, whatever the operands are.
    """

    number: int
    op: Any
    kinds: tuple[str, ...]
    path: Path = ()
    alone: tuple[Any, ...] = ()


Groups = dict[str, list[Checked]]
"""Operations by what they are checked for; of each group the first that shows it is told."""
ERROR, WARNING = "error", "warning"
"""Names of groups; that of the operations with a constant as operand is the kind that the constant has."""


def checked_operations(main: Any, kinds: Sequence[str]) -> Groups:
    """Return the operations of a function that may show errors or warnings, those in loops and branches too.

    They are in program order, and numbered together; groups are left out that have none.
    """
    found: Groups = {}
    number = 0
    for op, path in operations_with_paths(main.regions[0].blocks[0]):
        own = kinds_at(op, kinds)
        number += bool(own)
        for name, words in ((ERROR, ERRORS), (WARNING, WARNINGS)):
            if asked := tuple(kind for kind in own if kind in words):
                found.setdefault(name, []).append(Checked(number, op, asked, path))
    return found


def widest(operations: Iterable[Checked]) -> str:
    """Return NAN if operations are checked for NaN alone, else INF, for what is not finite."""
    return NAN if all(each.kinds == (NAN,) for each in operations) else INF


def from_constants(main: Any, kind: str) -> list[Checked]:
    """Return the operations, in program order, by which a constant NaN, or infinity, may reach a result of a function.

    They are numbered from 1; a NaN in a result is enough to show one. There are none in a program that reads queues,
    which may hold anything. `select(is_valid, x, NaN)` makes no NaN from operands that are none, and is how functions
    say that they have no result.
    """
    every = list(operations_with_paths(main.regions[0].blocks[0]))
    if any(op.name in ("stablehlo.infeed", "stablehlo.recv") for op, _ in every):
        return []
    returned = {defining(value) for value in every[-1][0].operands}
    found: list[Checked] = []
    for op, path in every:
        made = numbers_of(op.results)
        is_one = bool(made) and constant_behind(made[0], kind) is not None
        if made and (op in returned if is_one else any(constant_behind(v, kind) is not None for v in op.operands)):
            found.append(Checked(len(found) + 1, op, (kind,), path, tuple(made)))
    return found


def constant_behind(value: Any, kind: str) -> Any:
    """Return the constant with a NaN, or an infinity, whose elements a value has; None if it has none of one."""
    maker = defining(value)
    while maker is not None and bare(maker.name) in _MOVES.split():
        maker = defining(maker.operands[0])
    if maker is None or maker.name != "stablehlo.constant" or not numbers_of(maker.results):
        return None
    type_ = tensor_type(maker.results[0].type)
    one = splat_value(maker, type_.element)
    found = read_constant(maker, type_.element, type_.shape) if one is None else np.asarray(one)
    found = found.reshape(-1)[:1] if found.size and not any(found.strides) else found
    wide = found if found.dtype.isbuiltin == 1 else found.astype(np.float64)
    return maker if (np.isnan(wide) if kind == NAN else np.isinf(wide)).any() else None


def operations_with_paths(block: Any, path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """Yield the operations of a block, those in loops and branches too, each with the regions around it."""
    for view in block.operations:
        op = view.operation
        yield op, path
        if op.name in CONTROL:
            for number, region in enumerate(op.regions):
                yield from operations_with_paths(region.blocks[0], (*path, (op, number)))


def counts(condition: Any) -> bool:
    """Return whether a loop's condition compares integers, none of which an operation of the condition makes."""
    compared = defining(terminator_of(condition).operands[0])
    if compared is None or compared.name != "stablehlo.compare":
        return False
    if not isinstance(compared.operands[0].type.element_type, ir.IntegerType):
        return False
    return all(m is None or m.name == "stablehlo.constant" for m in map(defining, compared.operands))
