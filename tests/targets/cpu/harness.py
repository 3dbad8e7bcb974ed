"""Compiles one kernel alone, calls it piece by piece on numpy arrays, and watches what it touches.

Inputs end where unmapped memory begins and have no alignment beyond their elements'; results lie between
canaries. A kernel that reads or writes outside its buffers therefore fails here.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import mlir.ir as ir
import numpy as np

from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import COMBINER
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.kernel import KIND, Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.emitters import EMITTERS, Emitter
from stablexla.targets.llvm.to_llvm import code_to_llvm
from tests.jit import Packed, jit

DTYPES = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "i1": np.dtype(np.bool_),
    "index": np.dtype(np.int64),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


# --- compiling --------------------------------------------------------------------------------------------------


def emit(text: str, target: CpuTarget, *emitters: Emitter) -> tuple[ir.Module, Kernel, Emitted]:
    """Parses a module with one kernel on tensors and has it emitted by the first that takes it.

    Asked are the given emitters, or those registered for the kernel's kind.

    Raises:
        LookupError: no emitter takes the kernel.
    """
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        function = next(op for op in module.body.operations if KIND in op.operation.attributes)
        kernel, names = Kernel(function), [symbol_of(op) for op in module.body.operations]
        for ask in emitters or EMITTERS.get(kernel.kind, []):
            emitted = ask(kernel, target)
            if emitted is not None:
                module.operation.verify()
                return module, kernel, emitted
        assert names == [symbol_of(op) for op in module.body.operations], (
            "an emitter that declines must leave the module as it was"
        )
    raise LookupError(f"no emitter takes this kernel of kind {kernel.kind}")


def lower(module: ir.Module) -> None:
    """Drops the functions on tensors and lowers the others to LLVM's dialect."""
    with module.context, ir.Location.unknown():
        for op in list(module.body.operations):
            if KIND in op.operation.attributes or COMBINER in op.operation.attributes:
                op.operation.erase()
            elif op.operation.regions[0].blocks:  # so that those which nothing calls are kept
                op.operation.attributes["sym_visibility"] = ir.StringAttr.get("public")
    code_to_llvm(module)


def compile_kernel(
    text: str,
    target: CpuTarget | None = None,
    *emitters: Emitter,
    opt_level: int = 1,
    symbols: Mapping[str, int] | None = None,
) -> CompiledKernel:
    """The kernel in `text` as machine code of this machine; `symbols` are addresses of functions that it calls."""
    module, kernel, emitted = emit(text, target or host_target(), *emitters)
    inputs = [_Buffer.of(v.type) for v in kernel.inputs]
    results = [_Buffer.of(v.type) for v in kernel.results]
    phases = emitted.phases or (Phase(kernel.impl_name, emitted.items, emitted.grain),)
    lower(module)
    functions = jit(module, [phase.function for phase in phases], opt_level=opt_level, symbols=symbols)
    return CompiledKernel(functions, emitted, inputs, results, phases)


@dataclass(frozen=True)
class _Buffer:
    """Shape and type of a kernel's argument; `shape` is None for a scalar."""

    shape: tuple[int, ...] | None
    dtype: np.dtype

    @staticmethod
    def of(type_: ir.Type) -> _Buffer:
        if isinstance(type_, ir.RankedTensorType):
            return _Buffer(tuple(type_.shape), DTYPES[str(type_.element_type)])
        return _Buffer(None, DTYPES[str(type_)])


class CompiledKernel:
    """Machine code of a kernel; called with arrays in the order of its inputs it returns its results.

    A call of `kernel(x, y, chunks=3)` splits the items of each phase in three pieces and computes the last
    piece first; `in_place={0: 1}` puts result 0 where input 1 is.
    """

    def __init__(
        self,
        functions: Sequence[Packed],
        emitted: Emitted,
        inputs: Sequence[_Buffer],
        results: Sequence[_Buffer],
        phases: Sequence[Phase],
    ) -> None:
        self.emitted = emitted
        self.inputs, self.results, self.phases = inputs, results, phases
        self._functions = functions

    def __call__(self, *arguments: object, chunks: int = 1, in_place: dict[int, int] | None = None) -> list[np.ndarray]:
        given = [self._input(a, b) for a, b in zip(arguments, self.inputs, strict=True)]
        shared = {}
        for r, i in (in_place or {}).items():
            # Memory that is overwritten is as aligned as that of any result.
            overwritten = given[i]
            given[i] = shared[r] = Memory.of_result(self.inputs[i])
            given[i].array[...] = overwritten.array
        made = [shared.get(i) or Memory.of_result(b) for i, b in enumerate(self.results)]
        scratch = [Memory.of_result(_Buffer((n,), DTYPES[t])) for t, n in self.emitted.scratch]
        for number, phase in enumerate(self.phases):
            for lo, hi in reversed(list(pieces(phase.items, phase.grain, chunks))):
                self.run_phase(number, [*given, *made, *scratch], lo, hi)
        for memory in (*given, *made, *scratch):
            memory.check()
        return [m.array.copy() for m in made]

    def in_all_ways(self, *arguments: object) -> list[np.ndarray]:
        """The results; fails unless every cutting of the work and every claimed sharing gives the same bits."""
        results = self(*arguments)
        ways = [self(*arguments, chunks=3)]
        ways += [self(*arguments, chunks=2, in_place={r: i}) for r, i in self.emitted.in_place]
        for way in ways:
            for got, expected in zip(way, results, strict=True):
                assert got.tobytes() == expected.tobytes(), "the result depends on how the kernel is called"
        return results

    def _input(self, argument: object, buffer: _Buffer) -> Memory:
        if buffer.shape is None:
            return Memory.of_scalar(np.asarray(argument, buffer.dtype))
        array = np.asarray(argument)
        assert (array.shape, array.dtype.itemsize) == (buffer.shape, buffer.dtype.itemsize), (array.shape, buffer)
        return Memory.of_input(array)

    def run_phase(self, number: int, memories: Sequence[Memory], lo: int, hi: int) -> None:
        """Items [lo, hi) of one phase."""
        self.caller(memories, number)(lo, hi)

    def caller(self, memories: Sequence[Memory], phase: int = 0) -> Callable[[int, int], None]:
        """A function of (lo, hi) with everything else bound, for timing."""
        function = self._functions[phase]
        pointers = [m.argument for m in memories]

        def call(lo: int, hi: int) -> None:
            bounds = (ctypes.c_int64(lo), ctypes.c_int64(hi))
            slots = [*(ctypes.addressof(p) for p in pointers), *(ctypes.addressof(b) for b in bounds)]
            packed = (ctypes.c_void_p * len(slots))(*slots)
            function(ctypes.addressof(packed))

        return call


def pieces(items: int, grain: int, count: int) -> Iterable[tuple[int, int]]:
    """[0, items) in at most `count` pieces that are multiples of `grain`."""
    if not items:
        return
    # Any multiple of grain must do; in tests a grain that asks for a single piece is cut all the same.
    grain = grain if grain < items else 1
    step = -(-items // (count * grain)) * grain
    for lo in range(0, items, step):
        yield lo, min(items, lo + step)


# --- memory -----------------------------------------------------------------------------------------------------


class Memory:
    """An array in memory of its own, or a scalar; `argument` is what the packed call points to."""

    def __init__(self, array: np.ndarray, holder: object, edges: Sequence[np.ndarray] = ()) -> None:
        self.array, self._holder, self._edges = array, holder, edges
        self._scalar = array.ndim == 0 and holder is None
        self.argument: ctypes.c_void_p | ctypes.Array[ctypes.c_char] = (
            (ctypes.c_char * array.itemsize).from_buffer_copy(array.tobytes())
            if self._scalar
            else ctypes.c_void_p(array.ctypes.data)
        )

    @staticmethod
    def of_scalar(value: np.ndarray) -> Memory:
        return Memory(value, None)

    @staticmethod
    def of_input(source: np.ndarray) -> Memory:
        """A copy whose last byte is the last before memory that must not be touched."""
        size = -(-max(1, source.nbytes) // _PAGE) * _PAGE
        holder = mmap.mmap(-1, size + _PAGE)
        whole = np.frombuffer(holder, np.uint8)
        _libc.mprotect(whole.ctypes.data + size, _PAGE, 0)
        array = whole[size - source.nbytes : size].view(source.dtype).reshape(source.shape)
        array[...] = source
        return Memory(array, holder)

    @staticmethod
    def of_result(buffer: _Buffer) -> Memory:
        """64-byte aligned room for a result, with canaries on both sides."""
        shape = buffer.shape or ()
        size = prod(shape) * buffer.dtype.itemsize
        whole = np.full(size + 256, 0xA5, np.uint8)
        start = 64 + (-whole.ctypes.data) % 64
        array = whole[start : start + size].view(buffer.dtype).reshape(shape)
        return Memory(array, whole, (whole[:start], whole[start + size :]))

    def check(self) -> None:
        """Nothing was written beside the array."""
        assert all((edge == 0xA5).all() for edge in self._edges), "written outside the buffer"
