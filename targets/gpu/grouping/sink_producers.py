"""Fuse cheap producers into column reductions, although they have other users (rematerialization).

A mean and then a variance would store an array between them, and load it again: loading its inputs takes no longer.
Rows along the last dimension are left alone: they stay in registers between passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.generic import loop_nest
from stablexla.lowering.support.operations import body_of, inline_body, is_tensor
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.loops import inputs_of, loops_of, num_inputs
from stablexla.targets.grouping.matchers import GENERIC, made_by
from stablexla.targets.grouping.patterns import pattern_pass

CHEAP = frozenset(
    f"arith.{name}" for name in ("addf", "subf", "mulf", "extf", "truncf", "negf", "addi", "subi", "muli", "sitofp")
)
MOST_OPERATIONS = 8
MOST_ARRAYS = 2
"""Arrays loaded instead of the one stored before, at most."""


@pattern_pass("stablexla-sink-producers", "has reductions make anew what they read, where that is cheap", GENERIC)
def sink_producers(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Fuse elementwise operations of arrays of at most the same size into the bodies of reductions."""
    last = op
    while (made := _with_producer(last)) is not None:
        if last != op:
            erase(last)
        last = made
    return None if last == op else list(last.results)


def _is_reader(op: ir.Operation) -> bool:
    """Return whether an operation reduces, but not the last dimensions alone."""
    if classify(op) not in (Kind.REDUCTION, Kind.GENERAL):
        return False
    if any(o.name.split(".")[0] not in ("arith", "math") and o.name != "linalg.yield" for o in body_of(op)):
        return False
    loops = loops_of(op)
    places = [n for n, reduced in enumerate(loops.reduced) if reduced]
    return bool(places) and loops.maps[0].is_projected_permutation and len(op.results) == 1


def _with_producer(op: ir.Operation) -> ir.Operation | None:
    """Return the reduction with the producer of one of its operands fused; None if there is none to fuse."""
    if not _is_reader(op):
        return None
    for place in range(num_inputs(op)):
        maker = made_by(op.operands[place], GENERIC)
        if maker is not None and maker.block == op.block and _is_cheap(maker):
            made = _fused(op, place, maker)
            if made is not None:
                return made
    return None


def _is_cheap(op: ir.Operation) -> bool:
    """Return whether an operation is elementwise, of a few cheap operations."""
    if classify(op) is not Kind.MAP or len(op.results) != 1 or not loops_of(op).in_order:
        return False
    *body, _ = body_of(op)
    return len(body) <= MOST_OPERATIONS and all(o.name in CHEAP or o.name == "arith.constant" for o in body)


def _fused(op: ir.Operation, place: int, maker: ir.Operation) -> ir.Operation | None:
    """Fuse `maker`'s body before `op`'s, or None if more would be loaded, or a contraction would result."""
    count, inputs = num_inputs(op), num_inputs(maker)
    maps = list(loops_of(op).maps)
    inner = [_composed(m, maps[place]) for m in loops_of(maker).maps[:inputs]]
    kept = [n for n in range(count) if n != place]
    values = [*(op.operands[n] for n in kept), *inputs_of(maker)]
    places = [*(maps[n] for n in kept), *inner]
    unique = list(dict.fromkeys(zip(values, places, strict=True)))
    size = prod(op.operands[place].type.shape)
    arrays = [v for v, _ in unique if is_tensor(v) and prod(v.type.shape) == size]
    if not 1 <= len(arrays) <= MOST_ARRAYS or len(body_of(op)) + len(body_of(maker)) > 2 * MOST_OPERATIONS:
        return None
    seen = {e.position for _, m in unique for e in m.results if isinstance(e, ir.AffineDimExpr)}
    if len(seen) < maps[0].n_dims:  # each loop alone indexes a dimension of some array
        return None

    def body(elements: Sequence[ir.Value]) -> list[ir.Value]:
        by_place = dict(zip(unique, elements, strict=False))
        arguments = [by_place[pair] for pair in zip(values, places, strict=True)]
        given = arguments[: len(kept)]
        given[place:place] = inline_body(maker, arguments[len(kept) :])
        return inline_body(op, [*given, *elements[len(unique) :]])

    read = [*(m for _, m in unique), *maps[count:]]
    attributes = dict(op.attributes.items())
    made = loop_nest(
        [*(v for v, _ in unique), *list(op.operands)[count:]],
        len(unique),
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in read]),
        attributes["iterator_types"],
        body,
        attributes,
    )
    if classify(made) is Kind.CONTRACTION:
        erase(made)
        return None
    return made


def _composed(inner: ir.AffineMap, outer: ir.AffineMap) -> ir.AffineMap:
    """Compose affine maps: inner after outer."""
    return ir.AffineMap.get(outer.n_dims, 0, [ir.AffineExpr.compose(e, outer) for e in inner.results])
