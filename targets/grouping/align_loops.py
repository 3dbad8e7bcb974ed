"""Canonical form of `scf.while`: the same loop-carried values in its condition, its body and its results."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.operations import defining, terminator_of
from stablexla.targets.grouping.patterns import pattern_pass


@pattern_pass(
    "stablexla-align-loops",
    "makes each while loop carry the same values through condition, body and results",
    "scf.while",
)
def align_loops(loop: ir.Operation) -> Sequence[ir.Value] | None:
    """Make a loop carry the same values, in the same order, through its condition, its body and its results.

    The canonicalizer removes results without users, though the condition still needs the values that they carry.

    Raises:
        CompileError: a loop whose condition forwards a value that it computed.
    """
    before, after = (region.blocks[0] for region in loop.regions)
    condition = terminator_of(before)
    arguments = list(before.arguments)
    go, *forwarded = condition.operands
    if forwarded == arguments:
        return None
    made = scf.WhileOp([a.type for a in arguments], list(loop.operands))
    sources = [_source(value, before, list(made.results)) for value in forwarded]
    for old, (_, result) in zip(loop.results, sources, strict=True):
        old.replace_all_uses_with(result)
    new = [after.add_argument(a.type, loop.location) for a in arguments]
    for position, value in sources:
        after.arguments[0].replace_all_uses_with(value if position is None else new[position])
        after.erase_argument(0)
    with condition.location, ir.InsertionPoint(condition):
        scf.ConditionOp(go, arguments)
    erase(condition)
    before.append_to(made.before)
    after.append_to(made.after)
    erase(loop)
    return ()


def _source(value: ir.Value, before: ir.Block, results: list[ir.Value]) -> tuple[int | None, ir.Value]:
    """Return a forwarded value's position among the condition's arguments, if any, and its value after the loop."""
    arguments = list(before.arguments)
    if value in arguments:
        position = arguments.index(value)
        return position, results[position]
    maker = defining(value)
    if maker is not None and maker.block == before:
        raise CompileError(f"the condition of a loop hands on what it computed: {maker.name}")
    return None, value
