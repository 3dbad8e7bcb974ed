"""Window reductions in one pass: over shifted copies of arrays, or in loops over each window.

Arrays are padded already. A `Folding` is the combiner with its initial values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import ml_dtypes
import mlir.ir as ir
import numpy as np

from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.constants import read_constant
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.shape import constant_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, REDUCTION, Output, empty, generic, projection
from stablexla.lowering.support.identities import identity_of
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType

# Combiners whose order is free, and those of them that are idempotent.
ASSOCIATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
IDEMPOTENT = ("maximum", "minimum", "and", "or")
# Operations of a combiner that expand to much code, and their weight; the others count for one.
HEAVY = {"exponential", "log", "log_plus_one", "exponential_minus_one", "power", "tanh", "logistic", "sine", "cosine"}
HEAVY_WEIGHT = 16


class Folding:
    """The combiner of a reduce_window, and its initial values.

    Attributes:
        context: the operation.
        starts: the initial values.
        elements: the accumulation types.
        known: the combiner's name if it is an operation whose order is free, else "".
    """

    def __init__(self, ctx: LoweringContext, starts: Sequence[ir.Value]) -> None:
        self.context = ctx
        self.starts = list(starts)
        self.elements = [t.element for t in ctx.result_types]
        self.known = known_operation(ctx.op.regions[0])

    def apply(self, totals: Sequence[ir.Value], values: Sequence[ir.Value]) -> list[ir.Value]:
        """Combine the accumulators with more values."""
        return self.context.inline_region(0, [*totals, *values])

    def starting_from(self, starts: Sequence[ir.Value]) -> Folding:
        """Return the combiner with other initial values, such as a kernel's arguments."""
        return Folding(self.context, starts)

    @staticmethod
    def type(element: ElementType, shape: Sequence[int]) -> TensorType:
        """Return the type of an array of an accumulation type."""
        return TensorType(element, tuple(shape))

    @property
    def repeats(self) -> bool:
        """Whether the combiner is known to be idempotent."""
        return self.known in IDEMPOTENT

    @cached_property
    def weight(self) -> int:
        """A rough number of operations of the combiner."""
        return sum(_weight(view.operation) for view in self.context.op.regions[0].blocks[0].operations)

    @property
    def keeps_start(self) -> bool:
        """Whether the initial value combined with itself is known to be unchanged."""
        return self.repeats or (bool(self.known) and self._start_is(0 if self.known != "multiply" else 1))

    @property
    def neutral(self) -> Any:
        """The identity of a known combiner, exact to the sign of zero."""
        element = self.elements[0]
        if self.known in ("maximum", "minimum") and element.is_float:
            return _extreme(element, lowest=self.known == "maximum")
        floating, unsigned = not element.is_integer and not element.is_pred, not element.is_signed
        found = identity_of(self.known, element.bits, floating=floating, unsigned=unsigned)
        return bool(found) if element.is_pred else 0 if found is None else found

    @property
    def start_is_neutral(self) -> bool:
        """Whether the initial value is known to be the identity."""
        if not self.known or self.elements[0].is_complex:
            return False
        neutral, value = self.neutral, self._constant()
        return value is not None and bool(value == neutral) and bool(np.signbit(value) == np.signbit(neutral))

    def _start_is(self, number: Any) -> bool:
        value = self._constant()
        return value is not None and bool(value == number)

    def _constant(self) -> Any:
        """Return the first initial value if it is a constant."""
        count = len(self.context.op.operands) // 2
        owner = self.context.op.operands[count].owner
        op = getattr(owner, "operation", None)
        while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
            op = getattr(op.operands[0].owner, "operation", None)
        if op is None or op.name != "stablehlo.constant":
            return None
        return read_constant(op, self.context.operand_types[count].element, ()).reshape(-1)[0]


def known_operation(region: Any) -> str:
    """Match a combiner that is one operation of free order on its two arguments; return its name, else ""."""
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
    """Return the smallest or largest value of a floating-point type, some of which have no infinity."""
    info = ml_dtypes.finfo(element.dtype)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        infinite = np.asarray(-np.inf if lowest else np.inf).astype(element.dtype)
    return float(infinite if np.isinf(infinite) else info.min if lowest else info.max)


def positions(window: Window, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the number of window positions along each dimension of a padded array."""
    return tuple(
        (n - reach) // stride + 1 for n, reach, stride in zip(shape, window.reach, window.strides, strict=True)
    )


# --- shifted copies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pieces:
    """Shifted copies: arrays of one shape, and the offsets at which they are read."""

    arrays: Sequence[ir.Value]
    shape: tuple[int, ...]
    offsets: tuple[int, ...]


def offsets_of(sizes: Sequence[int], dilations: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return the offsets of a window's elements, in row-major order."""
    places = (range(0, size * step, step) for size, step in zip(sizes, dilations, strict=True))
    return itertools.product(*places)


def folded_pieces(
    folding: Folding, pieces: Sequence[Pieces], strides: Sequence[int], shape: tuple[int, ...], *, start: bool
) -> list[ir.Value]:
    """Combine shifted copies: at each index i of `shape` the pieces' elements at i * stride + offset, in order.

    Args:
        start: begins with the initial values, where they change anything.
    """
    rank, count = len(shape), len(folding.elements)
    # linalg takes a loop's extent from any dimension that it alone indexes: where an array is longer than the loop,
    # one more loop of trip count 1 is added to the index.
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
    """Reduce the windows of padded arrays in a loop nest over each window.

    Args:
        start: begins with the initial values; without them the combiner must be a known one.
    """
    rank, count = len(shape), len(arrays)
    wide = [d for d, n in enumerate(window.sizes) if n > 1]
    inner = wide[-1] + 1
    # Loops over the window are outside of those over the inner, contiguous dimensions of window size 1.
    place = {d: d if d < inner else d + len(wide) for d in range(rank)}
    loop_of = {d: inner + i for i, d in enumerate(wide)}
    loops, extents = rank + len(wide), positions(window, shape)
    exprs = [ir.AffineDimExpr.get(place[d]) * window.strides[d] for d in range(rank)]
    for d in wide:
        exprs[d] = exprs[d] + ir.AffineDimExpr.get(loop_of[d]) * window.window_dilations[d]
    read = ir.AffineMap.get(loops, 0, exprs)
    written = projection(loops, [place[d] for d in range(rank)])
    maps = [*[read] * count, projection(loops, [loop_of[d] for d in wide]), *[written] * count]
    sizes = empty(folding.type(folding.elements[0], [window.sizes[d] for d in wide]))
    starts = folding.starts if start else [constant_value(folding.neutral, folding.elements[0])]
    outputs = [
        Output(folding.type(e, extents), to_storage(v, e)) for v, e in zip(starts, folding.elements, strict=True)
    ]
    # Where the window has one position in a longer array, the loop of trip count 1 is kept, so that linalg does not
    # infer the window's extent from the array.
    kept = [place[d] for d in wide if extents[d] == 1 and shape[d] != window.reach[d]]

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        values, totals = (
            [from_storage(v, e) for v, e in zip(part, folding.elements, strict=True)]
            for part in (arguments[:count], arguments[count + 1 :])
        )
        return [to_storage(v, e) for v, e in zip(folding.apply(totals, values), folding.elements, strict=True)]

    iterators = [REDUCTION if loop in loop_of.values() else PARALLEL for loop in range(loops)]
    return generic([*arrays, sizes], outputs, maps, iterators, body, kept=kept)
