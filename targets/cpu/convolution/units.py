"""Packed element types of convolutions: the accumulator type, or groups of adjacent input features.

Pairs of 16-bit integers have an instruction that multiplies and adds them (see `products`).
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, ContractionOperand
from stablexla.targets.codegen.match.epilogue import accumulator_type
from stablexla.targets.cpu.contraction.dot_instructions import (
    LANE_BITS,
    DotInstruction,
    ToPairs,
    choose_multiply_add,
    pairs_of,
)
from stablexla.targets.cpu.contraction.dot_instructions import vector_multiply_add as without_tiles


@dataclass(frozen=True)
class ConvolutionUnits:
    """Packed form of operands, and their multiply-add: a value that shared functions are made from.

    Attributes:
        sums: the accumulator type.
        product: the instruction.
    """

    sums: ir.Type
    product: DotInstruction

    @property
    def type(self) -> ir.Type:
        """The type of a packed element."""
        return self.product.unit_type

    @property
    def group(self) -> int:
        """Adjacent features that are multiplied together."""
        return self.product.group

    @property
    def bytes(self) -> int:
        """Size of a packed element."""
        return cg.bits_of(self.type) // 8

    @property
    def name(self) -> str:
        """The part of shared functions' names that tells these units."""
        if self.product.is_plain:
            return str(self.sums)
        return f"{'emulated_' * self.product.emulated}{self.product.name}_{self.sums}"

    def slots(self, features: int) -> int:
        """Return the packed elements of so many features, padded to whole groups."""
        return -(-features // self.group) * self.group

    def lanes(self) -> int:
        """Return the packed elements in a vector."""
        return cg.lanes_of(self.sums) * self.group

    def widen(self, operand: ContractionOperand, sum_type: ir.Type) -> ToPairs | None:
        """Return the conversion of an operand's element to a packed one; None to the accumulator type."""
        return None if self.product.is_plain else pairs_of(operand, sum_type)

    def stays(self, operand: ContractionOperand) -> bool:
        """Whether elements are stored as they are packed."""
        if self.product.is_plain:
            return not operand.conversion and operand.element == self.sums
        widened = [op.name for op in operand.conversion] in (["arith.extsi"], [])
        return widened and operand.element == self.type


def units_of(contraction: Contraction, features: int, target: CpuTarget) -> ConvolutionUnits:
    """Choose pairs where the integers fit them and there are several features; else single elements."""
    sums = accumulator_type(contraction)
    product = choose_multiply_add(contraction, target) if features > 1 and cg.bits_of(sums) == LANE_BITS else None
    if product is not None and product.name != "pairs":
        product = without_tiles(product, contraction, target)
    if product is None or product.name != "pairs":
        return ConvolutionUnits(sums, DotInstruction("plain", str(sums), False))
    return ConvolutionUnits(sums, product.instruction)
