"""Rematerialize cheap element-wise operations before each user, so that their results are not stored.

A difference from a mean, say, that a variance and a normalisation both use: computing it twice takes less than storing
it and loading it twice. Outlining merges copies that end up in one kernel (CSE).
"""

from __future__ import annotations

from functools import cmp_to_key
from math import prod

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.operations import body_of, is_tensor, program_of, remap, walk
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass

TWIN = "stablexla.twin"
# Smaller arrays stay in L2 between two kernels; for more users than these rematerialization does not pay.
LEAST_BYTES = Gate("repeat.least-bytes", 128 << 10, eager=1)
MOST_READERS, MOST_COPIES = 4, 64
# One instruction each on vectors.
CHEAP = frozenset(
    ["arith." + name for name in ("addf", "subf", "mulf", "negf", "addi", "subi", "extf", "extui", "extsi", "sitofp")]
    + ["linalg.yield"]
)
MOST_INSTRUCTIONS = 2


@module_pass("stablexla-repeat-cheap", "repeats cheap producers before each reader")
def repeat_cheap(module: ir.Module) -> None:
    """Clone cheap operations for each user; later operations first, as the operands of copies gain users."""
    copies = 0
    for number, op in enumerate(reversed([op for function in program_of(module) for op in walk(function)])):
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
    """Whether an operation reads one array of the result's size, no wider in elements, and computes little."""
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
    return size * width >= 8 * LEAST_BYTES() and bool(large[0].element_type.width <= width)


def _readers(op: ir.Operation) -> list[ir.Operation] | None:
    """Return the result's users in program order; None when it must be in memory, or has too many."""
    users = {use.owner.operation for use in op.results[0].uses}
    if not 1 < len(users) <= MOST_READERS or any(not is_generic(u) or u.block != op.block for u in users):
        return None
    return sorted(users, key=cmp_to_key(_order))


def _order(one: ir.Operation, other: ir.Operation) -> int:
    """Compare two operations of a block by order; MLIR numbers them once, iterating the block takes 1 us for each."""
    return 0 if one == other else -1 if one.is_before_in_block(other) else 1
