"""Memory layouts of a call's arrays: the order of dimensions by stride.

Arrays here are row-major. Operands and results of another layout are transposed before and after the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.shape import transposed
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.types import TensorType

OPERANDS, RESULTS, TILINGS = "operand_layouts", "result_layouts", "result_tilings"


@dataclass(frozen=True)
class Layout:
    """Memory layout of an array.

    Attributes:
        type: the array.
        order: its dimensions from the slowest to the fastest.
    """

    type: TensorType
    order: tuple[int, ...]

    @property
    def held(self) -> TensorType:
        """The type of the row-major array with the same memory."""
        return self.type.with_shape(tuple(self.type.shape[d] for d in self.order))

    def enter(self, value: ir.Value) -> ir.Value:
        """Transpose a row-major array to this layout."""
        return transposed(value, self.type, self.order) if self.type.rank else value

    def leave(self, value: ir.Value) -> ir.Value:
        """Transpose an array of this layout back to row-major."""
        if not self.type.rank:
            return value
        return transposed(value, self.held, [self.order.index(d) for d in range(self.type.rank)])


def row_major(type_: TensorType) -> Layout:
    """Return the row-major layout, which arrays have here."""
    return Layout(type_, tuple(range(type_.rank)))


def in_columns(type_: TensorType) -> Layout:
    """Return the column-major layout of LAPACK's matrices; arrays of one dimension keep theirs."""
    first = tuple(range(type_.rank))
    return Layout(type_, (*first[:-2], *first[-2:][::-1]))


def layouts_of(ctx: LoweringContext, side: str, types: Sequence[TensorType]) -> list[Layout]:
    """Return the layouts that an operation requires; row-major where it states none.

    Args:
        side: the name of its attribute, which lists the fastest dimension first.

    Raises:
        UnsupportedError: results in tiles, which TPUs have.
    """
    if side == RESULTS and TILINGS in ctx.attributes and any(len(tiles) for tiles in ctx.attributes[TILINGS]):
        raise ctx.unsupported(
            f"{TILINGS} {ctx.attributes[TILINGS]}: arrays lie in no tiles here", "results without tiles"
        )
    given = [tuple(int(d) for d in layout) for layout in ctx.attributes[side]] if side in ctx.attributes else []
    if len(given) != len(types):
        return [row_major(t) for t in types]
    return [Layout(t, fastest[::-1]) for t, fastest in zip(types, given, strict=True)]
