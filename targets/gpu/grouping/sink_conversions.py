"""Sink conversions of small arrays into their users, instead of a kernel of their own.

A 16-bit scale that a normalisation uses in 32 would be converted by a launch, which takes longer than the conversions;
and wide elements take more bandwidth than narrow ones.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.operations import body_of, defining, program_of, walk
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.loops import is_generic, loops_of, num_inputs
from stablexla.targets.pipeline.passes import module_pass

CONVERSIONS = frozenset(["arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp"])
READERS = (Kind.MAP, Kind.ROW_REDUCTION, Kind.REDUCTION)


@module_pass("stablexla-sink-conversions", "converts small arrays to wider types where they are read")
def sink_conversions(module: ir.Module) -> None:
    """Sink widening conversions; arrays as large as the user's result are left alone: fusion converts those."""
    with module.context:
        for function in program_of(module):
            readers = [op for op in walk(function) if is_generic(op) and classify(op) in READERS]
            sunk = [_sink(op, place) for op in readers for place in range(num_inputs(op))]
            if any(sunk):
                drop_unused(function)


def _sink(op: ir.Operation, place: int) -> bool:
    """Replace an operand by its unconverted array, if it has one and is smaller than the result."""
    maker = defining(op.operands[place])
    if maker is None or not is_generic(maker) or not _is_conversion(maker):
        return False
    if op.operands[place].type.rank >= len(loops_of(op).extents):
        return False
    argument = op.regions[0].blocks[0].arguments[place]
    if not list(argument.uses):
        return False
    source = maker.operands[0]
    op.operands[place] = source
    readers = [use.owner for use in argument.uses]
    argument.set_type(source.type.element_type)
    with op.location, ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]):
        copy = body_of(maker)[0].clone()
    for reader in dict.fromkeys(readers):
        for number, value in enumerate(reader.operands):
            if value == argument:
                reader.operands[number] = copy.operation.results[0]
    copy.operation.operands[0] = argument
    return True


def _is_conversion(op: ir.Operation) -> bool:
    """Return whether an operation widens one array, element by element."""
    body = body_of(op)
    maps = loops_of(op).maps
    if len(body) != 2 or body[0].name not in CONVERSIONS or num_inputs(op) != 1 or maps[0] != maps[1]:
        return False
    block = op.regions[0].blocks[0]
    return bool(body[0].operands[0] == block.arguments[0] and body[1].operands[0] == body[0].results[0])
