"""Vectorized loops: an unrolled main loop of several vectors, then single vectors, then a masked remainder.

The caller supplies the body, and the loop-carried accumulators, if any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.machine import CpuTarget

# The body at one place: (first index, number of active lanes or None for all, accumulators) -> accumulators.
Step = Callable[[Value, int | None, list[Value]], Sequence[Value]]
Totals = list[Value]
# The grain of parallelism: a thread is worth waking for about this much work.
WORTHWHILE_NS = Gate("parallel.worthwhile-ns", 20_000, eager=1)
MOST_UNROLLED = 4


@dataclass(frozen=True)
class LoopPart:
    """A piece [start, stop) of a loop; `start` is a multiple of `block` and `last` holds for the last piece."""

    start: Value
    stop: Value
    last: Value


def vector_loop(
    extent: int,
    lanes: int,
    step: Step,
    starts: Sequence[Totals],
    part: LoopPart | None = None,
) -> list[Totals]:
    """Emit a vectorized loop over `step`, unrolled by `len(starts)` vectors, each with accumulators of its own.

    Args:
        extent: trip count of the scalar loop.
        lanes: lanes of a vector; 0 is scalar.
        starts: the initial accumulators, for each vector of an iteration.
        part: restricts the loop to a piece; its bounds must be multiples of lanes * len(starts), except the loop's end.
    """
    width, unroll = max(1, lanes), len(starts)
    whole = extent // width
    main = whole // unroll * unroll * width
    sets = [list(s) for s in starts]
    if main:
        sets = _whole(main, width, step, sets, part)
    if main == extent:
        return sets
    if part is None:
        return _rest(extent, main, width, step, sets)
    count = len(sets[0])
    end = cg.branch(part.last, [v.type for v in flat(sets)])
    with end.then:
        end.yields(*flat(_rest(extent, main, width, step, sets)))
    with end.otherwise:
        end.yields(*flat(sets))
    return [end.results[u * count : (u + 1) * count] for u in range(unroll)]


def _whole(main: int, width: int, step: Step, sets: list[Totals], part: LoopPart | None) -> list[Totals]:
    lo, hi = (cg.index(0), cg.index(main)) if part is None else (part.start, cg.minimum(part.stop, main))

    def body(at: Value, sets: list[Totals]) -> list[Totals]:
        return [list(step(at + u * width, None, totals)) for u, totals in enumerate(sets)]

    return carried_loop(lo, hi, width * len(sets), sets, body)


def carried_loop(
    lo: Value, hi: Value, step: int, sets: list[Totals], body: Callable[[Value, list[Totals]], list[Totals]]
) -> list[Totals]:
    """Emit a loop that carries sets of accumulators; `body` gets the index and the sets, and returns the sets."""
    size = len(sets[0])

    def cut(values: Sequence[Value]) -> list[Totals]:
        return [list(values[v * size : (v + 1) * size]) for v in range(len(sets))]

    if cg.known(lo) is not None and cg.known(lo) == cg.known(hi):
        return sets
    with cg.loop(lo, hi, step, flat(sets)) as iteration:
        iteration.yields(*flat(body(iteration.iv, cut(iteration.args))))
    return cut(iteration.results)


def _rest(extent: int, main: int, width: int, step: Step, sets: list[Totals]) -> list[Totals]:
    sets = list(sets)
    for u, at in enumerate(range(main, extent, width)):
        count = extent - at
        sets[u] = list(step(cg.index(at), count if count < width else None, sets[u]))
    return sets


def flat(sets: Sequence[Totals]) -> Totals:
    """Flatten sets of accumulators, set after set."""
    return [v for totals in sets for v in totals]


def reduction_tree(sets: list[Totals], join: Callable[[Totals, Totals], Totals]) -> Totals:
    """Combine the accumulators of all sets in a reduction tree."""
    while len(sets) > 1:
        pairs = [join(a, b) for a, b in zip(sets[::2], sets[1::2], strict=False)]
        sets = pairs + sets[len(pairs) * 2 :]
    return sets[0]


def unroll_factor(cost: int, vectors: int) -> int:
    """Return the unroll factor: large for small bodies, and so that the remainder is short."""
    most = MOST_UNROLLED if cost <= 8 else 2 if cost <= 16 else 1
    while most > 1 and most > vectors:
        most //= 2
    return most


def grain_of(nanoseconds: float, items: int) -> int:
    """Return the grain: the smallest number of items of that duration that is worth a thread."""
    return max(1, min(items, round(WORTHWHILE_NS() / max(nanoseconds, 0.1))))


def estimate_ns(cost: float, elements: int, bytes_moved: int, target: CpuTarget) -> float:
    """Estimate the nanoseconds of `cost` 32-bit vector instructions at each vector of `elements` (cost model)."""
    return cost * elements / (target.vector_bits / 32) * 0.2 + bytes_moved * 0.08


@dataclass(frozen=True)
class WorkItems:
    """The work items of a loop nest: indices of some loops, and blocks of one more loop in each."""

    dims: tuple[int, ...]
    extents: tuple[int, ...]
    blocks: int = 1

    @property
    def count(self) -> int:
        """Number of work items."""
        return prod(self.extents) * self.blocks

    def split(self, item: Value) -> tuple[dict[int, Value], Value]:
        """Return the induction variables of a work item, and its block."""
        *places, block = cg.split_index(item, [*self.extents, self.blocks])
        at: dict[int, Value] = dict(zip(self.dims, places, strict=True))
        return at, block
