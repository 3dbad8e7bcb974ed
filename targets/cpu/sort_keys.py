"""The keys by which numbers are sorted: signed integers in vectors, made of elements and turned back into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.cpu.emission import Value, bitcast, bits_of, constant, is_float, select, vector_of


@dataclass(frozen=True)
class Keys:
    """A plain order of one array's elements, whose keys are integers of the same width.

    Attributes:
        element: type of the elements.
        unsigned: whether they are integers without sign.
        descending: the largest element comes first.
        zeros_alike, nans_alike: whether -0 and 0, and all NaNs, have one key. Of those only one form comes back from
            its key.
        infinity: the bits of the float.
    """

    element: ir.Type
    unsigned: bool
    descending: bool
    zeros_alike: bool
    nans_alike: bool
    infinity: int

    @classmethod
    def of(cls, element: ir.Type, config: dict[str, Any]) -> Keys:
        """From a kernel's element type and configuration."""
        flags = {name: bool(config[name]) for name in ("unsigned", "descending", "zeros_alike", "nans_alike")}
        return cls(element, infinity=int(config["infinity"]), **flags)

    @property
    def bits(self) -> int:
        return bits_of(self.element)

    @property
    def type(self) -> ir.Type:
        """Of the keys."""
        return ir.IntegerType.get_signless(self.bits)

    @property
    def highest(self) -> int:
        """A key that none comes after."""
        return (1 << (self.bits - 1)) - 1

    @property
    def has_alike(self) -> bool:
        """Whether elements of one key may differ."""
        return self.zeros_alike or self.nans_alike

    @property
    def nan(self) -> int:
        """The bits of the NaN that comes back from NaNs' key."""
        return self.infinity | (self.infinity & -self.infinity) >> 1

    def canonical(self, bits: Value) -> Value:
        """The bits that stand for all that have their key."""
        type_ = bits.type
        if self.zeros_alike:
            zero = constant(0, type_)
            bits = select(bits.eq(-(1 << (self.bits - 1))), zero, bits)
        if self.nans_alike:
            magnitude = bits & self.highest
            bits = select(magnitude.gt(self.infinity), constant(self.nan, type_), bits)
        return bits

    def of_bits(self, bits: Value) -> Value:
        """The key of an element whose bits are canonical."""
        key = self._ordered(bits)
        return key ^ -1 if self.descending else key

    def to_bits(self, key: Value) -> Value:
        """The bits of the element that has a key."""
        return self._ordered(key ^ -1 if self.descending else key)

    def _ordered(self, bits: Value) -> Value:
        """Its own inverse."""
        if is_float(self.element):
            return bits ^ ((bits >> (self.bits - 1)) & self.highest)
        return bits ^ -(1 << (self.bits - 1)) if self.unsigned else bits

    def as_bits(self, value: Value) -> Value:
        """An element, or a vector of them, as integers."""
        return bitcast(value, self.type) if is_float(self.element) else value

    def as_elements(self, bits: Value) -> Value:
        """The inverse of `as_bits`."""
        return bitcast(bits, self.element) if is_float(self.element) else bits


def smaller(a: Value, b: Value) -> Value:
    """The smaller of two keys in each lane."""
    return Value(arith.minsi(a.ssa, b.ssa))


def larger(a: Value, b: Value) -> Value:
    """The larger of two keys in each lane."""
    return Value(arith.maxsi(a.ssa, b.ssa))


def highest_of(keys: Keys, lanes: int) -> Value:
    """The last key of all in each lane."""
    return constant(keys.highest, vector_of(lanes, keys.type))
