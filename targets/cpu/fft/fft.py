"""Emit Fourier transforms: choose the schedule of each dimension, and the layout of its input and output."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.kernels.fft.plan import Axis, Direct, RealLine, Transform, plan_transform
from stablexla.lowering.rules.fft import FftConfig
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.fft.blocks import ArrayAt, FftRows, add_columns, add_short_lines
from stablexla.targets.cpu.fft.lines import FftLines, FftStageContext
from stablexla.targets.cpu.fft.numbers import ComplexArray, InterleavedArray, RealArray
from stablexla.targets.cpu.fft.work import FftFunction, FftProgram


@emitter("fft")
def emit_fft(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit one phase or more for each dimension of the transform."""
    config = kernel.config(FftConfig)
    plan = plan_transform(config.fft_type, config.shape, config.fft_length)
    # The compute type is that of the twiddle tables, which exist for every length but 1.
    tables = kernel.inputs[1:]
    with kernel.func.context:
        part = tables[0].type.element_type if tables else ir.F64Type.get()
        program = FftProgram(target, part)
        _Writer(program, plan, config.shape).add_axes()
        return program.emit(kernel, plan)


class _Writer:
    """Add the dimensions of a multi-dimensional transform to the program, one after the other."""

    def __init__(self, program: FftProgram, plan: Transform, shape: tuple[int, ...]) -> None:
        self.program, self.plan = program, plan
        several = plan.kind == "IRFFT" and len(plan.axes) > 1
        size = 2
        for extent in shape:
            size *= extent
        # The real result is too small for the half spectrum that is left once the other dimensions are transformed.
        self.between = program.buffer(size) if several else None

    def add_axes(self) -> None:
        last = len(self.plan.axes) - 1
        for number, axis in enumerate(self.plan.axes):
            source = self._source if number == 0 else self._middle
            target = self._result(self.plan.scale) if number == last else self._middle
            if isinstance(axis.plan, RealLine) or axis.inner == 1:
                self._add_lines(axis, source, target)
            else:
                add_columns(self.program, axis, source, target)

    # ---- arrays of complex numbers -----------------------------------------------------------------------------------

    @staticmethod
    def _source(scene: FftFunction, at: Value) -> ComplexArray:
        return InterleavedArray(scene.source, at, scene.part)

    def _middle(self, scene: FftFunction, at: Value) -> ComplexArray:
        """Return the intermediate array between two dimensions."""
        return InterleavedArray(scene.result if self.between is None else scene.scratch[self.between], at, scene.part)

    @staticmethod
    def _result(scale: float) -> ArrayAt:
        return lambda scene, at: InterleavedArray(scene.result, at, scene.part, scale)

    # ---- lines -------------------------------------------------------------------------------------------------------

    def _add_lines(self, axis: Axis, source: ArrayAt, target: ArrayAt) -> None:
        plan, kind, scale = axis.plan, self.plan.kind, self.plan.scale
        before = after = axis.plan.n
        if isinstance(plan, RealLine):
            kept, odd = plan.n // 2 + 1, plan.n % 2
            real_length = plan.n if odd else plan.n // 2  # two real numbers count as one complex number
            if kind == "RFFT":
                before, after = real_length, kept
                source = _reals_of_source if odd else source
            else:
                before, after = kept, real_length
                target = _reals_of_result(scale) if odd else target
        inner = plan.inner if isinstance(plan, RealLine) else plan
        if isinstance(inner, Direct):
            assert isinstance(plan, Direct | RealLine)
            kind = kind if isinstance(plan, RealLine) else "FFT"
            add_short_lines(self.program, plan, kind, axis.outer, FftRows(source, before), FftRows(target, after))
            return

        def given(place: FftStageContext) -> ComplexArray:
            return source(place.scene, place.row * before)

        def made(place: FftStageContext) -> ComplexArray:
            return target(place.scene, place.row * after)

        lines = FftLines(self.program, axis.outer, given, made)
        if not isinstance(plan, RealLine):
            stages = lines.complex_line(plan, given, made)
        elif kind == "RFFT":
            stages = lines.from_real(plan, given, made)
        else:
            stages = lines.to_real(plan, given, made)
        lines.add(stages, inner.n)


def _reals_of_source(scene: FftFunction, at: Value) -> ComplexArray:
    return RealArray(scene.source, at, scene.part)


def _reals_of_result(scale: float) -> ArrayAt:
    return lambda scene, at: RealArray(scene.result, at, scene.part, scale)
