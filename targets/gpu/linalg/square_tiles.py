"""Square tiles of matrices in shared memory, for blocked factorizations and triangular solves.

The leading dimension is padded by one element, so that a column is free of bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.linear_algebra import Field
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.gpu.threads import shared_buffer, thread_index

THREADS = 256
# (row, column) -> element.
Read = Callable[[Value, Value], Value]


def tile_rows(element: ir.Type) -> int:
    """Return the rows of a tile: four tiles fit into every chip's shared memory."""
    return 32 if cg.bits_of(element) <= 64 else 16


@dataclass(frozen=True)
class SquareTile:
    """A tile of `size` rows, in shared memory from `first_byte` on."""

    size: int
    element: ir.Type
    first_byte: int

    @property
    def bytes(self) -> int:
        return self.size * (self.size + 1) * cg.bits_of(self.element) // 8

    def at(self, row: Value, column: Value) -> Value:
        return cg.load(self._buffer(), self._place(row, column))

    def put(self, value: Value, row: Value, column: Value) -> None:
        cg.store(value, self._buffer(), self._place(row, column))

    def fill(self, read: Read, *, along_rows: bool) -> None:
        """Load all elements, coalesced along rows or along columns."""
        for slow, fast in own_elements(self.size):
            row, column = (slow, fast) if along_rows else (fast, slow)
            self.put(read(row, column), row, column)

    def _place(self, row: Value, column: Value) -> Value:
        return row * (self.size + 1) + column

    def _buffer(self) -> Value:
        return shared_buffer(self.element, self.size * (self.size + 1), self.first_byte)


def own_elements(size: int) -> list[tuple[Value, Value]]:
    """Return this thread's rows and columns of a tile's elements; neighbouring threads have neighbouring columns."""
    rows = THREADS // size
    return [(thread_index() // size + n, thread_index() % size) for n in range(0, size, rows)]


def subtract_products(
    field: Field, sums: list[Value], one: SquareTile, other: SquareTile, *, conjugated: bool
) -> list[Value]:
    """Subtract from this thread's elements the products of a row of one tile by a row of the other."""
    size = one.size
    own = own_elements(size)
    with cg.loop(0, size, 1, sums) as k:
        right = other.at(own[0][1], k.iv).ssa
        right = field.conjugate(right) if conjugated else right
        made = [
            Value(field.subtract_product(s.ssa, one.at(row, k.iv).ssa, right))
            for s, (row, _) in zip(k.args, own, strict=True)
        ]
        k.yields(*made)
    return k.results
