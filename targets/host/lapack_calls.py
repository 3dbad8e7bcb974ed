"""Emit calls of LAPACK: a work item is one matrix, and a range of them shares one workspace.

The arguments of each routine stand in the table of `lapack_routines.py`; here each kind of argument is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import mlir.ir as ir
from mlir.dialects import memref

from stablexla.dialects.choices import Gate
from stablexla.dialects.errors import CompileError
from stablexla.lowering.rules.calls.lapack import LAPACK, LapackConfig
from stablexla.lowering.rules.calls.lapack_routines import ROUTINES, Array, arrays
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import UNBOUNDED, Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.vector_loops import grain_of
from stablexla.targets.host.emitters import host_emitter
from stablexla.targets.host.fortran import (
    FortranFunction,
    address_at,
    address_of_character,
    address_of_number,
    address_of_one,
    null,
    single_threaded_blas,
)
from stablexla.targets.host.lapack_workspace import query_workspace

# Cost model: LAPACK's multiplications per nanosecond, roughly, and the overhead of one call.
RATE, CALL_NS = 2.0, 1000.0
# Threshold in multiplications above which one matrix is left to the library's own threads.
WORTH_THREADS = Gate("lapack.worth-threads", 50_000_000, eager=1)
NOT_FINITE = -4
"""The info of a matrix that was not passed to LAPACK, as in JAX."""

Address = Callable[[Value], ir.Value]


@host_emitter(LAPACK)
def emit_lapack(kernel: Kernel, target: CpuTarget) -> Emitted:
    """Emit calls of a routine for the matrices [lo, hi)."""
    call = _Call(kernel)
    with kernel.phase(target) as arguments:
        call.write(arguments)
    kernel.emitted[-1].attributes[UNBOUNDED] = ir.UnitAttr.get(kernel.func.context)  # it can be left without memory
    grain = grain_of(CALL_NS + call.routine.cost(call.sizes) / RATE, call.batch)
    return Emitted(call.batch, grain, updates=call.updates)


class _Call:
    """A call of one LAPACK routine: its sizes, its option letters and its arrays."""

    def __init__(self, kernel: Kernel) -> None:
        config = kernel.config(LapackConfig)
        self.kernel, self.name, self.batch = kernel, config.routine, config.batch
        self.routine = ROUTINES[self.name]
        self.sizes, self.words = config.sizes, config.words
        self.operands = arrays(self.routine.operands)
        self.results = tuple(
            array for array in arrays(self.routine.results) if not self.routine.leaves_out(array.name, self.words)
        )
        self.element = kernel.inputs[0].type.element_type
        self.is_complex = isinstance(self.element, ir.ComplexType)
        given = [array.name for array in self.operands]
        self.updates = tuple(
            (i, given.index(array.name)) for i, array in enumerate(self.results) if array.name in given
        )
        self.tokens = [
            token.removesuffix("?") for token in self.routine.call.split() if self.is_complex or token[-1] != "?"
        ]

    @property
    def part(self) -> ir.Type:
        return self.element.element_type if self.is_complex else self.element

    def elements(self, array: Array) -> int:
        """Return the number of elements in one matrix."""
        return prod(max(0, self.sizes["n"] - 1) if size == "n-1" else self.sizes[size] for size in array.sizes)

    # ---- the function ----------------------------------------------------------------------------------------------

    def write(self, arguments: KernelArguments) -> None:
        """Emit the body of the function on buffers."""
        self.buffers = {a.name: (b, self.elements(a)) for a, b in zip(self.operands, arguments.inputs, strict=True)}
        self.given = dict(self.buffers)
        for array, buffer in zip(self.results, arguments.results, strict=True):
            self.buffers[array.name] = (buffer, self.elements(array))
        routine = FortranFunction(self.kernel, self.name, len(self.tokens))
        large = self.routine.cost(self.sizes) >= WORTH_THREADS()
        with single_threaded_blas(self.kernel, self.batch > 1 or not large), self._memory():
            addresses = [self._address(token) for token in self.tokens]
            with arguments.items(self.batch) as item, self._if_finite(item):
                for name, buffer in self.copies.items():
                    self._copy(name, buffer, item)
                routine.call([address(item) for address in addresses])
                self._unpack(item)

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Allocate the workspace, and free it afterwards."""
        routine, i32 = self.routine, ir.IntegerType.get_signless(32)
        lengths = {
            "work": (max(routine.work(self.sizes), query_workspace(self.name, self.sizes, self.words)), self.element),
            "rwork": (max(1, routine.rwork(self.sizes)), self.part),
            "iwork": (max(1, routine.iwork(self.sizes)), i32),
        }
        if max(length for length, _ in lengths.values()) >= 2**31:
            raise CompileError(f"LAPACK's {self.name} asks for more work space than it can count in 32 bits")
        self.work = {
            name: (length, _allocate(length, t)) for name, (length, t) in lengths.items() if name in self.tokens
        }
        self.copies = {name: _allocate(self.buffers[name][1], self.element) for name in self._named("copy")}
        self.packed = {
            name: _allocate(self.buffers[name][1], self.part) for name in self._named("packed") if name in self.buffers
        }
        yield
        for buffer in (*(b for _, b in self.work.values()), *self.copies.values(), *self.packed.values()):
            memref.dealloc(buffer.ssa)

    def _named(self, function: str) -> list[str]:
        return [token[len(function) + 1 : -1] for token in self.tokens if token.startswith(function + "(")]

    # ---- arguments -------------------------------------------------------------------------------------------------

    def _address(self, token: str) -> Address:
        """Return a function from a matrix's number to the address of an argument."""
        if token in self.buffers or token.endswith("+1"):
            name, _, offset = token.partition("+")
            buffer, elements = self.buffers[name]
            return lambda item: address_at(buffer, item * elements + int(offset or 0))
        fixed = self._fixed(token)
        return lambda item: fixed

    def _fixed(self, token: str) -> ir.Value:
        """Return the address of an argument that is loop-invariant: the same for all matrices."""
        if token in self.sizes:
            return address_of_number(self.sizes[token])
        if token in self.words:
            return address_of_character(self.words[token])
        if token in self.work:
            return address_at(self.work[token][1])
        if token.startswith("l") and token[1:] in self.work:
            return address_of_number(self.work[token[1:]][0])
        if token == "one":
            return address_of_one(self.element)
        if token == "info":  # the program has no use of it
            return address_of_number(0)
        function = re.fullmatch(r"(\w+)\((\w+)\)", token)
        if function and function[1] == "ld":
            return address_of_number(max(1, self.sizes[function[2]]))
        for taken, made in (("copy", self.copies), ("packed", self.packed)):
            if function and function[1] == taken and function[2] in made:
                return address_at(made[function[2]])
        return null()  # a result that is left out, or `null` itself

    # ---- around the call -------------------------------------------------------------------------------------------

    @contextmanager
    def _if_finite(self, item: Value) -> Iterator[None]:
        """Guard the call by a check for finite numbers, for routines that may not terminate otherwise.

        The results of other matrices are NaN.
        """
        if not self.routine.checks_finite:
            yield
            return
        buffer, elements = self.given[self.routine.checks_finite]
        true = cg.constant(1, ir.IntegerType.get_signless(1))
        with cg.loop(0, elements, 1, [true]) as turn:
            fine = turn.args[0]
            for part in _parts(cg.load(buffer, item * elements + turn.iv)):
                fine = fine & (part - part).eq(0.0)
            turn.yields(fine)
        sides = cg.branch(turn.results[0])
        with sides.then:
            yield
        with sides.otherwise:
            for array in self.results:
                self._say_not_finite(array.name, item)

    def _say_not_finite(self, name: str, item: Value) -> None:
        """Set the results of a matrix that is not finite: NaN, and `info`."""
        buffer, elements = self.buffers[name]
        if isinstance(buffer.element, ir.IntegerType):
            value = cg.constant(NOT_FINITE if name == "info" else 0, buffer.element)
        elif isinstance(buffer.element, ir.ComplexType):
            part = cg.constant(math.nan, buffer.element.element_type)
            value = _complex(part, part, buffer.element)
        else:
            value = cg.constant(math.nan, buffer.element)
        with cg.loop(0, elements) as turn:
            cg.store(value, buffer, item * elements + turn.iv)

    def _copy(self, name: str, copy: Value, item: Value) -> None:
        buffer, elements = self.given[name]
        with cg.loop(0, elements) as turn:
            cg.store(cg.load(buffer, item * elements + turn.iv), copy, turn.iv)

    def _unpack(self, item: Value) -> None:
        """Unpack real columns into complex eigenvectors, where the routine reports success."""
        if not self.packed:
            return
        with cg.when(cg.load(self.buffers["info"][0], item).eq(0)):
            for name, packed in self.packed.items():
                self._unpack_columns(name, packed, item)

    def _unpack_columns(self, name: str, packed: Value, item: Value) -> None:
        n = self.sizes["n"]
        values, _ = self.buffers[self.routine.packed[name]]
        target, elements = self.buffers[name]
        false = cg.constant(0, ir.IntegerType.get_signless(1))
        with cg.loop(0, n, 1, [false]) as columns:
            is_second, j = columns.args[0], columns.iv
            imaginary = cg.load(values, item * n + j)
            is_real = imaginary.eq(0.0) | imaginary.ne(imaginary)
            is_first = (is_real | is_second) ^ 1
            first, second = cg.select(is_second, j - 1, j), cg.select(is_first, j + 1, j)
            with cg.loop(0, n) as rows:
                x, y = cg.load(packed, first * n + rows.iv), cg.load(packed, second * n + rows.iv)
                y = cg.select(is_real, cg.constant(0.0, y.type), cg.select(is_second, -y, y))
                cg.store(_complex(x, y, target.element), target, item * elements + j * n + rows.iv)
            columns.yields(is_first)


def _allocate(elements: int, element: ir.Type) -> Value:
    return Value(memref.alloc(ir.MemRefType.get([max(1, elements)], element), [], [], alignment=64))


def _parts(value: Value) -> list[Value]:
    if not isinstance(value.type, ir.ComplexType):
        return [value]
    part = value.type.element_type
    return [
        Value(ir.Operation.create(f"complex.{name}", results=[part], operands=[value.ssa]).result)
        for name in ("re", "im")
    ]


def _complex(x: Value, y: Value, type_: ir.Type) -> Value:
    return Value(ir.Operation.create("complex.create", results=[type_], operands=[x.ssa, y.ssa]).result)
