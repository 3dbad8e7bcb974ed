"""The rules for sizes at run time, operation by operation; `dynamic_sizes.py` says what a rule is."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stablexla.dialects.attributes.attributes import (
    Convolution,
    DotDimensionNumbers,
    PaddingConfig,
    integers,
)
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.dynamic_sizes import Extents, Size, Sizes, Use, agree, sizes_by
from stablexla.dialects.op_traits import operations


@sizes_by(*operations(lambda traits: traits.is_elementwise))
def elementwise(use: Use) -> list[Sizes]:
    """As the operands, which agree; scalars among them stand for all elements."""
    if any(extents not in ((), use.results[0]) for extents in use.operands):
        use.refuse("the bounds of the operands differ")
    return [agree(use.sizes)]


@sizes_by("stablehlo.bitcast_convert")
def bitcast_convert(use: Use) -> list[Sizes]:
    """Between types of different widths the last dimension comes or goes, and must be known."""
    rank = min(len(use.operands[0]), len(use.results[0]))
    use.only(0, range(rank), "the last dimension is not there in the result, and must be static")
    return [use.sizes[0]]


@sizes_by("stablehlo.optimization_barrier")
def optimization_barrier(use: Use) -> list[Sizes]:
    return list(use.sizes)


@sizes_by("stablehlo.get_dimension_size", "stablehlo.after_all")
def nothing_dynamic(use: Use) -> list[Sizes]:
    return [{} for _ in use.results]


@sizes_by("stablehlo.broadcast_in_dim")
def broadcast_in_dim(use: Use) -> list[Sizes]:
    places = integers(use.attributes["broadcast_dimensions"])
    for place in use.sizes[0]:
        if use.operands[0][place] != use.results[0][places[place]]:
            use.refuse(f"dimension {place}, which is dynamic, can't be stretched")
    return [{places[place]: size for place, size in use.sizes[0].items()}]


@sizes_by("stablehlo.broadcast")
def broadcast(use: Use) -> list[Sizes]:
    new = len(use.results[0]) - len(use.operands[0])
    return [{new + place: size for place, size in use.sizes[0].items()}]


@sizes_by("stablehlo.transpose")
def transpose(use: Use) -> list[Sizes]:
    order = integers(use.attributes["permutation"])
    return [{order.index(place): size for place, size in use.sizes[0].items()}]


@sizes_by("stablehlo.reshape")
def reshape(use: Use) -> list[Sizes]:
    """A dynamic dimension is kept, or joined with those after it, or split so that it comes before its parts."""
    before, after = use.operands[0], use.results[0]
    found: dict[int, Size] = {}
    for place, size in use.sizes[0].items():
        if not is_dropped(before, after, place):
            target, factor, divisor = _carried(use, before, after, place)
            found[target] = size if factor == divisor else size * factor // divisor
    return [found]


def is_dropped(before: Extents, after: Extents, place: int) -> bool:
    """Whether a dimension of bound 1 is left out by a reshape that only leaves out such dimensions, or adds some."""
    if before[place] != 1 or before[: place + 1] == after[: place + 1]:
        return False
    return [n for n in before if n != 1] == [n for n in after if n != 1]


def _carried(use: Use, before: Extents, after: Extents, place: int) -> tuple[int, int, int]:
    """Where a dynamic dimension goes, by how much it grows there, and by how much it shrinks."""
    if before[: place + 1] == after[: place + 1] or (0 in before and before[place] in after[place : place + 1]):
        return place, 1, 1
    for start, stop, first, last in _groups(before, after):
        inside = [i for i in range(start, stop) if before[i] != 1]
        outside = [i for i in range(first, last) if after[i] != 1]
        if inside and inside[0] == place and not set(inside[1:]) & set(use.sizes[0]):
            return outside[0], prod(before[i] for i in inside[1:]), prod(after[i] for i in outside[1:])
    return use.refuse(f"dimension {place} is dynamic, and its elements do not stay together under {list(after)}")


def _groups(before: Extents, after: Extents) -> Iterator[tuple[int, int, int, int]]:
    """The smallest runs of dimensions, of the one and the other, that hold equally many elements."""
    i = j = 0
    while i < len(before) and j < len(after) and 0 not in before:
        start, first, left, right = i, j, before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        yield start, i, first, j


@sizes_by("stablehlo.reverse")
def reverse(use: Use) -> list[Sizes]:
    return [use.sizes[0]]


@sizes_by("stablehlo.slice")
def slice_(use: Use) -> list[Sizes]:
    """As much of the slice as there is."""
    starts, limits, strides = (integers(use.attributes[n]) for n in ("start_indices", "limit_indices", "strides"))
    return [
        {
            place: size
            if (starts[place], limits[place], strides[place]) == (0, use.operands[0][place], 1)
            else positions(size.least(limits[place]) - starts[place], 1, strides[place])
            for place, size in use.sizes[0].items()
        }
    ]


def positions(extent: Size, reach: int, stride: int) -> Size:
    """How many windows of this reach there are in an extent; none where it is too small."""
    if stride == 1:
        return (extent - (reach - 1)).most(0)
    return (extent - reach + stride).most(0) // stride


@sizes_by("stablehlo.concatenate")
def concatenate(use: Use) -> list[Sizes]:
    along = int(use.attributes["dimension"])
    found = agree({p: s for p, s in own.items() if p != along} for own in use.sizes)
    if any(along in own for own in use.sizes):
        known = sum(extents[along] for extents, own in zip(use.operands, use.sizes, strict=True) if along not in own)
        sizes = [own[along] for own in use.sizes if along in own]
        total = sizes[0]
        for size in sizes[1:]:
            total = total + size
        found[along] = total + known if known else total
    return [found]


@sizes_by("stablehlo.pad")
def pad(use: Use) -> list[Sizes]:
    config = PaddingConfig.read(use.attributes)
    found = {}
    for place, size in use.sizes[0].items():
        low, high, interior = config.low[place], config.high[place], config.interior[place]
        inner = (size * (interior + 1) - interior).most(0) if interior else size
        found[place] = (inner + (low + high)).most(0) if low + high < 0 or interior else inner + (low + high)
    return [found]


@sizes_by("stablehlo.dynamic_slice")
def dynamic_slice(use: Use) -> list[Sizes]:
    """A dimension that is taken whole stays dynamic; of others the size is known."""
    return [{place: size for place, size in use.sizes[0].items() if use.results[0][place] == use.operands[0][place]}]


@sizes_by("stablehlo.dynamic_update_slice")
def dynamic_update_slice(use: Use) -> list[Sizes]:
    """As the operand: of a dynamic update, what there is of it is written."""
    return [use.sizes[0]]


@sizes_by("stablehlo.dot_general")
def dot_general(use: Use) -> list[Sizes]:
    """Batch dimensions agree; contracted ones are gone."""
    numbers = DotDimensionNumbers.read(use.attributes["dot_dimension_numbers"])
    lhs, rhs = use.sizes
    batch = list(zip(numbers.lhs_batch, numbers.rhs_batch, strict=True))
    found: dict[int, Size] = {}
    for at, (left, right) in enumerate(batch):
        found |= agree([{at: s[p]} for s, p in ((lhs, left), (rhs, right)) if p in s])
    at = len(batch)
    for sizes, extents, gone in (
        (lhs, use.operands[0], {*numbers.lhs_batch, *numbers.lhs_contracting}),
        (rhs, use.operands[1], {*numbers.rhs_batch, *numbers.rhs_contracting}),
    ):
        for place in range(len(extents)):
            if place not in gone:
                found |= {at: sizes[place]} if place in sizes else {}
                at += 1
    return [found]


@sizes_by("stablehlo.reduce")
def reduce(use: Use) -> list[Sizes]:
    gone = integers(use.attributes["dimensions"])
    kept = [place for place in range(len(use.operands[0])) if place not in gone]
    own = agree(use.sizes)
    return [{kept.index(place): size for place, size in own.items() if place in kept} for _ in use.results]


@sizes_by("stablehlo.reduce_window")
def reduce_window(use: Use) -> list[Sizes]:
    window = Window.read(use.attributes, len(use.operands[0]))
    own = {place: _windows(size, window, place) for place, size in agree(use.sizes).items()}
    return [own for _ in use.results]


def _windows(size: Size, window: Window, place: int) -> Size:
    """How many positions a window has along a dimension."""
    (low, high), dilation = window.padding[place], window.base_dilations[place]
    inner = (size * dilation - (dilation - 1)).most(0) if dilation != 1 else size
    reach, stride = window.reach[place], window.strides[place]
    if stride == 1 and low + high == reach - 1 and dilation == 1:
        return size
    return positions(inner + (low + high), reach, stride)


@sizes_by("stablehlo.sort")
def sort(use: Use) -> list[Sizes]:
    own = agree(use.sizes)
    return [own for _ in use.results]


@sizes_by("stablehlo.gather")
def gather(use: Use) -> list[Sizes]:
    """Dimensions of the indices, and those of the operand that every slice takes whole."""
    numbers = GatherDimensionNumbers.read(use.attributes["dimension_numbers"])
    slices = integers(use.attributes["slice_sizes"])
    operand, indices = use.sizes
    found: dict[int, Size] = {}
    if numbers.index_vector_dim in indices:
        use.refuse("the dimension of the index vectors must be static")
    left = [d for d in range(len(slices)) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    batch = [d for d in range(len(use.results[0])) if d not in numbers.offset_dims]
    others = [d for d in range(len(use.operands[1])) if d != numbers.index_vector_dim]
    rows = {batch[others.index(place)]: size for place, size in indices.items()}
    for place, size in operand.items():
        if place in numbers.operand_batching_dims:
            partner = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(place)]
            rows = agree([rows, {batch[others.index(partner)]: size}])
        elif place in left and slices[place] == use.operands[0][place]:
            found[numbers.offset_dims[left.index(place)]] = size
        elif place not in numbers.start_index_map:
            use.refuse(f"slices take a part of dimension {place} of the operand, which is dynamic")
    return [found | rows]


@sizes_by("stablehlo.torch_index_select")
def torch_index_select(use: Use) -> list[Sizes]:
    """Dimensions of the index take the place of the one that is selected along, which must be static."""
    along, batch = int(use.attributes["dim"]), int(use.attributes["batch_dims"])
    use.only(0, set(range(len(use.operands[0]))) - {along}, "the dimension that is selected along must be static")
    more = len(use.operands[1]) - batch - 1
    operand = {place if place < along else place + more: size for place, size in use.sizes[0].items()}
    index = {place if place < batch else along + place - batch: size for place, size in use.sizes[1].items()}
    return [agree([operand, index])]


@sizes_by("stablehlo.scatter")
def scatter(use: Use) -> list[Sizes]:
    """As the arrays that are scattered into. What the padding of the indices says is dropped."""
    numbers = ScatterDimensionNumbers.read(use.attributes["scatter_dimension_numbers"])
    count = len(use.operands) // 2
    indices = use.sizes[count]
    if numbers.index_vector_dim in indices:
        use.refuse("the dimension of the index vectors must be static")
    if not numbers.scatter_dims_to_operand_dims and indices:
        use.refuse("without indices, the number of updates must be static")
    into = agree(use.sizes[:count])
    windows = [d for d in range(len(use.operands[0])) if d not in _not_in_windows(numbers)]
    for update in use.sizes[count + 1 :]:
        for place in set(update) & set(numbers.update_window_dims):
            whole = windows[numbers.update_window_dims.index(place)]
            if whole not in into or use.operands[0][whole] != use.operands[count + 1][place]:
                use.refuse(f"dimension {place} of the updates is dynamic, and not a whole dynamic one of the operand")
    return [into for _ in use.results]


def _not_in_windows(numbers: ScatterDimensionNumbers) -> tuple[int, ...]:
    return (*numbers.inserted_window_dims, *numbers.input_batching_dims)


@sizes_by("stablehlo.convolution")
def convolution(use: Use) -> list[Sizes]:
    """The batch dimension is kept, spatial ones are filled with zeros."""
    numbers = Convolution.read(use.attributes)
    if use.sizes[1]:
        use.refuse("rhs must be static")
    if numbers.input_feature in use.sizes[0]:
        use.refuse("the feature dimension must be static")
    found: dict[int, Size] = {}
    for place, size in use.sizes[0].items():
        if place == numbers.input_batch:
            if numbers.batch_groups != 1:
                use.refuse("with batch groups, the batch dimension must be static")
            found[numbers.output_batch] = size
    for spatial in numbers.spatial:
        if spatial.input in use.sizes[0]:
            size = use.sizes[0][spatial.input]
            inner = (size * spatial.lhs_dilation - (spatial.lhs_dilation - 1)).most(0)
            reach = (use.operands[1][spatial.kernel] - 1) * spatial.rhs_dilation + 1
            found[spatial.output] = positions(inner + (spatial.low + spatial.high), reach, spatial.stride)
    return [found]


@sizes_by("stablehlo.cholesky", "stablehlo.triangular_solve")
def matrices(use: Use) -> list[Sizes]:
    """Batch dimensions may be dynamic, the matrices may not."""
    for operand, extents in enumerate(use.operands):
        use.only(operand, range(len(extents) - 2), "the dimensions of the matrices must be static")
    return [agree(use.sizes)]


@sizes_by("stablehlo.fft")
def fft(use: Use) -> list[Sizes]:
    """Batch dimensions may be dynamic, transformed ones may not."""
    rank = len(integers(use.attributes["fft_length"]))
    use.only(0, range(len(use.operands[0]) - rank), "dimensions that are transformed must be static")
    return [use.sizes[0]]


@sizes_by("chlo.top_k")
def top_k(use: Use) -> list[Sizes]:
    use.only(0, range(len(use.operands[0]) - 1), "the last dimension must be static")
    return [use.sizes[0] for _ in use.results]


@sizes_by("stablehlo.batch_norm_inference", "stablehlo.batch_norm_training", "stablehlo.batch_norm_grad")
def batch_norm(use: Use) -> list[Sizes]:
    """All but the features, whose numbers are the other operands and results."""
    feature = int(use.attributes["feature_index"])
    for operand, extents in enumerate(use.operands):
        known = {feature} if len(extents) > 1 or operand == 0 else {0}
        use.only(operand, set(range(len(extents))) - known, "the feature dimension must be static")
    return [agree(use.sizes), *[{} for _ in use.results[1:]]]


@sizes_by("stablehlo.select_and_scatter")
def select_and_scatter(use: Use) -> list[Sizes]:
    """A dimension along which the windows move must be static."""
    window, own = Window.read(use.attributes, len(use.operands[0])), agree(use.sizes)
    for place in own:
        if (window.sizes[place], window.strides[place], window.padding[place]) != (1, 1, (0, 0)):
            use.refuse(f"windows move along dimension {place}, which must be static")
    return [own]
