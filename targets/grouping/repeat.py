"""Cheap element-wise operations are repeated before each reader, so that their results need not lie in memory.

A difference from a mean, say, that a variance and a normalisation both read: it takes less to compute it twice than to
write it down and to read it twice. Copies that come into one kernel after all are made one again by outlining.
"""

from __future__ import annotations

from functools import cmp_to_key
from math import prod

import mlir.ir as ir

from stablexla.lowering.support.operations import body_of, is_tensor, main_of, remap, walk
from stablexla.targets.grouping.classify import is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass

TWIN = "stablexla.twin"
# Smaller arrays stay in the second-level cache between two kernels; more readers than these are no longer cheap.
LEAST_BYTES, MOST_READERS, MOST_COPIES = 128 << 10, 4, 64
# One instruction each on vectors.
CHEAP = frozenset(
    ["arith." + name for name in ("addf", "subf", "mulf", "negf", "addi", "subi", "extf", "extui", "extsi", "sitofp")]
    + ["linalg.yield"]
)
MOST_INSTRUCTIONS = 2


@module_pass("stablexla-repeat-cheap", "repeats cheap producers before each reader")
def repeat_cheap(module: ir.Module) -> None:
    """Gives each reader of a cheap operation a copy of its own; later operations first, as copies have operands."""
    copies = 0
    for number, op in enumerate(reversed(walk(main_of(module)))):
        if not is_generic(op) or not _is_cheap(op):
            continue
        readers = _readers(op)
        if readers is None or copies + len(readers) > MOST_COPIES:
            continue
        copies += len(readers)
        with op.context, op.location:
            op.attributes[TWIN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
            for reader in readers[1:]:
                with ir.InsertionPoint(reader):
                    copy = op.clone()
                remap(reader, {op.results[0]: copy.operation.results[0]})


def _is_cheap(op: ir.Operation) -> bool:
    """Whether one array of the result's size is read, of elements no wider than the result's, and little is done."""
    body = body_of(op)
    if len(op.results) != 1 or len(body) - 1 > MOST_INSTRUCTIONS or any(o.name not in CHEAP for o in body):
        return False
    loops, result = loops_of(op), op.results[0].type
    if any(loops.reduced) or isinstance(result.element_type, ir.ComplexType):
        return False
    size = prod(loops.extents)
    arrays = [v.type for v in list(op.operands)[: loops.num_inputs] if is_tensor(v)]
    large = [t for t in arrays if prod(t.shape) * 16 > size]
    if len(large) != 1 or any(isinstance(t.element_type, ir.ComplexType) for t in arrays):
        return False
    width: int = result.element_type.width
    return size * width >= 8 * LEAST_BYTES and bool(large[0].element_type.width <= width)


def _readers(op: ir.Operation) -> list[ir.Operation] | None:
    """Those who read the result, in program order; None when it has to lie in memory, or has too many of them."""
    users = {use.owner.operation for use in op.results[0].uses}
    if not 1 < len(users) <= MOST_READERS or any(not is_generic(u) or u.block != op.block for u in users):
        return None
    return sorted(users, key=cmp_to_key(_order))


def _order(one: ir.Operation, other: ir.Operation) -> int:
    """The order of two operations of one block; MLIR numbers them once, where to walk the block takes 1 us for each."""
    return 0 if one == other else -1 if one.is_before_in_block(other) else 1
