"""Pattern matching of sort comparators that order operands by value, and their integer sort keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import numpy as np
from mlir.dialects import arith

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.constants import dense_values
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import defining
from stablexla.lowering.support.scalars import cmpi
from stablexla.lowering.support.storage import constant, from_storage
from stablexla.lowering.support.types import tensor_type

# Zeros and NaNs are made alike by a select each.
MOST_SELECTS = 4
# Floats of sign and magnitude, with NaN above infinity.
FLOATS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000, "f8e5m2": 0x7C}


@dataclass(frozen=True)
class Order:
    """Sort order of one operand's elements, and its integer keys.

    Attributes:
        operand: its number.
        element: its type.
        descending: the largest comes first.
        zeros_alike, nans_alike: whether zeros, and NaNs, of both signs are equal. Otherwise the order is the total one:
            -NaN, ..., -0, 0, ..., NaN.
    """

    operand: int
    element: ElementType
    descending: bool = False
    zeros_alike: bool = False
    nans_alike: bool = False

    @property
    def bits(self) -> int:
        """The width of the keys."""
        return max(8, self.element.bits)

    def key(self, stored: ir.Value) -> ir.Value:
        """Return the unsigned integer key of an element in storage form; keys have the order of the elements."""
        value = from_storage(stored, self.element)
        type_ = ir.IntegerType.get_signless(self.bits)
        if self.element.is_pred:
            value = arith.extui(type_, value)
        elif self.element.is_float:
            value = self._float_key(arith.bitcast(type_, value))
        elif self.element.is_signed:
            value = arith.xori(value, constant(type_, 1 << (self.bits - 1)))
        return arith.xori(value, constant(type_, -1)) if self.descending else value

    def _float_key(self, bits: ir.Value) -> ir.Value:
        type_ = bits.type
        sign = constant(type_, 1 << (self.bits - 1))
        if self.zeros_alike:
            zero = constant(type_, 0)
            bits = arith.select(cmpi("eq", arith.shli(bits, constant(type_, 1)), zero), zero, bits)
        if self.nans_alike:
            infinity = constant(type_, FLOATS[self.element.name])
            magnitude = arith.andi(bits, constant(type_, (1 << (self.bits - 1)) - 1))
            highest = constant(type_, (1 << (self.bits - 1)) - 1)
            bits = arith.select(cmpi("ugt", magnitude, infinity), highest, bits)
        negative = arith.shrsi(bits, constant(type_, self.bits - 1))
        return arith.xori(bits, arith.ori(negative, sign))


def orders_of(comparator: Any) -> tuple[Order, ...] | None:
    """Match a comparator by value; return the orders of its operands lexicographically, or None.

    Elements are compared by < or >, zeros and NaNs made alike or not; ties are broken by a further operand, and so on.
    """
    operations = [view.operation for view in comparator.operations]
    return _orders(operations[-1].operands[0])


def _orders(answer: Any) -> tuple[Order, ...] | None:
    """Match `a < b`, or `a < b | (a == b & rest)`, or `select(a == b, rest, a < b)`."""
    maker = defining(answer)
    if maker is None:
        return None
    if maker.name == "stablehlo.compare":
        compared = _comparison(maker)
        return None if compared is None or compared[0] == "EQ" else (compared[1],)
    if maker.name == "stablehlo.select":
        return _chain(maker.operands[2], maker.operands[0], maker.operands[1])
    if maker.name == "stablehlo.or":
        for less, rest in (maker.operands, reversed(maker.operands)):
            both = defining(rest)
            if both is not None and both.name == "stablehlo.and":
                one, other = both.operands
                found = _chain(less, one, other) or _chain(less, other, one)
                if found is not None:
                    return found
    return None


def _chain(less: Any, equal: Any, rest: Any) -> tuple[Order, ...] | None:
    """Match a tie break: the order of `less`, then those of `rest`, if `equal` compares the operand of `less`."""
    tests = [None if defining(v) is None else _comparison(defining(v)) for v in (less, equal)]
    if tests[0] is None or tests[1] is None or tests[0][0] == "EQ" or tests[1][0] != "EQ":
        return None
    following = _orders(rest)
    first = tests[0][1]
    same = replace(tests[1][1], descending=first.descending) == first
    return (first, *following) if same and following is not None else None


def _comparison(compare: Any) -> tuple[str, Order] | None:
    """Match a comparison of one operand's elements by <, > or ==."""
    if compare.name != "stablehlo.compare":
        return None
    direction = word(compare.attributes["comparison_direction"])
    left, right = (_read(operand) for operand in compare.operands)
    if direction not in ("LT", "GT", "EQ") or left is None or right is None or left[1] != right[1]:
        return None
    first, second = sorted((left[0], right[0]))
    element = tensor_type(compare.operands[0].type).element
    if first % 2 or second != first + 1 or not has_keys(element):
        return None
    alike = left[1]
    if element.is_float and not _is_total(compare):
        alike = alike | {"zeros", "nans"}  # NaN is unordered by this comparison: any position is right
    descending = (direction == "GT") != (left[0] > right[0])
    return direction, Order(first // 2, element, descending, "zeros" in alike, "nans" in alike)


def has_keys(element: ElementType) -> bool:
    """Whether the total order of a type's elements is that of integers of the same width."""
    return element.is_integer or element.is_pred or element.name in FLOATS


def _is_total(compare: Any) -> bool:
    attributes = compare.attributes
    return "compare_type" in attributes and word(attributes["compare_type"]) == "TOTALORDER"


def _read(value: Any, selects: int = MOST_SELECTS) -> tuple[int, frozenset[str]] | None:
    """Trace a value to the comparator's argument; return its number, and the classes made alike on the way.

    Args:
        selects: how many may be on the way, each of which is traced to the argument by three operands.
    """
    maker = defining(value)
    if maker is None:
        block_argument = hlo_ir.BlockArgument(value)
        inside = block_argument.owner.owner.operation.name == "stablehlo.sort"
        return (block_argument.arg_number, frozenset()) if inside else None
    if maker.name != "stablehlo.select" or not selects:
        return None
    test, replaced = defining(maker.operands[0]), _scalar(maker.operands[1])
    below = _read(maker.operands[2], selects - 1)
    if below is None or test is None or test.name != "stablehlo.compare" or replaced is None:
        return None
    subject = _read(test.operands[0], selects - 1)
    if subject is None or subject[0] != below[0]:
        return None
    what = _alike(test, replaced, selects - 1)
    return None if what is None or subject[1] - {what} else (below[0], below[1] | {what})


def _alike(test: Any, replaced: Any, selects: int) -> str | None:
    """Match a select that canonicalizes a class of elements: `x == 0` by 0, `x != x` by NaN."""
    direction = word(test.attributes["comparison_direction"])
    other = test.operands[1]
    if _is_total(test) or np.signbit(replaced):
        return None
    if direction == "NE" and np.isnan(replaced) and _read(other, selects) == _read(test.operands[0], selects):
        return "nans"
    return "zeros" if direction == "EQ" and replaced == 0 and _scalar(other) == 0 else None


def _scalar(value: Any) -> Any:
    """Return the value of a floating-point scalar constant, else None."""
    maker = defining(value)
    if maker is None or maker.name != "stablehlo.constant":
        return None
    type_ = tensor_type(value.type)
    if not type_.element.is_float:
        return None
    return dense_values(maker.attributes["value"], type_.element, type_.shape).astype(np.float64)[()]
