"""Compensated sums in memory, for reductions with too many accumulators to carry in registers.

Emitters sum blocks of at most `blocked_sums.LONGEST` additions as they like, and add the blocks' sums to these.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.codegen.emission import Index, Value, alloca, constant, load, loop, store, vector_of
from stablexla.targets.codegen.sums.compensated import add_compensation, two_sum


@dataclass(frozen=True)
class CompensatedSums:
    """Accumulators and their rounding errors, element by element."""

    totals: Value
    errors: Value

    @staticmethod
    def make(elements: int, element: ir.Type) -> CompensatedSums:
        """Allocate so many sums on the stack; they are not cleared."""
        return CompensatedSums(alloca(elements, element), alloca(elements, element))

    def clear(self, at: Index, lanes: int) -> None:
        """Store the identity of addition (-0.0)."""
        nothing = constant(-0.0, vector_of(lanes, self.totals.element))
        store(nothing, self.totals, at)
        store(nothing, self.errors, at)

    def add(self, value: Value, at: Index) -> None:
        """Add the partial sums of a block to the lanes from `at` on (two-sum)."""
        total, error = two_sum(load(self.totals, at, value.lanes).ssa, value.ssa)
        store(Value(total), self.totals, at)
        store(load(self.errors, at, value.lanes) + Value(error), self.errors, at)

    def result(self, at: Index, lanes: int) -> Value:
        """Return the compensated sums."""
        return Value(add_compensation(load(self.totals, at, lanes).ssa, load(self.errors, at, lanes).ssa))

    def clear_all(self, elements: Index, lanes: int) -> None:
        """Clear a multiple of `lanes` of them."""
        with loop(0, elements, lanes) as i:
            self.clear(i.iv, lanes)

    def take(self, block: Value, elements: Index, lanes: int) -> None:
        """Add a block's sums, that lie in a buffer of the same layout, and clear those."""
        with loop(0, elements, lanes) as i:
            self.add(load(block, i.iv, lanes), i.iv)
            store(constant(-0.0, vector_of(lanes, block.element)), block, i.iv)

    def give(self, block: Value, elements: Index, lanes: int) -> None:
        """Store the results into a buffer."""
        with loop(0, elements, lanes) as i:
            store(self.result(i.iv, lanes), block, i.iv)
