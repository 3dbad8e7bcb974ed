"""Safe erasure of operations of either MLIR, which aborts the process where a result still has uses."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from stablexla.dialects.errors import CompileError

only_ours: ContextVar[bool] = ContextVar("stablexla_only_ours", default=False)
"""Whether no pass, rule or emitter but this package's takes part. Modules are valid then: no value of a region has uses
outside, for which `erase` does not look."""


def erase(op: Any) -> None:
    """Erase an operation of either MLIR with all nested ones. MLIR aborts the process where a result still has uses.

    Raises:
        CompileError: an operation elsewhere uses a value of it, or one that is made inside it; it stays.
    """
    op = op.operation
    for value in op.results if only_ours.get() else _seen_outside(op):
        for use in value.uses:
            if not _is_inside(use.owner.operation, op):
                user, place = use.owner.operation.name, str(op.location)
                raise CompileError(f"{op.name} must not be erased: {user} uses what it makes", diagnostics=(place,))
    destroy(op)


def erase_unused(op: Any) -> None:
    """Erase an operation of a verified module whose results have no uses: those of what is nested in it are in it."""
    destroy(op)


destroy: Callable[[Any], None] = operator.methodcaller("erase")
"""Destroys an operation; in tests it leaves a tombstone, which finds use after erasure (tests/tombstones.py)."""


def _seen_outside(op: Any) -> Iterator[Any]:
    """Yield an operation's results, and values nested in it, except in functions: the verifier isolates those."""
    yield from op.results
    for region in op.regions if len(op.regions) else ():  # the end of an empty one is an exception in C++, 2 us
        for block in region.blocks:
            yield from block.arguments
            for view in block.operations if op.name not in _ISOLATED else ():
                yield from _seen_outside(view.operation)


_ISOLATED = ("func.func", "gpu.func", "gpu.module", "llvm.func")


def _is_inside(op: Any, holder: Any) -> bool:
    """Whether an operation is nested in another one."""
    while op.parent is not None:
        op = op.parent.operation
        if op == holder:
            return True
    return False
