"""What a convolution's operands are packed as: numbers of the type of the sums, or pairs of neighbouring features.

Pairs of 16-bit integers have an instruction of their own that multiplies and adds them (see `products`).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.codegen.emission import Index, Value, bits_of, fma, lanes_of, load, splat
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, Operand
from stablexla.targets.codegen.match.epilogue import compute_type
from stablexla.targets.cpu.contraction.products import (
    LANE_BITS,
    Product,
    Widen,
    choose_product,
    load_group,
    spread_group,
)
from stablexla.targets.cpu.contraction.products import vector_product as without_tiles


@dataclass(frozen=True)
class Units:
    """How operands are packed, and how they are multiplied.

    Attributes:
        sums: the type of the sums.
        product: the instruction; None for one product at a time in the type of the sums.
    """

    sums: ir.Type
    product: Product | None = None

    @property
    def type(self) -> ir.Type:
        """The type of a packed element."""
        return self.product.unit_type if self.product else self.sums

    @property
    def group(self) -> int:
        """Neighbouring features that are multiplied together."""
        return self.product.group if self.product else 1

    @property
    def bytes(self) -> int:
        """Of a packed element."""
        return bits_of(self.type) // 8

    @property
    def name(self) -> str:
        """What tells functions on them from others."""
        if self.product is None:
            return str(self.sums)
        return f"{'emulated_' * self.product.emulated}{self.product.name}_{self.sums}"

    def slots(self, features: int) -> int:
        """Packed elements for so many features: the last group is filled up."""
        return -(-features // self.group) * self.group

    def lanes(self) -> int:
        """Packed elements in a vector."""
        return lanes_of(self.sums) * self.group

    def widen(self, *, lhs: bool) -> Widen | None:
        """What makes a packed element of one of an operand; None without an instruction."""
        if self.product is None:
            return None
        return self.product.a if lhs else self.product.b

    def stays(self, operand: Operand) -> bool:
        """Whether elements are stored as they are packed."""
        if self.product is None:
            return not operand.conversion and operand.element == self.sums
        widened = [op.name for op in operand.conversion] in (["arith.extsi"], [])
        return widened and operand.element == self.type

    def factor(self, lhs: Value, at: Index, lanes: int) -> Value:
        """A group of lhs in every lane."""
        if self.product is None:
            return splat(load(lhs, at), lanes)
        return spread_group(load_group(self.product, lhs, at), lanes)

    def multiply_add(self, a: Value, b: Value, sums: Value) -> Value:
        """sums + a * b, for whole groups."""
        return fma(a, b, sums) if self.product is None else self.product.multiply_add(a, b, sums)


def units_of(contraction: Contraction, features: int, target: CpuTarget) -> Units:
    """Pairs where integers fit them and there are more features than one; else numbers one by one."""
    sums = compute_type(contraction)
    product = choose_product(contraction, target) if features > 1 and bits_of(sums) == LANE_BITS else None
    if product is not None and product.name != "pairs":
        product = without_tiles(product, contraction, target)
    usable = product is not None and product.name == "pairs"
    return Units(sums, product if usable else None)
