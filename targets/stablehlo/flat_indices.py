"""Pass that makes one index of the components of an index vector, where a gather finds them concatenated.

The components are then not put together in memory: the index is arithmetic, which fuses with what computes them, and
the gather reads and clamps one number for each slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers
from stablexla.dialects.erasing import erase
from stablexla.dialects.tensor_types import row_major
from stablexla.targets.pipeline.contents import Contents
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

GATHER, CONCATENATE = "stablehlo.gather", "stablehlo.concatenate"


def _may_put_together(contents: Contents) -> bool:
    return contents.has(GATHER) and contents.has(CONCATENATE)


@module_pass(
    "stablexla-flatten-indices",
    "makes one index of the components that are concatenated for a gather",
    side="stablehlo",
    acts_on=_may_put_together,
)
def flatten_indices(module: ir.Module) -> None:
    """Rewrite gathers that index adjacent dimensions, all collapsed, by concatenated components."""
    made: dict[Any, Any] = {}
    for op in operations_of(module, GATHER):
        numbers = GatherDimensionNumbers.read(op.attributes["dimension_numbers"])
        components = _components(op.operands[1], numbers)
        if components is None or not _can_be_merged(op, numbers):
            continue
        with op.location, ir.InsertionPoint(op):
            dims = numbers.start_index_map
            extents = [op.operands[0].type.shape[d] for d in sorted(dims)]
            places = [d - min(dims) for d in dims]
            key = (op.operation.block, *components, *places, *extents)
            if key not in made:
                made[key] = _one_index(components, places, extents)
            op.results[0].replace_all_uses_with(_merged(op, numbers, made[key]))
        erase(op)


def _components(indices: Any, numbers: GatherDimensionNumbers) -> list[Any] | None:
    """Return the arrays of each component of the index vectors; None if they are not concatenated."""
    maker, dim = indices.owner, numbers.index_vector_dim
    if isinstance(maker, ir.Block) or maker.name != CONCATENATE or not indices.type.has_static_shape:
        return None
    pieces = list(maker.operands)
    if int(ir.IntegerAttr(maker.attributes["dimension"]).value) != dim or len(pieces) != indices.type.shape[dim]:
        return None
    return [_without(piece, dim) for piece in pieces] if len(pieces) > 1 else None


def _without(piece: Any, dim: int) -> Any:
    """Return an array of components before it got the dimension of index vectors; the array itself if it had it."""
    shape = [extent for d, extent in enumerate(piece.type.shape) if d != dim]
    maker = piece.owner
    if not isinstance(maker, ir.Block) and list(maker.operands) and list(maker.operands[0].type.shape) == shape:
        places = [d for d in range(piece.type.rank) if d != dim]
        broadcasts = maker.name == "stablehlo.broadcast_in_dim"
        if maker.name == "stablehlo.reshape" or (
            broadcasts and list(integers(maker.attributes["broadcast_dimensions"])) == places
        ):
            return maker.operands[0]
    return piece


def _can_be_merged(op: Any, numbers: GatherDimensionNumbers) -> bool:
    """Return whether the dimensions that are indexed are adjacent, and slices have one element along each."""
    dims = sorted(numbers.start_index_map)
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    is_static = all(value.type.has_static_shape for value in (*op.operands, *op.results))
    collapsed = set(dims) <= set(numbers.collapsed_slice_dims)
    shape = op.operands[0].type.shape if is_static else [0]
    return is_static and adjacent and collapsed and not numbers.operand_batching_dims and 0 < prod(shape) < 1 << 62


def _one_index(components: Sequence[Any], places: Sequence[int], extents: Sequence[int]) -> Any:
    """Emit the row-major index of clamped components; component n indexes the dimension places[n] of these extents."""
    width = 32 if prod(extents) < 1 << 31 else 64
    total: Any = None
    shape: list[int] | None = None
    for component, place in zip(components, places, strict=True):
        element = component.type.element_type
        largest = (1 << (element.width - (not element.is_unsigned))) - 1
        low, high = (hlo.constant(hlo.tensor(component.type, []), n) for n in (0, min(extents[place] - 1, largest)))
        clamped = hlo.emit("stablehlo.clamp", [low, component, high], [component.type])
        clamped = hlo.convert(clamped, ir.IntegerType.get_signless(width))
        step = row_major(extents)[place]
        if step != 1:
            clamped = hlo.elementwise("multiply", clamped, hlo.constant(clamped.type, step))
        shape = shape or list(clamped.type.shape)
        clamped = hlo.reshape(clamped, shape)
        total = clamped if total is None else hlo.elementwise("add", total, clamped)
    return total


def _merged(op: Any, numbers: GatherDimensionNumbers, index: Any) -> Any:
    """Emit the gather on an array whose indexed dimensions are one."""
    operand, indices = op.operands
    first, count = min(numbers.start_index_map), len(numbers.start_index_map)
    behind = first + count

    def merge(extents: Sequence[int]) -> list[int]:
        return [*extents[:first], prod(extents[first:behind]), *extents[behind:]]

    rest = [d for d in numbers.collapsed_slice_dims if not first <= d < behind]
    collapsed = tuple(sorted([first, *(d if d < first else d - count + 1 for d in rest)]))
    shape = [extent for d, extent in enumerate(indices.type.shape) if d != numbers.index_vector_dim]
    merged = GatherDimensionNumbers(numbers.offset_dims, collapsed, (first,), len(shape))
    attributes = {
        "dimension_numbers": merged.attribute(op.context),
        "slice_sizes": hlo.i64s(merge(integers(op.attributes["slice_sizes"]))),
    }
    given = [hlo.reshape(operand, merge(operand.type.shape)), hlo.reshape(index, shape)]
    return hlo.emit(GATHER, given, [op.results[0].type], attributes)
