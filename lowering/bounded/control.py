"""Bounded dynamism in loops and branches: sizes become further loop-carried values and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.bounded.bounded import Declared, Expansion, Site, expands
from stablexla.lowering.bounded.values import Scalar, size_type


@expands("stablehlo.while")
def while_(site: Site) -> None:
    """Append the sizes of the state's arrays to the state."""
    initial = [site.op.operands[i] for i in range(len(site.declared))]
    new = _with_sizes(site, [*initial, *_sizes(site, initial)])
    for number in range(2):
        block = new.regions[number].blocks[0]
        arguments = list(block.arguments)
        for argument, type_ in zip(arguments, site.static_types(), strict=True):
            argument.set_type(type_)
        added = [block.add_argument(size_type(), new.location) for declared in site.declared for _ in declared.dynamic]
        _note(site.expansion, arguments, site.declared, added)
        site.expansion.block(block)
    _return_sizes(site, new.regions[1].blocks[0])
    _take_place(site, new)


@expands("stablehlo.if", "stablehlo.case")
def branches(site: Site) -> None:
    """Append the sizes of each branch's arrays to its results."""
    new = _with_sizes(site, list(site.op.operands))
    for region in new.regions:
        block = region.blocks[0]
        site.expansion.block(block)
        _return_sizes(site, block)
    _take_place(site, new)


def _with_sizes(site: Site, operands: Sequence[ir.Value]) -> Any:
    """Clone the operation with further results for sizes, moving its regions."""
    old = site.op
    extra = [size_type() for declared in site.declared for _ in declared.dynamic]
    attributes = {name: old.attributes[name] for name in old.attributes}
    types = [*site.static_types(), *extra]
    new = ir.Operation.create(old.name, types, operands, attributes, regions=len(old.regions))
    for mine, theirs in zip(new.regions, old.regions, strict=True):
        theirs.blocks[0].append_to(mine)
    return new


def _return_sizes(site: Site, block: Any) -> None:
    """Append sizes to the values that a block returns."""
    end = list(block.operations)[-1].operation
    with end.location, ir.InsertionPoint(end):
        values = list(end.operands)
        ir.Operation.create(end.name, operands=[*values, *_sizes(site, values)])
    erase(end)


def _sizes(site: Site, values: Sequence[Any]) -> list[ir.Value]:
    """Return the sizes of values for the results' dynamic dimensions."""
    found = []
    for value, declared in zip(values, site.declared, strict=True):
        if declared.dynamic and tuple(value.type.shape) != declared.extents:
            site.use.refuse(f"a value of bounds {list(value.type.shape)} becomes one of {list(declared.extents)}")
        found += [site.expansion.size(value, place).value for place in declared.dynamic]
    return found


def _note(expansion: Expansion, values: Sequence[Any], declared: Sequence[Declared], sizes: Sequence[ir.Value]) -> None:
    """Record the sizes of each value."""
    rest = iter(sizes)
    for value, own in zip(values, declared, strict=True):
        expansion.note(value, own, {place: Scalar(next(rest)) for place in own.dynamic})


def _take_place(site: Site, new: Any) -> None:
    count = len(site.declared)
    results = list(new.results)
    for old, value in zip(site.op.results, results[:count], strict=True):
        old.replace_all_uses_with(value)
    _note(site.expansion, results[:count], site.declared, results[count:])
    site.expansion.dead.append(site.op)
