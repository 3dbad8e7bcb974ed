"""Emit key sorts: one array by a total order of its elements.

Short rows are sorted one per lane by a bitonic network (`network`). A longer row is cut into columns that are
sorted likewise, and its sorted columns are merged (`tiles`).
"""

from __future__ import annotations

from stablexla.dialects.choices import Gate
from stablexla.lowering.kernels.sort.radix import SortKeysConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.shared import SharedFunctions
from stablexla.targets.cpu.sort.keys import SortKeys
from stablexla.targets.cpu.sort.network import cells_for, fill, network_ns, sort_columns
from stablexla.targets.cpu.sort.rows import RestoreAlike, SortRows, any_bit
from stablexla.targets.cpu.sort.tiles import SortPlan, emit_phases, emit_tiles

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
        if length <= LONGEST_COLUMN() and 2 * rows >= lanes:
            return _emit_columns(kernel, target, given)
        plan = SortPlan.of(given, target)
        return (emit_tiles if plan.tiles == 1 else emit_phases)(kernel, target, plan)


def _emit_columns(kernel: Kernel, target: CpuTarget, given: SortRows) -> Emitted:
    """Emit the sort of short rows; a work item is as many rows as there are lanes."""
    lanes, length = given.lanes, given.length
    size = cells_for(length)
    with kernel.phase(target) as arguments:
        source, result = arguments.inputs[0], arguments.results[0]
        cells = cg.alloca(size * lanes, given.keys.type)
        fill(cells, lanes, length, size, given.keys.highest)
        with arguments.items() as item:
            starts = [cg.minimum(item * lanes + lane, given.rows - 1) * length for lane in range(lanes)]

            def read(at: Value, count: int, differing: Value) -> Value:
                loaded = [given.load(source, start + at, count) for start in starts]
                for lane, cell in enumerate(cg.transpose_registers([key for key, _ in loaded])[:count]):
                    cg.store(cell, cells, (at + lane) * lanes)
                for _, bits in loaded:
                    differing = differing | bits
                return differing

            def take(at: Value, count: int, _: Value) -> Value:
                columns = [cg.load(cells, (at + lane) * lanes, lanes) for lane in range(lanes)]
                for start, row in zip(starts, cg.transpose_registers(columns), strict=True):
                    given.store(row, result, start + at, count)
                return given.zeros()

            differing = given.along(length, read)
            sort_columns(SharedFunctions(kernel, target), cells, lanes, length)
            given.along(length, take)
            if given.keys.has_alike:
                with cg.when(any_bit(differing)), cg.loop(0, lanes) as lane:
                    first = cg.minimum(item * lanes + lane.iv, given.rows - 1) * length
                    RestoreAlike(given.keys.integers, source, result, first, length).write()
    items = -(-given.rows // lanes)
    return Emitted(items, grain_of(network_ns(size, given.keys.bits), items), in_place=given.in_place)
