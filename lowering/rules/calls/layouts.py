"""Layouts of a call's arrays: which dimension lies closest together in memory, which next.

Arrays here lie in row-major order. One of another layout is transposed on its way into a call and out of it, so that
the callee finds its elements where it asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlir.ir as ir

from stablexla.lowering.rules.shape import transposed
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.types import TensorType

OPERANDS, RESULTS, TILINGS = "operand_layouts", "result_layouts", "result_tilings"


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory.

    Attributes:
        type: the array.
        order: its dimensions from the slowest to the fastest.
    """

    type: TensorType
    order: tuple[int, ...]

    @property
    def held(self) -> TensorType:
        """The row-major array that lies in memory as this one does."""
        return self.type.with_shape(tuple(self.type.shape[d] for d in self.order))

    def enter(self, value: ir.Value) -> ir.Value:
        """The array as it has to lie in memory."""
        return transposed(value, self.type, self.order) if self.type.rank else value

    def leave(self, value: ir.Value) -> ir.Value:
        """The array that lies there."""
        if not self.type.rank:
            return value
        return transposed(value, self.held, [self.order.index(d) for d in range(self.type.rank)])


def row_major(type_: TensorType) -> Layout:
    """The layout that arrays have here."""
    return Layout(type_, tuple(range(type_.rank)))


def in_columns(type_: TensorType) -> Layout:
    """The layout of LAPACK's matrices; what has one dimension less than a matrix is as it is."""
    first = tuple(range(type_.rank))
    return Layout(type_, (*first[:-2], *first[-2:][::-1]))


def layouts_of(ctx: LoweringContext, side: str, types: Sequence[TensorType]) -> list[Layout]:
    """The layouts that an operation asks for; row-major where it does not say.

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
