"""Reshapes and broadcasts whose result has sizes at run time, composed of index arithmetic and a gather."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import INTEGER, operation
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.shapes import Shape
from stablexla.ops import elementwise
from stablexla.ops.conversion import convert_element_type
from stablexla.ops.dynamic_size import set_dimension_size
from stablexla.ops.indexing import gather
from stablexla.ops.shape import broadcast_in_dim, get_dimension_size, reshape, slice

__all__ = [
    "dynamic_reshape", "mhlo_dynamic_broadcast_in_dim", "mhlo_dynamic_reshape", "remove_dynamic_dimension",
    "reshape_with_inferred_dimension",
]  # fmt: skip


@operation("stablehlo.set_dimension_size", family="dynamic_size")
def remove_dynamic_dimension(operand: XlaOp, dimension: int) -> XlaOp:
    """`operand` with a dimension of its full bound, static again.

    Elements behind the size that it had are seen then: they are those that were there before the size was set, and mean
    nothing after other operations.

    Raises:
        ShapeError: (C1) no such dimension.

    Source: `RemoveDynamicDimension` of XLA's builder.

    >>> sx.remove_dynamic_dimension(sx.XlaBuilder("example").parameter(0, sx.f32["<=4", 3]), 0)
    XlaOp(stablehlo.set_dimension_size, f32[4,3])
    """
    with checking("remove_dynamic_dimension", operand=operand, dimension=dimension) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        place = _dimension(rule, "C1", "dimension", dimension, x.shape.rank)
    return set_dimension_size(x, x.shape.dimensions[place], place)


@operation("stablehlo.gather", family="dynamic_size")
def dynamic_reshape(
    operand: XlaOp, dim_sizes: Sequence[XlaOp | int], new_size_bounds: Sequence[int], dims_are_dynamic: Sequence[bool]
) -> XlaOp:
    """The elements of `operand` in row-major order under dimensions whose sizes are known only when the program runs.

    Args:
        operand: an array, whose own dimensions may be dynamic; its elements are those before its sizes.
        dim_sizes: an s32 scalar for each dimension of the result; of static ones it is not read. Together they should
            hold as many elements as `operand` has.
        new_size_bounds: the bounds of the result's dimensions.
        dims_are_dynamic: which of them have a size at run time.

    Raises:
        ShapeError: (C1) not one entry of each for a dimension; (C2) sizes that are no s32 scalars; (C3) bounds that
            hold another number of elements than those of `operand`.

    Source: `DynamicReshape` of XLA's builder.

    >>> b = sx.XlaBuilder("example")
    >>> x, n, m = b.parameter(0, sx.f32[6]), b.parameter(1, sx.s32[()]), b.parameter(2, sx.s32[()])
    >>> made = sx.dynamic_reshape(x, (n, m), (3, 2), (True, True))
    >>> made
    XlaOp(stablehlo.set_dimension_size, f32[<=3,<=2])
    """
    given = {"operand": operand, "dim_sizes": dim_sizes, "new_size_bounds": new_size_bounds}
    with checking("dynamic_reshape", **given) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        bounds = rule.integers("new_size_bounds", new_size_bounds)
        flags, sizes = rule.truths("dims_are_dynamic", dims_are_dynamic), _sizes(rule, x, dim_sizes)
        same = len(bounds) == len(flags) == len(sizes)
        rule("C1", same, "dim_sizes, new_size_bounds and dims_are_dynamic must have an entry for each dimension")
        shape = x.shape.with_dimensions(bounds)
        rule("C3", shape.size == x.shape.size, f"{x.shape.size} elements can't fill {shape}, which has {shape.size}")
    return _reshaped(x, bounds, {place: sizes[place] for place, dynamic in enumerate(flags) if dynamic})


@operation("stablehlo.reshape", family="dynamic_size")
def reshape_with_inferred_dimension(operand: XlaOp, new_sizes: Sequence[int], inferred_dimension: int) -> XlaOp:
    """`reshape` in which one dimension of the result takes what the sizes at run time leave.

    Args:
        operand: an array. Without dynamic dimensions this is `reshape(operand, new_sizes)`.
        new_sizes: the dimensions of the result, the bound of the one that is inferred.
        inferred_dimension: which one is dynamic if `operand` is: its size is the number of elements by the others.

    Raises:
        ShapeError: (C1) no such dimension; (C2) another number of elements.

    Source: `ReshapeWithInferredDimension` of XLA's builder.

    >>> b = sx.XlaBuilder("example")
    >>> sx.reshape_with_inferred_dimension(b.parameter(0, sx.f32[4, "<=6"]), (2, 12), 1)
    XlaOp(stablehlo.set_dimension_size, f32[2,<=12])
    """
    with checking("reshape_with_inferred_dimension", operand=operand, new_sizes=new_sizes) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        sizes = rule.integers("new_sizes", new_sizes)
        place = _dimension(rule, "C1", "inferred_dimension", inferred_dimension, len(sizes))
        shape = x.shape.with_dimensions(sizes)
        rule("C2", shape.size == x.shape.size, f"{x.shape.size} elements can't fill {shape}, which has {shape.size}")
    if x.shape.is_static:
        return reshape(x, sizes)
    count = x.builder.constant(1)
    for size in _own_sizes(x):
        count = count * size
    others = prod(size for other, size in enumerate(sizes) if other != place)
    return _reshaped(x, sizes, {place: count / max(others, 1)})


@operation("stablehlo.dynamic_reshape", family="dynamic_size")
def mhlo_dynamic_reshape(operand: XlaOp, output_shape: XlaOp, shape: Shape) -> XlaOp:
    """StableHLO's `dynamic_reshape`: the sizes of the result come from an array of integers.

    Where `shape` has dynamic dimensions this is `dynamic_reshape` with these sizes, which XLA itself can only export.

    Args:
        operand: an array.
        output_shape: an array of integers, a size for each dimension.
        shape: of the result, the bounds of dynamic dimensions.

    Raises:
        ShapeError: (C1) another element type; (C2) another number of elements; (C4) sizes that are no array of
            integers, one for each dimension.

    Source: `MhloDynamicReshape` of XLA's builder; StableHLO `dynamic_reshape`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.mhlo_dynamic_reshape(b.parameter(0, sx.f32[6]), b.constant([3, 2]), sx.f32[3, 2])
    XlaOp(stablehlo.dynamic_reshape, f32[3,2])
    """
    with checking("mhlo_dynamic_reshape", operand=operand, output_shape=output_shape, shape=shape) as rule:
        x, sizes = rule.ops(operand=rule.op("operand", operand), output_shape=rule.op("output_shape", output_shape))
        _check_result(rule, x, sizes, shape, "shape", "output_shape", "C4")
        rule("C2", shape.size == x.shape.size, f"{x.shape.size} elements can't fill {shape}, which has {shape.size}")
    if shape.is_static and x.shape.is_static:
        return x.builder.emit("stablehlo.dynamic_reshape", [x, sizes], shape)
    return _reshaped(x, shape.dimensions, _dynamic_entries(sizes, shape))


@operation("stablehlo.dynamic_broadcast_in_dim", family="dynamic_size")
def mhlo_dynamic_broadcast_in_dim(
    operand: XlaOp, output_dimensions: XlaOp, broadcast_dimensions: Sequence[int], output_shape: Shape
) -> XlaOp:
    """StableHLO's `dynamic_broadcast_in_dim`: the sizes of the result come from an array of integers.

    Where `output_shape` has dynamic dimensions, these are given the sizes, which XLA itself can only export.

    Args:
        operand: an array.
        output_dimensions: an array of integers, a size for each dimension of the result.
        broadcast_dimensions: as of `broadcast_in_dim`.
        output_shape: of the result, the bounds of dynamic dimensions.

    Raises:
        ShapeError: (C1) another element type; (I2) sizes that are no array of integers, one for each dimension; and as
            `broadcast_in_dim`.

    Source: `MhloDynamicBroadcastInDim` of XLA's builder; StableHLO `dynamic_broadcast_in_dim`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.mhlo_dynamic_broadcast_in_dim(b.parameter(0, sx.f32[3]), b.constant([2, 3]), (1,), sx.f32[2, 3])
    XlaOp(stablehlo.dynamic_broadcast_in_dim, f32[2,3])
    """
    named = {"operand": operand, "output_dimensions": output_dimensions, "output_shape": output_shape}
    with checking("mhlo_dynamic_broadcast_in_dim", **named) as rule:
        x = rule.op("operand", operand)
        x, sizes = rule.ops(operand=x, output_dimensions=rule.op("output_dimensions", output_dimensions))
        _check_result(rule, x, sizes, output_shape, "output_shape", "output_dimensions", "I2")
        places = rule.integers("broadcast_dimensions", broadcast_dimensions)
        try:
            spread = broadcast_in_dim(x, output_shape.dimensions, places)
        except ShapeError as error:  # its rules, told of this operation
            rule.broken(error.rule, error.summary, error.hint)
    if output_shape.is_static and x.shape.is_static:
        attributes = {"broadcast_dimensions": places}
        return x.builder.emit("stablehlo.dynamic_broadcast_in_dim", [x, sizes], output_shape, attributes)
    return _with_sizes(spread, _dynamic_entries(sizes, output_shape))


def _check_result(rule: Rules, x: XlaOp, sizes: XlaOp, shape: Shape, name: str, of_sizes: str, number: str) -> None:
    """An array's shape of the operand's element type, and an array with a size for each of its dimensions."""
    rule.arrays(operand=x, **{of_sizes: sizes})
    shape = rule.array_shape(name, shape)
    given = x.shape.element_type
    rule("C1", shape.element_type is given, f"{name} must have operand's element type {given}")
    fits = sizes.shape.dimensions == (shape.rank,) and sizes.shape.element_type.kind in INTEGER
    rule(number, fits, f"{of_sizes} must be {shape.rank} integers, a size for each dimension, not {sizes.shape}")
    known = _constant_sizes(sizes)
    same = known is None or not shape.is_static or known == list(shape.dimensions)
    rule(number, same, f"{of_sizes} is the constant {known}, and {name} says {list(shape.dimensions)}")


def _constant_sizes(sizes: XlaOp) -> list[int] | None:
    """The sizes, where they are a constant."""
    maker = sizes.values[0].owner
    if isinstance(maker, ir.Block) or maker.name != "stablehlo.constant":
        return None
    return [int(size) for size in ir.DenseIntElementsAttr(maker.attributes["value"])]


def _dynamic_entries(sizes: XlaOp, shape: Shape) -> dict[int, XlaOp]:
    """The sizes of the dynamic dimensions of `shape`, as s32 scalars."""
    return {
        place: convert_element_type(reshape(slice(sizes, (place,), (place + 1,)), ()), "s32")
        for place in range(shape.rank)
        if shape.is_dynamic_dimension(place)
    }


def _reshaped(x: XlaOp, bounds: Sequence[int], sizes: dict[int, XlaOp]) -> XlaOp:
    """The elements of `x` within its sizes, in row-major order, under dimensions of these bounds and sizes."""
    if x.shape.is_static and set(sizes) <= {0}:
        return _with_sizes(reshape(x, bounds), sizes)
    if 0 in bounds:
        return _with_sizes(reshape(_full(x), bounds), sizes)
    held = {place: elementwise.clamp(0, size, bounds[place]) for place, size in sizes.items()}
    strides = _strides([held.get(place, bound) for place, bound in enumerate(bounds)])
    shape = Shape("s32", bounds)
    ordinal = broadcast_in_dim(x.builder.constant(0), bounds, ())
    for place, stride in enumerate(strides):
        ordinal = ordinal + x.builder.iota(shape, place) * stride
    return _with_sizes(_elements(x, ordinal), sizes)


def _elements(x: XlaOp, ordinal: XlaOp) -> XlaOp:
    """The elements of `x` with these row-major numbers within its sizes."""
    flat, place = reshape(_full(x), (x.shape.size,)), ordinal
    if not x.shape.is_static:
        own = _strides(_own_sizes(x))
        place = broadcast_in_dim(x.builder.constant(0), ordinal.shape.dimensions, ())
        for bound_stride, stride in zip(_strides(x.shape.dimensions), own, strict=True):
            divisor = elementwise.max(stride, 1) if isinstance(stride, XlaOp) else max(stride, 1)
            place = place + ordinal / divisor * bound_stride
            ordinal = ordinal % divisor
    rank = place.shape.rank
    numbers = GatherDimensionNumbers((), (0,), (0,), rank)
    return gather(flat, place, slice_sizes=(1,), dimension_numbers=numbers) if rank else reshape(flat, ())


def _strides(sizes: Sequence[Any]) -> list[Any]:
    """The strides of dimensions, in elements; numbers or scalar ops."""
    found: list[Any] = [1] * len(sizes)
    for place in reversed(range(len(sizes) - 1)):
        found[place] = sizes[place + 1] * found[place + 1]
    return found


def _own_sizes(x: XlaOp) -> list[Any]:
    """The sizes of the dimensions of `x`: s32 scalars of dynamic ones, numbers of the others."""
    return [
        get_dimension_size(x, place) if x.shape.is_dynamic_dimension(place) else size
        for place, size in enumerate(x.shape.dimensions)
    ]


def _full(x: XlaOp) -> XlaOp:
    """All elements up to the bounds."""
    for place, dynamic in enumerate(x.shape.dynamic_dimensions):
        x = set_dimension_size(x, x.shape.dimensions[place], place) if dynamic else x
    return x


def _with_sizes(x: XlaOp, sizes: dict[int, XlaOp]) -> XlaOp:
    for place, size in sizes.items():
        x = set_dimension_size(x, size, place)
    return x


def _sizes(rule: Rules, x: XlaOp, given: Any) -> list[XlaOp]:
    """C2: s32 scalars; integers become constants."""
    rule("C2", not isinstance(given, XlaOp), "dim_sizes must be a sequence of sizes")
    items = rule.items("dim_sizes", given, "a sequence of sizes")
    found = [size if isinstance(size, XlaOp) else _constant(rule, x, place, size) for place, size in enumerate(items)]
    rule.one_builder([x, *found])
    for place, size in enumerate(found):
        rule("C2", size.shape == Shape("s32"), f"dim_sizes[{place}] must be an s32 scalar, not {size.shape}")
    return found


def _constant(rule: Rules, x: XlaOp, place: int, given: Any) -> XlaOp:
    size = rule.integer(f"dim_sizes[{place}]", given)
    rule("C2", 0 <= size < 2**31, f"dim_sizes[{place}] must be an s32 from 0 on, not {size}")
    return x.builder.constant(size, "s32")


def _dimension(rule: Rules, number: str, name: str, given: int, rank: int) -> int:
    place = rule.integer(name, given)
    rule.place(number, place, rank, f"{name}: {place} is no dimension of an array of rank {rank}")
    return place
