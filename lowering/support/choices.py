"""What the target decides about the lowering: which of several correct forms an operation takes."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass


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
        long_digits: rows from this length on are radix sorted by digits of 11 bits instead of 8: larger tables.
        parallel_row: a single row from this length on is radix sorted by several threads ...
        row_parts: ... in so many parts; likewise the most parts of a row in which a top-k is selected ...
        part_length: ... each of at least so many elements ...
        few_rows: ... where there are fewer rows than this.
        stack_bytes: buffers of a row up to this size are on the stack of the thread that sorts it.
        merge_block: elements that a merge sort sorts by itself, before it merges them.
        long_scan: scans of an unknown combiner shorter than this stay window reductions.
        scan_panel: lines adjacent in memory that are scanned together, so that their last row stays in cache.
    """

    whole_sorts: bool
    ranked_row: int
    rows_side_by_side: int
    selected_part: int
    written_window: int
    window_operations: int
    pooled_window: int
    short_window: int
    long_digits: int
    parallel_row: int
    row_parts: int
    part_length: int
    few_rows: int
    stack_bytes: int
    merge_block: int
    long_scan: int
    scan_panel: int
