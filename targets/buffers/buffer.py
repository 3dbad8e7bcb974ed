"""Buffers: what arrays are assigned to."""

from __future__ import annotations

from dataclasses import field

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(eq=False)
class Buffer:
    """Memory of one or more arrays with disjoint live ranges.

    Attributes:
        role: "parameter", "constant", "result" or "arena".
        number: which parameter, constant or result.
        bytes: size.
        spans: live ranges of its arrays, as first and last position.
        offset: in the arena.
    """

    role: str
    bytes: int
    number: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    offset: int = 0
    owner: Buffer | None = None

    def find(self) -> Buffer:
        """Return the buffer that this one was merged into, or itself (union-find)."""
        found = self
        while found.owner is not None:
            found = found.owner
        return found

    @property
    def first(self) -> int:
        return min(s for s, _ in self.spans)

    @property
    def last(self) -> int:
        return max(e for _, e in self.spans)
