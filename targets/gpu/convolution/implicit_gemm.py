"""Implicit GEMM of a convolution: M = output pixels, N = features, K = window x input features; im2col is virtual.

With dilation of lhs (a strided gradient), outputs of different phases use different taps of the window: each phase is a
product of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.match.convolution import (
    DilationPhase,
    MatchedConvolution,
    WindowDimension,
    match_convolution,
)
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, ResultRow
from stablexla.targets.gpu.threads import coordinates, launched

MOST_LAUNCHES = 16
"""Phases of a convolution, at most, each of which is a launch."""


@dataclass(frozen=True)
class OutputPixel:
    """An output pixel, of all features, with the origin of its window.

    Attributes:
        base: offset of the origin in lhs, in elements; a tap's distance is added to it.
        starts: origin along each spatial dimension.
        batch, places: coordinates of the output, positions in its phase.
    """

    base: Value
    starts: tuple[Value, ...]
    batch: Value
    places: tuple[Value, ...]


@dataclass(frozen=True)
class ImplicitGemm:
    """The outputs of one phase along each spatial dimension."""

    convolved: MatchedConvolution
    numbers: tuple[int, ...]

    @property
    def dims(self) -> tuple[WindowDimension, ...]:
        """The spatial dimensions."""
        return (*self.convolved.outer, self.convolved.last)

    @property
    def phases(self) -> tuple[DilationPhase, ...]:
        """The phase along each dimension."""
        return tuple(d.phases[n] for d, n in zip(self.dims, self.numbers, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """Outputs along each dimension."""
        return tuple(-(-(d.outputs - n) // len(d.phases)) for d, n in zip(self.dims, self.numbers, strict=True))

    @property
    def rows(self) -> int:
        """Output pixels in all (M)."""
        return self.convolved.batch.extent * prod(self.counts)

    @property
    def features(self) -> int:
        """Input features of a group."""
        return self.convolved.inputs.extent

    @property
    def depth(self) -> int:
        """Products of one sum (K)."""
        return prod(p.count for p in self.phases) * self.features

    def pixel(self, number: Value) -> OutputPixel:
        """Return output pixel number `number`, clamped to the last one."""
        number = cg.minimum(number, self.rows - 1)
        batch, *places = coordinates(number, [self.convolved.batch.extent, *self.counts])
        base, starts = batch * self.convolved.batch.a, []
        for d, phase, place in zip(self.dims, self.phases, places, strict=True):
            start = place * d.stride + phase.offset
            base = base + start * d.a
            starts.append(start)
        return OutputPixel(base, tuple(starts), batch, tuple(places))

    def tap(self, k: Value) -> tuple[list[Value], Value]:
        """Decode position `k`: the element of the window along each dimension, and the input feature."""
        counts = [p.count for p in self.phases]
        if prod(counts) == 1:
            return [cg.index(0)] * len(counts), k
        *taps, feature = coordinates(k, [*counts, self.features])
        return taps, feature

    def left(self, pixel: OutputPixel, taps: Sequence[Value]) -> tuple[Value, Value | None]:
        """Return the offset in lhs of a pixel's tap, and the mask of padding, if there is any."""
        at, inside = pixel.base, None
        for d, phase, tap, start in zip(self.dims, self.phases, taps, pixel.starts, strict=True):
            step = tap * d.tap_stride
            at = at + step * d.a
            for condition in self._conditions(d, phase, start + step):
                inside = condition if inside is None else inside & condition
        return at, inside

    def _conditions(self, d: WindowDimension, phase: DilationPhase, place: Value) -> list[Value]:
        count = self.counts[self.dims.index(d)]
        last = (count - 1) * d.stride + phase.offset + (phase.count - 1) * d.tap_stride
        below = [place.ge(0)] if phase.offset < 0 else []
        return below + ([place.lt(d.size)] if last >= d.size else [])

    def right(self, taps: Sequence[Value], feature: Value) -> Value:
        """Return the offset of a tap in the weights of the first output feature."""
        at = feature * self.convolved.inputs.b
        for d, phase, tap in zip(self.dims, self.phases, taps, strict=True):
            at = at + (tap * d.tap_step + phase.first) * d.b
        return at

    @property
    def right_stride(self) -> int | None:
        """Return the weights' stride along k, where it is uniform."""
        expected = self.convolved.inputs.b * self.features
        for d, phase in reversed(list(zip(self.dims, self.phases, strict=True))):
            if phase.count > 1 and d.tap_step * d.b != expected:
                return None
            expected *= phase.count
        return self.convolved.inputs.b

    def row(self, scene: ContractionScene, pixel: OutputPixel) -> ResultRow:
        """Return the row of the result of a pixel."""
        *outer, last = (
            place * len(d.phases) + n for place, d, n in zip(pixel.places, self.dims, self.numbers, strict=True)
        )
        coordinates: list[Index] = [pixel.batch, *outer]
        at = cg.index(0)
        for axis, x in zip(scene.contraction.batch, coordinates, strict=True):
            at = at + cg.index(x) * axis.c
        return scene.row(BatchFrame(0, 0, at, tuple(coordinates)), last)


def implicit_gemms(kernel: Kernel) -> list[ImplicitGemm]:
    """Match a convolution: one `ImplicitGemm` for each phase that has outputs; none for other kernels."""
    with kernel.func.context, ir.Location.unknown():
        convolved = match_convolution(kernel)
    sizes = [prod(value.type.shape) for value in kernel.inputs if isinstance(value.type, ir.RankedTensorType)]
    if convolved is None or not all(sizes) or not prod(convolved.contraction.shape):
        return []
    dims = (*convolved.outer, convolved.last)
    numbers = product(*(range(min(len(d.phases), d.outputs)) for d in dims))
    return [ImplicitGemm(convolved, n) for n in numbers]


def emit_phases(kernel: Kernel, parts: Sequence[ImplicitGemm], emit: Callable[[ImplicitGemm, str], None]) -> Emitted:
    """Emit a launch for each phase; `emit` writes the function of a name."""
    names = [f"{kernel.impl_name}_{n}" if len(parts) > 1 else kernel.impl_name for n in range(len(parts))]
    for windows, name in zip(parts, names, strict=True):
        emit(windows, name)
    return launched(names)
