"""What the target decides about the lowering: which of several correct forms an operation takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choices:
    """Thresholds between forms; every value gives a correct program. The target's numbers are in its lowering pass.

    Attributes:
        whole_sorts: each sort is one kernel, for a target that has its own ways to sort.
        ranked_row: rows up to this length are sorted by counting the elements that come before each.
        rows_side_by_side: from so many rows on, single arrays are sorted by vectorized networks instead.
        selected_part: a top-k of more than one element in so many sorts the whole row.
        written_window: windows up to this many elements are written out as one pass over shifted copies ...
        window_operations: ... if their combiners together are at most this many operations.
        pooled_window: windows up to this many elements become a pooling kernel, where one applies.
        short_window: windows of one dimension up to this length are not split into parts.
    """

    whole_sorts: bool
    ranked_row: int
    rows_side_by_side: int
    selected_part: int
    written_window: int
    window_operations: int
    pooled_window: int
    short_window: int
