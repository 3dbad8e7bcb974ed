"""Index vectors of gather and scatter: their strides in the array of indices, and the operand's start indices."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.kernels.scan.lines import as_line, element_at, index, moved
from stablexla.lowering.rules.conversion import convert_value
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.generic import PARALLEL, Output, generic, identity
from stablexla.lowering.support.storage import constant, from_storage
from stablexla.lowering.support.types import TensorType, value_type


@dataclass(frozen=True)
class Start:
    """One start index of an index vector.

    Attributes:
        offset: elements from the vector's first index to this one.
        extent: of the operand's dimension that it indexes.
        size: of the slice or window in that dimension.
        step: the operand's stride in that dimension, in elements.
        inside: it is known to be in bounds for the whole slice.
    """

    offset: int
    extent: int
    size: int
    step: int
    inside: bool = False

    @property
    def highest(self) -> int:
        """The last start at which a slice is in bounds; an empty slice starts in bounds as well."""
        return self.extent - max(1, self.size)


@dataclass(frozen=True)
class IndexVectors:
    """The vectors of an array of indices: its other dimensions, their strides, and the stride within a vector."""

    type: TensorType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    step: int

    @classmethod
    def of(cls, type_: TensorType, vector_dim: int) -> IndexVectors:
        """Return the vectors along `vector_dim`; if that is the array's rank, each number is a vector of its own."""
        strides = row_major(type_.shape)
        dims = tuple(d for d in range(type_.rank) if d != vector_dim)
        step = strides[vector_dim] if vector_dim < type_.rank else 0
        return cls(type_, dims, tuple(strides[d] for d in dims), step)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the dimensions without the vectors' own."""
        return tuple(self.type.shape[d] for d in self.dims)

    def starts(self, pointed: Sequence[int], extents: Sequence[int], sizes: Sequence[int]) -> list[Start]:
        """Return the start indices of a vector that indexes the dimensions `pointed` of an operand."""
        steps = row_major(extents)
        # a dimension that is collapsed may have slices of size 0, of which an element is read all the same
        return [Start(k * self.step, extents[d], max(1, sizes[d]), steps[d]) for k, d in enumerate(pointed)]

    def read(self, line: ir.Value, place: ir.Value, start: Start) -> ir.Value:
        """Load a start index of the vector at `place`."""
        return from_storage(element_at(line, moved(place, index(1), start.offset)), self.type.element)

    def first_element(self, line: ir.Value, place: ir.Value, starts: Sequence[Start]) -> ir.Value:
        """Return the linear index of the slice of the vector at `place`, each start clamped to the operand."""
        found = index(0)
        for start in starts:
            held = self.read(line, place, start)
            if not start.inside:
                held = held_within(held, self.type.element, start.highest)
            found = moved(found, as_index(held, self.type.element), start.step)
        return found


def table_of_starts(
    array: ir.Value, vectors: IndexVectors, starts: Sequence[Start], size: int
) -> tuple[ir.Value, IndexVectors]:
    """Precompute the linear indices of all slices in an operand of `size` elements.

    Returns:
        The flattened table, and its index vectors, of one number each.
    """
    element = BY_NAME["s32" if size < 1 << 31 else "s64"]
    table = TensorType(element, vectors.shape)
    rank, width = table.rank, value_type(element)

    def number(k: int) -> ir.AffineMap:
        places = {d: ir.AffineDimExpr.get(i) for i, d in enumerate(vectors.dims)}
        vector = ir.AffineConstantExpr.get(k)
        return ir.AffineMap.get(rank, 0, [places.get(d, vector) for d in range(vectors.type.rank)])

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        total = constant(width, 0)
        for argument, start in zip(arguments, starts, strict=False):
            given = from_storage(argument, vectors.type.element)
            held = held_within(given, vectors.type.element, start.highest)
            counted = convert_value(held, vectors.type.element, element)
            total = arith.addi(total, arith.muli(counted, constant(width, start.step)))
        return [total]

    maps = [*(number(k) for k in range(len(starts))), identity(rank)]
    (made,) = generic([array] * len(starts), [Output(table)], maps, [PARALLEL] * rank, body)
    return as_line(made, table), IndexVectors.of(table, rank)
