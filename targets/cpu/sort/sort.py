"""Emit key sorts: one array by a total order of its elements.

Short rows are sorted one per lane by a bitonic network (`network`), and so are rows that lie side by side. A longer row
is cut into columns that are sorted likewise, and its sorted columns are merged (`tiles`).
"""

from __future__ import annotations

from mlir.dialects import arith

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.radix import SortKeysConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions
from stablexla.targets.cpu.sort.keys import SortKeys
from stablexla.targets.cpu.sort.network import cells_for, fill, network_ns, sort_columns
from stablexla.targets.cpu.sort.rows import KeyVectors, RestoreAlike, SortRows, any_bit
from stablexla.targets.cpu.sort.tiles import SortPlan, emit_phases, emit_tiles

# Up to so many elements a function of the library for rows of any length sorts them, which takes up to 6% longer than
# code for their length; that takes 50 ms to compile.
LIBRARY_ELEMENTS = Gate("sort.library-elements", 1 << 14, eager=1)
# Rows up to this length are sorted in lanes even if most lanes have none: one row of 64 takes 0.75 us.
SHORT_ROW = Gate("sort.short-row", 64, eager=1)
# Threshold: rows up to this length are sorted in lanes; above, the network's n log^2 n costs more than merging.
LONGEST_COLUMN = Gate("sort.longest-column", 2048, eager=8)


@emitter("sort_keys")
def emit_sort(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit sorts of rows of 32- or 64-bit keys."""
    config = kernel.config(SortKeysConfig)
    rows, length = config.rows, config.length
    with kernel.func.context:
        keys = SortKeys.of(kernel.inputs[0].type.element_type, config)
        lanes = max(2, target.vector_bits // keys.bits)
        given = SortRows(keys, lanes, rows, length)
        if config.inner > 1:
            return _emit_inner(kernel, target, given, config.inner)
        if length <= LONGEST_COLUMN() and (2 * rows >= lanes or length <= SHORT_ROW()):
            return _emit_columns(kernel, target, given)
        plan = SortPlan.of(given, target)
        return (emit_tiles if plan.tiles == 1 else emit_phases)(kernel, target, plan)


def _emit_columns(kernel: Kernel, target: CpuTarget, given: SortRows) -> Emitted:
    """Emit the sort of short rows; a work item is as many rows as there are lanes."""
    rows, length, lanes = given.rows, given.length, given.lanes
    size = cells_for(length)
    last = size.bit_length() - 1
    shared = SharedFunctions(kernel, target)
    with kernel.phase(target) as arguments:
        source, result = arguments.inputs[0], arguments.results[0]
        cells = cg.alloca(max(size, rounded_up(length, lanes)) * lanes, given.keys.type)
        if rows * length > LIBRARY_ELEMENTS():
            fill(cells, lanes, length, size, given.keys.highest)
        with arguments.items(-(-rows // lanes)) as item:
            if rows * length <= LIBRARY_ELEMENTS():
                shared.call(_SortInLanes(given.keys, lanes), [source, result, cells], [item, rows, length, last])
            else:
                _sort_in_lanes(given, shared, (source, result, cells), (item, rows, length, last))
    items = -(-rows // lanes)
    return Emitted(items, grain_of(network_ns(size, given.keys.bits), items), in_place=given.in_place)


def _emit_inner(kernel: Kernel, target: CpuTarget, given: SortRows, inner: int) -> Emitted:
    """Emit the sort of rows that lie side by side; a work item is as many of them as there are lanes."""
    length, lanes = given.length, given.lanes
    size = cells_for(length)
    blocks = -(-inner // lanes)
    items = given.rows // inner * blocks
    shared = SharedFunctions(kernel, target)
    with kernel.phase(target) as arguments:
        cells = cg.alloca(size * lanes, given.keys.type)
        with arguments.split_items([items // blocks, blocks]) as (outer, block):
            numbers: list[Index] = [outer * (length * inner), block * lanes, inner, length, size.bit_length() - 1]
            buffers = [arguments.inputs[0], arguments.results[0], cells]
            shared.call(_SortInner(given.keys, lanes), buffers, numbers)
    return Emitted(items, grain_of(network_ns(size, given.keys.bits), items), in_place=given.in_place)


@dataclass(frozen=True)
class _SortInner(SharedFunction):
    """The sort of as many rows as there are lanes, of any length, which lie side by side: each vector is one cell."""

    rolled = True
    keys: SortKeys
    lanes: int

    @property
    def name(self) -> str:
        return f"sort_inner_{self.lanes}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (source, result, cells), (at, column, inner, length, last) = buffers, numbers
        vectors, lanes = KeyVectors(self.keys, self.lanes), self.lanes
        first, count = at + column, cg.minimum(inner - column, lanes)
        fill(cells, lanes, length, cg.index(1) << last, self.keys.highest)
        with cg.loop(0, length, 1, [vectors.zeros()]) as cell:
            key, bits = vectors.load(source, cell.iv * inner + first, count)
            cg.store(key, cells, cell.iv * lanes)
            cell.yields(cell.args[0] | bits)
        sort_columns(functions, cells, lanes, length, last)
        with cg.loop(0, length) as place:
            vectors.store(cg.load(cells, place.iv * lanes, lanes), result, place.iv * inner + first, count)
        if self.keys.has_alike:
            with cg.when(any_bit(cell.results[0])), cg.loop(0, count) as lane:
                RestoreAlike(self.keys.integers, source, result, first + lane.iv, length, inner).write()


@dataclass(frozen=True)
class _SortInLanes(SharedFunction):
    """The sort of as many rows as there are lanes, of any length."""

    rolled = True
    keys: SortKeys
    lanes: int

    @property
    def name(self) -> str:
        return f"sort_in_lanes_{self.lanes}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        item, rows, length, last = numbers
        source, result, cells = buffers
        whole = Value(arith.ceildivui(length.ssa, cg.index(self.lanes).ssa)) * self.lanes
        fill(cells, self.lanes, whole, cg.index(1) << last, self.keys.highest)
        vectors = KeyVectors(self.keys, self.lanes)
        _sort_in_lanes(vectors, functions, (source, result, cells), (item, rows, length, last))


def _sort_in_lanes(
    vectors: KeyVectors,
    shared: SharedFunctions,
    buffers: tuple[Value, Value, Value],
    numbers: tuple[Value, Index, Index, Index],
) -> None:
    """Sort as many rows as there are lanes.

    Args:
        buffers: the rows, where they go, and cells for keys, of which those from the rows' length on hold the highest.
        numbers: which of these groups of rows, how many rows there are, their length, and the exponent of the number
            of cells.
    """
    (source, result, cells), (item, rows, length, last), lanes = buffers, numbers, vectors.lanes
    starts = [cg.minimum(item * lanes + lane, cg.index(rows) - 1) * length for lane in range(lanes)]

    def read(at: Value, count: Index, differing: Value) -> Value:
        loaded = [vectors.load(source, start + at, count) for start in starts]
        for lane, cell in enumerate(cg.transpose_registers([key for key, _ in loaded])[: cg.known(count)]):
            cg.store(cell, cells, (at + lane) * lanes)
        for _, bits in loaded:
            differing = differing | bits
        return differing

    def take(at: Value, count: Index, _: Value) -> Value:
        columns = [cg.load(cells, (at + lane) * lanes, lanes) for lane in range(lanes)]
        for start, row in zip(starts, cg.transpose_registers(columns), strict=True):
            vectors.store(row, result, start + at, count)
        return vectors.zeros()

    differing = vectors.along(length, read)
    sort_columns(shared, cells, lanes, length, last)
    vectors.along(length, take)
    if vectors.keys.has_alike:
        with cg.when(any_bit(differing)), cg.loop(0, lanes) as lane:
            first = cg.minimum(item * lanes + lane.iv, cg.index(rows) - 1) * length
            RestoreAlike(vectors.keys.integers, source, result, first, length).write()
