"""Typed SSA values with operators, over which elementary functions are written: reals, integers and masks.

A `Real` is a scalar or a vector of f32 or f64; the same Python code emits either. The functions are in the modules
beside this one; the operations that they expand, in `registry.py`.
"""

from __future__ import annotations

import math as host_math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass

# MLIR's numbering of comparison predicates
_FLOAT_PREDICATES = {"oeq": 1, "ogt": 2, "oge": 3, "olt": 4, "ole": 5, "one": 6, "uge": 10, "une": 13, "uno": 14}
_INTEGER_PREDICATES = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}


class Scope:
    """The scope of shared constants: each is emitted once, and dominates all its users.

    `anchor` is the block at whose start constants are emitted. Without one, the first constant is emitted at the
    insertion point, and later ones before it.
    """

    __slots__ = ("anchor", "constants", "formats")

    def __init__(self, anchor: ir.Block | None = None) -> None:
        self.anchor: ir.Block | ir.Operation | None = anchor
        self.constants: dict[tuple[int, str], ir.Value] = {}
        self.formats: dict[tuple[int, tuple[int, ...] | None], Format] = {}

    def format_of(self, type_: ir.Type) -> Format:
        """Return the format of values of `type_`: f32, f64, an integer or a vector of them."""
        if isinstance(type_, ir.VectorType):
            return self.format(type_.element_type.width, tuple(type_.shape))
        return self.format(type_.width, None)

    def format(self, width: int, shape: tuple[int, ...] | None) -> Format:
        found = self.formats.get((width, shape))
        if found is None:
            found = self.formats[width, shape] = Format(self, width, shape)
        return found

    def constant(self, key: tuple[int, str], type_: ir.Type, element: ir.Attribute) -> ir.Value:
        found = self.constants.get(key)
        if found is None:
            value = element
            if isinstance(type_, ir.VectorType):
                value = ir.DenseElementsAttr.get_splat(type_, element)
            made = ir.Operation.create("arith.constant", results=[type_], attributes={"value": value}, ip=self._place())
            if self.anchor is None:
                self.anchor = made
            found = self.constants[key] = made.result
        return found

    def _place(self) -> ir.InsertionPoint | None:
        if isinstance(self.anchor, ir.Block):
            return ir.InsertionPoint.at_block_begin(self.anchor)
        return None if self.anchor is None else ir.InsertionPoint(self.anchor)


@dataclass(frozen=True)
class Layout:
    """Bit layout of a floating-point type."""

    width: int
    precision: int  # bits of the significand, the hidden one included
    bias: int

    @property
    def fraction_bits(self) -> int:
        return self.precision - 1

    @property
    def magic(self) -> float:
        """The constant 1.5 * 2**fraction_bits: adding it rounds to an integer, which then is in the low bits."""
        return 1.5 * 2.0**self.fraction_bits

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)


LAYOUTS = {32: Layout(32, 24, 127), 64: Layout(64, 53, 1023)}


@dataclass(eq=False, slots=True)
class Format:
    """f32 or f64, as a scalar (`shape` is None) or a vector; creates constants, and has the types of that shape.

    Of another width than 32 and 64 it has integers and masks only.
    """

    scope: Scope
    width: int
    shape: tuple[int, ...] | None
    layout: Layout = field(init=False)
    real_element: ir.Type = field(init=False)
    integer_element: ir.Type = field(init=False)
    real_type: ir.Type = field(init=False)
    integer_type: ir.Type = field(init=False)
    mask_type: ir.Type = field(init=False)

    def __post_init__(self) -> None:
        if self.width in LAYOUTS:
            self.layout = LAYOUTS[self.width]
            self.real_element = ir.F32Type.get() if self.width == 32 else ir.F64Type.get()
            self.real_type = self.shaped(self.real_element)
        self.integer_element = ir.IntegerType.get_signless(self.width)
        self.integer_type = self.shaped(self.integer_element)
        self.mask_type = self.shaped(ir.IntegerType.get_signless(1))

    def shaped(self, element: ir.Type) -> ir.Type:
        """Return the type of such values with these elements."""
        return element if self.shape is None else ir.VectorType.get(self.shape, element)

    def real(self, value: float) -> Real:
        """Return the constant `value`, rounded to this format."""
        key = (id(self), value.hex())
        found = self.scope.constants.get(key)
        if found is None:
            found = self.scope.constant(key, self.real_type, ir.FloatAttr.get(self.real_element, value))
        return Real(self, found)

    def integer(self, value: int) -> Integer:
        """Return the constant `value` modulo 2**width."""
        value &= (1 << self.width) - 1
        key = (id(self), f"i{value}")
        found = self.scope.constants.get(key)
        if found is None:
            signed = value - (1 << self.width) if value >> (self.width - 1) else value
            attribute = ir.IntegerAttr.get(self.integer_element, signed)
            found = self.scope.constant(key, self.integer_type, attribute)
        return Integer(self, found)

    def mask(self, value: bool) -> Mask:
        """Return the constant mask of one truth value."""
        key = (id(self), f"m{value}")
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(1), int(value))
        return Mask(self, self.scope.constant(key, self.mask_type, attribute))

    def double(self) -> Format:
        """f64 of the same shape."""
        return self.of_width(64)

    def of_width(self, width: int) -> Format:
        """Return the format of the same shape and another width."""
        return self.scope.format(width, self.shape)

    def pick(self, single: Any, double: Any) -> Any:
        """Return `single` for f32, `double` for f64: coefficients and thresholds."""
        return single if self.width == 32 else double


def emit(name: str, type_: ir.Type, operands: Sequence[ir.Value], attributes: Any = None) -> ir.Value:
    return ir.Operation.create(name, results=[type_], operands=operands, attributes=attributes).result


def _predicate(number: int) -> dict[str, ir.Attribute]:
    return {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)}


class Mask:
    """A truth value for each lane."""

    __slots__ = ("format", "ssa")

    def __init__(self, format: Format, ssa: ir.Value) -> None:
        self.format, self.ssa = format, ssa

    def _binary(self, name: str, other: Mask) -> Mask:
        return Mask(self.format, emit(name, self.format.mask_type, [self.ssa, other.ssa]))

    def __and__(self, other: Mask) -> Mask:
        return self._binary("arith.andi", other)

    def __or__(self, other: Mask) -> Mask:
        return self._binary("arith.ori", other)

    def __xor__(self, other: Mask) -> Mask:
        return self._binary("arith.xori", other)

    def __invert__(self) -> Mask:
        return self ^ self.format.mask(True)

    def as_integer(self, format: Format) -> Integer:
        """Return 1 where the mask holds, else 0."""
        return Integer(format, emit("arith.extui", format.integer_type, [self.ssa]))

    def any(self) -> ir.Value:
        """Return an i1: whether the mask holds in any lane."""
        shape = self.format.shape
        if shape is None:
            return self.ssa
        flag, lanes = ir.IntegerType.get_signless(1), self.ssa
        if len(shape) != 1:
            flat = ir.VectorType.get([host_math.prod(shape)], flag)
            lanes = emit("vector.shape_cast", flat, [lanes])
        kind = ir.Attribute.parse("#vector.kind<or>")
        return emit("vector.reduction", flag, [lanes], {"kind": kind})


class Integer:
    """An integer of the format's width for each lane; arithmetic wraps around."""

    __slots__ = ("format", "ssa")

    def __init__(self, format: Format, ssa: ir.Value) -> None:
        self.format, self.ssa = format, ssa

    def _binary(self, name: str, other: Integer | int) -> Integer:
        right = self.format.integer(other) if isinstance(other, int) else other
        return Integer(self.format, emit(name, self.format.integer_type, [self.ssa, right.ssa]))

    def __add__(self, other: Integer | int) -> Integer:
        return self._binary("arith.addi", other)

    def __sub__(self, other: Integer | int) -> Integer:
        return self._binary("arith.subi", other)

    def __mul__(self, other: Integer | int) -> Integer:
        return self._binary("arith.muli", other)

    def __and__(self, other: Integer | int) -> Integer:
        return self._binary("arith.andi", other)

    def __or__(self, other: Integer | int) -> Integer:
        return self._binary("arith.ori", other)

    def __xor__(self, other: Integer | int) -> Integer:
        return self._binary("arith.xori", other)

    def __lshift__(self, other: Integer | int) -> Integer:
        return self._binary("arith.shli", other)

    def __rshift__(self, other: Integer | int) -> Integer:
        """Shift right, zero-filled: the signed shift of 64 bits is no AVX2 instruction."""
        return self._binary("arith.shrui", other)

    def at_least(self, low: int) -> Integer:
        return self._binary("arith.maxsi", low)

    def unsigned_min(self, other: Integer | int) -> Integer:
        return self._binary("arith.minui", other)

    def compare(self, predicate: str, other: Integer | int) -> Mask:
        right = self.format.integer(other) if isinstance(other, int) else other
        number = _predicate(_INTEGER_PREDICATES[predicate])
        return Mask(self.format, emit("arith.cmpi", self.format.mask_type, [self.ssa, right.ssa], number))

    def narrowed_to(self, format: Format) -> Integer:
        """Truncate to an integer of `format`'s width."""
        if format is self.format:
            return self
        return Integer(format, emit("arith.trunci", format.integer_type, [self.ssa]))

    def widened_to(self, format: Format) -> Integer:
        """Zero-extend to an integer of `format`'s width."""
        return Integer(format, emit("arith.extui", format.integer_type, [self.ssa]))

    def as_real(self) -> Real:
        """Bitcast to a real."""
        return Real(self.format, emit("arith.bitcast", self.format.real_type, [self.ssa]))

    def to_real(self) -> Real:
        """Convert a number from 0 to 2**fraction_bits - 1, without the instruction (which AVX2 lacks for i64)."""
        layout = self.format.layout
        exponent = 2.0**layout.fraction_bits
        bits = (layout.bias + layout.fraction_bits) << layout.fraction_bits
        return (self | bits).as_real() - exponent


class Real:
    """A floating-point number for each lane. Python operands become constants of its format."""

    __slots__ = ("format", "ssa")

    def __init__(self, format: Format, ssa: ir.Value) -> None:
        self.format, self.ssa = format, ssa

    def lift(self, other: Real | float) -> Real:
        return other if isinstance(other, Real) else self.format.real(float(other))

    def _unary(self, name: str) -> Real:
        return Real(self.format, emit(name, self.format.real_type, [self.ssa]))

    def _binary(self, name: str, left: Real | float, right: Real | float) -> Real:
        operands = [self.lift(left).ssa, self.lift(right).ssa]
        return Real(self.format, emit(name, self.format.real_type, operands))

    def __add__(self, other: Real | float) -> Real:
        return self._binary("arith.addf", self, other)

    def __radd__(self, other: float) -> Real:
        return self._binary("arith.addf", other, self)

    def __sub__(self, other: Real | float) -> Real:
        return self._binary("arith.subf", self, other)

    def __rsub__(self, other: float) -> Real:
        return self._binary("arith.subf", other, self)

    def __mul__(self, other: Real | float) -> Real:
        return self._binary("arith.mulf", self, other)

    def __rmul__(self, other: float) -> Real:
        return self._binary("arith.mulf", other, self)

    def __truediv__(self, other: Real | float) -> Real:
        return self._binary("arith.divf", self, other)

    def __rtruediv__(self, other: float) -> Real:
        return self._binary("arith.divf", other, self)

    def __neg__(self) -> Real:
        return self._unary("arith.negf")

    def __abs__(self) -> Real:
        return self._unary("math.absf")

    def fma(self, factor: Real | float, addend: Real | float) -> Real:
        """self * factor + addend, rounded once."""
        operands = [self.ssa, self.lift(factor).ssa, self.lift(addend).ssa]
        return Real(self.format, emit("math.fma", self.format.real_type, operands))

    def sqrt(self) -> Real:
        return self._unary("math.sqrt")

    def trunc(self) -> Real:
        return self._unary("math.trunc")

    def floor(self) -> Real:
        return self._unary("math.floor")

    def with_sign_of(self, other: Real) -> Real:
        return self._binary("math.copysign", self, other)

    def or_sign_of(self, other: Real) -> Real:
        """Copy the sign of `other`, for self of sign +: one instruction less than `with_sign_of`."""
        sign = other.bits() & (1 << (self.format.width - 1))
        return (self.bits() | sign).as_real()

    def compare(self, predicate: str, other: Real | float) -> Mask:
        """Comparison by MLIR's names: the ones with "o" are false for NaN, those with "u" true."""
        operands = [self.ssa, self.lift(other).ssa]
        number = _predicate(_FLOAT_PREDICATES[predicate])
        return Mask(self.format, emit("arith.cmpf", self.format.mask_type, operands, number))

    def __lt__(self, other: Real | float) -> Mask:
        return self.compare("olt", other)

    def __le__(self, other: Real | float) -> Mask:
        return self.compare("ole", other)

    def __gt__(self, other: Real | float) -> Mask:
        return self.compare("ogt", other)

    def __ge__(self, other: Real | float) -> Mask:
        return self.compare("oge", other)

    def equals(self, other: Real | float) -> Mask:
        return self.compare("oeq", other)

    def is_nan(self) -> Mask:
        return self.compare("uno", self)

    def at_least(self, low: Real | float) -> Real:
        """max(self, low), a single instruction; NaN in self passes through."""
        bound = self.lift(low)
        return select(self < bound, bound, self)

    def at_most(self, high: Real | float) -> Real:
        """min(self, high), a single instruction; NaN in self passes through."""
        bound = self.lift(high)
        return select(self > bound, bound, self)

    def bits(self) -> Integer:
        """Bitcast to an integer."""
        return Integer(self.format, emit("arith.bitcast", self.format.integer_type, [self.ssa]))

    def to_double(self) -> Real:
        """Widen to f64."""
        double = self.format.double()
        if double is self.format:
            return self
        return Real(double, emit("arith.extf", double.real_type, [self.ssa]))

    def rounded_to(self, format: Format) -> Real:
        """Round an f64 to `format`, denormals included."""
        if format is self.format:
            return self
        return Real(format, emit("arith.truncf", format.real_type, [self.ssa]))


def select(mask: Mask, yes: Real | float, no: Real | float) -> Real:
    """`yes` where the mask holds, else `no`."""
    format = mask.format
    chosen = yes if isinstance(yes, Real) else format.real(float(yes))
    other = no if isinstance(no, Real) else format.real(float(no))
    return Real(chosen.format, emit("arith.select", chosen.format.real_type, [mask.ssa, chosen.ssa, other.ssa]))


def select_integer(mask: Mask, yes: Integer | int, no: Integer | int) -> Integer:
    """`yes` where the mask holds, else `no`."""
    format = mask.format
    chosen = format.integer(yes) if isinstance(yes, int) else yes
    other = format.integer(no) if isinstance(no, int) else no
    return Integer(format, emit("arith.select", format.integer_type, [mask.ssa, chosen.ssa, other.ssa]))


def polynomial(x: Real, coefficients: Sequence[float]) -> Real:
    """Evaluate a polynomial by Horner's rule; coefficients from the constant one on."""
    *rest, last = coefficients
    value = x.format.real(last)
    for coefficient in reversed(rest):
        value = value.fma(x, coefficient)
    return value


def power_of_two(exponent: Integer) -> Real:
    """Return 2**exponent for an exponent of a normal number."""
    layout = exponent.format.layout
    return ((exponent + layout.bias) << layout.fraction_bits).as_real()


@contextmanager
def _body(region: ir.Region, arguments: Sequence[ir.Type] = ()) -> Iterator[ir.Block]:
    block = region.blocks.append(*arguments, arg_locs=[ir.Location.current] * len(arguments))
    with ir.InsertionPoint(block):
        yield block


def when_any(mask: Mask, then: Callable[[], Sequence[Any]], otherwise: Sequence[Any]) -> list[Any]:
    """Branch: compute `then()` only if the mask holds in some lane, else `otherwise`; the caller selects lanes.

    Constants of `then` are hoisted, so that they dominate all users.
    """
    mask.format.mask(True)  # makes sure that the scope has an anchor outside of the branch
    types = [value.ssa.type for value in otherwise]
    branch = ir.Operation.create("scf.if", results=types, operands=[mask.any()], regions=2)
    with _body(branch.regions[0]):
        ir.Operation.create("scf.yield", operands=[value.ssa for value in then()])
    with _body(branch.regions[1]):
        ir.Operation.create("scf.yield", operands=[value.ssa for value in otherwise])
    return [type(old)(old.format, new) for old, new in zip(otherwise, branch.results)]


def repeat_while(
    condition: Callable[[Sequence[Any]], Mask],
    step: Callable[[Sequence[Any]], Sequence[Any]],
    start: Sequence[Any],
) -> list[Any]:
    """Emit a while loop: apply `step` to the values of `start` as long as `condition` holds in some lane."""
    start[0].format.mask(True)  # see when_any
    types = [value.ssa.type for value in start]
    loop = ir.Operation.create("scf.while", results=types, operands=[value.ssa for value in start], regions=2)

    def wrapped(values: Sequence[ir.Value]) -> list[Any]:
        return [type(old)(old.format, new) for old, new in zip(start, values)]

    with _body(loop.regions[0], types) as block:
        flag = condition(wrapped(block.arguments)).any()
        ir.Operation.create("scf.condition", operands=[flag, *block.arguments])
    with _body(loop.regions[1], types) as block:
        ir.Operation.create("scf.yield", operands=[value.ssa for value in step(wrapped(block.arguments))])
    return wrapped(loop.results)


@dataclass(frozen=True, slots=True)
class Pair:
    """Double-double number: an unevaluated sum high + low, twice the precision where low is below high's last place."""

    high: Real
    low: Real

    def __add__(self, other: Pair) -> Pair:
        total = two_sum(self.high, other.high)
        return fast_two_sum(total.high, total.low + (self.low + other.low))

    def __mul__(self, other: Pair) -> Pair:
        product = two_product(self.high, other.high)
        low = self.low.fma(other.high, self.high.fma(other.low, product.low))
        return fast_two_sum(product.high, low)

    def times(self, factor: Real | float) -> Pair:
        product = two_product(self.high, factor)
        return fast_two_sum(product.high, self.low.fma(factor, product.low))

    def value(self) -> Real:
        return self.high + self.low


def constant_pair(format: Format, high: float, low: float) -> Pair:
    return Pair(format.real(high), format.real(low))


def fast_two_sum(big: Real, small: Real) -> Pair:
    """Exact sum big + small (Dekker's fast two-sum), where |big| >= |small| or big is 0."""
    total = big + small
    return Pair(total, small - (total - big))


def two_sum(a: Real, b: Real) -> Pair:
    """Exact sum a + b (Knuth's two-sum)."""
    total = a + b
    other = total - a
    return Pair(total, (a - (total - other)) + (b - other))


def two_product(a: Real, b: Real | float) -> Pair:
    """Exact product a * b (two-product), unless it underflows."""
    product = a * b
    return Pair(product, a.fma(b, -product))
