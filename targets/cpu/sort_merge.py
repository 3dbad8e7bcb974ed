"""Merging sorted runs of keys a vector at a time: a bitonic network puts two vectors in order.

The smaller half is done with; the larger one stays in registers and meets the next vector of the run whose next key is
smaller. A run's last vector is filled up with the highest key, which comes after everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import func

from stablexla.targets.cpu.emission import (
    Value,
    cast_index,
    constant,
    emitting,
    index,
    load,
    loop,
    maximum,
    minimum,
    select,
    shuffle,
    splat,
    steps,
    store,
    vector_of,
)
from stablexla.targets.cpu.kernel import Kernel
from stablexla.targets.cpu.sort_keys import Keys, highest_of, larger, smaller
from stablexla.targets.cpu.target import CpuTarget


@dataclass(frozen=True)
class Merging:
    """A function that merges two runs of a buffer of `size` keys to another place of it.

    It may read one vector beyond the end of a run.
    """

    keys: Keys
    lanes: int
    size: int
    name: str

    @classmethod
    def declare(cls, kernel: Kernel, target: CpuTarget, keys: Keys, lanes: int, size: int) -> Merging:
        """Writes the function beside a kernel's."""
        made = cls(keys, lanes, size, f"{kernel.impl_name}_merge")
        with kernel.func.context, kernel.func.location:
            types = [ir.MemRefType.get([size], keys.type), *[ir.IndexType.get()] * 6]
            with ir.InsertionPoint(kernel.func):
                function = func.FuncOp(made.name, ir.FunctionType.get(types, []), visibility="private")
            function.attributes["no_inline"] = ir.UnitAttr.get()
            arguments = [Value(v) for v in function.add_entry_block().arguments]
        with emitting(function, target):
            _Merge(keys, lanes, *arguments[:5]).write(*arguments[5:])
        return made

    def call(self, buffer: Value, left: tuple[Value, Value], right: tuple[Value, Value], to: Value, count: Value) -> None:
        """The first `count` keys, whole vectors, of two runs, each [first, end) and the left one not empty."""
        operands = [buffer, *left, *right, to, count]
        func.CallOp([], self.name, [v.ssa for v in operands])


@dataclass(frozen=True)
class _Merge:
    keys: Keys
    lanes: int
    buffer: Value
    left: Value
    left_end: Value
    right: Value
    right_end: Value

    def write(self, to: Value, count: Value) -> None:
        i, j, carried = self._next(self.left, self.right)
        with loop(0, count, self.lanes, [i, j, carried]) as turn:
            i, j, other = self._next(*turn.args[:2])
            turned = shuffle(other, other, list(range(self.lanes))[::-1])
            store(self._ordered(smaller(turn.args[2], turned)), self.buffer, to + turn.iv)
            turn.yields(i, j, self._ordered(larger(turn.args[2], turned)))

    def _next(self, i: Value, j: Value) -> tuple[Value, Value, Value]:
        """The next vector, and where the runs go on."""
        from_left = self._head(i, self.left_end).le(self._head(j, self.right_end))
        at = select(from_left, i, j)
        end = select(from_left, self.left_end, self.right_end)
        found = load(self.buffer, minimum(at, end), self.lanes)
        inside = splat(cast_index(maximum(end - at, 0), self.keys.type), self.lanes)
        lane = cast_index(steps(self.lanes), vector_of(self.lanes, self.keys.type))
        found = select(lane.lt(inside), found, highest_of(self.keys, self.lanes))
        width = index(self.lanes)
        return select(from_left, i + width, i), select(from_left, j, j + width), found

    def _head(self, at: Value, end: Value) -> Value:
        """The key at a place of a run; the highest one behind its end."""
        found = load(self.buffer, minimum(at, end))
        return select(at.lt(end), found, constant(self.keys.highest, self.keys.type))

    def _ordered(self, keys: Value) -> Value:
        """A bitonic vector in order."""
        apart, lanes = self.lanes // 2, range(self.lanes)
        while apart:
            other = shuffle(keys, keys, [lane ^ apart for lane in lanes])
            low, high = smaller(keys, other), larger(keys, other)
            keys = shuffle(low, high, [lane + self.lanes if lane & apart else lane for lane in lanes])
            apart //= 2
        return keys


def cut(buffer: Value, left: tuple[Value, Value], right: tuple[Value, Value], before: Value, longest: int) -> Value:
    """How many keys of the left run are among the first `before` of both; of equal keys the left one comes first.

    Neither run has more than `longest`.
    """
    of_left, of_right = left[1] - left[0], right[1] - right[0]
    least = maximum(before - of_right, 0)
    most = minimum(before, of_left)
    with loop(0, longest.bit_length(), 1, [least, most]) as turn:
        low, high = turn.args
        half = (low + high) // 2
        open_ = low.lt(high)
        a = load(buffer, left[0] + minimum(half, maximum(of_left - 1, 0)))
        b = load(buffer, right[0] + minimum(maximum(before - 1 - half, 0), maximum(of_right - 1, 0)))
        first = a.le(b)
        turn.yields(select(open_ & first, half + 1, low), select(open_ & (first ^ 1), half, high))
    return turn.results[0]
