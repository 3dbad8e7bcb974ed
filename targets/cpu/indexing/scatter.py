"""Emit scatters: windows of updates combined into an array, each element with its updates in their order.

A thread owns a range of the places at which windows may begin. It lists the updates that begin there, a block of them
at a time and branch-free, and then combines these: so no element is shared (no atomics), and the result is that of one
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd, prod

import mlir.ir as ir
from mlir.dialects import arith, math, vector

from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.scatter import ScatterConfig, ScatterLoop, ScatterStart, ScatterWindowLoop
from stablexla.lowering.rules.shape import as_index
from stablexla.lowering.support.storage import from_storage
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import COMBINER, Refusal, refuse
from stablexla.targets.codegen.sizes import bytes_of, element_bytes
from stablexla.targets.codegen.vector_loops import WORTHWHILE_NS, unroll_factor, vector_loop
from stablexla.targets.cpu.emitters import emitter

LINE = 64
# Updates listed at a time: the list is 8 KiB, and stays in L1 beside the rows.
BLOCK = Gate("scatter.block", 2048, eager=8)
# Threshold for vectorized listing: 0.2 ns for each window where one by one takes 1.3 (measured on Zen 3).
MANY = Gate("scatter.many", 256, eager=1)
# Prefetch distance in windows, at least, and the most cache lines of a window's place and of its updates.
LEAST_AHEAD, MOST_LINES = 2, 4
# Cost model: the time of testing an index, and of combining an element by itself; on Zen 3, operands in the caches.
LOOK_NS, ELEMENT_NS = 0.5, 1.5


@dataclass(frozen=True)
class _Plan:
    """The loop nest of a scatter.

    Attributes:
        count: how many windows there are.
        index_step, update_step: elements between the vectors of two windows, and between their updates.
        operand_step: further stride between windows in the operand; not 0 where windows are batched.
        unit, places: windows begin at multiples of `unit`, of which there are `places`.
        unique: no two windows begin at one place, so that threads share the windows instead of the places.
        window: its loops.
        lanes: of vectors along the last of them; 0 is scalar.
        lines: how many cache lines of a window's place and of its updates to prefetch.
        ahead: the prefetch distance in windows.
        combiner: of an element and its update.
    """

    count: int
    index_step: int
    operand_step: int
    update_step: int
    starts: tuple[ScatterStart, ...]
    index_type: ElementType
    unit: int
    places: int
    unique: bool
    window: tuple[ScatterWindowLoop, ...]
    lanes: int
    lines: tuple[int, int]
    ahead: int
    combiner: ElementCombiner

    @property
    def across(self) -> bool:
        """Whether windows are the inner loop: contiguous elements of the operand belong to different windows."""
        return bool(self.window) and self.window[-1].operand_step != 1


_SEVERAL = Refusal(
    "emitters take one array of results, and updates that move along one dimension of indices",
    "one scatter for each array, with the indices flattened to one dimension",
)


@emitter("scatter")
def emit_scatter(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit scatters into one array whose windows are inside or outside as a whole, at evenly spaced updates."""
    plan = _plan(kernel, target)
    if plan is None:
        refuse(_SEVERAL if ElementCombiner.of(kernel).fits_lanes else COMBINER)
        return None
    with kernel.phase(target) as arguments:
        _Writer(plan, arguments).write()
    items = plan.count if plan.unique else plan.places
    elements = prod(axis.extent for axis in plan.window)
    each = LOOK_NS + ELEMENT_NS * (1 + elements / max(1, plan.lanes))
    parts = min(target.num_threads, max(1, int(each * plan.count / WORTHWHILE_NS())))
    return Emitted(items=items, grain=-(-items // parts), updates=((0, 0),))


def _plan(kernel: Kernel, target: CpuTarget) -> _Plan | None:
    config = kernel.config(ScatterConfig)
    combiner = ElementCombiner.of(kernel)
    if (
        len(kernel.results) != 1
        or not combiner.fits_lanes
        or not isinstance(kernel.inputs[1].type, ir.RankedTensorType)
    ):
        return None
    operand, window, starts = kernel.inputs[0].type, config.window, config.starts
    windows, *others = config.outer or (ScatterLoop(1, 0, 0, 0),)
    if any(axis.moved is not None for axis in window) or others or windows.extent >= 1 << 31 or not starts:
        return None
    unit = reduce(gcd, (start.step for start in starts), windows.operand_step)
    last = sum((start.extent - 1) * start.step for start in starts) + (windows.extent - 1) * windows.operand_step
    widest = max(cg.bits_of(v.type) for v in combiner.arguments)
    widest = max([8, widest, *(cg.bits_of(v.type) for op in combiner.operations for v in op.results)])
    lanes = target.vector_bits // widest
    along = bool(window) and (window[-1].operand_step, window[-1].update_step) == (1, 1)
    row = window[-1].extent * element_bytes(operand.element_type) if along else 0
    lines = min(MOST_LINES, -(-row // LINE))
    return _Plan(
        count=windows.extent,
        index_step=windows.index_step,
        operand_step=windows.operand_step,
        update_step=windows.update_step,
        starts=starts,
        index_type=BY_NAME[config.index_type],
        unit=unit,
        places=1 + last // unit,
        unique=config.unique,
        window=window,
        lanes=lanes if along and window[-1].extent > 1 else 0,
        lines=(lines * _is_far(operand, target), lines * _is_far(kernel.inputs[2].type, target)),
        ahead=max(LEAST_AHEAD, target.prefetch_bytes // max(1, row)),
        combiner=combiner,
    )


def _is_far(type_: ir.Type, target: CpuTarget) -> bool:
    return isinstance(type_, ir.RankedTensorType) and bytes_of(type_) > target.l2_bytes


# --- listing --------------------------------------------------------------------------------------------------------

# Stream compaction by halves of a vector: a table maps each set of lanes to their numbers; 16 sets are a cache line.
HALF = 4


class WindowList:
    """A list of the windows that begin at [low, low + size)."""

    def __init__(self, listed: Value, low: Value, size: Value) -> None:
        self._listed, self._low, self._size = listed, low, size

    def one_by_one(self, belongs: Callable[[Value, Value, Value], Value], lo: Value, hi: Value, found: Value) -> Value:
        """Append the matching windows of [lo, hi) to a list of `found`, and return its new length.

        Branch-free, as branches would be mispredicted: a window is always stored behind the list, and counted on a
        match.
        """
        with cg.loop(lo, hi, 1, [found]) as iteration:
            (found,) = iteration.args
            cg.store(cg.cast_index(iteration.iv, self._listed.element), self._listed, found)
            belongs_here = arith.extui(self._listed.element, belongs(iteration.iv, self._low, self._size).ssa)
            iteration.yields(found + Value(arith.index_castui(found.type, belongs_here)))
        return iteration.results[0]

    def in_vectors(self, indices: Value, type_: ElementType, lo: Value, hi: Value) -> tuple[Value, Value]:
        """List the matching windows of [lo, hi) by stream compaction, for windows of one index, which is the place.

        Returns the length of the list, and where the vectors end.
        """
        wide = ir.IntegerType.get_signless(max(32, type_.bits))
        low, size = (cg.splat(cg.cast_index(v, wide), 2 * HALF) for v in (self._low, self._size))
        table = _table_of_lanes()
        stop = hi - (hi - lo) % (2 * HALF)
        with cg.loop(lo, stop, 2 * HALF, [cg.index(0)]) as iteration:
            (found,) = iteration.args
            bits = _bits_of_lanes(_below(_widened(cg.load(indices, iteration.iv, 2 * HALF), type_, wide) - low, size))
            for half in range(2):
                lanes = Value(arith.shrui(bits.ssa, cg.constant(HALF * half, bits.type).ssa)) & ((1 << HALF) - 1)
                numbers = cg.load(table, cg.cast_index(lanes, found.type) * HALF, HALF)
                window = cg.splat(cg.cast_index(iteration.iv + HALF * half, self._listed.element), HALF)
                cg.store(Value(arith.extui(window.type, numbers.ssa)) + window, self._listed, found)
                found = found + cg.cast_index(Value(math.ctpop(lanes.ssa)), found.type)
            iteration.yields(found)
        return iteration.results[0], stop


def _table_of_lanes() -> Value:
    """Build the compaction table: for each set of HALF lanes their numbers, in bytes."""
    byte = ir.IntegerType.get_signless(8)
    rows = [[lane for lane in range(HALF) if lanes >> lane & 1] for lanes in range(1 << HALF)]
    numbers = [n for row in rows for n in (*row, *[0] * (HALF - len(row)))]
    table = cg.alloca(len(numbers), byte)
    values = [ir.IntegerAttr.get(byte, n) for n in numbers]
    type_ = ir.VectorType.get([len(numbers)], byte)
    cg.store(Value(arith.ConstantOp(type_, ir.DenseElementsAttr.get(values, type_)).result), table, 0)
    return table


def _bits_of_lanes(lanes: Value) -> Value:
    """Pack a mask into the bits of an i32 (movemask)."""
    packed = ir.IntegerType.get_signless(lanes.lanes)
    bits = vector.extract(vector.bitcast(ir.VectorType.get([1], packed), lanes.ssa), [], [0])
    return Value(arith.extui(ir.IntegerType.get_signless(32), bits))


def _widened(numbers: Value, type_: ElementType, wide: ir.Type) -> Value:
    """Extend integers to at least 32 bits."""
    if cg.bits_of(numbers.type) == cg.bits_of(wide):
        return numbers
    extend = arith.extui if type_.is_unsigned else arith.extsi
    return Value(extend(ir.VectorType.get([numbers.lanes], wide), from_storage(numbers.ssa, type_)))


# --- loops ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Emit the loop nest of a kernel."""

    def __init__(self, plan: _Plan, arguments: KernelArguments) -> None:
        self._plan, self._arguments = plan, arguments
        self._result = arguments.results[0]
        self._indices = arguments.inputs[1]
        self._updates = arguments.inputs[2]
        self._given = isinstance(arguments.inputs[2].type, ir.MemRefType)

    def write(self) -> None:
        """Emit the block loop: list the windows of each block that belong to [lo, hi), and combine them."""
        plan, lo, hi = self._plan, self._arguments.lo, self._arguments.hi
        first, last = (lo, hi) if plan.unique else (cg.index(0), cg.index(plan.count))
        low, size = (cg.index(0), cg.index(plan.places)) if plan.unique else (lo, hi - lo)
        listed = cg.alloca(min(BLOCK(), plan.count) + HALF, ir.IntegerType.get_signless(32))
        listing = WindowList(listed, low, size)
        one = (plan.index_step, len(plan.starts), plan.operand_step) == (1, 1, 0)
        in_vectors = one and plan.places < 1 << 31 and plan.count >= MANY()
        with cg.loop(first, last, BLOCK()) as block:
            end, found, at = cg.minimum(block.iv + BLOCK(), last), cg.index(0), block.iv
            if in_vectors:
                found, at = listing.in_vectors(self._indices, plan.index_type, at, end)
            found = listing.one_by_one(self._begins_within, at, end, found)
            self._combine_listed(listed, found)

    # --- start indices ----------------------------------------------------------------------------------------------

    def _start(self, vector: Value, offset: int) -> Value:
        """Load a component of an index vector; one that lies outside is no small positive number."""
        stored = cg.load(self._indices, vector + offset)
        return Value(as_index(from_storage(stored.ssa, self._plan.index_type), self._plan.index_type))

    def _place(self, window: Value) -> Value:
        """Return the place at which a window begins, in units."""
        vector = window * self._plan.index_step
        parts = [self._start(vector, s.offset) * (s.step // self._plan.unit) for s in self._plan.starts]
        if self._plan.operand_step:
            parts.append(window * (self._plan.operand_step // self._plan.unit))
        return sum(parts[1:], parts[0])

    def _begins_within(self, window: Value, low: Value, size: Value) -> Value:
        """Return whether a window begins at one of the places [low, low + size), and inside of the operand."""
        inside = _below(self._place(window) - low, size)
        if len(self._plan.starts) > 1 or self._plan.operand_step:
            vector = window * self._plan.index_step
            for start in self._plan.starts:
                inside = inside & _below(self._start(vector, start.offset), cg.index(start.extent))
        return inside

    # --- combining --------------------------------------------------------------------------------------------------

    def _combine_listed(self, listed: Value, count: Value) -> None:
        if self._plan.across:
            self._over_window(
                self._plan.window, cg.index(0), cg.index(0), lambda at, given: self._each(listed, count, at, given)
            )
        else:
            self._each(listed, count, cg.index(0), cg.index(0))

    def _each(self, listed: Value, count: Value, at: Value, given: Value) -> None:
        """Combine all listed windows: their elements at one place in the window, or all of them."""

        def window_of(iteration: Value) -> Value:
            return cg.cast_index(cg.load(listed, iteration), cg.index(0).type)

        with cg.loop(0, count) as iteration:
            window = window_of(iteration.iv)
            if any(self._plan.lines):
                self._ask_for(window_of(cg.minimum(iteration.iv + self._plan.ahead, count - 1)))
            at = at + self._place(window) * self._plan.unit
            given = given + window * self._plan.update_step
            if self._plan.across:
                self._combine(at, given, 0)
            else:
                *outer, row = self._plan.window or [ScatterWindowLoop(1, 1, 1)]
                self._over_window(outer, at, given, lambda at, given: self._row(row, at, given))

    def _ask_for(self, window: Value) -> None:
        """Prefetch the first cache lines of a window's place and of its updates."""
        places, updates = self._plan.lines
        there = self._place(window) * self._plan.unit if places else cg.index(0)
        for line in range(places):
            cg.prefetch(self._result, there + line * (LINE * 8 // cg.bits_of(self._result.element)), write=True)
        for line in range(updates):
            step = LINE * 8 // cg.bits_of(self._updates.element)
            cg.prefetch(self._updates, window * self._plan.update_step + line * step)

    def _over_window(
        self, axes: Sequence[ScatterWindowLoop], at: Value, given: Value, body: Callable[[Value, Value], None]
    ) -> None:
        if not axes:
            body(at, given)
            return
        axis, *rest = axes
        with cg.loop(0, axis.extent) as each:
            there, here = at + each.iv * axis.operand_step, given + each.iv * axis.update_step
            self._over_window(rest, there, here, body)

    def _row(self, axis: ScatterWindowLoop, at: Value, given: Value) -> None:
        """Emit the last loop of a window; the remainder of whole vectors in halves, quarters ... of one."""
        lanes = self._plan.lanes
        whole = axis.extent // lanes * lanes if lanes else axis.extent

        def step(iteration: Value, _: int | None, totals: list[Value]) -> list[Value]:
            self._combine(at + iteration * axis.operand_step, given + iteration * axis.update_step, lanes)
            return totals

        vector_loop(whole, lanes, step, [[]] * unroll_factor(1, whole // lanes if lanes else 1))
        while whole < axis.extent:
            lanes //= 2
            if axis.extent - whole >= lanes:
                self._combine(at + whole, given + whole, lanes if lanes > 1 else 0)
                whole += lanes

    def _combine(self, at: Value, given: Value, lanes: int) -> None:
        """Combine the updates into `lanes` elements."""
        combiner, inputs = self._plan.combiner, self._arguments.inputs
        new = cg.load(self._updates, given, lanes) if self._given else cg.splat(self._updates, lanes)
        old = cg.load(self._result, at, lanes) if 0 in combiner.elements_read() else None
        (value,) = combiner.inline([old, new], inputs)
        cg.store(cg.splat(value, lanes), self._result, at)


def _below(number: Value, limit: Value) -> Value:
    """Return 0 <= number < limit, by one unsigned comparison."""
    return Value(arith.cmpi(arith.CmpIPredicate.ult, number.ssa, limit.ssa))
