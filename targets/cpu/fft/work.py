"""Schedule a Fourier transform as phases of independent work items, with workspace on the stack or in the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Transform
from stablexla.lowering.kernels.fft.tables import Table
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import element_bytes
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.cpu.fft.columns import Tables
from stablexla.targets.cpu.fft.numbers import PlanarArray

# Workspace of a work item up to this size is on the thread's stack; larger ones share slabs of the arena.
STACK_BYTES = Gate("fft.stack-bytes", 1 << 19, eager=64)


@dataclass(frozen=True)
class FftFunction:
    """The function being emitted: its buffers, as arrays of real and imaginary parts, and its twiddle tables."""

    source: Value
    result: Value
    scratch: list[Value]
    tables: Tables
    part: ir.Type
    lanes: int
    sign: int


@dataclass(frozen=True)
class FftPhase:
    """Independent work items, run by one parallel-for.

    Attributes:
        memory: size in parts of each buffer of a work item's workspace.
        write: emits the code of a work item, given its workspace.
        nanoseconds: estimated time of one.
    """

    units: int
    memory: tuple[int, ...]
    write: Callable[[FftFunction, list[Value], Value], None]
    nanoseconds: float


@dataclass
class FftProgram:
    """The phases of a transform in order, and the scratch buffers shared between them."""

    target: CpuTarget
    part: ir.Type
    phases: list[FftPhase] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        """Vector width: complex numbers whose real parts fill one vector."""
        return max(2, self.target.vector_bits // (8 * element_bytes(self.part)))

    def buffer(self, parts: int) -> int:
        """Reserve a scratch buffer shared by all phases and return its number."""
        self.scratch.append(parts)
        return len(self.scratch) - 1

    def fits_stack(self, parts: int) -> bool:
        """Return whether a workspace of this size fits the stack without a thought."""
        return parts * element_bytes(self.part) <= STACK_BYTES()

    def emit(self, kernel: Kernel, plan: Transform) -> Emitted:
        """Emit a function for each phase."""
        groups = [self._groups(phase) for phase in self.phases]
        slab = max((g * sum(p.memory) for g, p in zip(groups, self.phases, strict=True) if g), default=0)
        scratch = tuple((str(self.part), n) for n in (*self.scratch, slab) if n)
        rows = []
        for number, (phase, group) in enumerate(zip(self.phases, groups, strict=True)):
            last = number == len(self.phases) - 1
            name = kernel.impl_name if last else f"{kernel.impl_name}_{number}"
            with kernel.phase(self.target, scratch, name) as arguments:
                self._write(phase, group, arguments, plan)
            items = group or phase.units
            rows.append(Phase(name, items, grain_of(phase.nanoseconds * phase.units / items, items)))
        # The first phase loads all inputs of a work item, or of everything, before any of them is overwritten.
        in_place = ((0, 0),) if plan.kind in ("FFT", "IFFT") else ()
        return Emitted(rows[-1].items, rows[-1].grain, scratch, in_place=in_place, phases=tuple(rows))

    def _groups(self, phase: FftPhase) -> int:
        """Return the number of groups of work items, each with a slab of the arena; 0 when the stack is enough."""
        return 0 if self.fits_stack(sum(phase.memory)) else min(phase.units, 2 * self.target.num_threads)

    def _write(self, phase: FftPhase, groups: int, arguments: KernelArguments, plan: Transform) -> None:
        scene = self._scene(arguments, plan)
        if not groups:
            memory = [cg.alloca(n, self.part) for n in phase.memory]
            with arguments.items(phase.units) as item:
                phase.write(scene, memory, item)
            return
        with arguments.items(groups) as item:
            slab, at = arguments.scratch[-1], item * sum(phase.memory)
            memory = []
            for n in phase.memory:
                memory.append(_part_of(slab, at, n))
                at = at + n
            first, last = ((item + i) * phase.units // groups for i in (0, 1))
            with cg.loop(first, last) as unit:
                phase.write(scene, memory, unit.iv)

    def _scene(self, arguments: KernelArguments, plan: Transform) -> FftFunction:
        tables: dict[Table, PlanarArray] = {}
        for table, buffer in zip(plan.tables, arguments.inputs[1:], strict=True):
            tables[table] = PlanarArray(buffer, cg.index(0), table.size)
        scratch = arguments.scratch[: len(self.scratch)]
        source, result = cg.as_parts(arguments.inputs[0]), cg.as_parts(arguments.results[0])
        sign = 1 if plan.kind in ("IFFT", "IRFFT") else -1
        return FftFunction(source, result, scratch, tables, self.part, self.lanes, sign)


def _part_of(buffer: Value, at: Value, size: int) -> Value:
    """Return `size` elements of a buffer, from `at` on, as a buffer of its own."""
    layout = ir.Attribute.parse("strided<[1], offset: ?>")
    shifted = ir.MemRefType.get([size], buffer.element, layout)
    made = ir.Operation.create(
        "memref.reinterpret_cast",
        results=[shifted],
        operands=[buffer.ssa, at.ssa],
        attributes={
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0, 0]),
            "static_offsets": ir.DenseI64ArrayAttr.get([-(2**63)]),
            "static_sizes": ir.DenseI64ArrayAttr.get([size]),
            "static_strides": ir.DenseI64ArrayAttr.get([1]),
        },
    )
    return Value(made.result)
