"""Expansion of operations whose result sizes are an operand (dynamic_iota, dynamic_reshape ...), with bounds."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.dynamic_sizes import Extents, Size, Use, result_sizes
from stablexla.dialects.hlo import broadcast, emit, tensor
from stablexla.lowering.bounded.bounded import Site, expands
from stablexla.lowering.bounded.values import Scalar, resized


def _asked(site: Site, operand: int) -> dict[int, Size]:
    """Load the sizes of the result's dynamic dimensions from an operand, clamped to [0, bound]."""
    sizes, declared = site.op.operands[operand], site.declared[0]
    if not declared.dynamic or isinstance(sizes.type.element_type, ir.IndexType):
        site.use.refuse("the result needs bounds, and sizes that are integers of a known width")
    found: dict[int, Size] = {}
    for place in declared.dynamic:
        at = {name: ir.DenseI64ArrayAttr.get([n]) for name, n in _slice(place).items()}
        one = emit("stablehlo.slice", [sizes], [tensor(sizes.type, [1])], at)
        scalar = emit("stablehlo.reshape", [one], [tensor(sizes.type, [])])
        narrow = emit("stablehlo.convert", [scalar], [Scalar.of(0).value.type])
        found[place] = Scalar(narrow).most(0).least(declared.extents[place])
    return found


def _slice(place: int) -> dict[str, int]:
    return {"start_indices": place, "limit_indices": place + 1, "strides": 1}


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
