"""Functions shared by kernels: sizes are arguments, so that one copy in a module serves all shapes.

Buffers are passed as memrefs of a nominal extent; with the bare-pointer calling convention only an address is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir
from mlir.dialects import func, memref

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import ROLLED, Kernel
from stablexla.targets.codegen.machine import CpuTarget

# The nominal extent of every buffer inside a shared function: no access is out of bounds.
EXTENT = 1 << 40


class SharedFunctions:
    """Emit shared functions into a kernel's module, and calls of them."""

    def __init__(self, kernel: Kernel, target: CpuTarget) -> None:
        self._kernel, self._target = kernel, target
        self._open: dict[ir.Value, ir.Value] = {}

    def call(
        self,
        name: str,
        buffers: Sequence[Value],
        numbers: Sequence[Index],
        write: Callable[[list[Value], list[Value]], None],
        *,
        rolled: bool = False,
    ) -> None:
        """Call the function `name`; `write(buffers, numbers)` emits its body if the module has none of that name.

        The body may depend on `name` and on the element types of `buffers` alone. Loops of a `rolled` function are not
        unrolled.
        """
        name = "_".join([name, *(str(b.element) for b in buffers)])
        types = [_open(b.element) for b in buffers] + [ir.IndexType.get()] * len(numbers)
        function = self._find(name)
        if function is None:
            with ir.InsertionPoint(self._kernel.func), ir.Location.unknown():
                made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
            made.attributes["no_inline"] = ir.UnitAttr.get()
            if rolled:
                made.attributes[ROLLED] = ir.UnitAttr.get(made.context)
            arguments = [Value(argument) for argument in made.add_entry_block().arguments]
            with cg.emitting(made, self._target):
                write(arguments[: len(buffers)], arguments[len(buffers) :])
        func.CallOp([], name, [*(self._opened(b) for b in buffers), *(cg.index(n).ssa for n in numbers)])

    def _find(self, name: str) -> Any:
        """Return the function of a name in the module, or None."""
        module = self._kernel.func.operation.parent
        for view in module.regions[0].blocks[0].operations:
            op = view.operation
            if op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
                return op
        return None

    def _opened(self, buffer: Value) -> ir.Value:
        """Cast a buffer to the nominal extent; emitted once, next to the buffer's def."""
        found = self._open.get(buffer.ssa)
        if found is None:
            owner = buffer.ssa.owner
            begin = ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else None
            with begin or ir.InsertionPoint.after(owner):
                found = self._open[buffer.ssa] = _reinterpreted(buffer)
        return found


def _open(element: ir.Type) -> ir.Type:
    return ir.MemRefType.get([EXTENT], element)


def _reinterpreted(buffer: Value) -> ir.Value:
    layout = ir.StridedLayoutAttr.get(0, [1])
    strided = ir.MemRefType.get([EXTENT], buffer.element, layout)
    whole = memref.reinterpret_cast(
        strided, buffer.ssa, [], [], [], static_offsets=[0], static_sizes=[EXTENT], static_strides=[1]
    )
    return memref.cast(_open(buffer.element), whole)
