"""Functions shared by kernels: sizes are arguments, so that one copy in a module serves all shapes.

A function is looked up by the value that it is made from, a `SharedFunction`. Buffers are passed as memrefs of a
nominal extent; with the bare-pointer calling convention only an address is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import mlir.ir as ir
from mlir.dialects import func, memref

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import ROLLED, Kernel
from stablexla.targets.codegen.machine import CpuTarget

# The nominal extent of every buffer inside a shared function: no access is out of bounds.
EXTENT = 1 << 40


@dataclass(frozen=True)
class SharedFunction(ABC):
    """All that a shared function depends on but for its buffers' element types and the target, and its body.

    A frozen dataclass at the top of a module, whose fields are numbers, words, types, attributes, or tuples and
    dataclasses of such. So the body sees nothing of a kernel: equal values have one function.
    """

    rolled: ClassVar[bool] = False
    """Whether LLVM leaves its loops as they are, see `targets/llvm/no_unroll.py`."""

    def __init_subclass__(cls) -> None:
        if "<locals>" in cls.__qualname__:
            raise TypeError(f"{cls.__qualname__} could read the variables around it: a shared function stands alone")

    @property
    @abstractmethod
    def name(self) -> str:
        """The beginning of its symbol's name, for readers: different functions may have one."""

    @abstractmethod
    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        """Emit the body; `functions` are for calls of others."""


class SharedFunctions:
    """Emit shared functions into a kernel's module, and calls of them."""

    def __init__(self, kernel: Kernel, target: CpuTarget) -> None:
        self._kernel, self._target = kernel, target
        self._open: dict[ir.Value, ir.Value] = {}

    def call(self, spec: SharedFunction, buffers: Sequence[Value], numbers: Sequence[Index]) -> None:
        """Call the function that `spec` makes; it is emitted if the module has none yet.

        Raises:
            TypeError: a field of `spec` is no value.
        """
        elements = tuple(b.element for b in buffers)
        key, symbols = (spec, elements, self._target), self._kernel.shared_symbols
        if key not in symbols:
            check_value(spec, type(spec).__name__)
            symbols[key] = self._new_symbol(spec, elements)
            self._emit(spec, symbols[key], elements, len(numbers))
        func.CallOp([], symbols[key], [*(self._opened(b) for b in buffers), *(cg.index(n).ssa for n in numbers)])

    def _new_symbol(self, spec: SharedFunction, elements: Sequence[ir.Type]) -> str:
        name = "_".join([spec.name, *(str(element) for element in elements)])
        block = self._kernel.func.operation.parent.regions[0].blocks[0]
        taken = {symbol_of(op) for op in block.operations}
        number, symbol = 0, name
        while symbol in taken:
            number, symbol = number + 1, f"{name}_{number + 1}"
        return symbol

    def _emit(self, spec: SharedFunction, symbol: str, elements: Sequence[ir.Type], count: int) -> None:
        types = [_open(element) for element in elements] + [ir.IndexType.get()] * count
        with ir.InsertionPoint(self._kernel.func), ir.Location.unknown():
            made = func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")
        self._kernel.emitted.append(made.operation)
        made.attributes["no_inline"] = ir.UnitAttr.get()
        if spec.rolled:
            made.attributes[ROLLED] = ir.UnitAttr.get(made.context)
        arguments = [Value(argument) for argument in made.add_entry_block().arguments]
        with cg.emitting(made, self._target):
            spec.emit(self, arguments[: len(elements)], arguments[len(elements) :])

    def _opened(self, buffer: Value) -> ir.Value:
        """Cast a buffer to the nominal extent; emitted once, next to the buffer's def."""
        found = self._open.get(buffer.ssa)
        if found is None:
            owner = buffer.ssa.owner
            begin = ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else None
            with begin or ir.InsertionPoint.after(owner):
                found = self._open[buffer.ssa] = _reinterpreted(buffer)
        return found


def check_value(value: Any, where: str) -> None:
    """Check that a field is a value: equal to every other that makes the same code, and no way into a kernel.

    Raises:
        TypeError: it is not; `where` is the path to it.
    """
    if value is None or isinstance(value, bool | int | float | str | ir.Type | ir.Attribute):
        return
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            check_value(item, f"{where}[{number}]")
        return
    parameters = vars(type(value)).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise TypeError(f"{where} is a {type(value).__name__}, by which no two functions can be compared")
    for field in fields(value):
        check_value(getattr(value, field.name), f"{where}.{field.name}")


def _open(element: ir.Type) -> ir.Type:
    return ir.MemRefType.get([EXTENT], element)


def _reinterpreted(buffer: Value) -> ir.Value:
    layout = ir.StridedLayoutAttr.get(0, [1])
    strided = ir.MemRefType.get([EXTENT], buffer.element, layout)
    whole = memref.reinterpret_cast(
        strided, buffer.ssa, [], [], [], static_offsets=[0], static_sizes=[EXTENT], static_strides=[1]
    )
    return memref.cast(_open(buffer.element), whole)
