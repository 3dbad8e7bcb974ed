"""Vectorized merging of sorted runs of keys: a bitonic merge network on a few vectors at a time.

The smaller half is stored; the larger one stays in registers and is merged with the next vectors of the run whose next
key is smaller. A run's last vectors are padded with the highest key, which comes after everything.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, math

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions
from stablexla.targets.cpu.sort.keys import SortKeys, highest_of, max_keys, min_keys

# Vectors of a run per iteration: an iteration depends on the one before it, and takes hardly longer for two (a million
# f64: 10.7 to 9.1 ms).
ABREAST = 2


@dataclass(frozen=True)
class RunMerger:
    """Merge two runs of a buffer into another place of it, by a shared function for all buffers of such keys.

    It may load one vector beyond the end of a run.
    """

    shared: SharedFunctions
    keys: SortKeys
    lanes: int

    def call(
        self, buffer: Value, left: tuple[Value, Value], right: tuple[Value, Value], to: Value, count: Value
    ) -> None:
        """Merge the first `count` keys, whole iterations, of two runs, each [first, end) and the left one not empty."""
        self.shared.call(_MergeRuns(self.keys.of_keys, self.lanes), [buffer], [*left, *right, to, count])


@dataclass(frozen=True)
class _MergeRuns(SharedFunction):
    rolled = True
    keys: SortKeys
    lanes: int

    @property
    def name(self) -> str:
        return f"sort_merge_{self.lanes}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        _Merge(self.keys, self.lanes, buffers[0], *numbers[:4]).write(*numbers[4:])


@dataclass(frozen=True)
class _Merge:
    """The bitonic merge of two runs of a buffer, being emitted."""

    keys: SortKeys
    lanes: int
    buffer: Value
    left: Value
    left_end: Value
    right: Value
    right_end: Value

    def write(self, to: Value, count: Value) -> None:
        """Emit two halves interleaved, to hide latency, since an iteration depends on the one before it.

        They share an iteration if their number is odd.
        """
        step = ABREAST * self.lanes
        half = (count // step + 1) // 2 * step
        before = count - half
        taken = merge_path_split(
            self.keys, self.buffer, (self.left, self.left_end), (self.right, self.right_end), before
        )
        begins = (self.left, self.right), (self.left + taken, self.right + (before - taken))
        streams = [self._next([*places, *self._heads(*places)]) for places in begins]
        size = len(streams[0][0]) + ABREAST
        with cg.loop(0, half, step, [v for state, carried in streams for v in (*state, *carried)]) as iteration:
            yielded: list[Value] = []
            for number, target in enumerate((to, to + before)):
                carried = iteration.args[number * size : (number + 1) * size]
                state, other = self._next(carried[:-ABREAST])
                turned = [cg.shuffle(v, v, list(range(self.lanes))[::-1]) for v in other[::-1]]
                pairs = list(zip(carried[-ABREAST:], turned, strict=True))
                for v, keys in enumerate(self._ordered([min_keys(a, b) for a, b in pairs])):
                    cg.store(keys, self.buffer, target + iteration.iv + v * self.lanes)
                yielded += [*state, *self._ordered([max_keys(a, b) for a, b in pairs])]
            iteration.yields(*yielded)

    def _next(self, state: list[Value]) -> tuple[list[Value], list[Value]]:
        """Load the next vectors of the run whose head is smaller; the state are the runs' positions and heads.

        The choice is unpredictable, so it is branch-free: a mask that LLVM cannot see through, as it makes branches of
        selects. The heads that may come next are loaded before it is known.
        """
        i, j, left, right = state
        from_left = left.le(right)
        here = _mask(from_left)
        here_words = cg.cast_index(here, self.keys.word)
        at, end = _either(here, i, j), _either(here, self.left_end, self.right_end)
        found = [self._filled(at + v * self.lanes, end) for v in range(ABREAST)]
        width = cg.index(ABREAST * self.lanes)
        following = self._heads(i + width, j + width)
        moved = here & width
        heads = _either(here_words, following[0], left), _either(here_words, right, following[1])
        return [i + moved, j + (width - moved), *heads], found

    def _filled(self, at: Value, end: Value) -> Value:
        """Load a vector of a run, padded with the highest key behind its end."""
        found = cg.load(self.buffer, cg.minimum(at, end), self.lanes)
        inside = cg.splat(cg.cast_index(cg.maximum(end - at, 0), self.keys.word), self.lanes)
        lane = cg.cast_index(cg.iota_vector(self.lanes), cg.vector_of(self.lanes, self.keys.word))
        return cg.select(lane.lt(inside), found, highest_of(self.keys, self.lanes))

    def _heads(self, i: Value, j: Value) -> list[Value]:
        """Load the runs' keys at i and j, as integers; the highest one behind their ends."""
        highest, found = cg.constant(self.keys.magnitude, self.keys.word), []
        for at, end in ((i, self.left_end), (j, self.right_end)):
            key = self.keys.comparable(cg.load(self.buffer, cg.minimum(at, end)))
            found.append(cg.opaque(cg.select(at.lt(end), key, highest)))
        return found

    def _ordered(self, keys: list[Value]) -> list[Value]:
        """Sort vectors that are bitonic one after the other."""
        apart = len(keys) // 2
        while apart:
            for low in (v for v in range(len(keys)) if not v & apart):
                high = low | apart
                keys[low], keys[high] = min_keys(keys[low], keys[high]), max_keys(keys[low], keys[high])
            apart //= 2
        return [self._ordered_lanes(v) for v in keys]

    def _ordered_lanes(self, keys: Value) -> Value:
        """Sort the lanes of a bitonic vector."""
        apart, lanes = self.lanes // 2, range(self.lanes)
        while apart:
            other = cg.shuffle(keys, keys, [lane ^ apart for lane in lanes])
            low, high = min_keys(keys, other), max_keys(keys, other)
            keys = cg.shuffle(low, high, [lane + self.lanes if lane & apart else lane for lane in lanes])
            apart //= 2
        return keys


def _mask(condition: Value) -> Value:
    """Return an index of all ones where the condition holds, else zero."""
    i64 = ir.IntegerType.get_signless(64)
    return cg.cast_index(cg.opaque(Value(arith.extsi(i64, condition.ssa))), cg.index(0).type)


def _either(mask: Value, yes: Value, no: Value) -> Value:
    return ((yes ^ no) & mask) ^ no


def merge_path_split(
    keys: SortKeys, buffer: Value, left: tuple[Value, Value], right: tuple[Value, Value], before: Value
) -> Value:
    """Find the merge path's split by binary search: how many keys of the left run are among the first `before` of both.

    Of equal keys the left one comes first.
    """
    of_left, of_right = left[1] - left[0], right[1] - right[0]
    least = cg.maximum(before - of_right, 0)
    most = cg.minimum(before, of_left)
    i64 = ir.IntegerType.get_signless(64)
    unused = Value(math.ctlz(cg.cast_index(most - least, i64).ssa))
    with cg.loop(0, cg.cast_index(64 - unused, cg.index(0).type), 1, [least, most]) as iteration:
        low, high = iteration.args
        half = (low + high) // 2
        open_ = low.lt(high)
        a = cg.load(buffer, left[0] + cg.minimum(half, cg.maximum(of_left - 1, 0)))
        b = cg.load(buffer, right[0] + cg.minimum(cg.maximum(before - 1 - half, 0), cg.maximum(of_right - 1, 0)))
        first = keys.comparable(a).le(keys.comparable(b))
        iteration.yields(cg.select(open_ & first, half + 1, low), cg.select(open_ & (first ^ 1), half, high))
    return iteration.results[0]
