"""Unit dimensions (of size 1), which do not affect memory: loops omit them, and reshapes add or drop them for free.

So the row maximum of a [8,128] array, kept as [8,1] and subtracted, still fuses with its definition of shape [8].
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import mlir.ir as ir


def without(value: ir.Value, dropped: Sequence[int]) -> ir.Value:
    """Drop unit dimensions from a tensor."""
    if not dropped:
        return value
    shape = list(value.type.shape)
    kept = [d for d in range(len(shape)) if d not in dropped]
    result = ir.RankedTensorType.get([shape[d] for d in kept], value.type.element_type)
    maker = value.owner
    if isinstance(maker, ir.OpView | ir.Operation) and maker.operation.name == "tensor.expand_shape":
        source = maker.operation.operands[0]
        if source.type == result:
            return source
    return _reshaped("tensor.collapse_shape", value, result, _groups(len(shape), kept))


def with_dimensions(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Reshape a tensor to a shape with further unit dimensions."""
    type_ = value.type
    if list(type_.shape) == list(shape):
        return value
    kept = _positions(type_.shape, shape)
    result = ir.RankedTensorType.get(shape, type_.element_type)
    extents = {"static_output_shape": ir.DenseI64ArrayAttr.get(list(shape))}
    return _reshaped("tensor.expand_shape", value, result, _groups(len(shape), kept), extents)


def _reshaped(
    name: str,
    value: ir.Value,
    result: ir.Type,
    groups: Sequence[Sequence[int]],
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> ir.Value:
    """Emit a reshape with its reassociation; the bindings' classes take five times as long."""
    i64 = ir.IntegerType.get_signless(64)
    numbers = [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in group]) for group in groups]
    given = {"reassociation": ir.ArrayAttr.get(numbers), **(attributes or {})}
    return ir.Operation.create(name, results=[result], operands=[value], attributes=given).result


def differ_only_in_units(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal up to unit dimensions."""
    return [e for e in one if e != 1] == [e for e in other if e != 1]


def _positions(short: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return the positions of the dimensions of `short` in `shape`, the others having size 1."""
    positions, at = [], 0
    for extent in short:
        while shape[at] != extent:
            at += 1
        positions.append(at)
        at += 1
    return positions


def _groups(rank: int, kept: Sequence[int]) -> list[list[int]]:
    """Return the reassociation: each kept dimension grouped with the dropped ones after it."""
    if not kept:
        return []
    starts = [0, *kept[1:], rank]
    return [list(range(a, b)) for a, b in itertools.pairwise(starts)]


def read_reshaped(op: ir.Operation, map_: ir.AffineMap) -> ir.AffineMap | None:
    """Fold an expand_shape or collapse_shape of unit dimensions into an indexing map; None for other reshapes."""
    if op.name not in ("tensor.expand_shape", "tensor.collapse_shape"):
        return None
    source, result = list(op.operands[0].type.shape), list(op.results[0].type.shape)
    if not differ_only_in_units(source, result):
        return None
    exprs = iter(e for e, extent in zip(map_.results, result, strict=True) if extent != 1)
    zero = ir.AffineConstantExpr.get(0)
    return ir.AffineMap.get(map_.n_dims, 0, [zero if extent == 1 else next(exprs) for extent in source])
