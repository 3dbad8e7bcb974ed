"""Tiling of tensor-core GEMM: block and warp tiles, pipeline stages in shared memory, split-K; the cost model."""

from __future__ import annotations

from math import prod

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.gpu.chips import compute_capability, shared_limit
from stablexla.targets.gpu.contraction.mma_formats import ROW_BYTES, MmaFormat
from stablexla.targets.gpu.threads import WARP

FRAGMENT_ROWS = 16
"""Rows, or columns, of one fragment."""
MULTIPROCESSORS = {80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 103: 148, 120: 170, 121: 48}
"""Multiprocessors of the largest chip of a generation; the cost model uses it, and its choice is correct on any."""
ALIGNED = 1024
"""Alignment in bytes of stages that `wgmma` reads."""
MOST_PARTS = Gate("gpu-mma.most-parts", 16, eager=2)
FEW = Gate("gpu-mma.few-rows", 64, eager=1)
MIN_ITERATIONS = Gate("gpu-mma.least-iterations", 8, eager=1)
"""Fewest iterations of the main loop that are worth a part of k."""


@dataclass(frozen=True)
class MmaOperand:
    """One factor as a block reads it.

    Attributes:
        number: of the kernel's input.
        extent: rows or columns of the whole product.
        stride, stride_k: elements from one row or column to the next, and along k.
        along_k: contiguous along k in shared memory.
        gathered: elements are loaded one by one.
    """

    number: int
    extent: int
    stride: int
    stride_k: int
    along_k: bool
    gathered: bool


def mma_operands(c: Contraction, format_: MmaFormat) -> tuple[MmaOperand, MmaOperand]:
    """Return both factors."""

    def side(number: int, axis: ContractionAxis, name: str) -> MmaOperand:
        stride, stride_k = getattr(axis, name), getattr(c.k, name)
        along_k = stride_k == 1 or format_.bytes == 1
        inner, outer = (c.k.extent, stride) if along_k else (axis.extent, stride_k)
        steps = [inner, outer, *(getattr(b, name) for b in (*c.batch, *c.k_outer))]
        whole = 1 in (stride_k, stride if format_.bytes > 1 else stride_k) and not any(s % format_.chunk for s in steps)
        return MmaOperand(number, axis.extent, stride, stride_k, along_k, not whole)

    return side(c.a.number, c.m, "a"), side(c.b.number, c.n, "b")


@dataclass(frozen=True)
class BlockTiling:
    """A block's tile.

    Attributes:
        rows, columns: of the block's tile.
        warps: of a block, down and across.
        stages: of the pipeline in shared memory.
        speed: sustained rate, relative to the best tile of `mma.sync`, for the cost model.
        way: what multiplies: "warps" by `mma.sync`, warpgroups ("groups" of four) by `wgmma`, or "threads" by FMA.
    """

    rows: int
    columns: int
    warps: tuple[int, int]
    stages: int
    speed: float
    way: str = "warps"

    @property
    def threads(self) -> int:
        return prod(self.warps) * WARP

    @property
    def stage(self) -> int:
        """Bytes of one stage."""
        return (self.rows + self.columns) * ROW_BYTES

    @property
    def warp_rows(self) -> int:
        return self.rows // self.warps[0]

    @property
    def warp_columns(self) -> int:
        return self.columns // self.warps[1]

    @property
    def pitch(self) -> int:
        """Leading dimension of accumulators in shared memory, padded by 8, so that four rows are in different banks."""
        return self.columns + 8

    def shared(self, format_: MmaFormat) -> int:
        """Return a block's shared memory in bytes: stages, and later the accumulators."""
        margin = ALIGNED if self.way == "groups" else 0
        return margin + max(self.stages * self.stage, self.rows * self.pitch * format_.sum_bytes)


WARPS = (
    BlockTiling(128, 256, (2, 4), 3, 1.0),
    BlockTiling(128, 128, (2, 4), 3, 0.85),
    BlockTiling(128, 64, (4, 2), 3, 0.65),
    BlockTiling(64, 128, (2, 4), 3, 0.65),
    BlockTiling(64, 64, (2, 2), 4, 0.5),
)
GROUPS = (
    BlockTiling(128, 256, (8, 1), 4, 1.9, "groups"),
    BlockTiling(128, 128, (8, 1), 4, 1.6, "groups"),
)
THREADS = (
    BlockTiling(128, 128, (4, 2), 3, 1.0, "threads"),
    BlockTiling(64, 128, (2, 2), 3, 0.8, "threads"),
    BlockTiling(64, 64, (2, 1), 4, 0.6, "threads"),
)


@dataclass(frozen=True)
class GemmPlan:
    """Tiling and split-K of one product.

    Attributes:
        parts: split-K factor, a block for each part; more than 1 leaves partial sums that a second launch reduces.
        trip_count: trip count of the main loop in a part.
    """

    tiling: BlockTiling
    format: MmaFormat
    batches: int
    rows: int
    columns: int
    parts: int
    trip_count: int

    @property
    def blocks(self) -> int:
        return self.batches * self.rows * self.columns * self.parts


def plan_gemm(c: Contraction, format_: MmaFormat, chip: str, only: BlockTiling | None = None) -> GemmPlan | None:
    """Choose the plan of least modelled time, or None; `only`: of this tiling."""
    found = [
        _plan(c, format_, tiling, chip)
        for tiling in ((*GROUPS, *WARPS, *THREADS) if only is None else (only,))
        if tiling.shared(format_) <= shared_limit(chip) and _takes(tiling, format_, c, chip)
    ]
    return min(found, key=lambda p: _time(p, chip), default=None)


def _takes(tiling: BlockTiling, format_: MmaFormat, c: Contraction, chip: str) -> bool:
    if (tiling.way == "threads") != (format_.name == "f32"):
        return False
    if tiling.columns > 128 and any(side.gathered for side in mma_operands(c, format_)):
        return False
    if tiling.way == "threads":
        return True
    if tiling.way == "warps":
        return format_.bytes < 8 or tiling.rows * tiling.columns <= 64 * 128
    along_k = all(side.along_k for side in mma_operands(c, format_))
    return chip == "sm_90a" and (format_.bytes == 2 or (along_k and format_.bytes < 8))


def _plan(c: Contraction, format_: MmaFormat, tiling: BlockTiling, chip: str) -> GemmPlan:
    rows, columns = -(-c.m.extent // tiling.rows), -(-c.n.extent // tiling.columns)
    blocks, trip_count = c.batches * rows * columns, -(-c.k.extent // format_.depth)
    # Products of few rows are bandwidth-bound: two blocks a multiprocessor have more loads in flight.
    room = 2 if c.m.extent <= FEW() and 2 * tiling.shared(format_) <= shared_limit(chip) else 1
    wanted = min(
        MOST_PARTS(),
        room * MULTIPROCESSORS.get(compute_capability(chip), 128) // blocks,
        trip_count // MIN_ITERATIONS(),
    )
    if c.k_outer:
        wanted, trip_count = 1, trip_count * prod(axis.extent for axis in c.k_outer)
    each = -(-trip_count // max(1, wanted))
    return GemmPlan(tiling, format_, c.batches, rows, columns, -(-trip_count // each), each)


def _time(plan: GemmPlan, chip: str) -> float:
    """Estimate the time of the busiest multiprocessor, in arbitrary units."""
    waves = -(-plan.blocks // MULTIPROCESSORS.get(compute_capability(chip), 128))
    work = plan.tiling.rows * plan.tiling.columns * plan.trip_count / plan.tiling.speed
    sums = plan.parts * plan.batches * plan.rows * plan.columns * plan.tiling.rows * plan.tiling.columns
    return waves * (work + plan.tiling.rows * 64) + (sums / 256 if plan.parts > 1 else 0)
