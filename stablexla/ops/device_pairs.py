"""Pairs (source, target) of devices, as they are given and as they stand in an operation."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.checking import Rules
from stablexla.constants import dense_attribute
from stablexla.dialects.shapes import Shape

#: The name of the parameter, and of the attribute.
PAIRS = "source_target_pairs"
#: Pairs of numbers of devices.
Pairs = Sequence[tuple[int, int]]


def channel_number(rule: Rules, name: str, value: object) -> int:
    """The number of a channel, which has 64 bits."""
    number = rule.integer(name, value)
    rule("", -(1 << 63) <= number < 1 << 63, f"{name} must fit into 64 bits")
    return number


def checked_pairs(rule: Rules, given: Pairs) -> list[tuple[int, ...]]:
    """The pairs; each device sends, and gets something, at most once (C1 to C4)."""
    pairs = checked_rows(rule, PAIRS, given)
    rule("C1", all(len(pair) == 2 for pair in pairs), f"{PAIRS} must be pairs (source, target)")
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rule("C2", len(set(sources)) == len(sources), "no two pairs may have the same source")
    rule("C3", len(set(targets)) == len(targets), "no two pairs may have the same target")
    rule("C4", all(device >= 0 for device in sources + targets), "the numbers of devices are not negative")
    return pairs


def checked_rows(rule: Rules, name: str, given: object) -> list[tuple[int, ...]]:
    """Sequences of integers."""
    try:
        return [tuple(map(index, row)) for row in given]  # type: ignore[attr-defined]  # the error is ours
    except TypeError:
        rule.broken("", f"{name} must be a sequence of sequences of integers, not {given!r}")


def table_attribute(rows: Sequence[Sequence[int]], width: int, context: ir.Context) -> ir.Attribute:
    """Rows of one width as an attribute."""
    array = np.array(rows, np.int64).reshape(len(rows), width)
    return dense_attribute(array, ir.Type.parse(Shape("s64", array.shape).mlir, context))
