"""Registry of expansions: rules that rewrite an operation to loops that apply its computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Expansion = Callable[[Any], Sequence[Any] | None]
EXPANSIONS: dict[str, Expansion] = {}


def expands(name: str) -> Callable[[Expansion], Expansion]:
    """Register an expansion for operations of that name.

    It creates the results before the operation, whose computations it may move, and returns them; None leaves the
    operation as it is.
    """

    def register(rule: Expansion) -> Expansion:
        assert name not in EXPANSIONS, f"two expansions of {name}"
        EXPANSIONS[name] = rule
        return rule

    return register
