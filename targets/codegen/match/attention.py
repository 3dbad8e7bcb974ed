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
from stablexla.lowering.support.operations import body_of, is_tensor
from stablexla.targets.codegen.bodies import can_clone
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.match.attention_rows import RowFunction, analyse_row_function, maker_in
from stablexla.targets.codegen.match.contraction import ContractionOperand, operand_of
from stablexla.targets.grouping.classify import Kind, classify, is_product
from stablexla.targets.grouping.loops import is_generic, loops_of, reads_outputs, strides_of
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
    middle = [op for op in kernel.ops if is_generic(op) and op not in (first, last, *after)]
    number = next((n for n, v in enumerate(last.operands[:2]) if maker_in(middle, v) is not None), None)
    to_first, to_last = factor_conversions(first), factor_conversions(last)
    if number is None or to_first is None or to_last is None:
        return None
    rows = analyse_row_function(kernel, middle, last.operands[number], to_last[number], scores, keep)
    if rows is None:
        return None
    try:
        return _RowLoops(kernel, rows).attention(first, last, number, after)
    except _NoAttention:
        return None


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


class _RowLoops:
    """Mapping of the loops of both products and of the epilogue to the row loops, by strides."""

    def __init__(self, kernel: Kernel, rows: RowFunction) -> None:
        self._kernel, self._rows, self._extents = kernel, rows, rows.chain.nest.extents

    def attention(
        self, first: ir.Operation, last: ir.Operation, number: int, after: Sequence[ir.Operation]
    ) -> Attention:
        """Return the attention whose weights are operand `number` of the last product.

        Raises:
            _NoAttention: it is none.
        """
        rows, key = self._rows, self._rows.chain.inner
        along = self._along(first, 2, rows.scores.strides)
        (q, depth), (k, _) = sorted(
            (self._factor(first, n, along) for n in (0, 1)), key=lambda pair: bool(pair[0].strides[key])
        )
        along = self._along(last, number, rows.weights.strides)
        v, width = self._factor(last, 1 - number, along)
        out, out_inner, _ = self._split(last, 2, along)
        if q.strides[key] or not k.strides[key] or not v.strides[key] or out[key]:
            raise _NoAttention
        for op in after:
            out, out_inner = _through(op, out, out_inner)
        for place in (rows.scores, rows.weights):  # rows are contiguous along the keys in the workspace
            place.strides = (*place.strides[:-1], 1)
        bodies = tuple(op.regions[0].blocks[0] for op in after if len(body_of(op)) > 1)
        return Attention(self._kernel, q, k, v, out, out_inner, depth, width, rows, bodies)

    def _along(self, product: ir.Operation, number: int, rows: Sequence[int]) -> list[int | None]:
        """Map each loop of a product to a row loop by its stride in operand `number`; None for the others.

        Args:
            rows: the strides of the row loops in that array.
        """
        made = {stride: d for d, stride in enumerate(rows) if stride}
        extents, strides = loops_of(product).extents, _strides(product)[number]
        longer = [(stride, extent) for stride, extent in zip(strides, extents, strict=True) if stride and extent > 1]
        if any(stride not in made or self._extents[made[stride]] != extent for stride, extent in longer):
            raise _NoAttention
        if not len({stride for stride, _ in longer}) == len(made) == len(self._extents):
            raise _NoAttention
        return [made[s] if s and e > 1 else None for s, e in zip(strides, extents, strict=True)]

    def _factor(self, product: ir.Operation, number: int, along: Sequence[int | None]) -> tuple[AttentionOperand, int]:
        """Return an operand and the extent of its inner loop, which is the one that is no row loop."""
        conversions = factor_conversions(product)
        assert conversions is not None, "both products were matched"
        operand = operand_of(self._kernel, product.operands[number], conversions[number])
        if operand is None:
            raise _NoAttention
        strides, inner, extent = self._split(product, number, along)
        return AttentionOperand(operand, strides, inner), extent

    def _split(
        self, product: ir.Operation, number: int, along: Sequence[int | None]
    ) -> tuple[tuple[int, ...], int, int]:
        """Return an operand's strides along the row loops, and stride and extent of the one other loop."""
        found, others = [0] * len(self._extents), [(1, 1)]
        for stride, extent, d in zip(_strides(product)[number], loops_of(product).extents, along, strict=True):
            if d is not None:
                found[d] = stride
            elif extent > 1:
                others.append((stride, extent))
        if len(others) > 2:
            raise _NoAttention
        return (tuple(found), *others[-1])


def _through(op: ir.Operation, out: tuple[int, ...], inner: int) -> tuple[tuple[int, ...], int]:
    """Map result strides through an elementwise operation or a transpose of the epilogue."""
    block = op.regions[0].blocks[0]
    if len(op.operands) != 2 or not is_tensor(op.operands[0]) or classify(op) not in (Kind.MAP, Kind.TRANSPOSE):
        raise _NoAttention
    if not can_clone(block) or reads_outputs(op):
        raise _NoAttention
    pairs = zip(*_strides(op), loops_of(op).extents, strict=True)
    renamed = {before: behind for before, behind, extent in pairs if extent > 1}
    if not all(renamed) or not all(renamed.values()) or any(s and s not in renamed for s in out):
        raise _NoAttention
    return tuple(renamed[s] if s else 0 for s in out), renamed.get(inner, 1)


def _strides(op: ir.Operation) -> list[tuple[int, ...]]:
    found = strides_of(op)
    if found is None:
        raise _NoAttention
    return found
