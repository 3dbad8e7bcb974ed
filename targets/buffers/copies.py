"""Copies of whole arrays in main: inline small ones, parallel-for calls for bigger ones.

Such a function copies bytes, regardless of elements; copies of one size share it.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import bytes_of, rounded_up
from stablexla.targets.codegen.vector_loops import LoopPart, vector_loop

# Bytes of a work item, and the grain: items worth waking a thread for (20 us at 13 GB/s).
BLOCK = Gate("copies.block", 64 << 10, eager=1)
GRAIN = Gate("copies.grain", 4, eager=1)
# One cache line at a time, whatever the registers are: LLVM splits it into their width.
LINE, UNROLL = 64, 4


class BufferCopies:
    """Code of copies, and of the functions that they need, inserted before the operation `place`."""

    def __init__(self, place: ir.Operation) -> None:
        self._place = place
        self._functions: dict[int, str] = {}

    def write(self, source: ir.Value, target: ir.Value) -> tuple[ir.Operation, int, int] | None:
        """Copy a flat buffer at the insertion point.

        Returns:
            The call, its number of work items, and its grain; None for a copy by one thread.
        """
        size = bytes_of(source.type)
        items = -(-size // _block())
        if items < 2 * GRAIN():
            memref.copy(source, target)
            return None
        if size not in self._functions:
            self._functions[size] = self._write_function(size)
        buffers = [as_bytes(v) for v in (source, target)]
        bounds = [arith.ConstantOp(ir.IndexType.get(), n).result for n in (0, items)]
        return func.CallOp([], self._functions[size], [*buffers, *bounds]).operation, items, GRAIN()

    def _write_function(self, size: int) -> str:
        """Emit a function that copies the items [lo, hi); return its name."""
        name, index = f"copy_{size}_bytes", ir.IndexType.get()
        with ir.InsertionPoint(self._place):
            types = [bytes_type(size), bytes_type(size), index, index]
            made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
        made.attributes["no_inline"] = ir.UnitAttr.get()
        source, target, lo, hi = (Value(v) for v in made.add_entry_block().arguments)
        machine = CpuTarget()

        def step(at: Value, count: int | None, totals: list[Value]) -> list[Value]:
            if count is None:
                cg.store(cg.load(source, at, LINE), target, at, nontemporal=size >= machine.nontemporal_bytes)
            else:
                cg.store_lanes(cg.load_lanes(source, at, LINE, count), target, at, count)
            return totals

        with cg.emitting(made, machine):
            block = _block()
            vector_loop(size, LINE, step, [[]] * UNROLL, LoopPart(lo * block, hi * block, hi.eq(-(-size // block))))
        return name


def _block() -> int:
    return rounded_up(BLOCK(), LINE * UNROLL)


def as_bytes(buffer: ir.Value) -> ir.Value:
    """Return a flat buffer as its bytes."""
    type_ = bytes_type(bytes_of(buffer.type))
    if buffer.type == type_:
        return buffer
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[buffer]).result


def bytes_type(size: int) -> ir.Type:
    """Return the type of a flat buffer of so many bytes."""
    return ir.MemRefType.get([size], ir.IntegerType.get_signless(8))
