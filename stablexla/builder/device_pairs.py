"""Pairs (source, target) of devices, as they are given and as they stand in an operation."""

from __future__ import annotations

from collections.abc import Sequence

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.checking import Rules
from stablexla.builder.constants import dense_attribute
from stablexla.dialects.shapes import Shape

#: The name of the parameter, and of the attribute.
PAIRS = "source_target_pairs"
#: Pairs of numbers of devices.
Pairs = Sequence[tuple[int, int]]


def channel_number(rule: Rules, name: str, value: object) -> int:
    """The number of a channel, which has 64 bits."""
    return rule.integer(name, value)


def checked_pairs(rule: Rules, given: Pairs) -> list[tuple[int, int]]:
    """The pairs; each device sends, and gets something, at most once (C1 to C4)."""
    rows = rule.rows(PAIRS, given)
    rule("C1", all(len(row) == 2 for row in rows), f"{PAIRS} must be pairs (source, target)")
    pairs = [(row[0], row[1]) for row in rows]
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rule("C2", len(set(sources)) == len(sources), "no two pairs may have the same source")
    rule("C3", len(set(targets)) == len(targets), "no two pairs may have the same target")
    rule("C4", all(device >= 0 for device in sources + targets), "the numbers of devices are not negative")
    return pairs


def table_attribute(rows: Sequence[Sequence[int]], width: int, context: ir.Context) -> ir.Attribute:
    """Rows of one width as an attribute."""
    array = np.array(rows, np.int64).reshape(len(rows), width)
    return dense_attribute(array, ir.Type.parse(Shape("s64", array.shape).mlir, context))
