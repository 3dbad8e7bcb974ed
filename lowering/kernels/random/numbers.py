"""Uniform and normal distributions from random bits, for every element type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.random.blocks import constant_like, joined, resized
from stablexla.lowering.math import erf_inv, erf_inv_of_drawn
from stablexla.lowering.support.storage import compute_type, constant, narrow, normalise, widen
from stablexla.lowering.support.types import value_type

Blocks = Callable[[int], Sequence[ir.Value]]
"""An element's blocks by their numbers, of two words of 32 random bits each."""


@dataclass(frozen=True)
class Distribution:
    """A probability distribution: its uniform scalars, and the function from random blocks to numbers.

    Attributes:
        scalars: loop-invariant values, the same for all elements.
        number: (scalars as defined inside the loop, an element's blocks) -> its value.
    """

    scalars: tuple[ir.Value, ...]
    number: Callable[[Sequence[ir.Value], Blocks], ir.Value]


def uniform(element: ElementType, low: ir.Value, high: ir.Value) -> Distribution:
    """Return the uniform distribution on [low, high); always `low` if the interval is empty."""
    if element.is_float:
        return _uniform_float(element, low, high)
    return _uniform_integer(element, low, high)


def normal(element: ElementType, mean: ir.Value, deviation: ir.Value) -> Distribution:
    """Return the normal distribution, sampled by the inverse of its cumulative distribution function (erf_inv)."""
    mean, deviation = widen(mean, element), widen(deviation, element)
    scale = arith.mulf(deviation, constant(deviation.type, math.sqrt(2)))
    wide = compute_type(element) or element
    quantile = erf_inv_of_drawn if wide.bits == 32 else erf_inv

    def number(scalars: Sequence[ir.Value], blocks: Blocks) -> ir.Value:
        mean, scale = scalars
        value = arith.addf(mean, arith.mulf(scale, quantile(_around_zero(wide, blocks(0)))))
        return narrow(value, element)

    return Distribution((mean, scale), number)


# --- floats -----------------------------------------------------------------------------------------------------------


def _uniform_float(element: ElementType, low: ir.Value, high: ir.Value) -> Distribution:
    wide = compute_type(element) or element
    lowest, highest = widen(low, element), widen(high, element)
    rises = arith.cmpf(arith.CmpFPredicate.OGT, highest, lowest)
    most = arith.select(rises, widen(_below(high, element), element), lowest)
    # A width that overflows is added in halves.
    half = constant(lowest.type, 0.5)
    width = arith.subf(highest, lowest)
    halved = arith.subf(arith.mulf(highest, half), arith.mulf(lowest, half))
    fits = arith.cmpf(arith.CmpFPredicate.OLT, width, constant(lowest.type, math.inf))
    zero = constant(lowest.type, 0.0)
    first = arith.select(rises, arith.select(fits, width, halved), zero)
    second = arith.select(fits, zero, halved)

    def number(scalars: Sequence[ir.Value], blocks: Blocks) -> ir.Value:
        lowest, first, second, most = scalars
        part = _from_zero(wide, blocks(0))
        value = arith.addf(arith.addf(lowest, arith.mulf(part, first)), arith.mulf(part, second))
        value = widen(narrow(value, element), element)
        value = arith.select(arith.cmpf(arith.CmpFPredicate.OGT, value, most), most, value)
        return narrow(value, element)

    return Distribution((lowest, first, second, most), number)


def _below(value: ir.Value, element: ElementType) -> ir.Value:
    """Return the next smaller number of a sign-magnitude float type."""
    bits = arith.bitcast(ir.IntegerType.get_signless(element.bits), value)
    type_, zero = bits.type, constant(bits.type, 0)
    sign = constant(type_, 1 << (element.bits - 1))
    one = constant(type_, 1)
    is_zero = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(bits, arith.subi(sign, one)), zero)
    negative = arith.cmpi(arith.CmpIPredicate.slt, bits, zero)
    moved = arith.select(negative, arith.addi(bits, one), arith.subi(bits, one))
    return arith.bitcast(value_type(element), arith.select(is_zero, arith.ori(sign, one), moved))


def _from_zero(wide: ElementType, block: Sequence[ir.Value]) -> ir.Value:
    """Return a uniform number in [0, 1), in steps of 2^-24 or 2^-52."""
    if wide.bits == 64:
        return arith.subf(_from_one(block), constant(value_type(wide), 1.0))
    steps = arith.shrui(block[0], constant_like(block[0], 8))
    return arith.mulf(arith.sitofp(value_type(wide), steps), constant(value_type(wide), 2.0**-24))


def _around_zero(wide: ElementType, block: Sequence[ir.Value]) -> ir.Value:
    """Return a uniform number in (-1, 1) without 0, in steps of 2^-23 or 2^-51."""
    type_ = value_type(wide)
    if wide.bits == 64:
        middle = arith.subf(_from_one(block), constant(type_, 1.5))
        return arith.addf(arith.addf(middle, middle), constant(type_, 2.0**-52))
    steps = arith.shrsi(block[0], constant_like(block[0], 8))
    middle = arith.addf(arith.sitofp(type_, steps), constant(type_, 0.5))
    return arith.mulf(middle, constant(type_, 2.0**-23))


def _from_one(block: Sequence[ir.Value]) -> ir.Value:
    """Return an f64 in [1, 2): random mantissa bits under the exponent of 1."""
    bits = joined(*block)
    bits = arith.ori(arith.shrui(bits, constant_like(bits, 12)), constant_like(bits, 0x3FF << 52))
    return arith.bitcast(value_type(BY_NAME["f64"]), bits)


# --- integers ---------------------------------------------------------------------------------------------------------


def _uniform_integer(element: ElementType, low: ir.Value, high: ir.Value) -> Distribution:
    if element.is_pred:
        low, high = resized(low, 8), resized(high, 8)
    before = arith.CmpIPredicate.slt if element.is_signed else arith.CmpIPredicate.ult
    width = arith.select(arith.cmpi(before, low, high), arith.subi(high, low), constant(low.type, 0))

    def number(scalars: Sequence[ir.Value], blocks: Blocks) -> ir.Value:
        low, width = scalars
        value = arith.addi(low, resized(_part_of(width, blocks), low.type.width))
        return resized(value, 1) if element.is_pred else normalise(value, element)

    return Distribution((low, width), number)


def _part_of(width: ir.Value, blocks: Blocks) -> ir.Value:
    """Return the upper bits of width * random bits: 64 random bits, or 128 for a width of 64 bits."""
    if width.type.width < 64:
        low, high = (resized(word, 64) for word in blocks(0))
        wide = resized(width, 64)
        lower = _upper_word(arith.muli(low, wide))
        return _upper_word(arith.addi(arith.muli(high, wide), lower))
    first, second = (arith.mului_extended(joined(*blocks(n)), width) for n in (0, 1))
    total = arith.addi(first[0], second[1])
    carry = resized(arith.cmpi(arith.CmpIPredicate.ult, total, first[0]), 64)
    return arith.addi(first[1], carry)


def _upper_word(value: ir.Value) -> ir.Value:
    return arith.shrui(value, constant_like(value, 32))
