"""Canonical form of `scf.while`: the same loop-carried values in its condition, its body and its results."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import scf

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.operations import defining, operations_named, program_of, terminator_of
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-align-loops", "makes each while loop carry the same values through condition, body and results")
def align_loops(module: ir.Module) -> None:
    """Restore unused loop results that the canonicalizer removes though the condition needs their values.

    Raises:
        CompileError: a loop whose condition forwards a value that it computed.
    """
    for op in [op for function in program_of(module) for op in operations_named(function, "scf.while")]:
        _align(op)


def _align(loop: ir.Operation) -> None:
    """Make a loop carry the same values, in the same order, through its condition, its body and its results.

    The canonicalizer removes results without users, though the condition still needs the values that they carry.
    """
    before, after = (region.blocks[0] for region in loop.regions)
    condition = terminator_of(before)
    arguments = list(before.arguments)
    go, *forwarded = condition.operands
    if forwarded == arguments:
        return
    types = [a.type for a in arguments]
    with loop.context, loop.location, ir.InsertionPoint(loop):
        made = scf.WhileOp(types, list(loop.operands))
    sources = [_source(value, before, list(made.results)) for value in forwarded]
    for old, (_, result) in zip(loop.results, sources, strict=True):
        old.replace_all_uses_with(result)
    new = [after.add_argument(t, loop.location) for t in types]
    for position, value in sources:
        after.arguments[0].replace_all_uses_with(value if position is None else new[position])
        after.erase_argument(0)
    with condition.location, ir.InsertionPoint(condition):
        scf.ConditionOp(go, arguments)
    erase(condition)
    before.append_to(made.before)
    after.append_to(made.after)
    erase(loop)


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
