"""Expansion rules of bounded dynamism: masks and start indices that keep operations from elements beyond a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import (
    Convolution,
    DotDimensionNumbers,
    PaddingConfig,
    integers,
    sort_dimension,
)
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.dynamic_rules import is_dropped
from stablexla.dialects.dynamic_sizes import Extents, Size, Use, agree, result_sizes
from stablexla.dialects.erasing import erase
from stablexla.dialects.hlo import broadcast, emit, tensor
from stablexla.lowering.bounded.bounded import Site, expands
from stablexla.lowering.bounded.values import Scalar, as_type_of, masked, resized, wide_enough, within


@expands("stablehlo.set_dimension_size")
def set_dimension_size(site: Site) -> None:
    """The array itself with another size, clamped to [0, bound]."""
    place, bound = int(site.op.attributes["dimension"]), site.use.operands[0]
    declared, size = site.declared[0], site.op.operands[1]
    sizes: dict[int, Size] = {other: own for other, own in site.sizes(0).items() if other != place}
    if _constant(size) != bound[place]:
        sizes[place] = Scalar(size).most(0).least(bound[place])
    if declared.dynamic:
        site.op.results[0].set_type(site.static_types()[0])
    site.expansion.note(site.op.results[0], declared, sizes)
    site.expansion.passed_through.append(site.op)


def _constant(value: Any) -> int | None:
    """Return the value of a scalar constant."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "stablehlo.constant":
        return None
    return int(next(iter(ir.DenseIntElementsAttr(op.attributes["value"]))))


@expands("stablehlo.get_dimension_size")
def get_dimension_size(site: Site) -> None:
    place = int(site.op.attributes["dimension"])
    site.replace([site.expansion.size(site.op.operands[0], place).value])


@expands("stablehlo.reshape")
def reshape(site: Site) -> None:
    """Reshape; a dropped dimension of bound 1 reads as zero where it was empty."""
    x, before, after = site.op.operands[0], site.use.operands[0], site.declared[0].extents
    dropped = {place: size for place, size in site.sizes(0).items() if is_dropped(before, after, place)}
    site.set_operand(0, masked(x, dropped, hlo.number(x.type, "0")) if dropped else x)
    site.keep()


@expands("stablehlo.dot_general")
def dot_general(site: Site) -> None:
    """Mask both operands with zeros: beyond a size, either may hold NaN."""
    numbers = DotDimensionNumbers.read(site.op.attributes["dot_dimension_numbers"])
    pairs = list(zip(numbers.lhs_contracting, numbers.rhs_contracting, strict=True))
    found = [(at, side, places[side]) for at, places in enumerate(pairs) for side in range(2)]
    sizes = agree({at: site.sizes(side)[place]} for at, side, place in found if place in site.sizes(side))
    for side in range(2) if sizes else ():
        x = site.op.operands[side]
        own = {pairs[at][side]: size for at, size in sizes.items()}
        site.set_operand(side, masked(x, own, hlo.number(x.type, "0")))
    site.keep()


@expands("stablehlo.convolution")
def convolution(site: Site) -> None:
    """Mask spatial dimensions with zeros."""
    x = site.op.operands[0]
    places = {spatial.input for spatial in Convolution.read(site.op.attributes).spatial}
    own = {place: size for place, size in site.sizes(0).items() if place in places}
    site.set_operand(0, masked(x, own, hlo.number(x.type, "0")) if own else x)
    site.keep()


NEUTRAL = {"stablehlo.add": "-0", "stablehlo.multiply": "1", "stablehlo.xor": "0"}
"""Identity of each combiner that is not idempotent: initial values in the mask would be combined many times."""


@expands("stablehlo.reduce")
def reduce(site: Site) -> None:
    """Mask with the identity of a known combiner, else with the initial value, which has to be its identity."""
    gone = integers(site.op.attributes["dimensions"])
    own = {place: size for place, size in agree(site.use.sizes).items() if place in gone}
    count = len(site.op.operands) // 2
    for at in range(count) if own else ():
        x, init = site.op.operands[at], site.op.operands[count + at]
        spelled = NEUTRAL.get(_combiner(site.op.regions[0].blocks[0], at, count))
        site.set_operand(at, masked(x, own, hlo.number(x.type, _signed(x, spelled)) if spelled else _of_type(init, x)))
    site.keep()


def _signed(x: Any, spelled: str) -> str:
    """Drop the sign of -0 for types without it; floats have a -0, which added to 0 keeps its sign, complex have two."""
    return spelled if isinstance(x.type.element_type, ir.FloatType | ir.ComplexType) else spelled.lstrip("-")


def _of_type(init: Any, x: Any) -> Any:
    """Convert the initial value to an array's element type; the two may differ in width."""
    wanted = hlo.tensor(x.type, [])
    return init if init.type == wanted else hlo.emit("stablehlo.convert", [init], [wanted])


def _combiner(block: Any, at: int, count: int) -> str:
    """Return the one operation that a combiner applies to its pair of arguments, or ""."""
    end = list(block.operations)[-1].operation
    value = end.operands[at]
    if isinstance(value.owner, ir.Block):
        return ""
    op = value.owner
    pair = [block.arguments[at], block.arguments[count + at]]
    return str(op.name) if list(op.operands) in (pair, pair[::-1]) else ""


@expands("stablehlo.reduce_window")
def reduce_window(site: Site) -> None:
    """Mask with the initial value, which also is the padding."""
    window = Window.read(site.op.attributes, len(site.use.operands[0]))
    plain = (1, 1, 1, (0, 0))
    columns = zip(window.sizes, window.strides, window.base_dilations, window.padding, strict=True)
    moved = [place for place, row in enumerate(columns) if row != plain]
    own = {place: size for place, size in agree(site.use.sizes).items() if place in moved}
    count = len(site.op.operands) // 2
    for at in range(count) if own else ():
        x = site.op.operands[at]
        site.set_operand(at, masked(x, own, _of_type(site.op.operands[count + at], x)))
    site.keep()


@expands("stablehlo.pad")
def pad(site: Site) -> None:
    """Mask with the padding value."""
    config = PaddingConfig.read(site.op.attributes)
    padded = [p for p, row in enumerate(zip(config.low, config.high, config.interior, strict=True)) if any(row)]
    own = {place: size for place, size in site.sizes(0).items() if place in padded}
    site.set_operand(0, masked(site.op.operands[0], own, site.op.operands[1]))
    site.keep()


@expands("stablehlo.concatenate")
def concatenate(site: Site) -> None:
    """Concatenate; along a dynamic dimension each part overwrites the elements beyond the size of the one before."""
    along = int(site.op.attributes["dimension"])
    if not any(along in own for own in site.use.sizes):
        return site.keep()
    parts = list(site.op.operands)
    whole, start = site.again(parts), Scalar.of(0)
    for before, part in pairwise(parts):
        start = start + site.expansion.size(before, along)
        whole = hlo.dynamic_update(whole, part, _starts(whole, {along: start}))
    return site.replace([whole])


def _starts(x: Any, chosen: Mapping[int, Size]) -> list[Any]:
    """Return start indices for an array: 0 but for the chosen dimensions."""
    return [Scalar.of(chosen.get(place, 0)).value for place in range(x.type.rank)]


@expands("stablehlo.reverse")
def reverse(site: Site) -> None:
    """Reverse the whole array, and move the elements from behind the padding to the front."""
    turned = site.again([site.op.operands[0]])
    for place in integers(site.op.attributes["dimensions"]):
        if place in site.sizes(0):
            extents = list(turned.type.shape)
            twice = hlo.tensor(turned.type, [2 * n if i == place else n for i, n in enumerate(extents)])
            along = {"dimension": hlo.i64(place)}
            doubled = hlo.emit("stablehlo.concatenate", [turned, turned], [twice], along)
            start = {place: Scalar.of(extents[place]) - site.sizes(0)[place]}
            turned = hlo.dynamic_slice(doubled, _starts(doubled, start), extents)
    site.replace([turned])


@expands("stablehlo.dynamic_slice")
def dynamic_slice(site: Site) -> None:
    """Clamp the start so that the slice ends at the size; a longer slice is padded with zeros."""
    x, extents = site.op.operands[0], site.declared[0].extents
    partial = {p: size for p, size in site.sizes(0).items() if extents[p] != site.use.operands[0][p]}
    room = {place: (size - extents[place]).most(0) for place, size in partial.items()}
    made = site.again([x, *_held(list(site.op.operands)[1:], room)])
    site.replace([masked(made, partial, hlo.number(made.type, "0")) if partial else made])


def _held(starts: Sequence[Any], room: Mapping[int, Size]) -> list[Any]:
    """Clamp start indices to the given room."""
    if not room:
        return list(starts)
    wide = [wide_enough(start) for start in starts]
    return [
        hlo.elementwise("minimum", start, as_type_of(start, room[place])) if place in room else start
        for place, start in enumerate(wide)
    ]


@expands("stablehlo.dynamic_update_slice")
def dynamic_update_slice(site: Site) -> None:
    """Clamp the start by the sizes. Of a dynamic update, only the elements within its size are written."""
    x, update = site.op.operands[0], site.op.operands[1]
    places = {*site.sizes(0), *site.sizes(1)}
    room = {p: (site.expansion.size(x, p) - site.expansion.size(update, p)).most(0) for p in sorted(places)}
    starts = _held(list(site.op.operands)[2:], room)
    own = site.sizes(1)
    if not own:
        return site.replace([site.again([x, update, *starts])])
    # The whole update is written, with the old elements beyond its size; padding keeps the starts from being clamped.
    extents, bounds = list(x.type.shape), list(update.type.shape)
    wider = resized(x, [n + bounds[i] if i in own else n for i, n in enumerate(extents)])
    mixed = masked(update, own, hlo.dynamic_slice(wider, starts, bounds))
    made = hlo.dynamic_update(wider, mixed, starts)
    return site.replace([resized(made, extents)])


@expands("stablehlo.sort")
def sort(site: Site) -> None:
    """Sort with a further mask operand; the comparator puts the elements beyond the size last."""
    place = sort_dimension(site.op)
    own = {p: size for p, size in agree(site.use.sizes).items() if p == place}
    if not own:
        return site.keep()
    seen = within(site.use.operands[0], own)
    old = site.op
    attributes = {name: old.attributes[name] for name in old.attributes}
    types = [*site.static_types(), seen.type]
    new = ir.Operation.create(old.name, types, [*old.operands, seen], attributes, regions=1)
    old.regions[0].blocks[0].append_to(new.regions[0])
    _put_last(new.regions[0].blocks[0], seen)
    return site.replace(list(new.results)[:-1])


def _put_last(block: Any, seen: Any) -> None:
    """Extend a comparator by a mask: elements within the size come first, in their order."""
    scalar = hlo.tensor(seen.type, [])
    end = list(block.operations)[-1].operation
    left, right = (block.add_argument(scalar, end.location) for _ in range(2))
    with end.location, ir.InsertionPoint(end):
        ordered = hlo.select(right, end.operands[0], left)
        first = hlo.elementwise("and", left, ordered)
        ir.Operation.create(end.name, operands=[first])
    erase(end)


@expands("stablehlo.gather")
def gather(site: Site) -> None:
    """Clamp starts so that slices end at the size; elements of longer slices, or of empty operands, read as zero."""
    numbers = GatherDimensionNumbers.read(site.op.attributes["dimension_numbers"])
    x, indices = site.op.operands[0], site.op.operands[1]
    slices = integers(site.op.attributes["slice_sizes"])
    partial = {p: s for p, s in site.sizes(0).items() if p in numbers.start_index_map and slices[p] != x.type.shape[p]}
    if not partial:
        return site.keep()
    room = [
        (partial[p] - slices[p]).most(0) if p in partial else x.type.shape[p] - slices[p]
        for p in numbers.start_index_map
    ]
    made = site.again([x, _at_most(wide_enough(indices), room, numbers.index_vector_dim)])
    left = [d for d in range(len(slices)) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    zero = hlo.number(made.type, "0")
    inside = {numbers.offset_dims[left.index(p)]: size for p, size in partial.items() if p in left}
    made = masked(made, inside, hlo.broadcast(zero, made.type.shape))
    for place, size in partial.items():
        if place not in left:
            some = hlo.compare(Scalar.of(0).value, Scalar.of(size).value)
            made = hlo.select(some, made, hlo.broadcast(zero, made.type.shape))
    return site.replace([made])


def _at_most(indices: Any, room: Sequence[Size | int], vector: int) -> Any:
    """Clamp the entries of index vectors to the given room."""
    limits = [as_type_of(indices, Scalar.of(size)) for size in room]
    if vector == indices.type.rank:
        return hlo.elementwise("minimum", indices, hlo.broadcast(limits[0], indices.type.shape))
    rows = [hlo.broadcast(limit, [1]) for limit in limits]
    along = {"dimension": hlo.i64(0)}
    row = hlo.emit("stablehlo.concatenate", rows, [hlo.tensor(indices.type, [len(rows)])], along)
    return hlo.elementwise("minimum", indices, hlo.broadcast(row, indices.type.shape, [vector]))


@expands("stablehlo.scatter")
def scatter(site: Site) -> None:
    """Point the indices beyond the size out of bounds, so that their updates are dropped."""
    numbers = ScatterDimensionNumbers.read(site.op.attributes["scatter_dimension_numbers"])
    count = len(site.op.operands) // 2
    indices = site.op.operands[count]
    others = [d for d in range(indices.type.rank) if d != numbers.index_vector_dim]
    found = [site.sizes(count)]
    for at in range(count + 1, len(site.op.operands)):
        rank = len(site.use.operands[at])
        rows = [d for d in range(rank) if d not in numbers.update_window_dims]
        found.append({others[rows.index(d)]: size for d, size in site.sizes(at).items() if d in rows})
    sizes = agree(found)
    if sizes:
        wide = wide_enough(indices)
        unsigned = wide.type.element_type.is_unsigned
        nowhere = str(2**wide.type.element_type.width - 1) if unsigned else "-1"
        site.set_operand(count, masked(wide, sizes, hlo.constant(hlo.tensor(wide.type, []), nowhere)))
    site.keep()


# ---- sizes that are operands -----------------------------------------------------------------------------------------


def _asked(site: Site, operand: int) -> dict[int, Size]:
    """Load the sizes of the result's dynamic dimensions from an operand, clamped to [0, bound]."""
    sizes, declared = site.op.operands[operand], site.declared[0]
    if not declared.dynamic or isinstance(sizes.type.element_type, ir.IndexType):
        site.use.refuse("the result needs bounds, and sizes that are integers of a known width")
    found: dict[int, Size] = {}
    for place in declared.dynamic:
        numbers = {"start_indices": place, "limit_indices": place + 1, "strides": 1}
        at = {name: ir.DenseI64ArrayAttr.get([n]) for name, n in numbers.items()}
        one = emit("stablehlo.slice", [sizes], [tensor(sizes.type, [1])], at)
        scalar = emit("stablehlo.reshape", [one], [tensor(sizes.type, [])])
        narrow = emit("stablehlo.convert", [scalar], [Scalar.of(0).value.type])
        found[place] = Scalar(narrow).most(0).least(declared.extents[place])
    return found


@expands("stablehlo.dynamic_iota")
def dynamic_iota(site: Site) -> None:
    """Emit an iota up to the bound."""
    attributes = {"iota_dimension": site.op.attributes["iota_dimension"]}
    found = _asked(site, 0)
    site.replace([emit("stablehlo.iota", [], site.static_types(), attributes)], [found])


@expands("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(site: Site) -> None:
    """Broadcast up to the bounds."""
    x, extents = site.op.operands[0], site.declared[0].extents
    places = integers(site.op.attributes["broadcast_dimensions"])
    for place, size in enumerate(x.type.shape):
        if size != extents[places[place]] and (size != 1 or place in site.sizes(0)):
            site.use.refuse(f"dimension {place} of the operand, {size}, can't become {extents[places[place]]}")
    found = _asked(site, 1)
    site.replace([broadcast(x, extents, places)], [found])


@expands("stablehlo.dynamic_reshape")
def dynamic_reshape(site: Site) -> None:
    """Reshape in row-major order: a dynamic dimension keeps its position, or is the outermost."""
    x, declared = site.op.operands[0], site.declared[0]
    found, before = _asked(site, 1), site.use.operands[0]
    if prod(before) == prod(declared.extents):
        result_sizes(Use("stablehlo.reshape", [before], [declared.extents], [site.sizes(0)], {}))
        made: Any = x
    else:
        if not _is_first(before, site.sizes(0)) or not _is_first(declared.extents, found):
            site.use.refuse("dynamic dimensions do not come before all others, and the bounds differ")
        flat = emit("stablehlo.reshape", [x], [tensor(x.type, [prod(before)])])
        made = resized(flat, [prod(declared.extents)])
    site.replace([emit("stablehlo.reshape", [made], site.static_types())], [found])


def _is_first(extents: Extents, dynamic: Iterable[int]) -> bool:
    """Whether no dimension but the first of an extent other than 1 is dynamic."""
    first = next((place for place, size in enumerate(extents) if size != 1), 0)
    return set(dynamic) <= {first}
