"""Compensated sums in memory, for reductions with too many accumulators to carry in registers.

Emitters sum blocks of at most `compensated.LONGEST_RUNNING_SUM` additions as they like, and add the blocks' sums to
these.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.sums.compensated import add_compensation, two_sum


@dataclass(frozen=True)
class CompensatedSums:
    """Accumulators and their rounding errors, element by element."""

    totals: Value
    errors: Value

    @staticmethod
    def make(elements: int, element: ir.Type) -> CompensatedSums:
        """Allocate so many sums on the stack; they are not cleared."""
        return CompensatedSums(cg.alloca(elements, element), cg.alloca(elements, element))

    def clear(self, at: Index, lanes: int) -> None:
        """Store the identity of addition (-0.0)."""
        identity = cg.constant(-0.0, cg.vector_of(lanes, self.totals.element))
        cg.store(identity, self.totals, at)
        cg.store(identity, self.errors, at)

    def add(self, value: Value, at: Index) -> None:
        """Add the partial sums of a block to the lanes from `at` on (two-sum)."""
        total, error = two_sum(cg.load(self.totals, at, value.lanes).ssa, value.ssa)
        cg.store(Value(total), self.totals, at)
        cg.store(cg.load(self.errors, at, value.lanes) + Value(error), self.errors, at)

    def result(self, at: Index, lanes: int) -> Value:
        """Return the compensated sums."""
        return Value(add_compensation(cg.load(self.totals, at, lanes).ssa, cg.load(self.errors, at, lanes).ssa))

    def clear_all(self, elements: Index, lanes: int) -> None:
        """Clear a multiple of `lanes` of them."""
        with cg.loop(0, elements, lanes) as i:
            self.clear(i.iv, lanes)

    def take(self, block: Value, elements: Index, lanes: int) -> None:
        """Add a block's sums, that lie in a buffer of the same layout, and clear those."""
        with cg.loop(0, elements, lanes) as i:
            self.add(cg.load(block, i.iv, lanes), i.iv)
            cg.store(cg.constant(-0.0, cg.vector_of(lanes, block.element)), block, i.iv)

    def give(self, block: Value, elements: Index, lanes: int) -> None:
        """Store the results into a buffer."""
        with cg.loop(0, elements, lanes) as i:
            cg.store(self.result(i.iv, lanes), block, i.iv)
