"""Localization of one operation: from whole arrays to the same operation on a device's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.targets.stablehlo.partition.axes import Axes, Axis, Sharding, axes_of, count, whole
from stablexla.targets.stablehlo.partition.emit import Emitter
from stablexla.targets.stablehlo.partition.factors import Factors, Shape, ints, value_text

SIZES = "slice_sizes"


def cut_factors(
    factors: Factors, operands: Sequence[Sharding], wanted: Sequence[Sharding] | None, sizes: Sequence[int]
) -> dict[int, Axes]:
    """Choose the axes that each factor is cut along.

    A contracting factor's are used where both operands have the same; then the results' wanted ones, then those of the
    operands, big ones first.
    """
    chosen: dict[int, Axes] = {}
    used: set[Axis] = set()

    def offer(ids: Sequence[int | None], sharding: Sharding) -> None:
        for factor, axes in zip(ids, sharding, strict=True):
            if factor is None or factor in chosen:
                continue
            free = _unused(axes, used)
            if free:
                chosen[factor] = free
                used.update(free)

    for factor in factors.sums:
        cuts = [s[ids.index(factor)] for ids, s in zip(factors.operands, operands, strict=True) if factor in ids]
        if len(cuts) > 1 and all(cut == cuts[0] for cut in cuts):
            offer([factor], (cuts[0],))
    for ids, sharding in zip(factors.results, wanted or (), strict=False):
        offer(ids, sharding)
    for i in sorted(range(len(operands)), key=lambda i: -sizes[i]):
        offer(factors.operands[i], operands[i])
    return chosen


def _unused(axes: Axes, used: set[Axis]) -> Axes:
    length = 0
    while length < len(axes) and axes[length] not in used:
        length += 1
    return axes[:length]


def sharding_by(ids: Sequence[int | None], chosen: dict[int, Axes]) -> Sharding:
    """Return the sharding of an array whose dimensions are these factors."""
    return tuple(() if factor is None else chosen.get(factor, ()) for factor in ids)


def adapt(op: Any, shapes: Sequence[Shape], parts: Sequence[Shape]) -> None:
    """Update an operation's attributes of sizes: `shapes` are its operands' global shapes, `parts` the local ones."""
    names = {"stablehlo.slice": "limit_indices", "stablehlo.dynamic_slice": SIZES, "stablehlo.gather": SIZES}
    if (name := names.get(op.name)) is not None:
        rows = zip(ints(op, name), shapes[0], parts[0], strict=True)
        op.attributes[name] = hlo.i64s([part if value == size else value for value, size, part in rows])


def constant_of(op: Any, shape: Shape) -> Any:
    """Create a splat constant of another shape at the insertion point; None where `op` is no splat."""
    is_whole = list(op.results[0].type.shape) == list(shape)
    type_ = hlo.tensor(op.results[0].type, shape)
    if isinstance(type_.element_type, hlo_ir.ComplexType):
        text = value_text(op)
        if not is_whole and not text.startswith("dense<("):
            return None
        made = hlo_ir.Operation.parse(f"stablehlo.constant {text} : {type_}")
        hlo_ir.InsertionPoint.current.insert(made)
        return made.operation.results[0]
    value = op.attributes["value"]
    if not is_whole and not (isinstance(value, hlo_ir.DenseElementsAttr) and value.is_splat):
        return None
    if not is_whole:
        value = hlo_ir.DenseElementsAttr.get_splat(type_, value.get_splat_value())
    return hlo.emit("stablehlo.constant", [], [type_], {"value": value})


def shift_iota(op: Any, sharding: Sharding, emitter: Emitter) -> Any:
    """Create an iota of the part's type, offset to the part's start; the insertion point is after it."""
    result = op.results[0]
    dimension = int(hlo_ir.IntegerAttr(op.attributes["iota_dimension"]).value)
    if not sharding[dimension]:
        return result
    start = emitter.start(sharding[dimension], result.type.shape[dimension])
    # Added as integers: the sum of two rounded numbers may differ from the rounded sum.
    extents = list(result.type.shape)
    numbers = hlo.iota(hlo.tensor(start.type, extents), dimension)
    return hlo.convert(hlo.elementwise("add", numbers, hlo.broadcast(start, extents)), result.type.element_type)


def reshaped(
    before: Shape, after: Shape, sharding: Sharding, wanted: Sharding | None
) -> tuple[Sharding, Sharding] | None:
    """Return the shardings of a reshape's operand and result that keep the same elements on each device.

    None where nothing is known, as of empty arrays.
    """
    if 0 in before:
        return None
    source: list[Axes] = list(whole(len(before)))
    target: list[Axes] = list(whole(len(after)))
    for rows, columns in _matching(before, after):
        sizes, new_sizes = [before[d] for d in rows], [after[d] for d in columns]
        axes = _leading([sharding[d] for d in rows], sizes)
        if not axes and wanted is not None:
            axes = _leading([wanted[d] for d in columns], new_sizes)
        while True:
            cuts, new_cuts = _spread(axes, sizes), _spread(axes, new_sizes)
            shared = min(sum(map(len, cuts)), sum(map(len, new_cuts)))
            if shared == len(axes):
                break
            axes = axes[:shared]
        for d, cut in zip(rows, cuts, strict=True):
            source[d] = cut
        for d, cut in zip(columns, new_cuts, strict=True):
            target[d] = cut
    used = [axis for axes in target for axis in axes]
    return (tuple(source), tuple(target)) if len(used) == len(set(used)) else None


def _matching(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return minimal runs of dimensions of both shapes with equal numbers of elements."""
    found = []
    i = j = 0
    while i < len(before) or j < len(after):
        rows: list[int] = []
        columns: list[int] = []
        one = other = 1
        while not (rows or columns) or one != other:
            if j >= len(after) or (i < len(before) and one <= other):
                one *= before[i]
                rows.append(i)
                i += 1
            else:
                other *= after[j]
                columns.append(j)
                j += 1
        found.append((rows, columns))
    return found


def _leading(cuts: Sequence[Axes], sizes: Sequence[int]) -> Axes:
    """Return the leading axes in row-major order, while each dimension before is cut completely."""
    found: Axes = ()
    for axes, size in zip(cuts, sizes, strict=True):
        found += axes
        if count(axes) < size:
            break
    return found


def _spread(axes: Axes, sizes: Sequence[int]) -> list[Axes]:
    """Distribute these axes over dimensions from the major one on; axes that do not fit are dropped."""
    cuts: list[Axes] = []
    rest = axes
    for size in sizes:
        cut: Axes = ()
        while rest and size % (count(cut) * rest[0].size) == 0:
            cut, rest = (*cut, rest[0]), rest[1:]
        cuts.append(cut)
        if count(cut) < size:
            rest = ()
    return cuts


def unshared(groups: np.ndarray[Any, Any], axes: set[Axis], devices: int) -> set[Axis]:
    """Return the axes along which the devices of some group differ."""
    rows = [[int(d) % devices for d in row if d >= 0] for row in groups]
    return {axis for axis in axes if any(len({axis.coordinates[d] for d in row}) > 1 for row in rows)}


def scattered(result: Sharding, wanted: Sharding | None, axes: Axes) -> tuple[int, Axes] | None:
    """Return the one dimension along which a sum over these axes can be reduce-scattered, and its axes in order."""
    if wanted is None or not axes or axes_of(result) & set(axes):
        return None
    more = [(d, w[len(r) :]) for d, (r, w) in enumerate(zip(result, wanted, strict=True)) if r != w]
    if len(more) != 1 or wanted[more[0][0]][: len(result[more[0][0]])] != result[more[0][0]]:
        return None
    return more[0] if set(more[0][1]) == set(axes) else None
