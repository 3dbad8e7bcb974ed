"""Splits the collapsed batch dimension of batched products, so that attention matches without reshapes.

PyTorch's decompositions multiply arrays of rank 3, but softmax has rank 4: the reshapes between would keep apart the
operations of one attention. They move to the other operands, where they are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.generic import filled
from stablexla.lowering.support.operations import defining
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.loops import is_generic, loops_of

# Kinds of operations that compute weights.
ROWS = (Kind.MAP, Kind.ROW_REDUCTION)


def open_batches(block: ir.Block) -> None:
    """Rewrite the products of a block whose result is expanded, or one of whose operands is collapsed."""
    generics = [view.operation for view in block.operations if is_generic(view.operation)]
    for op in generics:
        start = defining(op.operands[2]) if len(op.operands) == 3 else None
        if start is None or start.name != "linalg.fill":
            continue
        split = _split_by_result(op) or _split_by_factor(op)
        if split and classify(op) is Kind.CONTRACTION:
            _rewrite(op, split)


def _split_by_result(op: ir.Operation) -> dict[int, list[int]]:
    """Return the extents for the batch loops when the result's only user is an expand_shape."""
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != "tensor.expand_shape":
        return {}
    makers = [defining(v) for v in list(op.operands)[:2]]
    if any(maker is not None and is_generic(maker) and classify(maker) in ROWS for maker in makers):
        return {}  # the reshape would come between this operand and its producer
    return _split(op, 2, uses[0].attributes["reassociation"], list(uses[0].results[0].type.shape))


def _split_by_factor(op: ir.Operation) -> dict[int, list[int]]:
    """Return the extents for the batch loops when an operand is a collapse_shape of an array without other users."""
    for number in (0, 1):
        maker = defining(op.operands[number])
        if maker is None or maker.name != "tensor.collapse_shape":
            continue
        source = defining(maker.operands[0])
        read_once = len(list(maker.results[0].uses)) == len(list(maker.operands[0].uses)) == 1
        if source is not None and is_generic(source) and read_once:
            shape = list(maker.operands[0].type.shape)
            return _split(op, number, maker.attributes["reassociation"], shape)
    return {}


def _split(op: ir.Operation, number: int, groups: ir.Attribute, shape: list[int]) -> dict[int, list[int]]:
    """Return the loops whose dimension in an operand splits, with the extents; {} if one is no batch loop."""
    maps = loops_of(op).maps
    if not all(isinstance(e, ir.AffineDimExpr) for m in maps for e in m.results):
        return {}
    batch = set.intersection(*({e.position for e in m.results} for m in maps))
    found = {}
    for expression, group in zip(maps[number].results, groups, strict=True):
        extents = [shape[ir.IntegerAttr(d).value] for d in group]
        if sum(e != 1 for e in extents) <= 1:
            if len(extents) > 1:
                return {}  # the lowering looks through reshapes of unit dimensions
            continue
        if expression.position not in batch:
            return {}
        found[expression.position] = extents
    return found


def _rewrite(op: ir.Operation, split: dict[int, list[int]]) -> None:
    maps = loops_of(op).maps
    places: dict[int, list[int]] = {}
    count = 0
    for loop in range(maps[0].n_dims):
        places[loop] = list(range(count, count + len(split.get(loop, [0]))))
        count += len(places[loop])
    kinds = [k for loop, k in enumerate(op.attributes["iterator_types"]) for _ in places[loop]]
    with op.context, op.location, ir.InsertionPoint(op):
        operands = [_opened(v, m, split) for v, m in zip(list(op.operands)[:2], maps, strict=False)]
        opened = [_map(m, places, count) for m in maps]
        old = op.results[0].type
        shape = [e for x, n in zip(maps[2].results, old.shape, strict=True) for e in split.get(x.position, [n])]
        result = ir.RankedTensorType.get(shape, old.element_type)
        fill = defining(op.operands[2])
        assert fill is not None, "a product starts from zeros"
        start = filled(fill.operands[0], tensor.empty(shape, old.element_type))
        attributes = dict(op.attributes.items())
        attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in opened])
        attributes["iterator_types"] = ir.ArrayAttr.get(kinds)
        made = ir.Operation.create(
            op.name, results=[result], operands=[*operands, start], attributes=attributes, regions=1
        )
        op.regions[0].blocks[0].append_to(made.regions[0])
        _replace(op.results[0], made.result, _groups(maps[2], split))
    before = [defining(v) for v in list(op.operands)[:2]]
    erase(op)
    for maker in before:
        if maker is not None and maker.name == "tensor.collapse_shape" and not any(True for _ in maker.results[0].uses):
            erase(maker)


def _map(map_: ir.AffineMap, places: dict[int, list[int]], count: int) -> ir.AffineMap:
    found = [ir.AffineDimExpr.get(p) for e in map_.results for p in places[e.position]]
    return ir.AffineMap.get(count, 0, found)


def _groups(map_: ir.AffineMap, split: dict[int, list[int]]) -> list[list[int]]:
    groups: list[list[int]] = []
    count = 0
    for expression in map_.results:
        length = len(split.get(expression.position, [0]))
        groups.append(list(range(count, count + length)))
        count += length
    return groups


def _opened(value: ir.Value, map_: ir.AffineMap, split: dict[int, list[int]]) -> ir.Value:
    """Reshape an operand to the split loops."""
    pairs = zip(map_.results, value.type.shape, strict=True)
    shape = [e for x, n in pairs for e in split.get(x.position, [n])]
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    maker = defining(value)
    if maker is not None and maker.name == "tensor.collapse_shape" and maker.operands[0].type == type_:
        opened: ir.Value = maker.operands[0]
        return opened
    assert prod(shape) == prod(value.type.shape)
    return tensor.expand_shape(type_, value, _groups(map_, split), [], shape)


def _replace(old: ir.Value, new: ir.Value, groups: Sequence[Sequence[int]]) -> None:
    """Replace expand_shape users of the old result by the new one; the others get its collapse_shape."""
    for use in list(old.uses):
        user = use.owner.operation
        if user.name == "tensor.expand_shape" and user.results[0].type == new.type:
            user.results[0].replace_all_uses_with(new)
            erase(user)
    if any(True for _ in old.uses):
        old.replace_all_uses_with(tensor.collapse_shape(old.type, new, groups))
