"""Packed element types of convolutions: the accumulator type, or groups of adjacent input features.

Groups have an instruction that multiplies and adds them: pairs of 16-bit integers or bf16, four bytes, or AMX tiles
(`stablexla.targets.cpu.contraction.dot_instructions`).
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import ContractionOperand
from stablexla.targets.codegen.match.convolution import MatchedConvolution
from stablexla.targets.codegen.match.epilogue import accumulator_type
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.cpu.contraction.amx import LANES
from stablexla.targets.cpu.contraction.dot_instructions import (
    LANE_BITS,
    AsStored,
    DotInstruction,
    ToPairs,
    choose_multiply_add,
    pairs_of,
    with_pairs_alone,
    without_tiles,
)

# How many times a tile's row of features may be as long as they are; the rest is padding.
TILES_PADDING = Gate("convolution.tiles-padding", 4, eager=64)


@dataclass(frozen=True)
class ConvolutionUnits:
    """Packed form of operands, and their multiply-add: a value that shared functions are made from.

    Attributes:
        sums: the accumulator type.
        product: the instruction.
        whole_rows: whether the elements of a window's row, with their few features, are multiplied as so many features.
    """

    sums: ir.Type
    product: DotInstruction
    whole_rows: bool = False

    @property
    def type(self) -> ir.Type:
        """The type of a packed element."""
        return self.product.unit_type

    @property
    def group(self) -> int:
        """Adjacent features that are multiplied together."""
        return self.product.group

    @property
    def step(self) -> int:
        """Features of one iteration of the micro-kernel."""
        return self.group * (LANES if self.product.is_tiles else 1)

    @property
    def bytes(self) -> int:
        """Size of a packed element."""
        return cg.bits_of(self.type) // 8

    @property
    def name(self) -> str:
        """The part of shared functions' names that tells these units."""
        if self.product.is_plain:
            return str(self.sums)
        return f"{self.product.label}_{'rows_' * self.whole_rows}{self.sums}"

    def slots(self, features: int) -> int:
        """Return the packed elements of so many features of lhs, padded to whole steps."""
        return features if self.whole_rows else rounded_up(features, self.step)

    def merged(self, convolved: MatchedConvolution) -> int:
        """Return how many elements of the window count as one, with the features of all."""
        return convolved.last.window if self.whole_rows else 1

    def lanes(self) -> int:
        """Return the packed elements in a vector."""
        return cg.lanes_of(self.sums) * self.group

    def widen(self, operand: ContractionOperand, sum_type: ir.Type) -> ToPairs | AsStored | None:
        """Return the conversion of an operand's element to a packed one; None to the accumulator type."""
        if self.product.is_plain:
            return None
        return pairs_of(operand, sum_type) if self.product.name == "pairs" else AsStored()

    def stays(self, operand: ContractionOperand) -> bool:
        """Whether elements are stored as they are packed."""
        if self.product.is_plain:
            return not operand.conversion and operand.element == self.sums
        if self.product.name != "pairs":
            return True
        widened = [op.name for op in operand.conversion] in (["arith.extsi"], [])
        return widened and operand.element == self.type


def plain_units(convolved: MatchedConvolution, least_bits: int = 32) -> ConvolutionUnits:
    """Return single elements of the accumulator type, which for integers has `least_bits` or more."""
    sums = accumulator_type(convolved.contraction, least_bits)
    return ConvolutionUnits(sums, DotInstruction("plain", str(sums), False))


def units_of(convolved: MatchedConvolution, target: CpuTarget) -> ConvolutionUnits:
    """Choose groups of features where an instruction multiplies them, and there are several; else single elements."""
    c, features, plain = convolved.contraction, convolved.inputs.extent, plain_units(convolved)
    if features == 1 or cg.bits_of(plain.sums) != LANE_BITS:
        return plain
    product = choose_multiply_add(c, target)
    whole_rows = False
    if product is not None and product.is_tiles and features * TILES_PADDING() < LANES * product.group:
        whole_rows = _has_whole_rows(convolved) and _packs_by_vectors(convolved, target)
        if not whole_rows or features * convolved.last.window * TILES_PADDING() < LANES * product.group:
            whole_rows, product = False, choose_multiply_add(c, without_tiles(target))
    if product is not None and product.name != "pairs" and (product.offset or not _packs_by_vectors(convolved, target)):
        product = choose_multiply_add(c, with_pairs_alone(target))
    return plain if product is None else ConvolutionUnits(plain.sums, product.instruction, whole_rows)


def _has_whole_rows(c: MatchedConvolution) -> bool:
    """Return whether the elements of a window's row are contiguous in packed lhs, and so are those of the weights.

    Weights with output features last are a matrix for each row; those for each output feature are transposed to that.
    """
    w = c.last
    adjacent = len(w.phases) == 1 and w.tap_stride == 1 and w.tap_step == 1 and w.taps == w.window
    is_last = c.contraction.n.b == 1
    weights = w.b == c.inputs.extent * c.inputs.b if is_last else c.inputs.b == c.window
    return c.group.extent == 1 and adjacent and weights


def _packs_by_vectors(convolved: MatchedConvolution, target: CpuTarget) -> bool:
    """Whether weights are contiguous along output or input features, or, all of them, for each output feature."""
    if 1 in (convolved.contraction.n.b, convolved.inputs.b):
        return True
    stride = convolved.window
    dense = convolved.inputs.b == stride
    for d in (*convolved.outer, convolved.last):
        stride //= d.window
        dense = dense and (d.window == 1 or d.b == stride)
    return dense and convolved.window * convolved.inputs.extent >= target.vector_bits // LANE_BITS
