"""Pass that takes arrays from where they were before they were concatenated.

`jnp.pad` in its modes concatenates at each end of each dimension, and slices what is there by then: one concatenation a
dimension is left.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import defining
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

CONCATENATE, SLICE = "stablehlo.concatenate", "stablehlo.slice"
_BOUNDS = ("start_indices", "limit_indices")


@module_pass(
    "stablexla-merge-concatenates",
    "makes one concatenation of several, and slices pieces instead of what they are concatenated to",
    side="stablehlo",
    acts_on=for_any([CONCATENATE]),
)
def merge_concatenates(module: ir.Module) -> None:
    """Rewrite slices that lie in one piece of a concatenation, then concatenations that only another one reads."""
    for op in operations_of(module, SLICE):
        _slice_piece(op)
    for op in operations_of(module, CONCATENATE):
        _merge(op)


def _dimension(op: Any) -> int:
    return int(ir.IntegerAttr(op.attributes["dimension"]).value)


def _slice_piece(op: Any) -> None:
    source, starts, limits = op.operands[0], *(list(integers(op.attributes[name])) for name in _BOUNDS)
    while (maker := _concatenate_of(source)) is not None:
        dim = _dimension(maker)
        ends = list(accumulate(piece.type.shape[dim] for piece in maker.operands))
        number = next((n for n, end in enumerate(ends) if starts[dim] < end), len(ends))
        if number == len(ends) or limits[dim] > ends[number]:
            break
        source = maker.operands[number]
        begin = ends[number] - source.type.shape[dim]
        starts[dim], limits[dim] = starts[dim] - begin, limits[dim] - begin
    if source == op.operands[0]:
        return
    with op.location, ir.InsertionPoint(op):
        attributes = dict(zip(_BOUNDS, map(hlo.i64s, (starts, limits)), strict=True))
        made = hlo.emit(SLICE, [source], [op.results[0].type], attributes | {"strides": op.attributes["strides"]})
    op.results[0].replace_all_uses_with(made)
    erase(op)


def _concatenate_of(value: Any) -> Any:
    """Return the concatenation that makes an array, if all sizes are known."""
    maker = defining(value)
    if maker is None or maker.name != CONCATENATE:
        return None
    return maker if all(each.type.has_static_shape for each in maker.operands) else None


def _merge(op: Any) -> None:
    pieces: list[Any] = []
    merged = []
    for piece in op.operands:
        maker = _concatenate_of(piece)
        if (
            maker is None
            or _dimension(maker) != _dimension(op)
            or len(list(piece.uses)) > 1
            or maker.block != op.operation.block
        ):
            pieces.append(piece)
        else:
            pieces.extend(maker.operands)
            merged.append(maker)
    if not merged:
        return
    with op.location, ir.InsertionPoint(op):
        made = hlo.emit(CONCATENATE, pieces, [op.results[0].type], {"dimension": op.attributes["dimension"]})
    op.results[0].replace_all_uses_with(made)
    for each in (op, *merged):
        erase(each)
