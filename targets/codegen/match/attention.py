"""Pattern match of an attention kernel: scores q k, a function of each row of them (softmax), weights times v.

Reads the tensor function only; the row function is outlined temporarily, so that the emitter of rows can analyse it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen.bodies import can_clone
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.match.attention_rows import RowFunction, analyse_row_function, is_defined_by
from stablexla.targets.codegen.match.contraction import ContractionOperand, operand_of
from stablexla.targets.grouping.classify import Kind, classify, is_product
from stablexla.targets.grouping.loops import is_generic, loops_of, strides_of
from stablexla.targets.grouping.matchers import factor_conversions, starts_at_zero

SUM_TYPES = (ir.F32Type, ir.F64Type)


@dataclass(frozen=True)
class AttentionOperand:
    """An operand of a product, with its strides along the row loops and along its inner loop."""

    operand: ContractionOperand
    strides: tuple[int, ...]
    inner: int


@dataclass(frozen=True)
class Attention:
    """out[batch, query, width] = sum over key of f(scores)[key] * v[batch, key, width].

    Loops are numbered as in `rows.chain.nest`, the last of which is over keys.

    Attributes:
        q, k, v: the operands; the inner loop of q and k is over `depth`, that of v over `width`.
        out: strides of the result along the row loops; `out_inner` that along the width.
        batch: loops with a nonzero stride in k or v.
        queries: the other row loops.
        rows: the row function.
        after: epilogue bodies, applied to the sums, of one argument and scalar constants.
    """

    kernel: Kernel
    q: AttentionOperand
    k: AttentionOperand
    v: AttentionOperand
    out: tuple[int, ...]
    out_inner: int
    depth: int
    width: int
    rows: RowFunction
    after: tuple[ir.Block, ...]

    @property
    def element(self) -> ir.Type:
        """The element type of scores, weights and sums."""
        return self.rows.scores.element

    @property
    def keys(self) -> int:
        """Length of a row."""
        return self.rows.chain.nest.extents[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        """Batch loops: those with a nonzero stride in k or v."""
        return tuple(d for d in self.rows.chain.rows if self.k.strides[d] or self.v.strides[d])

    @property
    def queries(self) -> tuple[int, ...]:
        """Row loops whose queries share keys and values."""
        return tuple(d for d in self.rows.chain.rows if d not in self.batch)

    @property
    def may_be_masked(self) -> bool:
        """Whether weights may be 0 for other reasons than their own scores: the row function selects, or reads more."""
        nest = self.rows.chain.nest
        selects = any(op.operation.name == "arith.select" for node in nest.maps for op in node.block.operations)
        return selects or len(self.rows.inputs) > 1

    def extent(self, loops: Sequence[int]) -> int:
        """Return the trip count of some loops together."""
        extents = self.rows.chain.nest.extents
        return math.prod(extents[d] for d in loops)


@contextmanager
def matched_attention(kernel: Kernel) -> Iterator[Attention | None]:
    """Match a kernel as attention, or None; valid until the temporary row function is erased on exit."""
    with kernel.func.context, ir.Location.unknown():
        made: list[func.FuncOp] = []
        try:
            yield _read(kernel, made.append)
        finally:
            for function in made:
                erase(function.operation)


def _read(kernel: Kernel, keep: Callable[[func.FuncOp], None]) -> Attention | None:
    products = [op for op in kernel.ops if is_product(op)]
    if len(products) != 2 or len(kernel.results) != 1 or not all(starts_at_zero(op) for op in products):
        return None
    first, last = products
    scores, sums = first.results[0], last.results[0]
    element = scores.type.element_type
    if element != sums.type.element_type or not isinstance(element, SUM_TYPES):
        return None
    after = _operations_after(kernel, last)
    middle = [op for op in kernel.ops if is_generic(op) and op not in (first, last) and op not in after]
    weights = next((v for v in last.operands[:2] if is_defined_by(v, middle)), None)
    factors_first, factors_last = factor_conversions(first), factor_conversions(last)
    if weights is None or factors_first is None or factors_last is None:
        return None
    rows = analyse_row_function(
        kernel, middle, weights, factors_last[list(last.operands[:2]).index(weights)], scores, keep
    )
    if rows is None:
        return None
    return _Loops(kernel, first, last, after, rows).attention(factors_first, factors_last, weights)


def _operations_after(kernel: Kernel, last: ir.Operation) -> list[ir.Operation]:
    made = {last.results[0]}
    found = []
    for op in kernel.ops:
        if is_generic(op) and any(v in made for v in op.operands):
            found.append(op)
            made.update(op.results)
    return found


# --- loops ----------------------------------------------------------------------------------------------------


class _NoAttention(Exception):
    """The loops are not those of an attention."""


class _Loops:
    """Mapping of the loops of both products and of the epilogue to the row loops, by strides."""

    def __init__(
        self, kernel: Kernel, first: ir.Operation, last: ir.Operation, after: list[ir.Operation], rows: RowFunction
    ) -> None:
        self._kernel, self._first, self._last, self._after, self._rows = kernel, first, last, after, rows

    def attention(
        self,
        to_first: Sequence[tuple[ir.Operation, ...]],
        to_last: Sequence[tuple[ir.Operation, ...]],
        weights: ir.Value,
    ) -> Attention | None:
        """Return the attention, or None."""
        try:
            return self._attention(to_first, to_last, weights)
        except _NoAttention:
            return None

    def _attention(
        self,
        to_first: Sequence[tuple[ir.Operation, ...]],
        to_last: Sequence[tuple[ir.Operation, ...]],
        weights: ir.Value,
    ) -> Attention:
        rows, key = self._rows, self._rows.chain.inner
        first, last = _strides(self._first), _strides(self._last)
        made = self._by_stride(rows.scores.strides)
        number = list(self._last.operands[:2]).index(weights)
        along = self._walks(first, 2, made)
        pairs = [self._factor(self._first, n, to_first[n], first, along) for n in (0, 1)]
        q, k = sorted(pairs, key=lambda pair: bool(pair[0].strides[key]))
        if q[0].strides[key] or not k[0].strides[key]:
            raise _NoAttention
        along = self._walks(last, number, self._by_stride(rows.weights.strides))
        v, width = self._factor(self._last, 1 - number, to_last[1 - number], last, along)
        if not v.strides[key]:
            raise _NoAttention
        out, out_inner = self._result(last, along)
        if out[key]:
            raise _NoAttention
        bodies = []
        for op in self._after:
            out, out_inner = self._through(op, out, out_inner)
            bodies.append(op.regions[0].blocks[0])
        for place in (rows.scores, rows.weights):  # rows are contiguous along the keys in the workspace
            place.strides = (*place.strides[:-1], 1)
        after = tuple(b for b in bodies if len(b.operations) > 1)
        return Attention(self._kernel, q[0], k[0], v, out, out_inner, q[1], width, rows, after)

    def _by_stride(self, strides: Sequence[int]) -> dict[int, int]:
        """Map each stride of an array of scores to its row loop."""
        found = {stride: d for d, stride in enumerate(strides) if stride}
        if len(found) != len(self._rows.chain.nest.extents):
            raise _NoAttention
        return found

    def _walks(self, product: _Strides, number: int, made: dict[int, int]) -> list[int | None]:
        """Map each loop of a product to a row loop by its stride in operand `number`; None for the others."""
        out: list[int | None] = []
        for extent, stride in zip(product.extents, product.operands[number], strict=True):
            loop = made.get(stride) if stride and extent > 1 else None
            if stride and extent > 1 and (loop is None or self._rows.chain.nest.extents[loop] != extent):
                raise _NoAttention
            out.append(loop)
        if len({d for d in out if d is not None}) != len(made):
            raise _NoAttention
        return out

    def _factor(
        self,
        product: ir.Operation,
        number: int,
        conversion: tuple[ir.Operation, ...],
        strides: _Strides,
        along: list[int | None],
    ) -> tuple[AttentionOperand, int]:
        """Return an operand and the extent of its inner loop, which is the one that is no row loop."""
        operand = operand_of(self._kernel, product.operands[number], conversion)
        if operand is None:
            raise _NoAttention
        moves, inner, extent = self._split(strides, strides.operands[number], along)
        return AttentionOperand(operand, moves, inner), extent

    def _result(self, strides: _Strides, along: list[int | None]) -> tuple[tuple[int, ...], int]:
        moves, inner, _ = self._split(strides, strides.operands[2], along)
        return moves, inner

    def _split(
        self, strides: _Strides, moves: Sequence[int], along: list[int | None]
    ) -> tuple[tuple[int, ...], int, int]:
        """Return strides along the row loops, and stride and extent of the one other loop."""
        found = [0] * len(self._rows.chain.nest.extents)
        others = [(s, e) for s, e, d in zip(moves, strides.extents, along, strict=True) if d is None and e > 1]
        if len(others) > 1:
            raise _NoAttention
        for stride, d in zip(moves, along, strict=True):
            if d is not None:
                found[d] = stride
        inner, extent = others[0] if others else (1, 1)
        return tuple(found), inner, extent

    def _through(self, op: ir.Operation, out: tuple[int, ...], inner: int) -> tuple[tuple[int, ...], int]:
        """Map result strides through an elementwise operation or a transpose of the epilogue."""
        block = op.regions[0].blocks[0]
        tensors = [v for v in list(op.operands)[:-1] if isinstance(v.type, ir.RankedTensorType)]
        scalars = [v for v in list(op.operands)[:-1] if not isinstance(v.type, ir.RankedTensorType)]
        if len(tensors) != 1 or scalars or len(op.results) != 1 or classify(op) not in (Kind.MAP, Kind.TRANSPOSE):
            raise _NoAttention
        if not can_clone(block) or any(True for _ in block.arguments[1].uses):
            raise _NoAttention
        strides = _strides(op)
        renamed = {
            before: behind
            for before, behind, e in zip(strides.operands[0], strides.operands[1], strides.extents, strict=True)
            if e > 1
        }
        if any(not before or not behind for before, behind in renamed.items()):
            raise _NoAttention
        try:
            return tuple(renamed[s] if s else 0 for s in out), renamed.get(inner, 1)
        except KeyError:
            raise _NoAttention from None


@dataclass(frozen=True)
class _Strides:
    """The loops of a linalg.generic: extents, and the strides of each operand."""

    extents: tuple[int, ...]
    operands: list[tuple[int, ...]]


def _strides(op: ir.Operation) -> _Strides:
    found = strides_of(op)
    if found is None:
        raise _NoAttention
    return _Strides(loops_of(op).extents, found)
