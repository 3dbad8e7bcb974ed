"""Data movement: broadcasts, reshapes, transposes, slices, concatenations and padding."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Sequence
from operator import index as as_index
from typing import Any

from stablexla.builder.checking import Operand, Operands, Rules, Sizes, checking, same, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.builder.source import user_line
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import element_type
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.shapes import Shape
from stablexla.ops.support.padding import Given, PaddingConfig, checked_config, padded

__all__ = [
    "broadcast", "broadcast_in_dim", "collapse", "concat_in_dim", "concatenate", "copy", "dynamic_slice",
    "dynamic_update_slice", "get_dimension_size", "pad", "pad_in_dim", "reshape", "rev", "slice", "slice_in_dim",
    "transpose",
]  # fmt: skip


@operation("stablehlo.broadcast_in_dim")
def broadcast(operand: XlaOp, broadcast_sizes: Sizes) -> XlaOp:
    """Copies of `operand` along new dimensions of these sizes, which come before its own.

    Raises:
        ShapeError: a negative size.

    Source: `Broadcast` of XLA's operation semantics; StableHLO `broadcast_in_dim`.

    >>> sx.broadcast(sx.XlaBuilder("example").parameter(0, sx.f32[4]), (2, 3))
    XlaOp(stablehlo.broadcast_in_dim, f32[2,3,4])
    """
    with checking("broadcast", operand=operand, broadcast_sizes=broadcast_sizes) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        sizes = rule.sizes("broadcast_sizes", broadcast_sizes)
        shape = x.shape.with_dimensions(sizes + x.shape.dimensions)
    places = tuple(range(len(sizes), shape.rank))
    return x.builder.emit("stablehlo.broadcast_in_dim", [x], shape, {"broadcast_dimensions": places})


@operation("stablehlo.broadcast_in_dim")
def broadcast_in_dim(operand: XlaOp, out_dim_size: Sizes, broadcast_dimensions: Sequence[int]) -> XlaOp:
    """`operand` spread over the dimensions `out_dim_size`: dimension i of it becomes `broadcast_dimensions[i]`.

    Raises:
        ShapeError: (C2) not one entry for each dimension of `operand`; (C3) an entry that is no dimension of the
            result; (C4) one that comes twice; (C5) a size that is neither 1 nor the result's; entries that are not in
            ascending order, which XLA's page on broadcasting asks for and StableHLO does not.

    Source: `BroadcastInDim` of XLA's operation semantics; StableHLO `broadcast_in_dim`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[1, 3])
    >>> sx.broadcast_in_dim(x, (2, 4, 3), (1, 2))
    XlaOp(stablehlo.broadcast_in_dim, f32[2,4,3])
    """
    with checking("broadcast_in_dim", operand=operand) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        sizes = rule.sizes("out_dim_size", out_dim_size)
        places = rule.integers("broadcast_dimensions", broadcast_dimensions)
        rule.operands.update(out_dim_size=sizes, broadcast_dimensions=places)
        shape = x.shape.with_dimensions(sizes)
        rule(
            "C2",
            len(places) == x.shape.rank,
            "broadcast_dimensions must have one entry for each dimension of operand",
        )
        for place in places:
            rule.place("C3", place, shape.rank, f"{place} in broadcast_dimensions is no dimension of the result")
        rule("C4", len(set(places)) == len(places), "broadcast_dimensions must not repeat a dimension")
        order = tuple(sorted(range(len(places)), key=lambda i: places[i]))
        rule(
            "",
            order == tuple(range(len(places))),
            f"broadcast_dimensions must be strictly increasing, as the page on broadcasting says, not {places}",
            f"sx.broadcast_in_dim(sx.transpose(operand, {order}), {sizes}, {tuple(sorted(places))})",
        )
        for source, (place, size) in enumerate(zip(places, x.shape.dimensions)):
            rule(
                "C5",
                size in (1, sizes[place]),
                f"dimension {source} of operand has size {size}: it must be 1 or the result's {sizes[place]}",
            )
    return x.builder.emit("stablehlo.broadcast_in_dim", [x], shape, {"broadcast_dimensions": places})


@operation()
def copy(operand: XlaOp) -> XlaOp:
    """The operand. Values never change here, so that a copy of one is the value itself.

    XLA's compiler copies to separate buffers and to change layouts; here buffers are assigned by the compiler alone.

    Source: `Copy` of XLA's builder.

    >>> sx.copy(sx.XlaBuilder("example").parameter(0, sx.f32[3]))
    XlaOp(copy, f32[3])
    """
    with checking("copy", operand=operand) as rule:
        x = rule.op("operand", operand)
    return x.builder.wrap(x.shape, x.values, "copy")


@operation("stablehlo.reshape")
def reshape(operand: XlaOp, dimensions: Sizes, new_sizes: Sizes | None = None) -> XlaOp:
    """The same elements in row-major order under other dimensions.

    With `new_sizes`, these are the dimensions of the result, and `dimensions` is the order in which the operand's
    dimensions are read, from the slowest to the fastest.

    Raises:
        ShapeError: (C2) another number of elements; an order that is no permutation.

    Source: `Reshape` of XLA's operation semantics; StableHLO `reshape`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 2, 3])
    >>> sx.reshape(x, (8, 3))
    XlaOp(stablehlo.reshape, f32[8,3])
    >>> sx.reshape(x, (1, 2, 0), (6, 4))
    XlaOp(stablehlo.reshape, f32[6,4])
    """
    with checking("reshape", operand=operand, dimensions=dimensions, new_sizes=new_sizes) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        order: tuple[int, ...] = ()
        if new_sizes is None:
            sizes = rule.sizes("dimensions", dimensions)
        else:
            order, sizes = rule.integers("dimensions", dimensions), rule.sizes("new_sizes", new_sizes)
            _check_permutation(rule, "", "dimensions", order, x.shape.rank)
        others = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and others > 0 and x.shape.is_static and x.shape.size % others == 0:
            full = tuple(x.shape.size // others if size == -1 else size for size in sizes)
            rule.broken("", f"a size of {sizes} is negative", f"{full}")
        shape = x.shape.with_dimensions(sizes)
        rule("C2", shape.size == x.shape.size, f"{x.shape.size} elements can't fill {shape}, which has {shape.size}")
    if order and order != tuple(range(x.shape.rank)):
        x = transpose(x, order)
    return x.builder.emit("stablehlo.reshape", [x], shape)


@operation("stablehlo.reshape")
def collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Neighbouring dimensions of `operand` as one, in their place.

    Raises:
        ShapeError: dimensions that do not follow one another.

    Source: `Collapse` of XLA's operation semantics.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 2, 3])
    >>> sx.collapse(x, (1, 2))
    XlaOp(stablehlo.reshape, f32[4,6])
    """
    with checking("collapse", operand=operand, dimensions=dimensions) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        chosen = rule.integers("dimensions", dimensions)
        _check_dimensions(rule, "", "dimensions", chosen, x.shape.rank)
        follow = all(b == a + 1 for a, b in itertools.pairwise(chosen))
        rule("", follow, "dimensions must follow one another in ascending order")
    if len(chosen) <= 1:
        return x
    sizes = x.shape.dimensions
    joined = math.prod(sizes[chosen[0] : chosen[-1] + 1])
    return reshape(x, (*sizes[: chosen[0]], joined, *sizes[chosen[-1] + 1 :]))


@operation("stablehlo.transpose")
def transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """Dimension i of the result is dimension `permutation[i]` of `operand`.

    Raises:
        ShapeError: (C2) no permutation of the operand's dimensions.

    Source: XLA's builder; StableHLO `transpose`.

    >>> sx.transpose(sx.XlaBuilder("example").parameter(0, sx.f32[2, 3, 4]), (2, 0, 1))
    XlaOp(stablehlo.transpose, f32[4,2,3])
    """
    with checking("transpose", operand=operand, permutation=permutation) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        order = rule.integers("permutation", permutation)
        _check_permutation(rule, "C2", "permutation", order, x.shape.rank)
    shape = x.shape.with_dimensions(x.shape.dimensions[place] for place in order)
    return x.builder.emit("stablehlo.transpose", [x], shape, {"permutation": order})


@operation("stablehlo.reverse")
def rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """The elements in reverse order along these dimensions.

    Raises:
        ShapeError: (C2) a dimension that comes twice; (C3) one that `operand` has not.

    Source: `Rev` of XLA's operation semantics; StableHLO `reverse`.

    >>> sx.rev(sx.XlaBuilder("example").parameter(0, sx.f32[2, 3]), (1,))
    XlaOp(stablehlo.reverse, f32[2,3])
    """
    with checking("rev", operand=operand, dimensions=dimensions) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        chosen = rule.integers("dimensions", dimensions)
        rule("C2", len(set(chosen)) == len(chosen), "dimensions must not repeat one")
        _check_dimensions(rule, "C3", "dimensions", chosen, x.shape.rank)
    return x.builder.emit("stablehlo.reverse", [x], x.shape, {"dimensions": chosen})


@operation("stablehlo.slice")
def slice(
    operand: XlaOp,
    start_indices: Sequence[int],
    limit_indices: Sizes,
    strides: Sequence[int] | None = None,
) -> XlaOp:
    """The elements from `start_indices` to before `limit_indices`, in each dimension every `strides`-th one.

    Raises:
        ShapeError: (C2) not one entry for each dimension; (C3) indices out of the operand or in the wrong order;
            (C4) a stride below 1.

    Source: `Slice` of XLA's operation semantics; StableHLO `slice`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 3])
    >>> sx.slice(x, (2, 1), (4, 3))
    XlaOp(stablehlo.slice, f32[2,2])
    """
    with checking("slice", operand=operand) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        starts = rule.integers("start_indices", start_indices)
        limits = rule.sizes("limit_indices", limit_indices)
        steps = (1,) * x.shape.rank if strides is None else rule.integers("strides", strides)
        rule.operands.update(start_indices=starts, limit_indices=limits, strides=steps)
        for name, given in (("start_indices", starts), ("limit_indices", limits), ("strides", steps)):
            rule("C2", len(given) == x.shape.rank, f"{name} must have one entry for each dimension of operand")
        for place, (start, limit, size) in enumerate(zip(starts, limits, x.shape.dimensions)):
            rule(
                "C3",
                0 <= start <= limit <= size,
                f"0 <= start <= limit <= {size} must hold in dimension {place}, where they are {start} and {limit}",
            )
        rule("C4", all(step > 0 for step in steps), "strides must be positive")
    shape = x.shape.with_dimensions(-((start - limit) // step) for start, limit, step in zip(starts, limits, steps))
    attributes = {"start_indices": starts, "limit_indices": limits, "strides": steps}
    return x.builder.emit("stablehlo.slice", [x], shape, attributes)


@operation("stablehlo.slice")
def slice_in_dim(operand: XlaOp, start_index: int, limit_index: int, stride: int = 1, dimno: int = 0) -> XlaOp:
    """A slice in the dimension `dimno`, with all of the others.

    Raises:
        ShapeError: no such dimension; and as `slice`.

    Source: XLA's builder.

    >>> sx.slice_in_dim(sx.XlaBuilder("example").parameter(0, sx.f32[4, 3]), 1, 3, dimno=0)
    XlaOp(stablehlo.slice, f32[2,3])
    """
    shown = {"operand": operand, "start_index": start_index, "limit_index": limit_index, "stride": stride}
    with checking("slice_in_dim", **shown, dimno=dimno) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        place = rule.integer("dimno", dimno)
        _check_dimensions(rule, "", "dimno", (place,), x.shape.rank)
        start, limit = rule.integer("start_index", start_index), rule.integer("limit_index", limit_index)
        step, size = rule.integer("stride", stride), x.shape.dimensions[place]
        rule("C3", 0 <= start <= limit <= size, f"0 <= start_index <= limit_index <= {size} must hold")
        rule("C4", step > 0, "stride must be positive")
    starts, limits, steps = [0] * x.shape.rank, list(x.shape.dimensions), [1] * x.shape.rank
    starts[place], limits[place], steps[place] = start, limit, step
    return slice(x, starts, limits, steps)


@operation("stablehlo.concatenate")
def concatenate(operands: Operands, dimension: int) -> XlaOp:
    """The operands one after another along a dimension; in the others they agree.

    Raises:
        ShapeError: (C1) element types differ; (C2) other dimensions differ; (C3) no operand; (C4) no such dimension.

    Source: `Concatenate` of XLA's operation semantics; StableHLO `concatenate`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.concatenate((b.parameter(0, sx.f32[3, 2]), b.parameter(1, sx.f32[1, 2])), 0)
    XlaOp(stablehlo.concatenate, f32[4,2])
    """
    with checking("concatenate", operands=operands, dimension=dimension) as rule:
        return _concatenate(rule, operands, dimension)


def _concatenate(rule: Rules, operands: Operands, dimension: int) -> XlaOp:
    xs = rule.sequence("operands", operands)
    rule("C3", bool(xs), "there must be an operand")
    rule.one_builder(xs)
    for number, x in enumerate(xs):
        rule("", x.shape.is_array, f"operands[{number}] must be an array")
    rule("C1", same_element_type(*xs), "the operands must have one element type")
    place = rule.integer("dimension", dimension)
    _check_dimensions(rule, "C4", "dimension", (place,), xs[0].shape.rank)
    others = [(*x.shape.dimensions[:place], -1, *x.shape.dimensions[place + 1 :]) for x in xs]
    rule("C2", same(others), f"the operands must agree in all dimensions but dimension {place}")
    sizes = list(xs[0].shape.dimensions)
    sizes[place] = sum(x.shape.dimensions[place] for x in xs)
    shape = xs[0].shape.with_dimensions(sizes)
    return xs[0].builder.emit("stablehlo.concatenate", xs, shape, {"dimension": place})


@operation("stablehlo.concatenate")
def concat_in_dim(operands: Operands, dimension: int) -> XlaOp:
    """`concatenate` under the name that XLA's builder gives it.

    Source: `Concatenate` of XLA's operation semantics; StableHLO `concatenate`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.concat_in_dim((x, x), 1)
    XlaOp(stablehlo.concatenate, f32[2,6])
    """
    with checking("concat_in_dim", operands=operands, dimension=dimension) as rule:
        return _concatenate(rule, operands, dimension)


@operation("stablehlo.pad")
def pad(
    operand: XlaOp, padding_value: Operand, padding_config: PaddingConfig | Sequence[tuple[int, int, int]]
) -> XlaOp:
    """`operand` with `padding_value` around it and between its elements.

    Args:
        operand: an array.
        padding_value: a scalar of the same element type.
        padding_config: for each dimension how many values come before, behind, and between neighbours, or these as a
            `PaddingConfig`; a negative number before or behind takes that many elements away, after the inner padding
            has been put in.

    Raises:
        ShapeError: (C1) element types differ; (C2) not three numbers for each dimension; (C3) negative inner
            padding; (C4) more is taken away than there is.

    Source: `Pad` of XLA's operation semantics; StableHLO `pad`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.pad(x, 0.0, ((1, 0, 0), (-1, 2, 1)))
    XlaOp(stablehlo.pad, f32[3,6])
    """
    with checking("pad", operand=operand, padding_value=padding_value, padding_config=padding_config) as rule:
        return _pad(rule, rule.op("operand", operand), padding_value, padding_config)


def _pad(rule: Rules, operand: XlaOp, padding_value: Operand, padding_config: Given) -> XlaOp:
    x, value = rule.ops(operand=operand, padding_value=padding_value)
    rule.arrays(operand=x, padding_value=value)
    rule("I2", value.shape.is_scalar, "padding_value must be a scalar")
    rule("C1", same_element_type(x, value), "padding_value must have operand's element type")
    config = checked_config(rule, padding_config, x.shape.rank)
    sizes = [padded(rule, place, size, config[place]) for place, size in enumerate(x.shape.dimensions)]
    low, high, interior = zip(*config) if config else ((), (), ())
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}
    return x.builder.emit("stablehlo.pad", [x, value], x.shape.with_dimensions(sizes), attributes)


@operation("stablehlo.pad")
def pad_in_dim(operand: XlaOp, padding_value: Operand, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """Padding before and behind in the dimension `dimno` alone.

    Raises:
        ShapeError: no such dimension; and as `pad`.

    Source: XLA's builder.

    >>> sx.pad_in_dim(sx.XlaBuilder("example").parameter(0, sx.f32[2, 3]), 0.0, 1, 0, 1)
    XlaOp(stablehlo.pad, f32[2,4])
    """
    shown = {"operand": operand, "padding_value": padding_value, "dimno": dimno, "pad_lo": pad_lo, "pad_hi": pad_hi}
    with checking("pad_in_dim", **shown) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        place = rule.integer("dimno", dimno)
        _check_dimensions(rule, "", "dimno", (place,), x.shape.rank)
        config = [(0, 0, 0)] * x.shape.rank
        config[place] = (rule.integer("pad_lo", pad_lo), rule.integer("pad_hi", pad_hi), 0)
        return _pad(rule, x, padding_value, config)


@operation("stablehlo.dynamic_slice")
def dynamic_slice(operand: XlaOp, start_indices: XlaOp | Sequence[XlaOp | int], size_indices: Sizes) -> XlaOp:
    """A slice of static sizes, at `start_indices` that are known at run time.

    The start is clamped so that the slice is within `operand`.

    Args:
        operand: an array.
        start_indices: an integer scalar for each dimension, all of one type; or one array of rank 1 with them.
        size_indices: the sizes of the slice.

    Raises:
        ShapeError: (C2) not one index and size for each dimension; (C3) indices of different types; (C4) a size
            that is negative or beyond the operand's.

    Source: `DynamicSlice` of XLA's operation semantics; StableHLO `dynamic_slice`.

    >>> b = sx.XlaBuilder("example")
    >>> x, i = b.parameter(0, sx.f32[4, 3]), b.parameter(1, sx.s32[()])
    >>> sx.dynamic_slice(x, (i, 1), (2, 2))
    XlaOp(stablehlo.dynamic_slice, f32[2,2])
    """
    with checking("dynamic_slice", operand=operand, start_indices=start_indices) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        sizes = rule.sizes("size_indices", size_indices)
        rule.operands.update(size_indices=sizes)
        starts = _start_indices(rule, "I2", "C2", "C3", x, start_indices)
        rule("C2", len(sizes) == x.shape.rank, "size_indices must have one entry for each dimension of operand")
        for place, (size, whole) in enumerate(zip(sizes, x.shape.dimensions)):
            rule("C4", 0 <= size <= whole, f"size_indices[{place}] must be from 0 to {whole}, and is {size}")
    if not sizes:  # the scalar itself; StableHLO's text of this operation without indices does not parse
        return x
    shape = x.shape.with_dimensions(sizes)
    return x.builder.emit("stablehlo.dynamic_slice", [x, *starts], shape, {"slice_sizes": sizes})


@operation("stablehlo.dynamic_update_slice")
def dynamic_update_slice(operand: XlaOp, update: XlaOp, start_indices: XlaOp | Sequence[XlaOp | int]) -> XlaOp:
    """`operand` with the slice that starts at `start_indices` replaced by `update`.

    The start is clamped so that the slice is within `operand`.

    Raises:
        ShapeError: (C2) element types differ; (C3) ranks differ; (C4) not one index for each dimension; (C5) indices
            of different types; (C6) `update` is bigger than `operand`.

    Source: `DynamicUpdateSlice` of XLA's operation semantics; StableHLO `dynamic_update_slice`.

    >>> b = sx.XlaBuilder("example")
    >>> x, u, i = (b.parameter(n, s) for n, s in enumerate((sx.f32[4, 3], sx.f32[3, 2], sx.s32[()])))
    >>> sx.dynamic_update_slice(x, u, (i, i))
    XlaOp(stablehlo.dynamic_update_slice, f32[4,3])
    """
    with checking("dynamic_update_slice", operand=operand, update=update, start_indices=start_indices) as rule:
        x, u = rule.op("operand", operand), rule.op("update", update)
        rule.one_builder([x, u])
        rule.arrays(operand=x, update=u)
        rule("C2", same_element_type(x, u), "update must have operand's element type")
        rule("C3", x.shape.rank == u.shape.rank, "update must have operand's rank")
        starts = _start_indices(rule, "I3", "C4", "C5", x, start_indices)
        for place, (size, whole) in enumerate(zip(u.shape.dimensions, x.shape.dimensions)):
            rule("C6", size <= whole, f"dimension {place} of update has size {size}, operand's has {whole}")
    return x.builder.emit("stablehlo.dynamic_update_slice", [x, u, *starts], x.shape)


def _start_indices(rule: Rules, input_rule: str, count_rule: str, type_rule: str, x: XlaOp, given: Any) -> list[XlaOp]:
    """The start indices as one integer scalar for each dimension of `x`; Python integers become constants."""
    if isinstance(given, XlaOp) and given.shape.rank == 1:
        given = [reshape(slice(given, (i,), (i + 1,)), ()) for i in range(given.shape.size)]
    what = "an XlaOp, or a sequence of an index for each dimension"
    items = [given] if isinstance(given, XlaOp) else rule.items("start_indices", given, what)
    rule(count_rule, len(items) == x.shape.rank, "there must be one start index for each dimension of operand")
    like = next((item.shape for item in items if isinstance(item, XlaOp)), Shape("s32"))
    starts = []
    for place, item in enumerate(items):
        if not isinstance(item, XlaOp):
            item = x.builder.constant(rule.integer(f"start_indices[{place}]", item), like.element_type)
        is_index = item.shape.is_scalar and item.shape.element_type.is_integer
        rule(input_rule, is_index, f"start_indices[{place}] must be an integer scalar, not {item.shape}")
        starts.append(item)
    rule.one_builder([x, *starts])
    rule(type_rule, same(item.shape for item in starts), "the start indices must have one type")
    return starts


@operation("stablehlo.get_dimension_size")
def get_dimension_size(operand: XlaOp, dimension: int) -> XlaOp:
    """The size of a dimension, as an s32.

    Raises:
        ShapeError: (C1) no such dimension.

    Source: `GetDimensionSize` of XLA's operation semantics; StableHLO `get_dimension_size`.

    >>> sx.get_dimension_size(sx.XlaBuilder("example").parameter(0, sx.f32[4, 3]), 1)
    XlaOp(stablehlo.get_dimension_size, s32[])
    """
    with checking("get_dimension_size", operand=operand, dimension=dimension) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        place = rule.integer("dimension", dimension)
        _check_dimensions(rule, "C1", "dimension", (place,), x.shape.rank)
    return x.builder.emit("stablehlo.get_dimension_size", [x], Shape("s32"), {"dimension": place})


def static_index(x: XlaOp, index: Any) -> XlaOp:
    """`x[1, 2:, ...]` by numpy's rules for static integers and slices, with steps above 0."""
    items = list(index) if isinstance(index, tuple) else [index]
    gaps = [at for at, item in enumerate(items) if item is Ellipsis]  # an array or an op would be compared by `==`
    if len(gaps) > 1 or len(items) - len(gaps) > x.shape.rank:
        raise _index_error(x, f"the index {told(index)} has more entries than there are dimensions")
    if not gaps:
        items.append(Ellipsis)
    gap = gaps[0] if gaps else len(items) - 1
    whole = [builtins.slice(None)] * (x.shape.rank - len(items) + 1)
    bounds = [_slice_bounds(x, item, place) for place, item in enumerate(items[:gap] + whole + items[gap + 1 :])]
    part = slice(x, [b[0] for b in bounds], [b[1] for b in bounds], [b[2] for b in bounds])
    kept = [size for size, bound in zip(part.shape.dimensions, bounds) if bound[3]]
    return part if len(kept) == part.shape.rank else reshape(part, kept)


def _slice_bounds(x: XlaOp, item: Any, dimension: int) -> tuple[int, int, int, bool]:
    """Start, limit and stride of one dimension, and whether the dimension stays."""
    size = x.shape.dimensions[dimension]
    if isinstance(item, builtins.slice):
        try:
            start, limit, step = item.indices(size)
        except (TypeError, ValueError):  # bounds that are no integers, or a step of 0
            raise _index_error(x, f"{told(item)} is no slice that is known now", "sx.dynamic_slice") from None
        if step < 1:
            raise _index_error(x, "a slice's step must be positive", "sx.rev")
        return start, max(start, limit), step, True
    try:
        place = as_index(item)
    except Exception:
        raise _index_error(x, f"{told(item)} is no index that is known now", _instead_of(item, dimension)) from None
    if not -size <= place < size:
        raise _index_error(x, f"the index {told(place)} is out of a dimension of size {size}")
    place %= size
    return place, place + 1, 1, False


def _instead_of(item: Any, dimension: int) -> str:
    """Return the operation for an index that numpy takes and `x[...]` does not: an op, a mask, an array, a new axis."""
    if item is None:
        return "sx.reshape adds a dimension of size 1"
    if isinstance(item, XlaOp):
        is_mask = item.shape.is_array and item.shape.element_type == element_type("pred")
        return "sx.select(index, x, 0)" if is_mask else f"sx.torch_index_select(x, index, {dimension})"
    if isinstance(item, list) or hasattr(item, "__array__"):
        return f"sx.torch_index_select(x, b.constant(index), {dimension})"
    return "sx.dynamic_slice or sx.gather"


def _index_error(x: XlaOp, summary: str, hint: str = "") -> ShapeError:
    return ShapeError(summary, operation="index", operands={"operand": x.shape}, source=user_line(), hint=hint)


def _check_dimensions(rule: Rules, number: str, name: str, chosen: Sequence[int], rank: int) -> None:
    """Each of `chosen` is a dimension of an array of this rank."""
    for place in chosen:
        rule.place(number, place, rank, f"{name}: {place} is no dimension of an array of rank {rank}")


def _check_permutation(rule: Rules, number: str, name: str, order: Sequence[int], rank: int) -> None:
    counted = [place + rank if -rank <= place < 0 else place for place in order]
    hint = f"{(*counted,)}" if sorted(counted) == list(range(rank)) else ""
    rule(number, sorted(order) == list(range(rank)), f"{name} must be a permutation of 0 to {rank - 1}", hint)
