"""Attention in one kernel: the scores of a block of queries stay in cache between the two GEMMs.

A unit is a block of queries of one batch. The first GEMM stores its scores by register tiles, the row function
(softmax, masks) turns each row into weights, and these are the A operand of the second GEMM. The softmax
denominator is applied in the second GEMM's epilogue.
"""

from __future__ import annotations

import math

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.exponential import TINY_IS_ZERO
from stablexla.lowering.math.logistic import chain_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.codegen.match.attention import Attention, matched_attention
from stablexla.targets.codegen.match.attention_outline import outline_attentions
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.codegen.scope import LoopScope, lanes_for
from stablexla.targets.cpu.attention.products import AttentionWorkspace, QueryBlock, ScoreProduct, ValueProduct
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.reduction.rows import RowLoops
from stablexla.targets.cpu.reduction.schedules import along_rows
from stablexla.targets.cpu.shared import SharedFunctions
from stablexla.targets.pipeline.passes import module_pass

# At most so many queries read keys unpacked: packing would cost as much as the scores.
FEW_QUERIES = Gate("attention.few-queries", 5, eager=1)
# Multiply-adds that are worth another thread.
WORTHWHILE = Gate("attention.worthwhile", 400_000, eager=1)
# The largest workspace of an item: scores and packed operands.
MOST_BYTES = Gate("attention.most-bytes", 64 << 20, eager=16 << 10)


@dataclass(frozen=True)
class AttentionPlan:
    """Tiling of an attention: register tile, query block, packing, work items.

    Attributes:
        tile: the register tile of both GEMMs.
        rows: queries of a unit.
        few: keys and values are read unpacked.
        items: work items; each takes consecutive units, in a workspace of its own.
    """

    tile: RegisterTile
    rows: int
    few: bool
    items: int


def plan_attention(attention: Attention, target: CpuTarget) -> AttentionPlan:
    """Plan the tiling: scores of a query block take 3/8 of L2, beside the packed operands of one batch."""
    size = cg.bits_of(attention.element) // 8
    lanes = max(2, target.vector_bits // 8 // size)
    queries, batches = attention.extent(attention.queries), attention.extent(attention.batch)
    many = target.num_vector_registers >= 32
    if queries <= FEW_QUERIES():
        # About a dozen accumulators hide the FMA latency, however few the rows are.
        vectors = min(math.ceil(attention.width / lanes), max(1, (24 if many else 12) // queries), 8)
        tile, rows = RegisterTile(queries, vectors), queries
    else:
        tile = RegisterTile(6, 4 if many else 2)
        most = max(tile.rows, target.l2_bytes * 3 // 8 // (attention.keys * size))
        blocks = math.ceil(queries / most)
        rows = math.ceil(math.ceil(queries / blocks) / tile.rows) * tile.rows
    units = batches * math.ceil(queries / rows)
    plan = AttentionPlan(tile, rows, queries <= FEW_QUERIES(), 1)
    bytes_ = AttentionWorkspace.of(attention, plan.tile, rows, lanes, plan.few).size * size
    work = batches * queries * attention.keys * (attention.depth + attention.width)
    wanted = max(4 * target.num_threads if target.num_threads > 1 else 1, (4 << 20) // bytes_)
    items = max(1, min(units, wanted, math.ceil(4 * work / WORTHWHILE())))
    return AttentionPlan(tile, rows, plan.few, items)


def workspace_fits(attention: Attention, target: CpuTarget) -> bool:
    """Whether an item's workspace is within MOST_BYTES."""
    plan = plan_attention(attention, target)
    size = cg.bits_of(attention.element) // 8
    lanes = max(2, target.vector_bits // 8 // size)
    return AttentionWorkspace.of(attention, plan.tile, plan.rows, lanes, plan.few).size * size <= MOST_BYTES()


_TOO_LARGE = Refusal(
    "a block of queries and keys does not fit in the caches of a core", "shorter heads, or narrower elements"
)


@emitter("attention")
def emit_attention(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit a kernel that `stablexla-find-attention` outlined."""
    with matched_attention(kernel) as attention:
        if attention is None or not workspace_fits(attention, target):
            refuse(_TOO_LARGE)
            return None
        return _emit(kernel, attention, target)


def _emit(kernel: Kernel, attention: Attention, target: CpuTarget) -> Emitted:
    plan = plan_attention(attention, target)
    lanes = max(2, target.vector_bits // cg.bits_of(attention.element))
    space = AttentionWorkspace.of(attention, plan.tile, plan.rows, lanes, plan.few)
    scratch = ((str(attention.element), plan.items * space.size),)
    with kernel.phase(target, scratch) as arguments:
        unit = _Unit(attention, plan, space, arguments, SharedFunctions(kernel, target), target)
        with arguments.items(plan.items) as item:
            unit.item(item)
    work = attention.extent(attention.rows.chain.rows) * attention.keys * (attention.depth + attention.width + 16)
    grain = max(1, min(plan.items, math.ceil(plan.items * WORTHWHILE() / max(1, work))))
    return Emitted(plan.items, grain, scratch)


def _note_tiny_weights(attention: Attention) -> None:
    """Mark the exponential of weights that are at most 1: those next to denormals, and denormals, are 0."""
    operations = [op.operation for node in attention.rows.chain.nest.maps for op in node.block.operations]
    of_logistic = {op for each in operations for op in chain_of(each) or ()}
    powers = [op for op in operations if op.name == "math.exp" and op not in of_logistic]
    if attention.rows.total is not None and len(powers) == 1:
        powers[0].attributes[TINY_IS_ZERO] = ir.UnitAttr.get()


class _Unit:
    """Code of a work item: its units, one after the other."""

    def __init__(
        self,
        attention: Attention,
        plan: AttentionPlan,
        space: AttentionWorkspace,
        arguments: KernelArguments,
        functions: SharedFunctions,
        target: CpuTarget,
    ) -> None:
        self.attention, self.plan, self.space = attention, plan, space
        self.buffer = arguments.scratch[0]
        self.scores = ScoreProduct(attention, plan.tile, space, arguments, functions)
        self.sums = ValueProduct(attention, plan.tile, space, arguments, functions)
        nest = attention.rows.chain.nest
        _note_tiny_weights(attention)
        chain = attention.rows.chain
        self.rows = RowLoops(chain, along_rows(chain, lanes_for(nest, target)), target, cached=True)
        self.rows.reserve()
        buffer = arguments.scratch[0]
        self.row_arguments = KernelArguments(
            inputs=[buffer if n is None else arguments.inputs[n] for n in attention.rows.inputs],
            results=[buffer, buffer],
            scratch=[],
            lo=arguments.lo,
            hi=arguments.hi,
        )

    def item(self, item: Index) -> None:
        """Emit the loop over an item's units."""
        a, plan = self.attention, self.plan
        queries, batches = a.extent(a.queries), a.extent(a.batch)
        blocks = math.ceil(queries / plan.rows)
        units, base = batches * blocks, cg.index(item) * self.space.size
        first = cg.index(item) * units // plan.items
        last = (cg.index(item) + 1) * units // plan.items
        with cg.loop(first, last) as unit:
            batch, block = cg.split_index(unit.iv, [batches, blocks])
            places = dict(
                zip(a.batch, cg.split_index(batch, [a.rows.chain.nest.extents[d] for d in a.batch]), strict=True)
            )
            start = block * plan.rows
            rows = cg.minimum(cg.index(queries) - start, plan.rows) if queries % plan.rows else cg.index(plan.rows)
            place = QueryBlock(self.buffer, base, places, start, rows)
            if not plan.few:
                if blocks > 1:
                    with cg.when(block.eq(0) | unit.iv.eq(first)):
                        self._pack(place)
                else:
                    self._pack(place)
            self.scores.write(place)
            with cg.loop(0, rows) as row:
                self._row(place, row.iv)
            self.sums.divide_weights(place)
            self.sums.write(place)

    def _pack(self, place: QueryBlock) -> None:
        self.scores.pack(place)
        self.sums.pack(place)

    def _row(self, place: QueryBlock, number: Value) -> None:
        """Turn one row of scores into weights."""
        a, space = self.attention, self.space
        at: dict[int, Index] = {**place.batch, **place.query(a, number + place.start)}
        top = LoopScope(self.row_arguments)
        row = top.inside(at)
        row.stands_at(a.rows.scores, place.base + space.scores + number * space.stride)
        row.stands_at(a.rows.weights, place.base + space.weights + number * space.stride)
        if a.rows.total is not None:
            row.stands_at(a.rows.total, place.base + space.totals + number)
        self.rows.row(row)


@module_pass("stablexla-find-attention", "moves softmax(q k) v, or another function of rows between products, together")
def find_attention(module: ir.Module) -> None:
    """Outline each attention that the CPU's emitter takes into a kernel."""
    outline_attentions(module, lambda attention: workspace_fits(attention, host_target().with_choices()))
