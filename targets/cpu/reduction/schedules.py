"""The schedules of reductions on CPUs: which there are, which one a kernel gets, and why."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.loop_nest import Load, Store
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.reductions import IndependentReductions, SequentialReduction
from stablexla.targets.codegen.row_passes import RowPasses
from stablexla.targets.codegen.schedule import LANE, PARALLEL, REDUCED, THREAD, UNROLLED, Form, Schedule, Step
from stablexla.targets.codegen.scope import lanes_for
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.vector_loops import MOST_UNROLLED, unroll_factor

# Rows of up to this many vectors stay in registers.
SHORT_ROW = Gate("rows.short-row", 4, eager=1)
# Elements in a block of a long row that is shared by threads.
LONG_BLOCK = Gate("reduction.long-block", 32768, eager=1)
# A reduction with fewer work items than this is split if each of its parts is at least PART elements.
PART = Gate("reduction.part", 65536, eager=8)
FEW_ITEMS = Gate("reduction.few-items", 16, eager=2)
MOST_PARTS = Gate("reduction.most-parts", 64, eager=2)
# Accumulators of a panel of columns stay in L1.
PANEL_BYTES = Gate("reduction.panel-bytes", 16 << 10, eager=1)


def choose_schedule(chain: RowPasses, target: CpuTarget) -> Schedule:
    """Return the schedule of reductions that are all over the same loops."""
    lanes = lanes_for(chain.nest, target)
    if chain.inner in chain.columns:
        if lanes and _are_16_bit(chain) and chain.nest.extents[chain.inner] % (2 * lanes) == 0:
            # Whole registers of results allow non-temporal stores, and two dependency chains of roundings overlap.
            lanes *= 2
        return along_rows(chain, lanes)
    return _added_up(chain, lanes, target) if _is_sum(chain) else _across(chain, lanes)


def _steps(
    chain: RowPasses, loops: str, why: str = "", *, unroll: Sequence[int] = (1,), rows: int = 1, lanes: int = 1,
    panel: int = 0, part: int = 0,
) -> Schedule:  # fmt: skip
    """Return the schedule of this form: r are the reduced loops, u the last of them unrolled, p a loop along vectors,
    v vectors; work items have the indices of the other loops, `panel` of the innermost and `part` of the first reduced.
    """
    inner, columns = chain.inner, sorted(chain.columns)
    found = {
        "r": [Step(REDUCED, d) for d in columns],
        "u": [Step(UNROLLED, columns[-1], (rows,))],
        "p": [Step(PARALLEL, inner)],
        "v": [Step(UNROLLED, inner, tuple(unroll)), *([Step(LANE, inner, (lanes,))] if lanes else [])],
    }
    threads = [Step(THREAD, d) for d in chain.rows if d != inner]
    threads += [Step(THREAD, inner, (panel,))] if panel else []
    threads += [Step(THREAD, columns[0], (part,))] if part else []
    return Schedule((*threads, *(step for letter in loops for step in found[letter])), why)


def forms_of(chain: RowPasses, lanes: int) -> set[Form]:
    """Return the forms of the schedules that a kernel can have."""
    foldings = [f for p in chain.passes for f in p.foldings]
    in_order = any(isinstance(f, SequentialReduction) for f in foldings)
    is_long, one = _is_single(chain) and not in_order, len(chain.columns) == 1
    if chain.inner in chain.columns:
        found = [("r" if in_order else "rv", 0, part) for part in (0, is_long)]
        found += [("v", 0, 0)] if one and not in_order else []
    else:
        found = [("vr", 1, 0)]
        found += [("ruv", 0, part) for part in (0, 1)] if _is_sum(chain) else []
        found += [("rupv", panel, part) for panel in (0, 1) for part in (0, 1)] if _is_sum(chain) else []
        found += [("upv", panel, 0) for panel in (0, 1)] if _is_sum(chain) and one else []
    return {_steps(chain, loops, lanes=lanes, panel=panel, part=part).form for loops, panel, part in found}


def _is_single(chain: RowPasses) -> bool:
    """Return whether a kernel reduces and does nothing else, over loops that run at all."""
    return len(chain.passes) == 1 and not chain.passes[0].stores and 0 not in chain.nest.extents


def _is_sum(chain: RowPasses) -> bool:
    """Return whether several indices may be reduced at a time, before they come to the accumulators."""
    return _is_single(chain) and all(isinstance(f, IndependentReductions) for f in chain.passes[0].foldings)


def along_rows(chain: RowPasses, lanes: int) -> Schedule:
    """Return the schedule with lanes along the rows, which are reduced horizontally at their end."""
    extents, columns = chain.nest.extents, sorted(chain.columns)
    extent, outermost = extents[chain.inner], extents[columns[0]]
    if any(isinstance(f, SequentialReduction) for p in chain.passes for f in p.foldings):
        return _steps(chain, "r", "the combiner keeps its order: one index after the other")
    if lanes and _is_single(chain) and prod(extents[d] for d in chain.rows) < FEW_ITEMS():
        # A part is a block of the only reduced loop, whole iterations of it, or some iterations of the outermost one.
        block = rounded_up(LONG_BLOCK(), MOST_UNROLLED * lanes)
        part = -(-block * outermost // chain.length)
        if chain.length >= 2 * block and outermost > part:
            unroll = unroll_factor(chain.cost, min(block, extent) // lanes)
            return _steps(chain, "rv", "few long rows: threads share them", unroll=[unroll], lanes=lanes, part=part)
    vectors = -(-extent // max(1, lanes))
    if len(columns) == 1 and 0 < vectors <= SHORT_ROW():
        return _steps(chain, "v", "short rows: they stay in registers", unroll=[vectors], lanes=lanes)
    unrolls = [unroll_factor(p.cost, vectors) if lanes else 1 for p in chain.passes]
    return _steps(chain, "rv", "contiguous rows: lanes along them", unroll=unrolls, lanes=lanes)


def _are_16_bit(chain: RowPasses) -> bool:
    """Return whether rows of 16-bit numbers become such rows."""
    stores = [s for p in chain.passes for s in p.stores]
    places: list[Load | Store] = [*chain.nest.loads, *stores]
    return bool(stores) and all(cg.bits_of(p.element) == 16 for p in places if p.strides[chain.inner])


def _across(chain: RowPasses, lanes: int) -> Schedule:
    """Return the schedule with lanes across rows: each reduces a row of its own, in order."""
    width = max(1, lanes)
    abreast = unroll_factor(max(p.cost for p in chain.passes), chain.nest.extents[chain.inner] // width)
    why = "rows lie side by side: a lane has a row of its own"
    return _steps(chain, "vr", why, unroll=[abreast], lanes=lanes, panel=abreast * width)


def _added_up(chain: RowPasses, lanes: int, target: CpuTarget) -> Schedule:
    """Return a schedule with lanes across rows, where several indices of a reduced loop are added up at a time."""
    columns, extents = sorted(chain.columns), chain.nest.extents
    types, width, extent, depth = chain.passes[0].types, max(1, lanes), extents[chain.inner], extents[columns[0]]
    abreast = 4 if chain.cost <= 8 else 2 if chain.cost <= 16 else 1
    vectors, items = -(-extent // width), prod(extents[d] for d in chain.rows if d != chain.inner)
    is_shallow = len(columns) == 1 and depth <= abreast
    in_registers = not is_shallow and vectors * len(types) <= target.num_vector_registers // 2
    room = PANEL_BYTES() // max(1, sum(max(8, cg.bits_of(t)) // 8 for t in types))
    panel = room // 256 * 256 or rounded_up(max(1, room), width)
    if in_registers or panel >= extent:
        panel = 0
    if is_shallow:
        return _steps(chain, "upv", "few rows: one iteration adds all", rows=depth, lanes=lanes, panel=panel)
    items *= -(-extent // panel) if panel else 1
    wanted = min(MOST_PARTS(), prod(extents) // PART(), depth // (4 * abreast))
    part = rounded_up(-(-depth // wanted), abreast) if items < FEW_ITEMS() and wanted >= 2 else 0
    if in_registers:
        why = "few columns: accumulators in registers"
        return _steps(chain, "ruv", why, unroll=[vectors], rows=abreast, lanes=lanes, part=part)
    why = "many columns: accumulators in L1"
    return _steps(chain, "rupv", why, rows=abreast, lanes=lanes, panel=panel, part=part)
