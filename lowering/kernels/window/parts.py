"""Reductions of windows in one pass: over shifted copies of arrays, or in loops over each window.

Arrays are padded already. What is folded, and which computation it is, is a `Folding`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import mlir.ir as ir
import numpy as np

from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.constants import read_constant
from stablexla.dialects.element_types import ElementType
from stablexla.lowering.rules.shape import constant_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, REDUCTION, Output, empty, generic, projection
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType

# Computations whose order is free, and those of them that give x for two times x.
ASSOCIATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
IDEMPOTENT = ("maximum", "minimum", "and", "or")
# What a computation's operations count for, in code; the others count for one.
HEAVY = {"exponential", "log", "log_plus_one", "exponential_minus_one", "power", "tanh", "logistic", "sine", "cosine"}
HEAVY_WEIGHT = 16


class Folding:
    """The computation of a reduce_window, and its initial values.

    Attributes:
        context: the operation.
        starts: the initial values.
        elements: the types that are folded in.
        known: the operation's name if the computation is one whose order is free, else "".
    """

    def __init__(self, ctx: LoweringContext, starts: Sequence[ir.Value]) -> None:
        self.context = ctx
        self.starts = list(starts)
        self.elements = [t.element for t in ctx.result_types]
        self.known = known_operation(ctx.op.regions[0])

    def apply(self, totals: Sequence[ir.Value], values: Sequence[ir.Value]) -> list[ir.Value]:
        """The totals with more values folded in."""
        return self.context.inline_region(0, [*totals, *values])

    def starting_from(self, starts: Sequence[ir.Value]) -> Folding:
        """The same where the initial values are arguments, as inside a kernel."""
        return Folding(self.context, starts)

    @staticmethod
    def type(element: ElementType, shape: Sequence[int]) -> TensorType:
        """Type of an array of elements that are folded."""
        return TensorType(element, tuple(shape))

    @property
    def repeats(self) -> bool:
        """Whether folding something in twice is the same as once."""
        return self.known in IDEMPOTENT

    @cached_property
    def weight(self) -> int:
        """About how many operations the computation takes."""
        return sum(_weight(view.operation) for view in self.context.op.regions[0].blocks[0].operations)

    @property
    def keeps_start(self) -> bool:
        """Whether the initial value is known to stay as it is when it is folded with itself."""
        return self.repeats or (bool(self.known) and self._start_is(0 if self.known != "multiply" else 1))

    @property
    def neutral(self) -> Any:
        """What changes nothing, not even a sign, when a known computation folds it in."""
        element = self.elements[0]
        if self.known in ("maximum", "minimum"):
            return _extreme(element, lowest=self.known == "maximum")
        if self.known == "and":
            return True if element.is_pred else -1 if element.is_signed else (1 << element.bits) - 1
        if self.known == "add" and not element.is_integer:
            return -0.0
        return int(self.known == "multiply")

    @property
    def start_is_neutral(self) -> bool:
        """Whether the initial value is known to be that."""
        if not self.known or self.elements[0].is_complex:
            return False
        neutral, value = self.neutral, self._constant()
        return value is not None and bool(value == neutral) and bool(np.signbit(value) == np.signbit(neutral))

    def _start_is(self, number: Any) -> bool:
        value = self._constant()
        return value is not None and bool(value == number)

    def _constant(self) -> Any:
        """The first initial value when it is a constant."""
        count = len(self.context.op.operands) // 2
        owner = self.context.op.operands[count].owner
        op = getattr(owner, "operation", None)
        while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
            op = getattr(op.operands[0].owner, "operation", None)
        if op is None or op.name != "stablehlo.constant":
            return None
        return read_constant(op, self.context.operand_types[count].element, ()).reshape(-1)[0]


def known_operation(region: Any) -> str:
    """The name of the one operation, of those whose order is free, that a region is on its two arguments; else ""."""
    block = region.blocks[0]
    operations = [view.operation for view in block.operations]
    if len(operations) != 2 or len(block.arguments) != 2:
        return ""
    name = str(operations[0].name).removeprefix("stablehlo.")
    given = list(operations[0].operands)
    both = [list(block.arguments), list(block.arguments)[::-1]]
    fits = name in ASSOCIATIVE and given in both and list(operations[1].operands) == list(operations[0].results)
    return name if fits else ""


def _weight(op: Any) -> int:
    name = str(op.name).removeprefix("stablehlo.")
    if name in ("constant", "return"):
        return 0
    inner = [view.operation for region in op.regions for block in region.blocks for view in block.operations]
    return (HEAVY_WEIGHT if name in HEAVY else 1) + HEAVY_WEIGHT * sum(map(_weight, inner))


def _extreme(element: ElementType, *, lowest: bool) -> Any:
    """The number that is below or above all others."""
    if element.is_pred:
        return not lowest
    if element.is_float:
        info = ml_dtypes.finfo(element.dtype)  # type: ignore[no-untyped-call]
        with np.errstate(all="ignore"):
            infinite = np.asarray(-np.inf if lowest else np.inf).astype(element.dtype)
        return float(infinite if np.isinf(infinite) else info.min if lowest else info.max)
    low = -(1 << (element.bits - 1)) if element.is_signed else 0
    return low if lowest else low + (1 << element.bits) - 1


def positions(window: Window, shape: Sequence[int]) -> tuple[int, ...]:
    """How many positions a window has in an array that is padded already."""
    return tuple(
        (n - reach) // stride + 1 for n, reach, stride in zip(shape, window.reach, window.strides, strict=True)
    )


# --- shifted copies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pieces:
    """Arrays of one shape, and how far in they are read from."""

    arrays: Sequence[ir.Value]
    shape: tuple[int, ...]
    offsets: tuple[int, ...]


def offsets_of(sizes: Sequence[int], dilations: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where the elements of a window lie, in row-major order."""
    places = (range(0, size * step, step) for size, step in zip(sizes, dilations, strict=True))
    return itertools.product(*places)


def folded_pieces(
    folding: Folding, pieces: Sequence[Pieces], strides: Sequence[int], shape: tuple[int, ...], *, start: bool
) -> list[ir.Value]:
    """At each index i of `shape` the pieces' elements at i * stride + offset, folded in the order of the pieces.

    Args:
        start: begins with the initial values, where they change anything.
    """
    rank, count = len(shape), len(folding.elements)
    # linalg takes a loop's extent from any dimension that it alone indexes: where an array is longer than the loop,
    # one more loop of one turn is added to the index.
    longer = any(_indexes_alone(piece, strides, shape, d) for piece in pieces for d in range(rank))
    loops = rank + longer
    inputs = [array for piece in pieces for array in piece.arrays]
    maps = [_map(piece, strides, shape, loops) for piece in pieces for _ in range(count)]
    if longer:
        inputs.append(empty(folding.type(folding.elements[0], (1,))))
        maps.append(projection(loops, [rank]))
    starts = start and not folding.start_is_neutral

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        values = [
            [from_storage(v, e) for v, e in zip(arguments[k * count : (k + 1) * count], folding.elements, strict=True)]
            for k in range(len(pieces))
        ]
        totals = folding.starts if starts else values.pop(0)
        for more in values:
            totals = folding.apply(totals, more)
        return [to_storage(v, e) for v, e in zip(totals, folding.elements, strict=True)]

    outputs = [Output(folding.type(e, shape)) for e in folding.elements]
    maps += [projection(loops, range(rank))] * count
    return generic(inputs, outputs, maps, [PARALLEL] * loops, body, kept=[rank] if longer else ())


def _indexes_alone(piece: Pieces, strides: Sequence[int], shape: Sequence[int], d: int) -> bool:
    return strides[d] == 1 and not piece.offsets[d] and piece.shape[d] != shape[d] and shape[d] > 1


def _map(piece: Pieces, strides: Sequence[int], shape: Sequence[int], loops: int) -> ir.AffineMap:
    exprs = [
        ir.AffineDimExpr.get(d) * stride + offset for d, (stride, offset) in enumerate(zip(strides, piece.offsets))
    ]
    for d in range(len(shape)):
        if _indexes_alone(piece, strides, shape, d):
            exprs[d] = exprs[d] + ir.AffineDimExpr.get(len(shape))
    return ir.AffineMap.get(loops, 0, exprs)


# --- loops over each window ---------------------------------------------------------------------------------------


def folded_in_loops(
    folding: Folding, window: Window, arrays: Sequence[ir.Value], shape: tuple[int, ...], *, start: bool = True
) -> list[ir.Value]:
    """The windows of padded arrays, folded element after element.

    Args:
        start: begins with the initial values; without them the computation must be a known one.
    """
    rank, count = len(shape), len(arrays)
    wide = [d for d, n in enumerate(window.sizes) if n > 1]
    inner = wide[-1] + 1
    # Loops over the window stand outside those over dimensions that it does not reach into, which lie side by side.
    place = {d: d if d < inner else d + len(wide) for d in range(rank)}
    turn = {d: inner + i for i, d in enumerate(wide)}
    loops, extents = rank + len(wide), positions(window, shape)
    exprs = [ir.AffineDimExpr.get(place[d]) * window.strides[d] for d in range(rank)]
    for d in wide:
        exprs[d] = exprs[d] + ir.AffineDimExpr.get(turn[d]) * window.window_dilations[d]
    read = ir.AffineMap.get(loops, 0, exprs)
    written = projection(loops, [place[d] for d in range(rank)])
    maps = [*[read] * count, projection(loops, [turn[d] for d in wide]), *[written] * count]
    sizes = empty(folding.type(folding.elements[0], [window.sizes[d] for d in wide]))
    starts = folding.starts if start else [constant_value(folding.neutral, folding.elements[0])]
    outputs = [
        Output(folding.type(e, extents), to_storage(v, e)) for v, e in zip(starts, folding.elements, strict=True)
    ]
    # Where the window has one position in a longer array, the loop of one turn still tells that apart from its end.
    kept = [place[d] for d in wide if extents[d] == 1 and shape[d] != window.reach[d]]

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        values, totals = (
            [from_storage(v, e) for v, e in zip(part, folding.elements, strict=True)]
            for part in (arguments[:count], arguments[count + 1 :])
        )
        return [to_storage(v, e) for v, e in zip(folding.apply(totals, values), folding.elements, strict=True)]

    iterators = [REDUCTION if loop in turn.values() else PARALLEL for loop in range(loops)]
    return generic([*arrays, sizes], outputs, maps, iterators, body, kept=kept)
