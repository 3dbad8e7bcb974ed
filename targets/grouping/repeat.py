"""Rematerialize cheap operations before each user: iotas and fills, and element-wise ones that are not worth storing.

A difference from a mean, say, that a variance and a normalisation both use: computing it twice takes less than storing
it and loading it twice. Outlining merges copies that end up in one kernel (CSE).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.generic import TRANSPOSE
from stablexla.lowering.support.operations import body_of, is_tensor, operations_named, program_of, remap
from stablexla.targets.grouping.loops import inputs_of, is_generic, loops_of
from stablexla.targets.grouping.matchers import GENERIC, in_program_order, users_of
from stablexla.targets.grouping.patterns import pattern_pass
from stablexla.targets.pipeline.passes import module_pass

TWIN = "stablexla.twin"
# Smaller arrays stay in L2 between two kernels; for more users than these rematerialization does not pay.
LEAST_BYTES = Gate("repeat.least-bytes", 128 << 10, eager=1)
MOST_READERS, MOST_COPIES = 4, 64
# One instruction each on vectors.
CHEAP = frozenset(
    ["arith." + name for name in ("addf", "subf", "mulf", "negf", "addi", "subi")]
    + ["arith." + name for name in ("extf", "extui", "extsi", "sitofp", "uitofp")]
    + ["linalg.yield"]
)
MOST_INSTRUCTIONS = 2


@pattern_pass("stablexla-repeat-generators", "makes an iota or a fill again before each of its users", GENERIC)
def repeat_generators(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Clone an operation without tensor inputs for each of its users but the first, so that it fuses with them."""
    if len(op.results) != 1 or any(is_tensor(v) for v in inputs_of(op)):
        return None
    readers = in_program_order(map(_loop_nest_of, users_of(op.results[0])))
    if readers and readers[0].block == op.block:
        del readers[0]
    _repeat(op, readers)
    return () if readers else None


@module_pass("stablexla-repeat-cheap", "repeats cheap producers before each reader")
def repeat_cheap(module: ir.Module) -> None:
    """Clone cheap operations for each user; later operations first, as the operands of copies gain users."""
    copies = 0
    operations = [op for function in program_of(module) for op in operations_named(function, GENERIC)]
    for number, op in enumerate(filter(_is_cheap, reversed(operations))):
        readers = in_program_order(users_of(op.results[0]))
        if not 1 < len(readers) <= MOST_READERS or copies + len(readers) > MOST_COPIES:
            continue
        if any(not is_generic(reader) or reader.block != op.block for reader in readers):
            continue  # it must be in memory
        copies += len(readers)
        with op.context:
            op.attributes[TWIN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
        _repeat(op, readers[1:])


def _is_cheap(op: ir.Operation) -> bool:
    """Whether an operation reads one array of the result's size, no wider in elements, and computes little.

    A transpose does not: its copies would each be a kernel.
    """
    if TRANSPOSE in op.attributes or len(op.results) != 1:
        return False
    if len(op.regions[0].blocks[0].operations) - 1 > MOST_INSTRUCTIONS or any(o.name not in CHEAP for o in body_of(op)):
        return False
    loops, result = loops_of(op), op.results[0].type
    if any(loops.reduced) or isinstance(result.element_type, ir.ComplexType):
        return False
    size = prod(loops.extents)
    arrays = [v.type for v in inputs_of(op) if is_tensor(v)]
    large = [t for t in arrays if prod(t.shape) * 16 > size]
    if len(large) != 1 or any(isinstance(t.element_type, ir.ComplexType) for t in arrays):
        return False
    width: int = result.element_type.width
    return size * width >= 8 * LEAST_BYTES() and bool(large[0].element_type.width <= width)


def _repeat(op: ir.Operation, readers: Sequence[ir.Operation]) -> None:
    """Clone an operation before each of some users, for it alone."""
    for reader in readers:
        with op.location, ir.InsertionPoint(reader):
            copy = op.clone()
        remap(reader, {op.results[0]: copy.operation.results[0]})


def _loop_nest_of(op: ir.Operation) -> ir.Operation:
    """Return the linalg operation whose body contains `op`, such as a gather; or `op` itself."""
    nest, inside = op, op
    while inside.parent is not None:
        inside = inside.parent.operation
        if inside.name.startswith("linalg."):
            nest = inside
    return nest
