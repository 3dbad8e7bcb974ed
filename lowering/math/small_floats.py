"""The pass `stablexla-expand-small-floats`: conversions of floats below 32 bits, rewritten into integer arithmetic.

LLVM has no floats of 8 bits or less, has a library call for f32 to bf16, and rounds f64 to f16 likewise. Conversions
between f16 and f32 are instructions and stay. The formats are defined here; rules elsewhere only widen to f32, compute
in f32 and narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.short_nans import has_short_nans
from stablexla.lowering.math.values import Format, Integer, Real, Scope, emit, select_integer
from stablexla.lowering.support.operations import operations_named

PASS_NAME = "stablexla-expand-small-floats"


class ToBf16(Enum):
    """Rounding of f32 to bf16; which of the first two is right depends on the processor's default NaN."""

    SHORT_NANS = "short-nans"  # arithmetic's NaNs have zeros in the lower 16 bits, as those of x86 and Arm
    ANY_NANS = "any-nans"  # they do not, as those of NVIDIA's GPUs: adding a half could carry into the sign
    INSTRUCTION = "instruction"  # `arith.truncf` stays


_NOT_SMALL = (ir.F32Type, ir.F64Type, ir.IntegerType, ir.IndexType)
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

# ---- from a small format to f32 --------------------------------------------------------------------------------


def decode(code: Integer, format: SmallFloat) -> Integer:
    """Return the bit pattern of the f32 that a code (zero-extended in i32) encodes; no denormal f32 occurs."""
    magnitude = code & (format.sign - 1)
    shifted = magnitude << (MANTISSA - format.mantissa)
    # A denormal m * 2^k is read as 2^j + m * 2^k, from which 2^j is subtracted.
    one = (BIAS - format.bias + 1) << MANTISSA
    denormal = ((shifted + one).as_real() - code.format.integer(one).as_real()).bits()
    normal = shifted + ((BIAS - format.bias) << MANTISSA)
    finite = select_integer(magnitude.compare("ult", 1 << format.mantissa), denormal, normal)
    return _decode_special(code, shifted, finite, format) | (code & format.sign) << (32 - format.width)


def _decode_special(code: Integer, shifted: Integer, finite: Integer, format: SmallFloat) -> Integer:
    if format.special is Special.IEEE:
        special = shifted.compare("uge", format.infinity << (MANTISSA - format.mantissa))
        return select_integer(special, shifted | INFINITY, finite)
    if format.special is Special.ONE_NAN:
        special = shifted.compare("eq", (format.sign - 1) << (MANTISSA - format.mantissa))
        return select_integer(special, QUIET_NAN, finite)
    if format.special is Special.NEGATIVE_ZERO:
        return select_integer(code.compare("eq", format.sign), QUIET_NAN, finite)
    return finite


def decode_exponent(code: Integer) -> Integer:
    """Decode f8E8M0FNU: 2^(code - 127), the smallest of which is a denormal f32; 255 is NaN."""
    bits = select_integer(code.compare("eq", 0), 1 << (MANTISSA - 1), code << MANTISSA)
    return select_integer(code.compare("eq", 0xFF), QUIET_NAN, bits)


# ---- from f32 to a small format --------------------------------------------------------------------------------


def encode(bits: Integer, format: SmallFloat) -> Integer:
    """Return the code (in i32) of an f32's bit pattern, rounded to nearest even."""
    magnitude = bits & MAGNITUDE
    dropped = MANTISSA - format.mantissa
    normal = _round_to_even(magnitude, dropped) - ((BIAS - format.bias) << format.mantissa)
    # Adding the power of two whose unit in the last place is the smallest denormal leaves the code in the low bits.
    unit = (BIAS + 1 - format.bias + dropped) << MANTISSA
    denormal = (magnitude.as_real() + bits.format.integer(unit).as_real()).bits() - unit
    is_denormal = magnitude.compare("ult", (BIAS + 1 - format.bias) << MANTISSA)
    sign = (bits >> 31) << (format.width - 1)
    return _encode_special(magnitude, sign, select_integer(is_denormal, denormal, normal), format)


def _round_to_even(bits: Integer, dropped: int) -> Integer:
    """Shift right, rounding to nearest even."""
    odd = (bits >> dropped) & 1
    return (bits + ((1 << (dropped - 1)) - 1) + odd) >> dropped


def _encode_special(magnitude: Integer, sign: Integer, code: Integer, format: SmallFloat) -> Integer:
    """Insert the sign, and the codes of overflow and NaN. The code of a NaN is larger than any finite one."""
    if format.special is Special.ONE_NAN:
        return code.unsigned_min(format.sign - 1) | sign
    if format.special is Special.NEGATIVE_ZERO:
        signed = code | select_integer(code.compare("eq", 0), 0, sign)
        return select_integer(code.compare("uge", format.sign), format.sign, signed)
    is_nan = magnitude.compare("ugt", INFINITY)
    if format.special is Special.IEEE:
        limited = code.unsigned_min(format.infinity)
        return select_integer(is_nan, format.infinity | 1 << (format.mantissa - 1), limited) | sign
    return select_integer(is_nan, format.sign, code.unsigned_min(format.sign - 1) | sign)


def encode_exponent(bits: Integer) -> Integer:
    """Encode f8E8M0FNU: the nearest power of two, the larger one in a tie; NaN for 0 and negative numbers."""
    half = 1 << (MANTISSA - 1)
    # The exponent field of denormals is that of the next power: they lie around 2^-127, the smallest code.
    code = select_integer(bits.compare("ult", half + half // 2), 0, (bits + half) >> MANTISSA)
    outside = (bits - 1).compare("uge", INFINITY)  # 0 wraps around
    return select_integer(outside, 0xFF, code)


def encode_bf16(value: Real, way: ToBf16) -> Integer:
    """Return the bf16 code (in i32) of an f32; a NaN keeps its upper bits and is made quiet."""
    bits = value.bits()
    if way is ToBf16.SHORT_NANS and has_short_nans(value.ssa):  # NaNs are unchanged by rounding
        return _round_to_even(bits, 16)
    return select_integer(value.is_nan(), bits >> 16 | 0x40, _round_to_even(bits, 16))


def round_to_odd(value: Real, single: Format) -> Real:
    """Round an f64 to f32 by round-to-odd: truncated, with the last bit set when it is not exact.

    Rounding once more, to a format with at least two bits less, then equals rounding the f64 directly.
    """
    nearest = value.rounded_to(single)
    size, original = abs(nearest.to_double()), abs(value)
    beyond = size.compare("ogt", original).as_integer(single)
    inexact = size.compare("one", original).as_integer(single)
    return (nearest.bits() - beyond | inexact).as_real()


# ---- the pass ------------------------------------------------------------------------------------------------------


def convert_float(value: ir.Value, target: ir.Type, way: ToBf16) -> ir.Value:
    """Convert floats, scalar or vector, to another type, rounded once, without extf and truncf of small ones."""
    source = _element(value.type)
    if source == target:
        return value
    single = Scope().format(32, _shape(value.type))
    if isinstance(source, ir.F64Type) and (str(target) in EXPANDED or isinstance(target, ir.F16Type)):
        return _from_f32(round_to_odd(Real(single.double(), value), single).ssa, target, way, single)
    return _from_f32(_to_f32(value, source, single), target, way, single)


def _to_f32(value: ir.Value, source: ir.Type, single: Format) -> ir.Value:
    """Widen a value to f32; an f64 is unchanged."""
    name = str(source)
    if name in ("f32", "f64"):
        return value
    if name == "f16":
        return emit("arith.extf", single.real_type, [value])
    format = single.of_width(source.width)
    code = Integer(format, emit("arith.bitcast", format.integer_type, [value])).widened_to(single)
    if name == "bf16":
        return (code << 16).as_real().ssa
    bits = decode_exponent(code) if name == EXPONENT_ONLY else decode(code, FORMATS[name])
    return bits.as_real().ssa


def _from_f32(value: ir.Value, target: ir.Type, way: ToBf16, single: Format) -> ir.Value:
    """Convert an f32, or an f64 for a target that is no small float, to the target."""
    name = str(target)
    if name in ("f32", "f64", "f16") or (name == "bf16" and way is ToBf16.INSTRUCTION):
        source = _element(value.type)
        if source == target:
            return value
        return emit(f"arith.{'extf' if source.width < target.width else 'truncf'}", single.shaped(target), [value])
    real = Real(single, value)
    if name == "bf16":
        code = encode_bf16(real, way)
    else:
        code = encode_exponent(real.bits()) if name == EXPONENT_ONLY else encode(real.bits(), FORMATS[name])
    narrow = code.narrowed_to(single.of_width(target.width))
    return emit("arith.bitcast", single.shaped(target), [narrow.ssa])


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _shape(type_: ir.Type) -> tuple[int, ...] | None:
    return tuple(type_.shape) if isinstance(type_, ir.VectorType) else None


def convert_integer(value: ir.Value, target: ir.Type, way: ToBf16, *, signed: bool) -> ir.Value:
    """Convert integers, scalar or vector, to a small float type, rounded once."""
    number = Integer(Scope().format_of(value.type), value)
    width = number.format.width
    wide, precision = (32, 24) if width <= 32 else (64, 53)
    if width > 24:
        number = _odd_where_inexact(number, width - precision, precision, signed)
    name = "arith.sitofp" if signed else "arith.uitofp"
    return convert_float(emit(name, number.format.of_width(wide).real_type, [number.ssa]), target, way)


def _odd_where_inexact(value: Integer, dropped: int, precision: int, signed: bool) -> Integer:
    """Round large integers to odd: the last bit that the wide type can hold is set when any below it is."""
    low = (value & ((1 << dropped) - 1)).compare("ne", 0)
    high = value & (-1 << dropped)
    odd = select_integer(low, high | 1 << dropped, high)
    from_lowest = value + (1 << precision) if signed else value
    return select_integer(from_lowest.compare("ult", (2 if signed else 1) << precision), value, odd)


def expand_small_floats(module: ir.Module | ir.Operation | Any, way: ToBf16 = ToBf16.SHORT_NANS) -> None:
    """Rewrite conversions from and to floats below 32 bits, all but f16 with f32, into integer arithmetic.

    Scalars and vectors of any shape; rounding is to nearest even, once, and denormals are kept. Constants, loads,
    stores, selects and bitcasts of small floats stay: the conversion to LLVM takes them as integers.
    """
    root = module.operation
    found = [operation for operation in operations_named(root, *_REWRITES) if _is_expanded(operation, way)]
    if way is ToBf16.SHORT_NANS and root.name == "builtin.module" and not _holds_bf16(root, found):
        root.attributes[NO_BF16] = ir.UnitAttr.get(root.context)
    for operation in found:
        with root.context, operation.location, ir.InsertionPoint(operation):
            value = _REWRITES[operation.name](operation.operands[0], operation.results[0].type, way)
        operation.results[0].replace_all_uses_with(value)
        erase(operation)


def _holds_bf16(module: ir.Operation, conversions: list[ir.Operation]) -> bool:
    """Whether any value of a module may be bf16: such a value is an argument, or the result of a conversion.

    A `main` that takes all its buffers as one array says in its body what they hold.
    """
    for view in module.regions[0].blocks[0].operations:
        function = view.operation
        types = str(function.attributes["function_type"]) if "function_type" in function.attributes else ""
        if "bf16" in types:
            return True
        buffers = operations_named(function, "builtin.unrealized_conversion_cast", "memref.view")
        if "!llvm.ptr" in types and any("bf16" in str(result.type) for op in buffers for result in op.results):
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
    types = [_element(v.type) for v in (operation.operands[0], operation.results[0])]
    if all(isinstance(type_, _NOT_SMALL) for type_ in types):  # of most
        return False
    source, target = map(str, types)
    if way is ToBf16.INSTRUCTION and (source, target) == ("f32", "bf16"):
        return False
    return source in EXPANDED or target in EXPANDED or (target == "f16" and source != "f32")
