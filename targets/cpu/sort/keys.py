"""Sort keys: an order-preserving map of elements to signed integers in vectors, and its inverse.

Where zeros and NaNs are alike, f64 are their own keys: few processors have a minimum of 64-bit integers as one
instruction, and all have one of floats.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.radix import SortKeysConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value


@dataclass(frozen=True)
class SortKeys:
    """A total order of one array's elements, whose keys are integers of the same width.

    Attributes:
        element: type of the elements.
        unsigned: whether they are integers without sign.
        descending: the largest element comes first.
        zeros_alike, nans_alike: whether -0 and 0, and all NaNs, have one key. Of those only one form comes back from
            its key.
        infinity: the bit pattern of the float.
        native: whether the elements are their own keys, but for NaN, whose key is that of infinity, and for their sign.
    """

    element: ir.Type
    unsigned: bool
    descending: bool
    zeros_alike: bool
    nans_alike: bool
    infinity: int
    native: bool = False

    @classmethod
    def of(cls, element: ir.Type, config: SortKeysConfig) -> SortKeys:
        """Return the keys of a kernel's element type and configuration."""
        alike = (config.zeros_alike, config.nans_alike)
        native = isinstance(element, ir.F64Type) and all(alike)
        return cls(element, config.unsigned, config.descending, *alike, config.infinity, native)

    @property
    def bits(self) -> int:
        return cg.bits_of(self.element)

    @property
    def word(self) -> ir.Type:
        """The integer type of the elements' width."""
        return ir.IntegerType.get_signless(self.bits)

    @property
    def type(self) -> ir.Type:
        """The type of the keys."""
        return self.element if self.native else self.word

    @property
    def magnitude(self) -> int:
        """Mask of all bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def highest(self) -> int | float:
        """The last key: none comes after it."""
        return inf if self.native else self.magnitude

    @property
    def sign(self) -> int:
        """The sign bit, as a signed integer."""
        return -(1 << (self.bits - 1))

    @property
    def integers(self) -> SortKeys:
        """The same order with integer keys."""
        return replace(self, native=False)

    @property
    def of_keys(self) -> SortKeys:
        """The order of the keys themselves, whatever elements they stand for."""
        return SortKeys(self.type, False, False, False, False, 0, self.native)

    @property
    def has_alike(self) -> bool:
        """Whether different elements may have one key."""
        return self.zeros_alike or self.nans_alike

    @property
    def nan(self) -> int:
        """The bit pattern of the NaN that comes back from NaNs' key."""
        return self.infinity | (self.infinity & -self.infinity) >> 1

    def canonical(self, bits: Value) -> Value:
        """Return the canonical bit pattern of all elements with the same key."""
        type_ = bits.type
        if self.zeros_alike:
            zero = cg.constant(0, type_)
            bits = cg.select(bits.eq(self.sign), zero, bits)
        if self.nans_alike:
            magnitude = bits & self.magnitude
            nan = self.infinity if self.native else self.nan
            bits = cg.select(magnitude.gt(self.infinity), cg.constant(nan, type_), bits)
        return bits

    def of_bits(self, bits: Value) -> Value:
        """Return the key of an element whose bit pattern is canonical."""
        if self.native:
            return cg.bitcast(bits ^ self.sign if self.descending else bits, self.element)
        key = self._ordered(bits)
        return key ^ -1 if self.descending else key

    def to_bits(self, key: Value) -> Value:
        """Return the bit pattern of the element that has a key."""
        if self.native:
            bits = cg.bitcast(key, self.word)
            return bits ^ self.sign if self.descending else bits
        return self._ordered(key ^ -1 if self.descending else key)

    def _ordered(self, bits: Value) -> Value:
        """Map bit patterns to ordered integers; its own inverse."""
        if cg.is_float(self.element):
            return bits ^ ((bits >> (self.bits - 1)) & self.magnitude)
        return bits ^ self.sign if self.unsigned else bits

    def comparable(self, key: Value) -> Value:
        """Return a signed integer in the order of the keys."""
        return self._ordered(cg.bitcast(key, self.word)) if self.native else key

    def as_bits(self, value: Value) -> Value:
        """Bitcast an element, or a vector of them, to integers."""
        return cg.bitcast(value, self.word) if cg.is_float(self.element) else value

    def as_elements(self, bits: Value) -> Value:
        """Bitcast integers back to elements: the inverse of `as_bits`."""
        return cg.bitcast(bits, self.element) if cg.is_float(self.element) else bits


def min_keys(a: Value, b: Value) -> Value:
    """Return the smaller of two keys in each lane; of two that compare equal, the one that `larger` leaves."""
    if cg.is_float(a.type):
        return cg.select(a.lt(b), a, b)
    return Value(arith.minsi(a.ssa, b.ssa))


def max_keys(a: Value, b: Value) -> Value:
    """Return the larger of two keys in each lane."""
    if cg.is_float(a.type):
        return cg.select(a.lt(b), b, a)
    return Value(arith.maxsi(a.ssa, b.ssa))


def highest_of(keys: SortKeys, lanes: int) -> Value:
    """Return the last key in each lane."""
    return cg.constant(keys.highest, cg.vector_of(lanes, keys.type))
