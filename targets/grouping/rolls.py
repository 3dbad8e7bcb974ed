"""Fuse rolled arrays (periodic shifts, as stencils are written) into their element-wise consumers.

A rolled array is a concatenation of two slices of one array. An element-wise computation on several of them is split
into a few blocks, in each of which every operand is one slice, so that no rolled array is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from math import prod

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.generic import elementwise_loops
from stablexla.lowering.support.operations import (
    body_of,
    constant_of,
    inline_body,
    is_tensor,
    operations_named,
    program_of,
)
from stablexla.targets.grouping.loops import inputs_of, is_generic, loops_of, reads_outputs
from stablexla.targets.grouping.matchers import GENERIC, in_program_order, made_by, private_producers, users_of
from stablexla.targets.pipeline.passes import module_pass

# Rolls along two dimensions, both ways, make nine blocks; the code grows with them and with what is computed.
MOST_BLOCKS, MOST_OPERATIONS = 9, 200
# Smaller arrays stay in L1 all the time.
LEAST_ELEMENTS = Gate("rolls.least-elements", 1 << 12, eager=1)

INSERT = "tensor.insert_slice"
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Piece:
    """A box of a concatenation, its source array, and the index there of its first element."""

    box: Box
    array: ir.Value
    starts: tuple[int, ...]


@module_pass("stablexla-compute-through-rolls", "computes what reads rolled arrays from where their elements lie")
def compute_through_rolls(module: ir.Module) -> None:
    """Rewrite element-wise computations on rolled arrays; dead operations are left to later passes."""
    done: set[ir.Operation] = set()
    for op in [op for function in program_of(module) for op in operations_named(function, INSERT)]:
        root = _last_reader(op.results[0])
        if root is not None and root not in done:
            done.add(root)
            _rewrite(root, _region(root))


# ---- finding ---------------------------------------------------------------------------------------------------------


def _last_reader(value: ir.Value) -> ir.Operation | None:
    """Return the end of the chain of element-wise users, each with one user, if it is the same for all users of the
    array; else None."""
    ends = [_end_of_chain(reader) for reader in _readers(value)]
    last = [end for end in ends if end is not None]
    return last[0] if last and len(last) == len(ends) and all(end == last[0] for end in last) else None


def _end_of_chain(op: ir.Operation) -> ir.Operation | None:
    if not _is_elementwise(op):
        return None
    while True:
        reader, *others = _readers(op.results[0]) or [None]
        if reader is None or others or reader.block != op.block or not _is_elementwise(reader):
            return op
        if reader.results[0].type.shape != op.results[0].type.shape:
            return op
        op = reader


def _readers(value: ir.Value) -> list[ir.Operation]:
    return list(dict.fromkeys(users_of(value)))


def _is_elementwise(op: ir.Operation) -> bool:
    """Match an element-wise operation: one result, computed from elements at the same index and scalars."""
    if not is_generic(op) or len(op.results) != 1 or prod(op.results[0].type.shape) < LEAST_ELEMENTS():
        return False
    loops = loops_of(op)
    if not loops.in_order or any(m != loops.identity and len(m.results) for m in loops.maps):
        return False
    return all(o.name.split(".")[0] in ("arith", "math") for o in body_of(op)[:-1]) and not reads_outputs(op)


def _region(root: ir.Operation) -> list[ir.Operation]:
    """Return the operations whose results only the root uses, in order."""

    def is_like_root(op: ir.Operation) -> bool:
        return op.block == root.block and _is_elementwise(op) and op.results[0].type.shape == root.results[0].type.shape

    return in_program_order([root, *private_producers(root, inputs_of(root), is_like_root, inputs_of)])


def _rolls(region: Sequence[ir.Operation]) -> dict[ir.Value, list[_Piece]]:
    """Return the rolled arrays that only the region uses, with their pieces."""
    found: dict[ir.Value, list[_Piece]] = {}
    for value in dict.fromkeys(value for op in region for value in inputs_of(op)):
        pieces = _pieces(value) if all(reader in region for reader in users_of(value)) else None
        if pieces is not None and all(p.array == pieces[0].array for p in pieces):
            found[value] = pieces
    return found


def _pieces(value: ir.Value) -> list[_Piece] | None:
    """Return the pieces of a concatenation; None for anything else."""
    pieces: list[_Piece] = []
    covered, rest = 0, value
    while (maker := made_by(rest, INSERT)) is not None:
        source, into, *moving = maker.operands
        starts = list(ir.DenseI64ArrayAttr(maker.attributes["static_offsets"]))
        steps = list(ir.DenseI64ArrayAttr(maker.attributes["static_strides"]))
        if moving or source.type.rank != value.type.rank or any(step != 1 for step in steps):
            return None
        array, first = _origin(source)
        box = tuple((start, start + size) for start, size in zip(starts, source.type.shape, strict=True))
        pieces.append(_Piece(box, array, first))
        covered += prod(source.type.shape)
        rest = into
    is_whole = made_by(rest, "tensor.empty") is not None and covered == prod(value.type.shape)
    apart = all(
        any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one.box, other.box, strict=True))
        for one, other in combinations(pieces, 2)
    )
    return pieces if is_whole and len(pieces) > 1 and apart else None


def _origin(piece: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    """Return the array that a piece is a slice of, and the slice's offsets; the piece itself when it is none."""
    reshape = made_by(piece, "tensor.expand_shape")
    source = piece if reshape is None else reshape.operands[0]
    starts: Sequence[int | None] | None = None
    if (cut := made_by(source, "tensor.splat")) is not None and prod(piece.type.shape) == 1:  # a slice of one element
        cut = made_by(cut.operands[0], "tensor.extract")
        starts = None if cut is None else [constant_of(v) for v in cut.operands[1:]]
    elif (cut := made_by(source, "tensor.extract_slice")) is not None and len(cut.operands) == 1:
        steps, sizes = (list(ir.DenseI64ArrayAttr(cut.attributes[f"static_{name}"])) for name in ("strides", "sizes"))
        if all(step == 1 for step in steps) and sizes == list(piece.type.shape):  # a slice may drop dimensions
            starts = list(ir.DenseI64ArrayAttr(cut.attributes["static_offsets"]))
    elif (cut := made_by(source, GENERIC)) is not None and _is_copy(cut):
        starts = _starts(loops_of(cut).maps[0], piece.type.shape)
    known = tuple(start for start in starts or () if start is not None)
    if cut is None or starts is None or not len(known) == len(starts) == piece.type.rank:
        return piece, (0,) * piece.type.rank
    return cut.operands[0], known


def _is_copy(op: ir.Operation) -> bool:
    """Match a copy of one array's elements, stored in the order of the loops."""
    if len(op.operands) != 2 or not is_tensor(op.operands[0]):
        return False
    first, *others = body_of(op)
    return loops_of(op).in_order and not others and first.operands[0] == op.regions[0].blocks[0].arguments[0]


def _starts(map_: ir.AffineMap, piece: Sequence[int]) -> tuple[int, ...] | None:
    """Return the offsets of a copy through a map, if it reads a block; dimensions of extent 1 may be dropped."""
    starts: list[int] = []
    following = 0
    for expr, size in zip(map_.results, piece, strict=False):
        start = 0
        if isinstance(expr, ir.AffineAddExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
            expr, start = expr.lhs, expr.rhs.value
        if isinstance(expr, ir.AffineConstantExpr) and size == 1:
            starts.append(start + expr.value)
        elif isinstance(expr, ir.AffineDimExpr) and expr.position == following:
            starts.append(start)
            following += 1
        else:
            return None
    return tuple(starts) if following == map_.n_dims else None


# ---- writing ---------------------------------------------------------------------------------------------------------


def _rewrite(root: ir.Operation, region: Sequence[ir.Operation]) -> None:
    shape = tuple(root.results[0].type.shape)
    cuts = [{0, extent} for extent in shape]
    chosen: dict[ir.Value, list[_Piece]] = {}
    for value, pieces in _rolls(region).items():
        more = [old | {edge for p in pieces for edge in p.box[d]} for d, old in enumerate(cuts)]
        if prod(len(each) - 1 for each in more) <= MOST_BLOCKS:
            cuts = more
            chosen[value] = pieces
    boxes = list(product(*(list(pairwise(sorted(each))) for each in cuts)))
    operations = sum(len(body_of(op)) for op in region)
    if not chosen or operations * len(boxes) > MOST_OPERATIONS:
        return
    with root.context, root.location, ir.InsertionPoint(root):
        made = tensor.empty(list(shape), root.results[0].type.element_type)
        for box in boxes:
            starts, sizes = [lo for lo, _ in box], [hi - lo for lo, hi in box]
            block = _Block(region, chosen, box).write()
            made = tensor.insert_slice(block, made, [], [], [], starts, sizes, [1] * len(shape))
    root.results[0].replace_all_uses_with(made)


class _Block:
    """A region's computation in one box, as one operation on slices."""

    def __init__(self, region: Sequence[ir.Operation], rolls: dict[ir.Value, list[_Piece]], box: Box) -> None:
        self._region, self._rolls, self._box = region, rolls, box
        self._sizes = [hi - lo for lo, hi in box]
        self._slices: dict[tuple[ir.Value, tuple[int, ...]], int] = {}
        self._inputs: list[ir.Value] = []

    def write(self) -> ir.Value:
        """Create the operation; return the box of the result."""
        made_inside = {op.results[0] for op in self._region}
        leaves = [v for op in self._region for v in inputs_of(op) if v not in made_inside]
        numbers = {value: self._input(value) for value in leaves}
        element = self._region[-1].results[0].type.element_type

        def body(elements: Sequence[ir.Value]) -> ir.Value:
            values = {value: elements[number] for value, number in numbers.items()}
            for op in self._region:
                (values[op.results[0]],) = inline_body(op, [values[v] for v in inputs_of(op)])
            return values[self._region[-1].results[0]]

        return elementwise_loops(self._inputs, ir.RankedTensorType.get(self._sizes, element), body)

    def _input(self, value: ir.Value) -> int:
        """Return the number of the input that holds a value's elements in the box."""
        array, starts = value, tuple(lo for lo, _ in self._box) if is_tensor(value) else ()
        for piece in self._rolls.get(value, ()):
            if all(a <= lo < b for (a, b), (lo, _) in zip(piece.box, self._box, strict=True)):
                array = piece.array
                starts = tuple(
                    first + lo - a for first, (a, _), (lo, _) in zip(piece.starts, piece.box, self._box, strict=True)
                )
        if (array, starts) not in self._slices:
            self._slices[array, starts] = len(self._inputs)
            self._inputs.append(self._slice(array, starts) if is_tensor(array) else array)
        return self._slices[array, starts]

    def _slice(self, array: ir.Value, starts: tuple[int, ...]) -> ir.Value:
        type_ = ir.RankedTensorType.get(self._sizes, array.type.element_type)
        if type_ == array.type:
            return array
        return tensor.extract_slice(type_, array, [], [], [], list(starts), self._sizes, [1] * len(starts))
