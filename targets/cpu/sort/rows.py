"""The common parts of row sorts: loading elements as keys, storing keys as elements, and what keys do not show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir.dialects import vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.sort.keys import SortKeys, highest_of


@dataclass(frozen=True)
class KeyVectors:
    """Vectors of elements as keys, and back."""

    keys: SortKeys
    lanes: int

    def load(self, source: Value, at: Value, count: Index) -> tuple[Value, Value]:
        """Load contiguous elements as keys, with the bits that keys lose; lanes from `count` on get the highest key."""
        keys = self.keys
        bits = keys.as_bits(cg.load_lanes(source, at, self.lanes, count))
        canonical = keys.canonical(bits)
        made = keys.of_bits(canonical)
        number, highest = cg.known(count), highest_of(keys, self.lanes)
        if number is None:
            made = cg.select(cg.mask(self.lanes, count), made, highest)
        elif number < self.lanes:
            made = _where([lane < number for lane in range(self.lanes)], made, highest)
        return made, bits ^ canonical

    def store(self, key: Value, result: Value, at: Value, count: Index) -> None:
        """Store keys as elements."""
        cg.store_lanes(self.keys.as_elements(self.keys.to_bits(key)), result, at, count)

    def zeros(self) -> Value:
        """Return a vector without bits set."""
        return cg.constant(0, cg.vector_of(self.lanes, self.keys.word))

    def along(self, count: Index, step: Callable[[Value, Index, Value], Value]) -> Value:
        """Emit `step(at, count, carried)` for the vectors of a row; the last one may overlap the one before.

        Returns:
            The loop-carried value, which begins with `zeros`.
        """
        number = cg.known(count)
        if number is None:
            with cg.loop(0, count, self.lanes, [self.zeros()]) as iteration:
                part = cg.minimum(count - iteration.iv, self.lanes)
                iteration.yields(step(iteration.iv, part, iteration.args[0]))
            return iteration.results[0]
        if number < self.lanes:
            return step(cg.index(0), number, self.zeros())
        with cg.loop(0, number, self.lanes, [self.zeros()]) as iteration:
            at = iteration.iv if number % self.lanes == 0 else cg.minimum(iteration.iv, number - self.lanes)
            iteration.yields(step(at, self.lanes, iteration.args[0]))
        return iteration.results[0]


@dataclass(frozen=True)
class SortRows(KeyVectors):
    """The rows of one array to be sorted."""

    rows: int
    length: int

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Pairs (result, input) that may share a buffer; none where alike elements are reloaded after the sort."""
        return () if self.keys.has_alike else ((0, 0),)


def _where(inside: Sequence[bool], yes: Value, no: Value) -> Value:
    lanes = len(inside)
    return cg.shuffle(yes, no, [lane if there else lane + lanes for lane, there in enumerate(inside)])


def any_bit(bits: Value) -> Value:
    """Return whether a vector has any bit set."""
    return cg.reduce(bits, vector.CombiningKind.OR).ne(0)


@dataclass(frozen=True)
class RestoreAlike:
    """Restore zeros and NaNs in a sorted row, whose keys kept one form of each only.

    The keys are integers: NaNs have one of their own.
    """

    keys: SortKeys
    source: Value
    result: Value
    first: Value
    length: Index
    stride: Index = 1

    def write(self) -> None:
        alike = [bits for bits, there in ((0, self.keys.zeros_alike), (self.keys.nan, self.keys.nans_alike)) if there]
        numbers = [cg.constant(bits, self.keys.word) for bits in alike]
        marks = [self.keys.of_bits(number) for number in numbers]
        with cg.loop(0, self.length, 1, [cg.index(0)] * len(alike)) as iteration:
            key = self.keys.of_bits(self._canonical(iteration.iv))
            iteration.yields(
                *(count + _one_if(key.lt(mark)) for count, mark in zip(iteration.args, marks, strict=True))
            )
        with cg.loop(0, self.length, 1, iteration.results) as iteration:
            bits = self._canonical(iteration.iv)
            places = []
            for place, number in zip(iteration.args, numbers, strict=True):
                same = bits.eq(number)
                with cg.when(same):
                    cg.store(cg.load(self.source, self._at(iteration.iv)), self.result, self._at(place))
                places.append(place + _one_if(same))
            iteration.yields(*places)

    def _canonical(self, at: Value) -> Value:
        return self.keys.canonical(self.keys.as_bits(cg.load(self.source, self._at(at))))

    def _at(self, place: Value) -> Value:
        return place * self.stride + self.first


def _one_if(condition: Value) -> Value:
    return cg.select(condition, cg.index(1), cg.index(0))
