"""Sorting columns of keys, one in each lane of vectors: a bitonic network, eight cells at a time in registers.

Every comparison puts the larger key at the higher place, so that cells beyond the end that hold the highest key stay
where they are and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.cpu.emission import Index, Value, constant, index, load, loop, store, when
from stablexla.targets.cpu.sort_keys import larger, smaller

GROUP = 8
# About how long two cells take to be brought in order.
CELL_NS = 0.4
# The fewest comparisons that sort eight: 19, in six steps.
EIGHT = (
    ((0, 2), (1, 3), (4, 6), (5, 7)),
    ((0, 4), (1, 5), (2, 6), (3, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((2, 4), (3, 5)),
    ((1, 4), (3, 6)),
    ((1, 2), (3, 4), (5, 6)),
)


def cells_for(count: int) -> int:
    """How many cells a column of `count` keys takes."""
    return max(GROUP, 1 << (count - 1).bit_length())


def network_ns(count: int, bits: int) -> float:
    """About how long cells take to be sorted; a comparison of 64 bits is three instructions."""
    depth = cells_for(count).bit_length() - 1
    return count * depth * (depth + 1) / 4 * CELL_NS * bits / 32


def sort_columns(cells: Value, lanes: int, count: int) -> None:
    """Sorts the first `count` cells of a buffer; those up to `cells_for(count)` must hold the highest key."""
    _Network(cells, lanes, count).write()


class _Network:
    def __init__(self, cells: Value, lanes: int, count: int) -> None:
        self.cells, self.lanes, self.count = cells, lanes, count

    def write(self) -> None:
        with loop(0, -(-self.count // GROUP)) as turn:
            places = [turn.iv * GROUP + t for t in range(GROUP)]
            keys = self._load(places)
            for step in EIGHT:
                for low, high in step:
                    _order(keys, low, high)
            self._store(keys, places)
        last = cells_for(self.count).bit_length() - 1
        with loop(4, last + 1) as turn:
            self._merge(turn.iv)

    def _merge(self, level: Value) -> None:
        """Sorted runs of 2^(level - 1) cells become runs of 2^level: `level` halvings, three of them at a time."""
        size = index(1) << level
        self._flip(size)
        rest = level - 3
        with when((rest % 3).eq(1)):
            self._halve(2, size // 16)
        with when((rest % 3).eq(2)):
            self._halve(4, size // 32)
        passes = rest // 3
        with loop(0, passes) as turn:
            self._halve(8, index(1) << ((passes - 1 - turn.iv) * 3))

    def _flip(self, size: Value) -> None:
        """The first three halvings: the first compares a run with the next one read backwards."""
        quarter = size // GROUP
        with loop(0, _blocks(self.count, size)) as blocks, loop(0, quarter) as turn:
            first = blocks.iv * size + turn.iv
            last = blocks.iv * size + size - 1 - turn.iv
            places = [*(first + quarter * t for t in range(4)), *(last - quarter * t for t in range(4))]
            keys = self._load(places)
            for t in range(4):
                _order(keys, t, 4 + t)
            for low, high in ((0, 2), (1, 3), (6, 4), (7, 5), (0, 1), (2, 3), (5, 4), (7, 6)):
                _order(keys, low, high)
            self._store(keys, places)

    def _halve(self, group: int, stride: Value) -> None:
        """Compares cells `stride` * group / 2, ..., `stride` apart."""
        with loop(0, _blocks(self.count, stride * group)) as blocks, loop(0, stride) as turn:
            first = blocks.iv * (stride * group) + turn.iv
            places = [first + stride * t for t in range(group)]
            keys = self._load(places)
            apart = group // 2
            while apart:
                for low in range(group):
                    if not low & apart:
                        _order(keys, low, low | apart)
                apart //= 2
            self._store(keys, places)

    def _load(self, places: Sequence[Value]) -> list[Value]:
        return [load(self.cells, place * self.lanes, self.lanes) for place in places]

    def _store(self, keys: Sequence[Value], places: Sequence[Value]) -> None:
        for key, place in zip(keys, places, strict=True):
            store(key, self.cells, place * self.lanes)


def _order(keys: list[Value], low: int, high: int) -> None:
    keys[low], keys[high] = smaller(keys[low], keys[high]), larger(keys[low], keys[high])


def _blocks(count: Index, size: Value) -> Value:
    """Blocks of a power of two that `count` begins."""
    return Value(arith.ceildivui(index(count).ssa, size.ssa))


def fill(cells: Value, lanes: int, low: int, high: int, key: int | float) -> None:
    """Puts a key into the cells from one on to another."""
    if low < high:
        type_ = ir.VectorType.get([lanes], cells.element)
        with loop(low, high) as turn:
            store(constant(key, type_), cells, turn.iv * lanes)
