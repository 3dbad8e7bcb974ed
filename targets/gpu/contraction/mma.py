"""GEMM on tensor cores from sm_80 on: bf16, f16, s8, u8, f64 and f32 rounded to tf32; other f32 by FMA in such tiles.

`mma_plan` chooses tiles, `mma_loads` copies the factors into shared memory, `mma_loop`, `wgmma_loop` and, without
tensor cores, `fma_loop` multiply, `epilogue` is the epilogue. A factor whose rows are not aligned to 16
bytes is loaded element by element.
"""

from __future__ import annotations

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis, match_contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.gpu.contraction.epilogue import (
    emit_split_k,
    epilogue_store,
    lanes_for,
    partial_sum_store,
    stage_accumulators,
    store_tile,
)
from stablexla.targets.gpu.contraction.fma_loop import FmaLoop
from stablexla.targets.gpu.contraction.mma_formats import ROW_BYTES, mma_format_of
from stablexla.targets.gpu.contraction.mma_loads import ElementTileLoader, TileLoader
from stablexla.targets.gpu.contraction.mma_loop import MmaLoop, PipelineStages
from stablexla.targets.gpu.contraction.mma_plan import GemmPlan, MmaOperand, mma_operands, plan_gemm
from stablexla.targets.gpu.contraction.skinny import max_skinny_rows
from stablexla.targets.gpu.contraction.wgmma_loop import WgmmaLoop
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index

TOGETHER = Gate("gpu-mma.together", 8, eager=2)
"""Rows of tiles whose blocks run side by side (rasterization), so that they share factors in L2."""

WAYS: dict[str, type[MmaLoop | WgmmaLoop | FmaLoop]] = {
    "warps": MmaLoop,
    "groups": WgmmaLoop,
    "threads": FmaLoop,
}


@gpu_emitter("contraction", priority=20)
def emit_on_tensor_cores(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit products of bf16, f16, f32, f64, s8 or u8, both factors of one type, from sm_80 on."""
    contraction = match_contraction(kernel)
    format_ = mma_format_of(contraction) if contraction is not None else None
    if contraction is None or format_ is None or compute_capability(chip.chip) < format_.oldest:
        return None
    few = not contraction.k_outer and min(contraction.m.extent, contraction.n.extent) <= max_skinny_rows(
        contraction, chip
    )
    plan = None if few or not _is_for_them(contraction) else plan_gemm(contraction, format_, chip.chip)
    return None if plan is None else emit_gemm(kernel, contraction, plan, chip)


def emit_gemm(kernel: Kernel, c: Contraction, plan: GemmPlan, chip: GpuName) -> Emitted:
    """Emit the kernel, in one launch or two (split-K)."""
    launch = Launch(plan.blocks, plan.tiling.threads, plan.tiling.shared(plan.format))

    def body(arguments: KernelArguments, partial: Value | None) -> None:
        _Block(c, plan, arguments, chip, partial).write()

    return emit_split_k(kernel, c, launch, plan.parts, plan.format.sums, body)


def _is_for_them(c: Contraction) -> bool:
    return bool(c.k.extent and c.batches) and c.n.c == 1 and all(axis.extent for axis in c.k_outer)


def sum_tile(
    plan: GemmPlan,
    loaders: tuple[TileLoader, TileLoader],
    first: Index,
    chip: GpuName,
    outer: tuple[ContractionAxis, ...] = (),
) -> Value:
    """Emit the main loop from `first` along k on, and over the loops outside; returns the sums in shared memory."""
    tiling, count = plan.tiling, min(plan.tiling.stages, max(2, plan.trip_count))
    stages = PipelineStages(loaders, (0, tiling.rows * ROW_BYTES), count, tiling.stage, plan.trip_count, outer)
    sides = loaders[0].side, loaders[1].side
    work = WAYS[tiling.way](tiling, plan.format, sides, compute_capability(chip.chip))
    return stage_accumulators(plan, work.pieces(work.run(stages, first)))


def loader_of(side: MmaOperand, plan: GemmPlan, buffer: Value, size: int, depth: int, whole: bool) -> TileLoader:
    """Return the loader of a factor, by asynchronous copies or element by element; the arguments are its fields."""
    kind = ElementTileLoader if side.gathered else TileLoader
    return kind(side, plan.format, buffer, size, plan.tiling.threads, depth, whole)


class _Block:
    """One thread's part of its block's tile."""

    def __init__(
        self, c: Contraction, plan: GemmPlan, arguments: KernelArguments, chip: GpuName, partial: Value | None
    ) -> None:
        self.c, self.plan, self.chip = c, plan, chip
        self.scene, self.partial = ContractionScene(c, arguments), partial

    def write(self) -> None:
        """Emit the tile of this block's number."""
        plan, tiling = self.plan, self.plan.tiling
        batch, part, first = self._place()
        frame = self.scene.frame(batch)
        start = part * (plan.trip_count * plan.format.depth)
        left, right = (
            loader_of(side, plan, self.scene.inputs[side.number], size, self.c.k.extent, self._whole)
            for side, size in zip(mma_operands(self.c, plan.format), (tiling.rows, tiling.columns), strict=True)
        )
        left.start(frame.a, first[0], start)
        right.start(frame.b, first[1], start)
        buffer = sum_tile(plan, (left, right), start, self.chip, self.c.k_outer)
        lanes = lanes_for(self.c)
        put = epilogue_store(self.scene, frame, lanes)
        if self.partial is not None:
            put = partial_sum_store(self.c, self.partial, part * plan.batches + batch)
        store_tile(plan, self.c, buffer, first, lanes, put)

    @property
    def _whole(self) -> bool:
        """Return whether no stage has a remainder along k."""
        plan = self.plan
        if self.c.k_outer:
            return self.c.k.extent % plan.format.depth == 0
        return plan.parts * plan.trip_count * plan.format.depth == self.c.k.extent

    def _place(self) -> tuple[Value, Value, tuple[Value, Value]]:
        """Return the number of the product, the part of k, and the tile's first row and column."""
        plan, number = self.plan, block_index()
        tiles = plan.rows * plan.columns
        tile, rest = number % tiles, number // tiles
        together = TOGETHER()
        wide = together * plan.columns
        group = tile // wide * together
        size = cg.index(together)
        size = cg.minimum(cg.index(plan.rows) - group, size) if plan.rows % together else size
        row, column = group + tile % wide % size, tile % wide // size
        first = row * plan.tiling.rows, column * plan.tiling.columns
        if plan.parts == 1:
            return rest, cg.index(0), first
        return rest % plan.batches, rest // plan.batches, first
