"""Index arithmetic of attention blocks: batch, tile of queries, and addresses of queries, keys and results."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody
from stablexla.targets.codegen.conversion import convert, load_converted
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.attention import Attention, AttentionOperand
from stablexla.targets.codegen.match.contraction import ContractionOperand
from stablexla.targets.gpu.threads import coordinates


@dataclass(frozen=True)
class AttentionTile:
    """A block's position: `queries` queries of a batch, from number `first` on."""

    attention: Attention
    batch: dict[int, Index]
    first: Value

    @classmethod
    def of(cls, attention: Attention, number: Value, queries: int) -> AttentionTile:
        """Decode a block's number into its position."""
        extents = [attention.rows.chain.nest.extents[d] for d in attention.batch]
        blocks = -(-attention.extent(attention.queries) // queries)
        *places, block = coordinates(number, [*extents, blocks])
        return cls(attention, dict(zip(attention.batch, places, strict=True)), block * queries)

    def row(self, number: Index) -> dict[int, Index]:
        """Return the row loops' indices for a query of the block, clamped to the last query."""
        loops = self.attention.queries
        if not loops:
            return dict(self.batch)
        extents = [self.attention.rows.chain.nest.extents[d] for d in loops]
        query = cg.minimum(self.first + cg.index(number), prod(extents) - 1)
        places = coordinates(query, extents)
        return {**self.batch, **dict(zip(loops, places, strict=True))}

    def inside(self, number: Index) -> Value:
        """Return the mask of queries that exist."""
        return (self.first + cg.index(number)).lt(self.attention.extent(self.attention.queries))

    def write(self, buffer: Value, at: dict[int, Index], column: Index, sums: Value) -> None:
        """Store normalized accumulators to the result, through the epilogue."""
        a, lanes = self.attention, sums.lanes
        for body in a.after:
            (sums,) = VectorBody(body, lanes).on([sums])
        to = linear_offset(a.out, at) + cg.index(column) * a.out_inner
        if a.out_inner == 1 or not lanes:
            cg.store(sums, buffer, to)
            return
        for lane in range(lanes):
            cg.store(cg.extract(sums, lane), buffer, to + lane * a.out_inner)


def linear_offset(strides: Sequence[int], at: dict[int, Index]) -> Value:
    """Return the linear offset of loop indices under strides."""
    total = cg.index(0)
    for loop, place in at.items():
        if strides[loop]:
            total = total + cg.index(place) * strides[loop]
    return total


def load_aligned(buffer: Value, operand: ContractionOperand, compute: ir.Type, at: Value, lanes: int) -> Value:
    """Load elements of a factor, converted to the compute type; marks vector alignment that LLVM cannot infer."""
    if lanes <= 1:
        return load_converted(buffer, operand.conversion, compute, at)
    size = min(16, lanes * max(8, cg.bits_of(operand.element)) // 8)  # alignment of every buffer
    value = Value(vector.load(cg.vector_of(lanes, operand.element), buffer.ssa, [at.ssa], alignment=size))
    return convert(value, operand.conversion)


def outer_strides(factor: AttentionOperand) -> list[int]:
    """Return the nonzero strides of a factor's array along all loops but its own innermost one."""
    return [stride for stride in factor.strides if stride]
