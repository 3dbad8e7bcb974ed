"""The pass `stablexla-expand-small-floats`: conversions of floats below 32 bits, rewritten into integer arithmetic.

LLVM has no floats of 8 bits or less, has a library call for f32 to bf16, and rounds f64 to f16 likewise. Conversions
between f16 and f32 are instructions and stay. The formats are defined here; rules elsewhere only widen to f32, compute
in f32 and narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.math.short_nans import has_short_nans
from stablexla.lowering.math.values import emit, predicate_of

PASS_NAME = "stablexla-expand-small-floats"


class ToBf16(Enum):
    """Rounding of f32 to bf16; which of the first two is right depends on the processor's default NaN."""

    SHORT_NANS = "short-nans"  # arithmetic's NaNs have zeros in the lower 16 bits, as those of x86 and Arm
    ANY_NANS = "any-nans"  # they do not, as those of NVIDIA's GPUs: adding a half could carry into the sign
    INSTRUCTION = "instruction"  # `arith.truncf` stays


NO_BF16 = "stablexla.no_bf16"
"""Attribute of a module for this machine in which the pass found no bf16, so that later passes need not search."""


class Special(Enum):
    """The special codes of a format (infinities, NaN), and so the result of overflow."""

    IEEE = "infinities and NaNs, as in IEEE-754"
    ONE_NAN = "no infinity; NaN has all bits but the sign set, and too large numbers become NaN"
    NEGATIVE_ZERO = "no infinity and no negative zero; its code is NaN, and too large numbers become NaN"
    NONE = "finite numbers only; too large numbers become the largest, NaN becomes negative zero"


@dataclass(frozen=True)
class SmallFloat:
    """A float format with sign, `exponent` bits and `mantissa` bits, and denormals."""

    exponent: int
    mantissa: int
    bias: int
    special: Special

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        """The code of negative zero."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The code with the highest exponent and no mantissa."""
        return ((1 << self.exponent) - 1) << self.mantissa


FORMATS: dict[str, SmallFloat] = {
    "f4E2M1FN": SmallFloat(2, 1, 1, Special.NONE),
    "f6E2M3FN": SmallFloat(2, 3, 1, Special.NONE),
    "f6E3M2FN": SmallFloat(3, 2, 3, Special.NONE),
    "f8E3M4": SmallFloat(3, 4, 3, Special.IEEE),
    "f8E4M3": SmallFloat(4, 3, 7, Special.IEEE),
    "f8E4M3B11FNUZ": SmallFloat(4, 3, 11, Special.NEGATIVE_ZERO),
    "f8E4M3FN": SmallFloat(4, 3, 7, Special.ONE_NAN),
    "f8E4M3FNUZ": SmallFloat(4, 3, 8, Special.NEGATIVE_ZERO),
    "f8E5M2": SmallFloat(5, 2, 15, Special.IEEE),
    "f8E5M2FNUZ": SmallFloat(5, 2, 16, Special.NEGATIVE_ZERO),
}
EXPONENT_ONLY = "f8E8M0FNU"
EXPANDED = frozenset({*FORMATS, EXPONENT_ONLY, "bf16"})

# f32: 1 sign bit, 8 of the exponent, 23 of the mantissa
MANTISSA, BIAS, INFINITY, QUIET_NAN, MAGNITUDE = 23, 127, 0x7F800000, 0x7FC00000, 0x7FFFFFFF
_CMPI = {"eq": 0, "ne": 1, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_CMPF = {"ogt": 2, "one": 6, "uno": 14}


class Lanes:
    """Builder of lane-wise operations on values of one shape (scalars or vectors), as conversions need them.

    `like` is a value of that shape. Operations are emitted at the insertion point.
    """

    def __init__(self, like: ir.Value) -> None:
        self.shape = list(like.type.shape) if isinstance(like.type, ir.VectorType) else None

    def of(self, element: ir.Type) -> ir.Type:
        """Return the type of such values with these elements."""
        return element if self.shape is None else ir.VectorType.get(self.shape, element)

    def integer(self, width: int) -> ir.Type:
        return self.of(ir.IntegerType.get_signless(width))

    def constant(self, type_: ir.Type, value: int) -> ir.Value:
        """Return an integer constant of `type_`, taken modulo its width."""
        element = type_.element_type if isinstance(type_, ir.VectorType) else type_
        width = element.width
        value &= (1 << width) - 1
        signed = value - (1 << width) if value >> (width - 1) else value
        attribute: ir.Attribute = ir.IntegerAttr.get(element, signed)
        if isinstance(type_, ir.VectorType):
            attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
        return emit("arith.constant", type_, [], {"value": attribute})

    def integers(self, name: str, x: ir.Value, y: ir.Value | int) -> ir.Value:
        """Emit a binary operation on integers; a Python integer becomes a constant."""
        return emit(f"arith.{name}", x.type, [x, self.constant(x.type, y) if isinstance(y, int) else y])

    def compare(self, predicate: str, x: ir.Value, y: ir.Value | int) -> ir.Value:
        """Emit a comparison of integers."""
        right = self.constant(x.type, y) if isinstance(y, int) else y
        return emit("arith.cmpi", self.integer(1), [x, right], predicate_of(_CMPI[predicate]))

    def compare_floats(self, predicate: str, x: ir.Value, y: ir.Value) -> ir.Value:
        return emit("arith.cmpf", self.integer(1), [x, y], predicate_of(_CMPF[predicate]))

    def select(self, condition: ir.Value, x: ir.Value | int, y: ir.Value) -> ir.Value:
        """Select x where the condition holds, else y."""
        left = self.constant(y.type, x) if isinstance(x, int) else x
        return emit("arith.select", y.type, [condition, left, y])

    def bits(self, x: ir.Value, width: int) -> ir.Value:
        """Bitcast a float to an integer."""
        return emit("arith.bitcast", self.integer(width), [x])

    def float32(self, x: ir.Value) -> ir.Value:
        """Bitcast an integer to f32."""
        return emit("arith.bitcast", self.of(ir.F32Type.get()), [x])

    def cast(self, name: str, x: ir.Value, element: ir.Type) -> ir.Value:
        """Emit extf, truncf, extui or trunci to another element type."""
        return emit(f"arith.{name}", self.of(element), [x])


# ---- from a small format to f32 --------------------------------------------------------------------------------


def decode(lanes: Lanes, code: ir.Value, format: SmallFloat) -> ir.Value:
    """Return the bit pattern of the f32 that a code (zero-extended in i32) encodes; no denormal f32 occurs."""
    magnitude = lanes.integers("andi", code, format.sign - 1)
    shifted = lanes.integers("shli", magnitude, MANTISSA - format.mantissa)
    rebased = lanes.integers("addi", shifted, (BIAS - format.bias) << MANTISSA)
    # A denormal m * 2^k is read as 2^j + m * 2^k, from which 2^j is subtracted.
    one_up = (BIAS - format.bias + 1) << MANTISSA
    with_one = lanes.integers("addi", shifted, one_up)
    one = lanes.float32(lanes.constant(shifted.type, one_up))
    denormal = lanes.bits(emit("arith.subf", one.type, [lanes.float32(with_one), one]), 32)
    is_denormal = lanes.compare("ult", magnitude, 1 << format.mantissa)
    bits = _decode_special(lanes, code, shifted, lanes.select(is_denormal, denormal, rebased), format)
    sign = lanes.integers("andi", code, format.sign)
    return lanes.integers("ori", bits, lanes.integers("shli", sign, 32 - format.width))


def _decode_special(lanes: Lanes, code: ir.Value, shifted: ir.Value, finite: ir.Value, format: SmallFloat) -> ir.Value:
    if format.special is Special.IEEE:
        special = lanes.compare("uge", shifted, format.infinity << (MANTISSA - format.mantissa))
        return lanes.select(special, lanes.integers("ori", shifted, INFINITY), finite)
    if format.special is Special.ONE_NAN:
        special = lanes.compare("eq", shifted, (format.sign - 1) << (MANTISSA - format.mantissa))
        return lanes.select(special, QUIET_NAN, finite)
    if format.special is Special.NEGATIVE_ZERO:
        return lanes.select(lanes.compare("eq", code, format.sign), QUIET_NAN, finite)
    return finite


def decode_exponent(lanes: Lanes, code: ir.Value) -> ir.Value:
    """Decode f8E8M0FNU: 2^(code - 127), the smallest of which is a denormal f32; 255 is NaN."""
    bits = lanes.integers("shli", code, MANTISSA)
    bits = lanes.select(lanes.compare("eq", code, 0), 1 << (MANTISSA - 1), bits)
    return lanes.select(lanes.compare("eq", code, 0xFF), QUIET_NAN, bits)


# ---- from f32 to a small format --------------------------------------------------------------------------------


def encode(lanes: Lanes, bits: ir.Value, format: SmallFloat) -> ir.Value:
    """Return the code (in i32) of an f32's bit pattern, rounded to nearest even."""
    magnitude = lanes.integers("andi", bits, MAGNITUDE)
    dropped = MANTISSA - format.mantissa
    rounded = _round_to_even(lanes, magnitude, dropped)
    normal = lanes.integers("subi", rounded, (BIAS - format.bias) << format.mantissa)
    # Adding the power of two whose unit in the last place is the smallest denormal leaves the code in the low bits.
    unit = (BIAS + 1 - format.bias + dropped) << MANTISSA
    power = lanes.float32(lanes.constant(bits.type, unit))
    sum_ = emit("arith.addf", power.type, [lanes.float32(magnitude), power])
    denormal = lanes.integers("subi", lanes.bits(sum_, 32), unit)
    is_denormal = lanes.compare("ult", magnitude, (BIAS + 1 - format.bias) << MANTISSA)
    sign = lanes.integers("shli", lanes.integers("shrui", bits, 31), format.width - 1)
    return _encode_special(lanes, magnitude, sign, lanes.select(is_denormal, denormal, normal), format)


def _round_to_even(lanes: Lanes, bits: ir.Value, dropped: int) -> ir.Value:
    """Shift right, rounding to nearest even."""
    odd = lanes.integers("andi", lanes.integers("shrui", bits, dropped), 1)
    half = lanes.integers("addi", bits, (1 << (dropped - 1)) - 1)
    return lanes.integers("shrui", lanes.integers("addi", half, odd), dropped)


def _encode_special(lanes: Lanes, magnitude: ir.Value, sign: ir.Value, code: ir.Value, format: SmallFloat) -> ir.Value:
    """Insert the sign, and the codes of overflow and NaN. The code of a NaN is larger than any finite one."""
    if format.special is Special.ONE_NAN:
        return lanes.integers("ori", lanes.integers("minui", code, format.sign - 1), sign)
    if format.special is Special.NEGATIVE_ZERO:
        zero = lanes.compare("eq", code, 0)
        signed = lanes.integers("ori", code, lanes.select(zero, 0, sign))
        return lanes.select(lanes.compare("uge", code, format.sign), format.sign, signed)
    is_nan = lanes.compare("ugt", magnitude, INFINITY)
    if format.special is Special.IEEE:
        limited = lanes.integers("minui", code, format.infinity)
        limited = lanes.select(is_nan, format.infinity | 1 << (format.mantissa - 1), limited)
        return lanes.integers("ori", limited, sign)
    signed = lanes.integers("ori", lanes.integers("minui", code, format.sign - 1), sign)
    return lanes.select(is_nan, format.sign, signed)


def encode_exponent(lanes: Lanes, bits: ir.Value) -> ir.Value:
    """Encode f8E8M0FNU: the nearest power of two, the larger one in a tie; NaN for 0 and negative numbers."""
    half = 1 << (MANTISSA - 1)
    normal = lanes.integers("shrui", lanes.integers("addi", bits, half), MANTISSA)
    # The exponent field of denormals is that of the next power: they lie around 2^-127, the smallest code.
    code = lanes.select(lanes.compare("ult", bits, half + half // 2), 0, normal)
    outside = lanes.compare("uge", lanes.integers("subi", bits, 1), INFINITY)  # 0 wraps around
    return lanes.select(outside, 0xFF, code)


def encode_bf16(lanes: Lanes, value: ir.Value, way: ToBf16) -> ir.Value:
    """Return the bf16 code (in i32) of an f32; a NaN keeps its upper bits and is made quiet."""
    bits = lanes.bits(value, 32)
    if way is ToBf16.SHORT_NANS and has_short_nans(value):  # NaNs are unchanged by rounding
        return _round_to_even(lanes, bits, 16)
    quiet = lanes.integers("ori", lanes.integers("shrui", bits, 16), 0x40)
    return lanes.select(lanes.compare_floats("uno", value, value), quiet, _round_to_even(lanes, bits, 16))


def round_to_odd(lanes: Lanes, value: ir.Value) -> ir.Value:
    """Round an f64 to f32 by round-to-odd: truncated, with the last bit set when it is not exact.

    Rounding once more, to a format with at least two bits less, then equals rounding the f64 directly.
    """
    nearest = lanes.cast("truncf", value, ir.F32Type.get())
    back = lanes.cast("extf", nearest, ir.F64Type.get())
    size, original = (emit("math.absf", value.type, [v]) for v in (back, value))
    beyond = lanes.cast("extui", lanes.compare_floats("ogt", size, original), ir.IntegerType.get_signless(32))
    inexact = lanes.cast("extui", lanes.compare_floats("one", size, original), ir.IntegerType.get_signless(32))
    towards_zero = lanes.integers("subi", lanes.bits(nearest, 32), beyond)
    return lanes.float32(lanes.integers("ori", towards_zero, inexact))


# ---- the pass ------------------------------------------------------------------------------------------------------


def convert_float(value: ir.Value, target: ir.Type, way: ToBf16) -> ir.Value:
    """Convert floats, scalar or vector, to another type, rounded once, without extf and truncf of small ones."""
    lanes = Lanes(value)
    source = _element(value.type)
    if source == target:
        return value
    if isinstance(source, ir.F64Type) and (str(target) in EXPANDED or isinstance(target, ir.F16Type)):
        return _from_f32(lanes, round_to_odd(lanes, value), target, way)
    return _from_f32(lanes, _to_f32(lanes, value, source), target, way)


def _to_f32(lanes: Lanes, value: ir.Value, source: ir.Type) -> ir.Value:
    """Widen a value to f32; an f64 is unchanged."""
    name = str(source)
    if name in ("f32", "f64"):
        return value
    if name == "f16":
        return lanes.cast("extf", value, ir.F32Type.get())
    code = lanes.bits(value, source.width)
    wide = lanes.cast("extui", code, ir.IntegerType.get_signless(32))
    if name == "bf16":
        return lanes.float32(lanes.integers("shli", wide, 16))
    bits = decode_exponent(lanes, wide) if name == EXPONENT_ONLY else decode(lanes, wide, FORMATS[name])
    return lanes.float32(bits)


def _from_f32(lanes: Lanes, value: ir.Value, target: ir.Type, way: ToBf16) -> ir.Value:
    """Convert an f32, or an f64 for a target that is no small float, to the target."""
    name = str(target)
    if name in ("f32", "f64", "f16") or (name == "bf16" and way is ToBf16.INSTRUCTION):
        source = _element(value.type)
        if source == target:
            return value
        return lanes.cast("extf" if source.width < target.width else "truncf", value, target)
    if name == "bf16":
        code = encode_bf16(lanes, value, way)
    elif name == EXPONENT_ONLY:
        code = encode_exponent(lanes, lanes.bits(value, 32))
    else:
        code = encode(lanes, lanes.bits(value, 32), FORMATS[name])
    narrow = lanes.cast("trunci", code, ir.IntegerType.get_signless(target.width))
    return emit("arith.bitcast", lanes.of(target), [narrow])


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def convert_integer(value: ir.Value, target: ir.Type, way: ToBf16, *, signed: bool) -> ir.Value:
    """Convert integers, scalar or vector, to a small float type, rounded once."""
    lanes = Lanes(value)
    width = _element(value.type).width
    if width <= 24:
        return convert_float(_to_float(lanes, value, ir.F32Type.get(), signed), target, way)
    wide, precision = (ir.F32Type.get(), 24) if width <= 32 else (ir.F64Type.get(), 53)
    # Round-to-odd of large integers: the last bit that the wide type can hold is set when any below it is.
    dropped = width - precision
    low = lanes.compare("ne", lanes.integers("andi", value, (1 << dropped) - 1), 0)
    high = lanes.integers("andi", value, -1 << dropped)
    odd = lanes.select(low, lanes.integers("ori", high, 1 << dropped), high)
    from_lowest = lanes.integers("addi", value, 1 << precision) if signed else value
    small = lanes.compare("ult", from_lowest, (2 if signed else 1) << precision)
    return convert_float(_to_float(lanes, lanes.select(small, value, odd), wide, signed), target, way)


def _to_float(lanes: Lanes, value: ir.Value, target: ir.Type, signed: bool) -> ir.Value:
    return lanes.cast("sitofp" if signed else "uitofp", value, target)


def expand_small_floats(module: ir.Module | ir.Operation | Any, way: ToBf16 = ToBf16.SHORT_NANS) -> None:
    """Rewrite conversions from and to floats below 32 bits, all but f16 with f32, into integer arithmetic.

    Scalars and vectors of any shape; rounding is to nearest even, once, and denormals are kept. Constants, loads,
    stores, selects and bitcasts of small floats stay: the conversion to LLVM takes them as integers.
    """
    found: list[ir.Operation] = []

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if operation.name in _REWRITES and _is_expanded(operation, way):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    root = module.operation
    root.walk(visit, ir.WalkOrder.PRE_ORDER)
    if way is ToBf16.SHORT_NANS and root.name == "builtin.module" and not _holds_bf16(root, found):
        root.attributes[NO_BF16] = ir.UnitAttr.get(root.context)
    for operation in found:
        with root.context, operation.location, ir.InsertionPoint(operation):
            value = _REWRITES[operation.name](operation.operands[0], operation.results[0].type, way)
        operation.results[0].replace_all_uses_with(value)
        erase(operation)


def _holds_bf16(module: ir.Operation, conversions: list[ir.Operation]) -> bool:
    """Whether any value of a module may be bf16: such a value is an argument, or the result of a conversion."""
    for view in module.regions[0].blocks[0].operations:
        attributes = view.operation.attributes
        if "function_type" in attributes and "bf16" in str(attributes["function_type"]):
            return True
    return any("bf16" in f"{op.operands[0].type} {op.results[0].type}" for op in conversions)


def _from_small(name: str) -> Callable[[ir.Value, ir.Type, ToBf16], ir.Value]:
    def rewrite(value: ir.Value, type_: ir.Type, way: ToBf16) -> ir.Value:
        return emit(name, type_, [convert_float(value, ir.F32Type.get(), way)])

    return rewrite


# Canonicalization creates the last four from a conversion followed or preceded by extf or truncf.
_REWRITES: dict[str, Callable[[ir.Value, ir.Type, ToBf16], ir.Value]] = {
    "arith.extf": lambda value, type_, way: convert_float(value, _element(type_), way),
    "arith.truncf": lambda value, type_, way: convert_float(value, _element(type_), way),
    "arith.sitofp": lambda value, type_, way: convert_integer(value, _element(type_), way, signed=True),
    "arith.uitofp": lambda value, type_, way: convert_integer(value, _element(type_), way, signed=False),
    "arith.fptosi": _from_small("arith.fptosi"),
    "arith.fptoui": _from_small("arith.fptoui"),
}


def _is_expanded(operation: ir.Operation, way: ToBf16) -> bool:
    source, target = (str(_element(v.type)) for v in (operation.operands[0], operation.results[0]))
    if way is ToBf16.INSTRUCTION and (source, target) == ("f32", "bf16"):
        return False
    return source in EXPANDED or target in EXPANDED or (target == "f16" and source != "f32")
