"""How deep regions are nested. MLIR's passes, and ours, go down by recursion, which ends at the end of the stack."""

from __future__ import annotations

import sys
from typing import Any

from stablexla.dialects.errors import UnsupportedError

DEEPEST = 1000
"""How deep regions may be nested; some ten times that overflow the stack."""
CALLS = 10
"""Calls of Python that lowering rules nest for each region, and some for what is around them."""


def check_lowered_nesting(root: Any) -> None:
    """Refuse a program whose regions are nested too deep for lowering, at Python's recursion limit, before it begins.

    Raises:
        UnsupportedError: they are.
    """
    check_nesting(root, min(DEEPEST, sys.getrecursionlimit() // CALLS))


def check_nesting(root: Any, deepest: int = DEEPEST) -> None:
    """Refuse an operation of either MLIR whose regions are nested too deep; without recursion.

    Raises:
        UnsupportedError: they are.
    """
    waiting = [(root.operation, 0)]
    while waiting:
        op, depth = waiting.pop()
        check_depth(depth, deepest)
        for region in op.regions:
            for block in region.blocks:
                inner = (view.operation for view in block.operations)
                waiting += [(each, depth + 1) for each in inner if len(each.regions)]


def check_depth(depth: int, deepest: int = DEEPEST) -> None:
    """Refuse regions nested that deep.

    Raises:
        UnsupportedError: it is too deep.
    """
    if depth > deepest:
        hint = "sys.setrecursionlimit(10_000), before compiling" if deepest < DEEPEST else ""
        raise UnsupportedError(f"regions nested more than {deepest} deep", hint=hint)


def depth_in(op: Any, function: Any) -> int:
    """Return how many operations with regions are around an operation of a function."""
    depth, parent = 0, op.operation.parent
    while parent is not None and parent.operation != function.operation:
        depth, parent = depth + 1, parent.operation.parent
    return depth
