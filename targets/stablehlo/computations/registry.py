"""The registry of expansions: how an operation is written that applies its computation in loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Expansion = Callable[[Any], Sequence[Any] | None]
EXPANSIONS: dict[str, Expansion] = {}


def expands(name: str) -> Callable[[Expansion], Expansion]:
    """Registers an expansion for operations of that name.

    It writes the results before the operation, whose computations it may move away, and returns them; None leaves the
    operation as it is.
    """

    def register(rule: Expansion) -> Expansion:
        assert name not in EXPANSIONS, f"two expansions of {name}"
        EXPANSIONS[name] = rule
        return rule

    return register
