"""Runs under guard: `main` tells the runtime which kernel is next, and where each temporary lies.

Around each kernel stand two calls, of which the second looks at the canaries; results and scratch that a kernel is to
write hold a pattern before it. The arrays' pages are the runtime's business, `guard.h`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import mlir.ir as ir
from mlir.dialects import arith, memref

from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.codegen.runtime_calls import GUARD, call_at_place, call_runtime, number_of
from stablexla.targets.codegen.sizes import bytes_of

_DECLARED = f"""
llvm.func @{GUARD}array(i64, i64, i64)
llvm.func @{GUARD}fill(i64, i64)
llvm.func @{GUARD}kernel(i64)
llvm.func @{GUARD}check(i64)
"""


class KernelGuards:
    """Emits the calls.

    Args:
        module: of `main`, to declare the functions in; without one there are no calls.
    """

    def __init__(self, module: ir.Module | None = None) -> None:
        self.is_on = module is not None
        if module is not None:
            with ir.InsertionPoint.at_block_begin(module.body):
                for view in ir.Module.parse(_DECLARED).body.operations:
                    view.operation.clone()

    def around(self, function: str) -> AbstractContextManager[None]:
        """Emit the calls around a kernel's, or whatever else writes to arrays."""
        return self._around(function.partition("_impl")[0]) if self.is_on else nullcontext()

    @contextmanager
    def _around(self, name: str) -> Iterator[None]:
        call_at_place(f"{GUARD}kernel", number_of(name), says=name)
        yield
        call_at_place(f"{GUARD}check", number_of(name), says=name)

    def fill(self, arrays: Sequence[ir.Value]) -> None:
        """Emit calls that make arrays hold the pattern of memory that was not written."""
        for array in arrays:
            call_runtime(f"{GUARD}fill", [_address(array), _constant(bytes_of(array.type))])

    def announce(self, arena: ir.Value, temporaries: Mapping[Buffer, str]) -> None:
        """Emit a call for each temporary."""
        if not temporaries:
            return
        start = _address(arena)
        for number, (buffer, what) in enumerate(temporaries.items()):
            says = f"temporary {number}, {what}"
            place = arith.addi(start, _constant(buffer.offset))
            call_at_place(f"{GUARD}array", number_of(says), [place, _constant(buffer.bytes)], says)


def _constant(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(64), value)


def _address(array: ir.Value) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    return arith.index_cast(i64, memref.extract_aligned_pointer_as_index(array))
