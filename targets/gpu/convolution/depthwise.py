"""Depthwise convolutions, and others with one input feature a group: a thread computes a vector of output channels.

All loads of a window are in flight together; overlapping windows of neighbouring threads hit in L1.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import convert, load_converted
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.contraction import ContractionOperand
from stablexla.targets.codegen.match.epilogue import ContractionScene, accumulator_type, stores_vectors
from stablexla.targets.gpu.convolution.implicit_gemm import (
    MOST_LAUNCHES,
    ImplicitGemm,
    OutputPixel,
    emit_phases,
    implicit_gemms,
)
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, access_lanes, coordinates, grid_loop, kernel_function

MOST_TAPS = Gate("gpu-convolution.most-taps", 49, eager=1)
"""Windows of up to so many elements are unrolled."""


@gpu_emitter("convolution", priority=10)
def emit_channels(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit convolutions with one input feature in each group and windows small enough to unroll."""
    parts = implicit_gemms(kernel)
    if not 0 < len(parts) <= MOST_LAUNCHES:
        return None
    convolved = parts[0].convolved
    if convolved.inputs.extent != 1 or convolved.taps > MOST_TAPS() or convolved.group.extent == 1:
        return None
    with kernel.func.context:
        if not isinstance(accumulator_type(convolved.contraction), ir.FloatType | ir.IntegerType):
            return None

    def emit(windows: ImplicitGemm, name: str) -> None:
        channels = _Channels(windows)
        with kernel_function(kernel, Launch.for_items(channels.items), name) as arguments:
            channels.write(arguments)

    return emit_phases(kernel, parts, emit)


class _Channels:
    """The outputs of one phase."""

    def __init__(self, windows: ImplicitGemm) -> None:
        self.windows, self.convolved = windows, windows.convolved
        c = self.convolved
        vectors = c.outputs == 1 and c.group.a == c.group.b == 1 and stores_vectors(c.contraction)
        self.lanes = access_lanes(cg.bits_of(c.contraction.a.element), c.group.extent) if vectors else 1

    @property
    def items(self) -> int:
        """Vector stores of the result."""
        return self.windows.rows * self.convolved.contraction.n.extent // self.lanes

    def write(self, arguments: KernelArguments) -> None:
        """Emit the grid-stride loop over items, with coalesced stores."""
        c, rows = self.convolved, self.windows.rows
        pieces = c.contraction.n.extent // self.lanes
        with grid_loop(self.items) as item:
            if c.contraction.n.c == 1:
                number, piece = coordinates(item.iv, [rows, pieces])
            else:
                plane = prod(self.windows.counts)
                image, piece, place = coordinates(item.iv, [rows // plane, pieces, plane])
                number = image * plane + place
            self._one(ContractionScene(c.contraction, arguments), self.windows.pixel(number), piece * self.lanes)

    def _one(self, scene: ContractionScene, pixel: OutputPixel, feature: Value) -> None:
        c, width = self.convolved, 0 if self.lanes == 1 else self.lanes
        group, output = (feature // c.outputs, feature % c.outputs) if c.outputs > 1 else (feature, cg.index(0))
        found = []
        for number in range(self.windows.depth):
            taps = self._tap(number)
            at, inside = self.windows.left(pixel, taps)
            at = at if inside is None else cg.select(inside, at, pixel.batch * c.batch.a)
            right = self.windows.right(taps, cg.index(0)) + group * c.group.b + output * c.contraction.n.b
            operands = (c.contraction.a, at + group * c.group.a), (c.contraction.b, right)
            x, w = (self._load(scene, operand, place) for operand, place in operands)
            found.append((x, w, inside))
        total = cg.constant(0, cg.vector_of(width, scene.compute))
        for x, w, inside in found:
            made = cg.fma(x, w, total)
            total = made if inside is None else cg.select(inside, made, total)
        scene.write(total, self.windows.row(scene, pixel), feature, self.lanes)

    def _load(self, scene: ContractionScene, operand: ContractionOperand, at: Value) -> Value:
        """Load elements of a factor as the accumulator's type; marks vector alignment that LLVM cannot infer."""
        buffer = scene.inputs[operand.number]
        if self.lanes == 1:
            return load_converted(buffer, operand.conversion, scene.compute, at)
        size = self.lanes * max(8, cg.bits_of(operand.element)) // 8
        type_ = cg.vector_of(self.lanes, operand.element)
        value = Value(vector.load(type_, buffer.ssa, [at.ssa], alignment=size))
        return convert(value, operand.conversion, scene.compute)

    def _tap(self, number: int) -> list[Value]:
        """Return the coordinates of a window's element of known number."""
        places = []
        for phase in reversed(self.windows.phases):
            places.append(cg.index(number % phase.count))
            number //= phase.count
        return places[::-1]
