"""FFT, a launch for each dimension: lines ping-pong between two buffers in shared memory, whatever their length.

Longer lines, and lengths whose prime factors are too large for a thread's registers, go the general path: a launch for
each pass, with a thread for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import (
    Axis,
    Bluestein,
    Direct,
    Line,
    RealLine,
    Split,
    Transform,
    plan_transform,
)
from stablexla.lowering.rules.fft import FftConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.fft.lines import LARGEST_RADIX, FftLines, FftLinesShape
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, launched

ELEMENTS = Gate("gpu-fft.elements", 1024, eager=1)
"""Elements of a block, where lines are short."""
THREADS = 256
FEW_BYTES, MANY_BYTES = 48 << 10, 96 << 10
"""Shared memory limit of a block, before sm_80 and from it on."""


_LONG = Refusal(
    "a dimension is too long for a block's shared memory, or has a large prime factor",
    "shorter dimensions: two of n in place of one of n * n, or a length of small factors",
)


@gpu_emitter("fft")
def emit_fft(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit transforms of which every dimension fits."""
    config = kernel.config(FftConfig)
    plan = plan_transform(config.fft_type, config.shape, config.fft_length)
    most = MANY_BYTES if compute_capability(chip.chip) >= 80 else FEW_BYTES
    shapes = [_shape(axis) for axis in plan.axes]
    if not all(_fits(axis.plan) for axis in plan.axes) or max(shape.bytes for shape in shapes) > most:
        refuse(_LONG)
        return None
    several = plan.kind == "IRFFT" and len(plan.axes) > 1
    scratch = ((str(kernel.inputs[0].type.element_type), prod(config.shape)),) if several else ()
    names = []
    for number, (axis, shape) in enumerate(zip(plan.axes, shapes, strict=True)):
        name = kernel.impl_name if len(shapes) == 1 else f"{kernel.impl_name}_{number}"
        names.append(name)
        blocks = -(-axis.outer // shape.lines) if axis.inner == 1 else axis.outer * -(-axis.inner // shape.lines)
        with kernel_function(kernel, Launch(blocks, shape.threads, shape.bytes), name, scratch) as arguments:
            _Dimension(plan, axis, shape, arguments, number == 0, number == len(shapes) - 1).write()
    return launched(names, scratch)


def _fits(plan: Line | RealLine) -> bool:
    if isinstance(plan, RealLine):
        return _fits(plan.inner)
    if isinstance(plan, Direct):
        return all(step.radix <= LARGEST_RADIX for step in plan.passes)
    if isinstance(plan, Split):
        return _fits(plan.columns) and _fits(plan.rows)
    return isinstance(plan, Bluestein) and _fits(plan.inner)


def _length(plan: Line | RealLine) -> int:
    """Return the largest length of a line within a plan (Bluestein's is padded)."""
    return _length(plan.inner) if isinstance(plan, RealLine | Bluestein) else plan.n


def _shape(axis: Axis) -> FftLinesShape:
    length = _length(axis.plan)
    others = axis.outer if axis.inner == 1 else axis.inner
    lines = max(1, min(ELEMENTS() // length, others))
    threads = 32
    while threads < THREADS and threads * 8 < lines * length:
        threads *= 2
    return FftLinesShape(lines, length, threads, across=axis.inner > 1)


@dataclass
class _Dimension:
    """One dimension's transform: offsets of the block's lines in input and output."""

    plan: Transform
    axis: Axis
    shape: FftLinesShape
    arguments: KernelArguments
    is_first: bool
    is_last: bool

    def write(self) -> None:
        arguments, axis = self.arguments, self.axis
        tables = dict(zip(self.plan.tables, arguments.inputs[1:], strict=True))
        lines = FftLines(self.shape, tables)
        result = arguments.results[0]
        middle = arguments.scratch[0] if arguments.scratch else result
        source = arguments.inputs[0] if self.is_first else middle
        target = result if self.is_last else middle
        n = axis.plan.n
        kept = n // 2 + 1
        if not isinstance(axis.plan, RealLine):
            made = lines.line(axis.plan, lambda line, at: _number(cg.load(source, self._place(line, at, n))))
            lines.each(n, self._to(target, n, lambda line, at: made(line, at)))
        elif self.plan.kind == "RFFT":
            real = lines.from_real(axis.plan, lambda line, at: _wide(cg.load(source, self._place(line, at, n))))
            lines.each(kept, self._to(target, kept, lambda line, at: real(line, at)))
        else:
            pairs = lines.to_real(axis.plan, lambda line, at: _number(cg.load(source, self._place(line, at, kept))))
            if axis.plan.fine is None:
                lines.each(n, self._to(target, n, lambda line, at: pairs(line, at)))
            else:
                lines.each(n // 2, self._pairs_to(target, n, pairs))

    def _to(
        self, target: Value, length: int, made: Callable[[Value, Value], Complex]
    ) -> Callable[[Value, Value], None]:
        def body(line: Value, at: Value) -> None:
            value = made(line, at)
            with cg.when(self._exists(line)):
                _store(self._scaled(value), target, self._place(line, at, length))

        return body

    def _pairs_to(
        self, target: Value, length: int, made: Callable[[Value, Value], Complex]
    ) -> Callable[[Value, Value], None]:
        def body(line: Value, at: Value) -> None:
            value = self._scaled(made(line, at))
            with cg.when(self._exists(line)):
                for number, part in enumerate(value.parts):
                    _store(Complex(part, part), target, self._place(line, at * 2 + number, length))

        return body

    def _scaled(self, value: Complex) -> Complex:
        return value.scaled(self.plan.scale if self.is_last else 1.0)

    def _line(self, line: Value) -> tuple[Value, Value, int]:
        """Return a line's number before the dimension and after it, and how many lines there are after it."""
        axis, lines = self.axis, self.shape.lines
        if axis.inner == 1:
            return block_index() * lines + line, cg.index(0), axis.outer
        groups = -(-axis.inner // lines)
        return block_index() // groups, block_index() % groups * lines + line, axis.inner

    def _exists(self, line: Value) -> Value:
        outer, column, count = self._line(line)
        return (outer if self.axis.inner == 1 else column).lt(count)

    def _place(self, line: Value, at: Value, length: int) -> Value:
        """Return the offset of an element of a line, clamped to the last line."""
        outer, column, count = self._line(line)
        if self.axis.inner == 1:
            return cg.minimum(outer, count - 1) * length + at
        return (outer * length + at) * self.axis.inner + cg.minimum(column, count - 1)


# ---- elements in memory ----------------------------------------------------------------------------------------------


def _wide(value: Value) -> Value:
    return cg.to_float(value, ir.F64Type.get())


def _number(value: Value) -> Complex:
    part = ir.ComplexType(value.type).element_type
    parts = (ir.Operation.create(f"complex.{name}", results=[part], operands=[value.ssa]) for name in ("re", "im"))
    return Complex(*(_wide(Value(part.result)) for part in parts))


def _store(value: Complex, target: Value, place: Value) -> None:
    element = target.element
    part = element.element_type if isinstance(element, ir.ComplexType) else element
    parts = [cg.to_float(v, part) for v in value.parts]
    if part == element:
        cg.store(parts[0], target, place)
    else:
        made = ir.Operation.create("complex.create", results=[element], operands=[v.ssa for v in parts]).result
        cg.store(Value(made), target, place)
