"""Inlining of blocks of either MLIR, without copying their operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def inline_block(block: Any, arguments: Sequence[Any], place: Any) -> list[Any]:
    """Move a block's operations before `place`, with its arguments bound; return its terminator's operands.

    The block is left with its terminator.
    """
    for formal, argument in zip(list(block.arguments), arguments, strict=True):
        formal.replace_all_uses_with(argument)
    *operations, terminator = (view.operation for view in block.operations)
    for op in operations:
        op.move_before(place)
    return list(terminator.operands)
