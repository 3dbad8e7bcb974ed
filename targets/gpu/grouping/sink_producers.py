"""Fuse cheap producers into column reductions, although they have other users (rematerialization).

A mean and then a variance would store an array between them, and load it again: loading its inputs takes no longer.
Rows along the last dimension are left alone: they stay in registers between passes.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import body_of, defining, inline_body, is_tensor, program_of, walk
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.loops import is_generic, loops_of, num_inputs
from stablexla.targets.pipeline.passes import module_pass

CHEAP = frozenset(
    f"arith.{name}" for name in ("addf", "subf", "mulf", "extf", "truncf", "negf", "addi", "subi", "muli", "sitofp")
)
MOST_OPERATIONS = 8
MOST_ARRAYS = 2
"""Arrays loaded instead of the one stored before, at most."""


@module_pass("stablexla-sink-producers", "has reductions make anew what they read, where that is cheap")
def sink_producers(module: ir.Module) -> None:
    """Fuse elementwise operations of arrays of at most the same size into the bodies of reductions."""
    with module.context:
        for function in program_of(module):
            readers = [op for op in walk(function) if is_generic(op)]  # before any of them is erased
            sunk = [_sink_into(op) for op in readers]
            if any(sunk):
                drop_unused(function)


def _sink_into(op: ir.Operation) -> bool:
    """Fuse producers into an operation as long as there are any; return whether there were."""
    changed = False
    while (made := _with_producer(op)) is not None:
        for old, new in zip(op.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        erase(op)
        op, changed = made, True
    return changed


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
        maker = defining(op.operands[place])
        if maker is not None and is_generic(maker) and _is_cheap(maker) and maker.block == op.block:
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
    values = [*(op.operands[n] for n in kept), *list(maker.operands)[:inputs]]
    places = [*(maps[n] for n in kept), *inner]
    unique = list(dict.fromkeys(zip(values, places, strict=True)))
    size = prod(op.operands[place].type.shape)
    arrays = [v for v, _ in unique if is_tensor(v) and prod(v.type.shape) == size]
    if not 1 <= len(arrays) <= MOST_ARRAYS or len(body_of(op)) + len(body_of(maker)) > 2 * MOST_OPERATIONS:
        return None
    if not _are_seen(len(loops_of(op).extents), [m for _, m in unique]):
        return None
    outputs = list(op.operands)[count:]
    operands = [*(v for v, _ in unique), *outputs]
    attributes = dict(op.attributes.items())
    read = [m for _, m in unique]
    attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*read, *maps[count:])])
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(unique), len(outputs)])
    with op.location, ir.InsertionPoint(op):
        made = ir.Operation.create(
            "linalg.generic",
            results=[r.type for r in op.results],
            operands=operands,
            attributes=attributes,
            regions=1,
        )
        types = [v.type.element_type if is_tensor(v) else v.type for v in operands]
        block = made.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    by_place = dict(zip(unique, block.arguments, strict=False))
    arguments = [by_place[pair] for pair in zip(values, places, strict=True)]
    with op.location, ir.InsertionPoint(block):
        given = arguments[: len(kept)]
        given[place:place] = inline_body(maker, arguments[len(kept) :])
        results = inline_body(op, [*given, *list(block.arguments)[len(unique) :]])
        ir.Operation.create("linalg.yield", operands=results)
    if classify(made) is Kind.CONTRACTION:
        erase(made)
        return None
    return made


def _composed(inner: ir.AffineMap, outer: ir.AffineMap) -> ir.AffineMap:
    """Compose affine maps: inner after outer."""
    return ir.AffineMap.get(outer.n_dims, 0, [ir.AffineExpr.compose(e, outer) for e in inner.results])


def _are_seen(loops: int, maps: list[ir.AffineMap]) -> bool:
    """Return whether each loop alone indexes a dimension of some array."""
    seen = {e.position for m in maps for e in m.results if isinstance(e, ir.AffineDimExpr)}
    return seen == set(range(loops))
