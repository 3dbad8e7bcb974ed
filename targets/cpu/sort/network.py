"""Bitonic sorting network on columns of keys, one column per lane: eight cells at a time in registers.

Every comparator puts the larger key at the higher place, so that cells beyond the end that hold the highest key stay
where they are and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions
from stablexla.targets.cpu.sort.keys import max_keys, min_keys

GROUP = 8
# Up to so many cells the loops of the network have so small trip counts that LLVM unrolls them fully.
FEW = Gate("sort.few-cells", 32, eager=1)
# Cost model: time of one comparator.
CELL_NS = 0.4
# The optimal sorting network of eight: 19 comparators, in six steps.
EIGHT = (
    ((0, 2), (1, 3), (4, 6), (5, 7)),
    ((0, 4), (1, 5), (2, 6), (3, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((2, 4), (3, 5)),
    ((1, 4), (3, 6)),
    ((1, 2), (3, 4), (5, 6)),
)


def cells_for(count: int) -> int:
    """Return how many cells a column of `count` keys is padded to: a power of two."""
    return max(GROUP, 1 << (count - 1).bit_length())


def network_ns(count: int, bits: int) -> float:
    """Estimate the time of sorting cells; a comparator of 64 bits is three instructions."""
    depth = cells_for(count).bit_length() - 1
    return count * depth * (depth + 1) / 4 * CELL_NS * bits / 32


def sort_columns(shared: SharedFunctions, cells: Value, lanes: int, count: Index, last: Index) -> None:
    """Sort the first `count` cells of a buffer; those up to 2 to the `last` must hold the highest key.

    A few cells are sorted inline, more of them by a shared function for columns of all lengths.
    """
    number = cg.known(count)
    if number is not None and number <= FEW():
        _Network(cells, lanes, cg.index(count), cg.index(last)).write()
        return
    shared.call(_SortColumns(lanes), [cells], [count, last])


@dataclass(frozen=True)
class _SortColumns(SharedFunction):
    rolled = True
    lanes: int

    @property
    def name(self) -> str:
        return f"sort_columns_{self.lanes}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        _Network(buffers[0], self.lanes, *numbers).write()


class _Network:
    """The network for `count` cells, padded to the power of two of exponent `last`."""

    def __init__(self, cells: Value, lanes: int, count: Value, last: Value) -> None:
        self.cells, self.lanes, self.count, self.last = cells, lanes, count, last

    def write(self) -> None:
        with cg.loop(0, _blocks(self.count, cg.index(GROUP))) as iteration:
            places = [iteration.iv * GROUP + t for t in range(GROUP)]
            keys = self._load(places)
            for step in EIGHT:
                for low, high in step:
                    _order(keys, low, high)
            self._store(keys, places)
        with cg.loop(4, self.last + 1) as iteration:
            self._merge(iteration.iv)

    def _merge(self, level: Value) -> None:
        """Merge runs of 2^(level - 1) cells into runs of 2^level: `level` half-cleaners, three of them per pass.

        Where the half-cleaners after the first three are no multiple of three, the next pass repeats some: a
        half-cleaner done again changes nothing.
        """
        self._flip(cg.index(1) << level)
        passes = (level - 1) // 3
        with cg.loop(0, passes) as iteration:
            self._halve(cg.index(1) << ((passes - 1 - iteration.iv) * 3))

    def _flip(self, size: Value) -> None:
        """Emit the first three half-cleaners: the first compares a run with the next one reversed."""
        quarter = size // GROUP
        with cg.loop(0, _blocks(self.count, size)) as blocks, cg.loop(0, quarter) as iteration:
            first = blocks.iv * size + iteration.iv
            last = blocks.iv * size + size - 1 - iteration.iv
            places = [*(first + quarter * t for t in range(4)), *(last - quarter * t for t in range(4))]
            keys = self._load(places)
            for t in range(4):
                _order(keys, t, 4 + t)
            for low, high in ((0, 2), (1, 3), (6, 4), (7, 5), (0, 1), (2, 3), (5, 4), (7, 6)):
                _order(keys, low, high)
            self._store(keys, places)

    def _halve(self, stride: Value) -> None:
        """Emit three half-cleaners: comparators at distances of `stride` * 4, * 2 and * 1."""
        with cg.loop(0, _blocks(self.count, stride * GROUP)) as blocks, cg.loop(0, stride) as iteration:
            first = blocks.iv * (stride * GROUP) + iteration.iv
            places = [first + stride * t for t in range(GROUP)]
            keys = self._load(places)
            apart = GROUP // 2
            while apart:
                for low in range(GROUP):
                    if not low & apart:
                        _order(keys, low, low | apart)
                apart //= 2
            self._store(keys, places)

    def _load(self, places: Sequence[Value]) -> list[Value]:
        return [cg.load(self.cells, place * self.lanes, self.lanes) for place in places]

    def _store(self, keys: Sequence[Value], places: Sequence[Value]) -> None:
        for key, place in zip(keys, places, strict=True):
            cg.store(key, self.cells, place * self.lanes)


def _order(keys: list[Value], low: int, high: int) -> None:
    keys[low], keys[high] = min_keys(keys[low], keys[high]), max_keys(keys[low], keys[high])


def _blocks(count: Value, size: Value) -> Value:
    """Return the number of blocks of a power of two that cover `count`."""
    return Value(arith.ceildivui(count.ssa, size.ssa))


def fill(cells: Value, lanes: int, low: Index, high: Index, key: int | float) -> None:
    """Store a key into the cells [low, high)."""
    least, most = cg.known(low), cg.known(high)
    if least is None or most is None or least < most:
        type_ = ir.VectorType.get([lanes], cells.element)
        with cg.loop(low, high) as iteration:
            cg.store(cg.constant(key, type_), cells, iteration.iv * lanes)
