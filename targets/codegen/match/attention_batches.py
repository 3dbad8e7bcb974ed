"""Splits the collapsed batch dimension of batched products, so that attention matches without reshapes.

PyTorch's decompositions multiply arrays of rank 3, but softmax has rank 4: the reshapes between would keep apart the
operations of one attention. They move to the other operands, where they are free.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import only_user
from stablexla.targets.grouping.classify import Kind, classify, is_product
from stablexla.targets.grouping.loops import loops_of, reduces
from stablexla.targets.grouping.matchers import GENERIC, fill_of, made_by, product_like, users_of

# Kinds of operations that compute weights.
ROWS = (Kind.MAP, Kind.ROW_REDUCTION)


def open_batches(operations: Sequence[ir.Operation]) -> None:
    """Rewrite the products whose result is expanded, or one of whose operands is collapsed."""
    for op in operations:
        if reduces(op) and len(op.operands) == 3 and fill_of(op) is not None:
            split = _split_by_result(op) or _split_by_factor(op)
            if split and is_product(op):
                with op.location, ir.InsertionPoint(op):
                    _rewrite(op, split)


def _split_by_result(op: ir.Operation) -> dict[int, list[int]]:
    """Return the extents for the batch loops when the result's only user is an expand_shape."""
    user = only_user(op.results[0])
    if user is None or user.name != "tensor.expand_shape":
        return {}
    makers = [made_by(v, GENERIC) for v in list(op.operands)[:2]]
    if any(maker is not None and classify(maker) in ROWS for maker in makers):
        return {}  # the reshape would come between this operand and its producer
    return _split(op, 2, user, user.results[0])


def _split_by_factor(op: ir.Operation) -> dict[int, list[int]]:
    """Return the extents for the batch loops when an operand is a collapse_shape of an array without other users."""
    for number in (0, 1):
        maker = made_by(op.operands[number], "tensor.collapse_shape")
        if maker is None or made_by(maker.operands[0], GENERIC) is None:
            continue
        if only_user(maker.results[0]) is not None and only_user(maker.operands[0]) is not None:
            return _split(op, number, maker, maker.operands[0])
    return {}


def _split(op: ir.Operation, number: int, reshape: ir.Operation, opened: ir.Value) -> dict[int, list[int]]:
    """Return the loops whose dimension in an operand splits, with the extents; {} if one is no batch loop."""
    loops, shape = loops_of(op), list(opened.type.shape)
    if not loops.is_plain:
        return {}
    batch = set.intersection(*map(set, loops.dims))
    found = {}
    for loop, group in zip(loops.dims[number], reshape.attributes["reassociation"], strict=True):
        extents = [shape[ir.IntegerAttr(d).value] for d in group]
        if sum(e != 1 for e in extents) <= 1:
            if len(extents) > 1:
                return {}  # the lowering looks through reshapes of unit dimensions
        elif loop not in batch:
            return {}
        else:
            found[loop] = extents
    return found


def _rewrite(op: ir.Operation, split: dict[int, list[int]]) -> None:
    loops = loops_of(op)
    order = [(loop, part) for loop, _ in enumerate(loops.extents) for part in range(len(split.get(loop, [0])))]
    maps, kinds = [], [op.attributes["iterator_types"][loop] for loop, _ in order]
    for dims in loops.dims:
        places = [ir.AffineDimExpr.get(order.index((d, part))) for d in dims for part in range(len(split.get(d, [0])))]
        maps.append(ir.AffineMap.get(len(order), 0, places))
    operands = [_opened(v, dims, split) for v, dims in zip(list(op.operands)[:2], loops.dims, strict=False)]
    before, old = list(op.operands)[:2], op.results[0]
    shape = [e for d, n in zip(loops.dims[2], old.type.shape, strict=True) for e in split.get(d, [n])]
    new = product_like(op, operands, shape, maps)
    new.owner.attributes["iterator_types"] = ir.ArrayAttr.get(kinds)
    for user in users_of(old):
        if user.name == "tensor.expand_shape" and user.results[0].type == new.type:
            user.results[0].replace_all_uses_with(new)
            erase(user)
    if users_of(old):
        old.replace_all_uses_with(tensor.collapse_shape(old.type, new, _groups(loops.dims[2], split)))
    erase(op)
    for maker in (made_by(v, "tensor.collapse_shape") for v in before):
        if maker is not None and not users_of(maker.results[0]):
            erase(maker)


def _groups(dims: Sequence[int], split: dict[int, list[int]]) -> list[list[int]]:
    groups: list[list[int]] = []
    count = 0
    for loop in dims:
        length = len(split.get(loop, [0]))
        groups.append(list(range(count, count + length)))
        count += length
    return groups


def _opened(value: ir.Value, dims: Sequence[int], split: dict[int, list[int]]) -> ir.Value:
    """Reshape an operand to the split loops."""
    shape = [e for d, n in zip(dims, value.type.shape, strict=True) for e in split.get(d, [n])]
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    maker = made_by(value, "tensor.collapse_shape")
    if maker is not None and maker.operands[0].type == type_:
        return maker.operands[0]
    return tensor.expand_shape(type_, value, _groups(dims, split), [], shape)
