"""Index vectors, as gather and scatter read them: how they lie in an array, and where in an operand they point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.kernels.scan.lines import as_line, element_at, index, moved, row_major
from stablexla.lowering.rules.conversion import convert_value
from stablexla.lowering.rules.shape import as_index, held_within
from stablexla.lowering.support.generic import PARALLEL, Output, generic, identity
from stablexla.lowering.support.storage import constant, from_storage
from stablexla.lowering.support.types import TensorType, value_type


@dataclass(frozen=True)
class Start:
    """One number of an index vector.

    Attributes:
        offset: how many elements behind the vector's first number it lies.
        extent: of the operand's dimension that it points into.
        size: of the slice or window in that dimension.
        step: elements of the operand from one place of that dimension to the next.
        inside: it is known to lie where a slice does not leave the operand.
    """

    offset: int
    extent: int
    size: int
    step: int
    inside: bool = False

    @property
    def highest(self) -> int:
        """The last place at which a slice lies inside; one of no elements starts within as well."""
        return self.extent - max(1, self.size)


@dataclass(frozen=True)
class IndexVectors:
    """The vectors of an array of indices: its other dimensions, how far apart vectors are along them, and how far apart
    the numbers of a vector are."""

    type: TensorType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    step: int

    @classmethod
    def of(cls, type_: TensorType, vector_dim: int) -> IndexVectors:
        """Those along `vector_dim`; with the rank of the array each number is a vector of its own."""
        strides = row_major(type_.shape)
        dims = tuple(d for d in range(type_.rank) if d != vector_dim)
        step = strides[vector_dim] if vector_dim < type_.rank else 0
        return cls(type_, dims, tuple(strides[d] for d in dims), step)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions without the vectors' own."""
        return tuple(self.type.shape[d] for d in self.dims)

    def starts(self, pointed: Sequence[int], extents: Sequence[int], sizes: Sequence[int]) -> list[Start]:
        """The numbers of a vector that points into the dimensions `pointed` of an operand."""
        steps = row_major(extents)
        return [Start(k * self.step, extents[d], sizes[d], steps[d]) for k, d in enumerate(pointed)]

    def read(self, line: ir.Value, place: ir.Value, start: Start) -> ir.Value:
        """A number of the vector at `place`, as a value."""
        return from_storage(element_at(line, moved(place, index(1), start.offset)), self.type.element)

    def first_element(self, line: ir.Value, place: ir.Value, starts: Sequence[Start]) -> ir.Value:
        """The operand's element at which the slice of the vector at `place` begins; every start is held inside."""
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
    """The elements at which the slices of all vectors begin in an operand of `size` elements, as vectors of one number:
    a line, and how they lie in it."""
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
