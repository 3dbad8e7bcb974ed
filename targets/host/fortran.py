"""The Fortran calling convention of LAPACK and BLAS: every argument is the address of an array, number or character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlir.ir as ir
from mlir.dialects import func, memref

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.sizes import element_bytes
from stablexla.targets.host.lapack import PREFIX
from stablexla.targets.host.symbols import declare, pointer_type, to_pointer


class FortranFunction:
    """A function of LAPACK or BLAS, such as `dpotrf`, declared beside a kernel."""

    def __init__(self, kernel: Kernel, name: str, arguments: int) -> None:
        with kernel.func.context:
            self._callee = declare(kernel.func.operation, PREFIX + name, [pointer_type()] * arguments)

    def call(self, operands: Sequence[ir.Value]) -> None:
        """Emit a call with the addresses of all arguments."""
        func.CallOp([], self._callee, list(operands))


@contextmanager
def single_threaded_blas(kernel: Kernel, wanted: bool) -> Iterator[None]:
    """Keep the library's calls inside single-threaded, if `wanted`.

    Its threads for many small matrices would wait for each other, and for the threads that share a batch here.
    """
    if not wanted:
        yield
        return
    with kernel.func.context:
        begin, end = (declare(kernel.func.operation, f"stablexla_blas_alone_{when}", []) for when in ("begin", "end"))
    func.CallOp([], begin, [])
    yield
    func.CallOp([], end, [])


def address_at(buffer: Value, place: Value | int = 0) -> ir.Value:
    """Return the address of an element."""
    start = memref.extract_aligned_pointer_as_index(buffer.ssa)
    address = Value(start) + cg.index(place) * element_bytes(buffer.element)
    return to_pointer(address.ssa)


def address_of(value: Value) -> ir.Value:
    """Spill a value to the stack and return its address."""
    buffer = cg.alloca(1, value.type)
    cg.store(value, buffer, 0)
    return address_at(buffer)


def address_of_number(n: int) -> ir.Value:
    """Return the address of an integer constant."""
    return address_of(cg.constant(n, ir.IntegerType.get_signless(32)))


def address_of_character(letter: str) -> ir.Value:
    """Return the address of a character constant."""
    return address_of(cg.constant(ord(letter), ir.IntegerType.get_signless(8)))


def address_of_one(element: ir.Type) -> ir.Value:
    """Return the address of the number 1, real or complex."""
    part = element.element_type if isinstance(element, ir.ComplexType) else element
    parts = cg.alloca(2, part)
    cg.store(cg.constant(1.0, part), parts, 0)
    cg.store(cg.constant(0.0, part), parts, 1)
    return address_at(parts)


def null() -> ir.Value:
    """Return the null pointer."""
    return ir.Operation.create("llvm.mlir.zero", results=[pointer_type()]).result
