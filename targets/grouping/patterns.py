"""Passes of one rewrite pattern: a function for operations of a name, refusals first, that MLIR's driver calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir
from mlir import rewrite

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import program_of
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.pipeline.passes import module_pass

Pattern = Callable[..., Sequence[ir.Value] | None]


def pattern_pass(name: str, summary: str, *roots: str) -> Callable[[Pattern], Pattern]:
    """Register a rewrite pattern as a pass over the program; what it leaves without a user is dropped.

    The pattern takes an operation of a name in `roots`, with the insertion point before it, and the pass's options by
    keyword. It returns None where it does not match, after which the program must be as before; the values that
    replace the operation's results; or () where it has changed the operation in place.
    """

    def register(pattern: Pattern) -> Pattern:
        @functools.wraps(pattern)
        def rewrite_program(module: ir.Module, **options: Any) -> None:
            for function in program_of(module):
                if apply_pattern(function, roots, functools.partial(pattern, **options)):
                    drop_unused(function)

        module_pass(name, summary)(rewrite_program)
        return pattern

    return register


def apply_pattern(function: ir.Operation, roots: Sequence[str], pattern: Pattern) -> bool:
    """Apply a pattern once to each operation of a name in `roots`, producers first; return whether it matched any.

    Operations that it makes are not visited. It may erase the operation and those before it in its block.
    """
    matched = False

    def rewritten(view: Any, _: rewrite.PatternRewriter) -> bool:
        nonlocal matched
        op = view.operation
        with op.location, ir.InsertionPoint(op):
            made = pattern(op)
        if made is None:
            return True  # the driver's word for no match
        matched = True
        if made:
            for old, new in zip(op.results, made, strict=True):
                old.replace_all_uses_with(new)
            erase(op)
        return False

    patterns = rewrite.RewritePatternSet(function.context)
    for root in roots:
        patterns.add(root, rewritten)
    rewrite.walk_and_apply_patterns(function, patterns.freeze())
    return matched
