"""Skinny products (GEMV, tall-skinny GEMM), with few rows or few columns: bandwidth-bound by the larger factor.

It has no reuse, so it is loaded straight to registers, 16 bytes a load. Where it is contiguous along k, some threads of
a warp reduce a few columns together; where along n, a thread has columns of its own, and warps split k.
"""

from __future__ import annotations

from math import gcd

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction, match_contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, accumulator_type
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.gpu.contraction.epilogue import emit_split_k, epilogue_store, partial_sum_store
from stablexla.targets.gpu.contraction.mma_formats import mma_format_of
from stablexla.targets.gpu.contraction.skinny_loops import SkinnyAlongK, SkinnyAlongN, SkinnyWork
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import WARP, Launch, access_lanes, block_index, shared_buffer, thread_index

MOST_ROWS = Gate("gpu-skinny.most-rows", 15, eager=1)
MOST_ROWS_OF_NARROW = Gate("gpu-skinny.most-rows-of-narrow", 4, eager=1)
"""Most rows of types that tensor cores multiply: with more, scalar FMAs would take longer than the loads."""
BUSY = 528
"""Blocks that fill a chip."""
MOST_PARTS = Gate("gpu-skinny.most-parts", 64, eager=2)
LEAST_TERMS = Gate("gpu-skinny.least-terms", 256, eager=1)
"""Fewest terms of a sum that are worth a part of k."""


@dataclass(frozen=True)
class SkinnyPlan:
    """Work distribution of a product of few rows.

    Attributes:
        work: what a block's threads do.
        groups: of columns, a block's each.
        parts: split-K factor, a block for each part.
        length: terms in a part.
    """

    work: SkinnyWork
    groups: int
    parts: int
    length: int


@gpu_emitter("contraction", priority=10)
def emit_skinny(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit products of at most 15 rows or columns, of narrow types 4, of real numbers."""
    c = match_contraction(kernel)
    if (
        c is None
        or min(c.m.extent, c.n.extent) > max_skinny_rows(c, chip)
        or c.k_outer
        or not (c.k.extent and c.batches)
    ):
        return None
    if not isinstance(c.sum_type, ir.FloatType | ir.IntegerType) or not (c.m.extent and c.n.extent):
        return None
    if cg.bits_of(c.sum_type) == 1:
        return None
    if c.m.extent > c.n.extent:
        c = c.swapped()
    plan = plan_skinny(c)
    shared = plan.work.sums * (cg.bits_of(accumulator_type(c)) // 8)
    launch = Launch(c.batches * plan.groups * plan.parts, plan.work.warps * WARP, shared)

    def body(arguments: KernelArguments, partial: Value | None) -> None:
        _Block(c, plan, ContractionScene(c, arguments), partial).write()

    return emit_split_k(kernel, c, launch, plan.parts, str(accumulator_type(c)), body)


def max_skinny_rows(c: Contraction, chip: GpuName) -> int:
    """Return the most rows or columns of a skinny product."""
    format_ = mma_format_of(c)
    narrow = format_ is not None and format_.bytes <= 2 and compute_capability(chip.chip) >= format_.oldest
    return MOST_ROWS_OF_NARROW() if narrow and c.n.c == 1 else MOST_ROWS()


def plan_skinny(c: Contraction) -> SkinnyPlan:
    """Choose the plan from the product alone, so that results do not depend on the chip."""
    work = _along_k(c) if c.k.b == 1 and c.k.extent > 1 else _along_n(c)
    groups = -(-c.n.extent // work.columns)
    wanted = min(MOST_PARTS(), BUSY // (groups * c.batches), c.k.extent // LEAST_TERMS())
    step = work.step
    length = -(-c.k.extent // (max(1, wanted) * step)) * step
    return SkinnyPlan(work, groups, -(-c.k.extent // length), length)


def _along_k(c: Contraction) -> SkinnyWork:
    lanes = _lanes(c, c.k.extent, [c.n.b if c.n.extent > 1 else 0, *([c.m.a] if c.k.a == 1 and c.m.extent > 1 else [])])
    width = WARP
    while width > 1 and width // 2 * lanes >= c.k.extent:
        width //= 2
    each = max(1, min(4, 32 // c.m.extent, c.n.extent))
    return SkinnyAlongK(c.m.extent, lanes, 8, width, each)


def _along_n(c: Contraction) -> SkinnyWork:
    lanes = _lanes(c, c.n.extent, [c.k.b]) if c.n.b == 1 else 1
    if c.m.extent > 4:
        lanes = min(lanes, 4)
    warps = 8
    while warps > 1 and c.m.extent * WARP * lanes * warps * (cg.bits_of(accumulator_type(c)) // 8) > 48 << 10:
        warps //= 2
    return SkinnyAlongN(c.m.extent, lanes, warps)


def _lanes(c: Contraction, extent: int, strides: list[int]) -> int:
    """Return the vector width of loads: 16 bytes, if all offsets are aligned to that."""
    fitting = gcd(extent, *strides, *(axis.b for axis in c.batch), *(axis.a for axis in c.batch))
    widest = max(cg.bits_of(c.a.element), cg.bits_of(c.b.element))
    return access_lanes(widest, fitting, most=16) if widest >= 8 else 1


class _Block:
    """One thread's part of a block."""

    def __init__(self, c: Contraction, plan: SkinnyPlan, scene: ContractionScene, partial: Value | None) -> None:
        self.c, self.plan, self.scene, self.partial = c, plan, scene, partial

    def write(self) -> None:
        """Emit this block's columns, of all rows."""
        c, plan, work = self.c, self.plan, self.plan.work
        batch, part, group = cg.split_index(block_index(), [c.batches, plan.parts, plan.groups])
        frame, first = self.scene.frame(batch), group * work.columns
        low = part * plan.length
        high = cg.index(c.k.extent) if plan.parts == 1 else cg.minimum(low + plan.length, cg.index(c.k.extent))
        buffer = shared_buffer(self.scene.compute, work.sums, 0)
        work.run(self.scene, frame, first, (low, high), buffer)
        gpu.barrier()
        self._put(frame, batch, part, first, buffer)

    def _put(self, frame: BatchFrame, batch: Value, part: Index, first: Value, buffer: Value) -> None:
        c, work = self.c, self.plan.work
        put = epilogue_store(self.scene, frame, 1)
        if self.partial is not None:
            put = partial_sum_store(c, self.partial, cg.index(part) * c.batches + batch)
        with cg.loop(thread_index(), cg.index(c.m.extent * work.columns), work.warps * WARP) as iteration:
            row, column = iteration.iv // work.columns, iteration.iv % work.columns
            with cg.when((first + column).lt(c.n.extent)):
                total = cg.load(buffer, iteration.iv)
                for other in range(1, work.copies):
                    total = total + cg.load(buffer, iteration.iv + other * c.m.extent * work.columns)
                put(total, row, first + column)
