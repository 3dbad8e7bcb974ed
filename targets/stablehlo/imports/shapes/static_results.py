"""Dynamic operations with static result shapes, rewritten though their operands are known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.hlo import (
    broadcast,
    compare,
    constant,
    convert,
    elementwise,
    emit,
    integer_tensor,
    iota,
    number,
    reshape,
    tensor,
)
from stablexla.targets.stablehlo.imports.replacements import is_static, replaces
from stablexla.targets.stablehlo.imports.shapes.values import constant_of


@replaces("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(op: Any) -> list[Any] | None:
    """The shape is that of the result."""
    if not is_static(op):
        return None
    return [broadcast(op.operands[0], op.results[0].type.shape, list(op.attributes["broadcast_dimensions"]))]


@replaces("stablehlo.dynamic_iota")
def dynamic_iota(op: Any) -> list[Any] | None:
    """The shape is that of the result."""
    if not is_static(op):
        return None
    return [emit("stablehlo.iota", [], [op.results[0].type], {"iota_dimension": op.attributes["iota_dimension"]})]


@replaces("stablehlo.dynamic_reshape")
def dynamic_reshape(op: Any) -> list[Any] | None:
    """The shape is that of the result."""
    return [emit("stablehlo.reshape", [op.operands[0]], [op.results[0].type])] if is_static(op) else None


@replaces("stablehlo.real_dynamic_slice")
def real_dynamic_slice(op: Any) -> list[Any] | None:
    """Rewrite to a dynamic slice where strides are constant, else to a gather by index."""
    if not is_static(op) or not op.operands[0].type.rank:
        return list(op.operands)[:1] if is_static(op) else None
    x, starts, _, steps = op.operands
    result = op.results[0].type
    known = constant_of(steps)
    if 0 in result.shape:
        return [_fill(result)]
    if known is None:
        for d, extent in enumerate(result.shape):
            spread = emit("stablehlo.multiply", [_count(extent), _spread(_scalar(steps, d), extent)], [_row(extent)])
            x = _taken(x, emit("stablehlo.add", [spread, _spread(_scalar(starts, d), extent)], [spread.type]), d)
        return [x]
    strides = [int(n) for n in known.reshape(-1)]
    sizes = [(n - 1) * step + 1 for n, step in zip(result.shape, strides, strict=True)]
    made = stablehlo.dynamic_slice(x, [_scalar(starts, d) for d in range(result.rank)], sizes)
    return [made if max(strides) == 1 else stablehlo.slice(made, [0] * result.rank, sizes, strides)]


@replaces("stablehlo.dynamic_pad")
def dynamic_pad(op: Any) -> list[Any] | None:
    """Rewrite to a gather of the operand's elements and a select of the padding value; high padding is not needed."""
    if not is_static(op):
        return None
    x, value, low, _, interior = op.operands
    ones = {d: emit("stablehlo.add", [_scalar(interior, d), _one()], [_index()]) for d in range(x.type.rank)}
    return [_padded(x, value, {d: _scalar(low, d) for d in ones}, ones, op.results[0].type.shape)]


@replaces("stablehlo.dynamic_gather")
def dynamic_gather(op: Any) -> list[Any] | None:
    """Take the slice sizes from the extents of the result."""
    if not is_static(op):
        return None
    x, indices, _ = op.operands
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    single = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = iter(numbers.offset_dims)
    sizes = [1 if d in single else op.results[0].type.shape[next(offsets)] for d in range(x.type.rank)]
    attributes = {
        name: op.attributes[name] for name in ("dimension_numbers", "indices_are_sorted") if name in op.attributes
    }
    attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(sizes)
    return [emit("stablehlo.gather", [x, indices], [op.results[0].type], attributes)]


@replaces("stablehlo.dynamic_conv")
def dynamic_conv(op: Any) -> list[Any] | None:
    """Rewrite to a convolution of the padded operand, of the extent that the result's windows cover."""
    if not is_static(op):
        return None
    x, kernel, padding = op.operands
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    result, count = op.results[0].type, len(numbers.input_spatial_dimensions)
    if 0 in result.shape:
        return [_fill(result)]
    strides, base, dilations = (
        _numbers_of(op, name, count) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    extents = list(x.type.shape)
    low, steps = dict[int, Any](), dict[int, Any]()
    for i, d in enumerate(numbers.input_spatial_dimensions):
        window = (kernel.type.shape[numbers.kernel_spatial_dimensions[i]] - 1) * dilations[i] + 1
        extents[d] = (result.shape[numbers.output_spatial_dimensions[i]] - 1) * strides[i] + window
        low[d], steps[d] = _scalar(padding, i, 0), constant(_index(), str(base[i]))
    padded = _padded(x, number(x.type, "0"), low, steps, extents)
    attributes = dict(op.attributes.items())
    attributes.pop("lhs_dilation", None)
    return [emit("stablehlo.convolution", [padded, kernel], [result], attributes)]


def _numbers_of(op: Any, name: str, count: int) -> list[int]:
    return list(op.attributes[name]) if name in op.attributes else [1] * count


def _padded(x: Any, value: Any, low: dict[int, Any], steps: dict[int, Any], extents: Sequence[int]) -> Any:
    """Pad dynamically to these extents: element `low + i * step` along a dimension is the operand's element i.

    Other elements are `value`.
    """
    if 0 in x.type.shape:
        return broadcast(value, extents)
    for d, first in low.items():
        extent, row = extents[d], _row(extents[d])
        place = elementwise("subtract", _count(extent), _spread(first, extent))
        step, zero = _spread(steps[d], extent), constant(row, "0")
        which = elementwise("divide", place, step)
        rest = elementwise("remainder", place, step)
        checks = [
            compare(place, zero, "GE"),
            compare(rest, zero, "EQ"),
            compare(which, constant(row, str(x.type.shape[d]))),
        ]
        inside = elementwise("and", elementwise("and", *checks[:2]), checks[2])
        taken = _taken(x, which, d)
        shape = taken.type.shape
        x = emit("stablehlo.select", [broadcast(inside, shape, [d]), taken, broadcast(value, shape)], [taken.type])
    return x


def _taken(x: Any, places: Any, dimension: int) -> Any:
    """Gather elements by index along a dimension; indices are clamped to the bounds."""
    others = [d for d in range(x.type.rank) if d != dimension]
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=others,
        collapsed_slice_dims=[dimension],
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=[dimension],
        index_vector_dim=1,
    )
    shape = list(x.type.shape)
    sizes = [1 if d == dimension else n for d, n in enumerate(shape)]
    type_ = tensor(x.type, [places.type.shape[0] if d == dimension else n for d, n in enumerate(shape)])
    attributes = {"dimension_numbers": numbers, "slice_sizes": ir.DenseI64ArrayAttr.get(sizes)}
    return emit("stablehlo.gather", [x, places], [type_], attributes)


def _index() -> Any:
    return integer_tensor(64)


def _row(extent: int) -> Any:
    return integer_tensor(64, [extent])


def _one() -> Any:
    return constant(_index(), "1")


def _scalar(x: Any, *places: int) -> Any:
    """Extract the element at an index of an array of integer_tensor, as s64."""
    one = stablehlo.slice(x, list(places), [p + 1 for p in places], [1] * len(places))
    return convert(reshape(one, []), ir.IntegerType.get_signless(64))


def _count(extent: int) -> Any:
    return iota(_row(extent), 0)


def _spread(scalar: Any, extent: int) -> Any:
    return broadcast(scalar, [extent])


def _fill(type_: Any) -> Any:
    return broadcast(number(type_, "0"), type_.shape)
