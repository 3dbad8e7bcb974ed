"""Implicit GEMM on tensor cores: the tiles of `contraction/mma.py`, with rows of the im2col matrix gathered from lhs.

Features must be contiguous in lhs, in whole 16 bytes: then each asynchronous copy is one element of the window, some
features of it; outside of lhs it writes zeros.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.gpu.contraction.epilogue import lanes_for, store_tile
from stablexla.targets.gpu.contraction.mma import loader_of, sum_tile
from stablexla.targets.gpu.contraction.mma_formats import ROW_BYTES, MmaFormat, mma_format_of
from stablexla.targets.gpu.contraction.mma_loads import CHUNKS, TileLoader, copy_chunk, swizzled, thread_chunk
from stablexla.targets.gpu.contraction.mma_plan import GemmPlan, MmaOperand, mma_operands, plan_gemm
from stablexla.targets.gpu.convolution.implicit_gemm import ImplicitGemm, implicit_gemms
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function

LEAST = Gate("gpu-convolution.least-of-mma", 16, eager=1)
LEAST_DEPTH = Gate("gpu-convolution.least-depth", 32, eager=1)
"""Rows and output features (M, N), and products of a sum (K), from which tiles pay off."""


@gpu_emitter("convolution", priority=20)
def emit_on_tensor_cores(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit convolutions of types that tensor cores multiply, without dilation of lhs, with features last in lhs."""
    parts = implicit_gemms(kernel)
    if len(parts) != 1:
        return None
    (windows,) = parts
    with kernel.func.context:
        format_ = mma_format_of(windows.convolved.contraction)
    if format_ is None or compute_capability(chip.chip) < format_.oldest:
        return None
    small = min(windows.rows, windows.convolved.outputs) < LEAST() or windows.depth < LEAST_DEPTH()
    if small or windows.convolved.contraction.n.c != 1:
        return None
    flat = as_contraction(windows)
    if flat is None or not _fits(windows, format_):
        return None
    plan = plan_gemm(flat, format_, chip.chip)
    if plan is None:
        return None
    trip_count = -(-windows.depth // format_.depth)
    plan = replace(plan, parts=1, trip_count=trip_count)
    launch = Launch(plan.blocks, plan.tiling.threads, plan.tiling.shared(format_))
    with kernel_function(kernel, launch) as arguments:
        _Block(windows, flat, plan, arguments, chip).write()
    return Emitted(plan.blocks, 1)


def as_contraction(windows: ImplicitGemm) -> Contraction | None:
    """Return the matrix product of each group of a convolution; None if its weights do not lie like a matrix."""
    c, stride = windows.convolved, windows.right_stride
    if stride is None or any(p.first for p in windows.phases):
        return None
    n = ContractionAxis(c.outputs, 0, c.contraction.n.b, 1)
    group = ContractionAxis(c.group.extent, c.group.a, c.group.b, c.group.c)
    rows, depth = ContractionAxis(windows.rows), ContractionAxis(windows.depth, c.inputs.a, stride)
    return replace(c.contraction, batch=(group,), m=rows, n=n, k=depth)


def _fits(windows: ImplicitGemm, format_: MmaFormat) -> bool:
    """Return whether all copies are whole 16 bytes."""
    c, chunk = windows.convolved, format_.chunk
    steps = [c.batch.a, c.group.a, *(d.a for d in windows.dims if d.size > 1)]
    return c.inputs.a == 1 and c.inputs.extent % chunk == 0 and not any(step % chunk for step in steps)


@dataclass
class Im2colLoader(TileLoader):
    """One thread's share of the asynchronous copies of im2col rows.

    Attributes:
        windows: what the rows are.
    """

    windows: ImplicitGemm

    def start(self, base: Index, first: Value, k: Index) -> None:
        """Compute the windows of the thread's rows, for the tile that begins at row `first`."""
        place, chunk = thread_chunk()
        self._to = swizzled(place, chunk, self._key(place))
        self._k = chunk * self.format.chunk
        rows = self.threads // CHUNKS
        self._pixels = [self.windows.pixel(first + place + n * rows) for n in range(self.size // rows)]
        self._base = cg.index(base)
        self.source = cg.address(self.buffer)

    @property
    def advance(self) -> int:
        """Return 0: source addresses are computed anew for every stage."""
        return 0

    def issue(self, to: Value, to_offset: int, source: Value, k: Index) -> None:
        """Issue the copies of the stage that begins at `k` to address `to`; `source`: of lhs."""
        place, rows = cg.index(k) + self._k, self.threads // CHUNKS
        taps, feature = self.windows.tap(place)
        exists = None if self.whole else place.lt(self.depth)
        for number, pixel in enumerate(self._pixels):
            at, inside = self.windows.left(pixel, taps)
            if exists is not None:
                inside = exists if inside is None else inside & exists
            at, to_row = at + feature + self._base, to_offset + number * rows * ROW_BYTES
            copy_chunk(to, self._to, to_row, source, at, self.format.bytes, inside)


class _Block:
    """One thread's part of its block's tile."""

    def __init__(
        self, windows: ImplicitGemm, flat: Contraction, plan: GemmPlan, arguments: KernelArguments, chip: GpuName
    ) -> None:
        self.windows, self.flat, self.plan, self.chip = windows, flat, plan, chip
        self.scene = ContractionScene(windows.convolved.contraction, arguments)

    def write(self) -> None:
        """Emit the tile of this block's number."""
        plan, tiling, flat = self.plan, self.plan.tiling, self.flat
        group, column, row = cg.split_index(block_index(), [plan.batches, plan.columns, plan.rows])
        first = row * tiling.rows, column * tiling.columns
        sides, f, depth = self._sides(), plan.format, flat.k.extent
        whole, (lhs, rhs) = depth % f.depth == 0, (self.scene.inputs[side.number] for side in sides)
        left = Im2colLoader(sides[0], f, lhs, tiling.rows, tiling.threads, depth, whole, self.windows)
        right = loader_of(sides[1], plan, rhs, tiling.columns, depth, whole)
        left.start(group * flat.batch[0].a, first[0], 0)
        right.start(group * flat.batch[0].b, first[1], 0)
        buffer = sum_tile(plan, (left, right), cg.index(0), self.chip)

        def put(value: Value, number: Value, feature: Value) -> None:
            out = self.windows.row(self.scene, self.windows.pixel(number))
            self.scene.write(value, out, feature + group * flat.n.extent, max(1, value.lanes))

        store_tile(plan, flat, buffer, first, gcd(lanes_for(self.scene.contraction), flat.n.extent), put)

    def _sides(self) -> tuple[MmaOperand, MmaOperand]:
        """Return both factors; the left one is contiguous along k within one element of the window."""
        left, right = mma_operands(self.flat, self.plan.format)
        return replace(left, stride_k=1, along_k=True, gathered=False), right
