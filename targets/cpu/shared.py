"""Functions shared by kernels: sizes are arguments, so that one copy serves all shapes, in a module and in the library.

A function is looked up by the value that it is made from, a `SharedFunction`. Buffers are passed as memrefs of a
nominal extent; with the bare-pointer calling convention only an address is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar, Protocol

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.choices import active_choices
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import ROLLED
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.llvm.early_code import EarlyCode, open_session

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
    of_library: ClassVar[bool] = True
    """Whether its code comes from the library in all kernels. In a program's own module LLVM puts sizes in the place of
    arguments, which short loops that copy and pack gain by."""

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


class Home(Protocol):
    """Owner of shared functions: a `Kernel`, or a module of the library.

    Attributes:
        func: the function before which they stand.
        shared_symbols, emitted, uses_library: as of `Kernel`.
    """

    func: Any
    shared_symbols: dict[Hashable, str]
    emitted: list[ir.Operation]
    uses_library: bool


class SharedFunctions:
    """Emit shared functions into a kernel's module, and calls of them.

    Args:
        all_of_library: whether those that gain by a program's sizes come from the library, too.
    """

    def __init__(self, home: Home, target: CpuTarget, *, all_of_library: bool = False) -> None:
        self._home, self._target, self.all_of_library = home, target, all_of_library
        self._open: dict[ir.Value, ir.Value] = {}

    def call(self, spec: SharedFunction, buffers: Sequence[Value], numbers: Sequence[Index]) -> None:
        """Call the function that `spec` makes; it is emitted if the module has none yet.

        Raises:
            TypeError: a field of `spec` is no value.
        """
        elements = tuple(b.element for b in buffers)
        of_library, symbols = spec.of_library or self.all_of_library, self._home.shared_symbols
        key = (spec, elements, self._target, of_library)
        if key not in symbols:
            check_value(spec, type(spec).__name__)
            is_ours = type(spec).__module__.startswith("stablexla.")  # others may change while a process runs
            session = open_session() if self._home.uses_library and is_ours else None
            if session is None:
                symbols[key] = self._new_symbol(spec, elements)
                self._emit(spec, symbols[key], elements, len(numbers))
            else:
                symbols[key] = self._in_session(session, spec, elements, len(numbers), of_library)
        func.CallOp([], symbols[key], [*(self.opened(b) for b in buffers), *(cg.index(n).ssa for n in numbers)])

    def _in_session(
        self, session: EarlyCode, spec: SharedFunction, elements: Sequence[ir.Type], count: int, of_library: bool
    ) -> str:
        """Declare a function of the library, or emit one that is not, and return its symbol."""
        target = self._target
        machine = (target.vector_bits, target.features, target.emulated)
        key = (type(spec).__module__, spec, [str(element) for element in elements], count, machine, active_choices())
        if not of_library:
            symbol = session.shared_symbol(f"{_symbol(spec, elements)}_own", key)
            session.make_room(symbol)
            self._emit(spec, symbol, elements, count)
            return symbol
        module = self._home.func.operation.parent
        symbol = session.library_symbol(
            module, _symbol(spec, elements), key, lambda symbol: _alone(spec, symbol, elements, count, target)
        )
        session.make_room(symbol)
        self._declared(symbol, elements, count)
        return symbol

    def define(self, name: str, key: Hashable, count: int, emit: Callable[[list[Value]], None]) -> str:
        """Emit a function of the program, of `count` indices; return its symbol, or that of one of the same key.

        Args:
            name: the beginning of its symbol, for readers.
            key: all that its code depends on, but for the target; None if that is not known.
            emit: emits the body, given the arguments.
        """
        symbols = self._home.shared_symbols
        known = (name, key, self._target)
        if key is not None and known in symbols:
            return symbols[known]
        session = open_session() if self._home.uses_library else None
        symbol = name if session is not None else self._free_symbol(name)
        made = self._declared(symbol, (), count)
        made.attributes["no_inline"] = ir.UnitAttr.get()
        arguments = [Value(argument) for argument in made.add_entry_block().arguments]
        with cg.emitting(made, self._target, in_blocks=False):
            emit(arguments)
        if session is not None:
            text = made.operation.get_asm(assume_verified=True, use_local_scope=True)
            machine = (self._target.vector_bits, self._target.features, self._target.emulated)
            symbol = session.shared_symbol(name, [text, machine, active_choices()])
        if key is not None:
            symbols[known] = symbol
        if symbol in symbols:  # of another key and the same text
            erase(made.operation)
            return symbol
        if session is not None:
            session.make_room(symbol)
        made.attributes["sym_name"] = ir.StringAttr.get(symbol)
        self._home.emitted.append(made.operation)
        symbols[symbol] = symbol
        return symbol

    def _new_symbol(self, spec: SharedFunction, elements: Sequence[ir.Type]) -> str:
        return self._free_symbol(_symbol(spec, elements))

    def _free_symbol(self, name: str) -> str:
        block = self._home.func.operation.parent.regions[0].blocks[0]
        taken = {symbol_of(op) for op in block.operations}
        number, symbol = 0, name
        while symbol in taken:
            number, symbol = number + 1, f"{name}_{number + 1}"
        return symbol

    def _declared(self, symbol: str, elements: Sequence[ir.Type], count: int) -> func.FuncOp:
        types = [_open(element) for element in elements] + [ir.IndexType.get()] * count
        with ir.InsertionPoint(self._home.func), ir.Location.unknown():
            return func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")

    def _emit(self, spec: SharedFunction, symbol: str, elements: Sequence[ir.Type], count: int) -> None:
        made = self._declared(symbol, elements, count)
        self._home.emitted.append(made.operation)
        made.attributes["no_inline"] = ir.UnitAttr.get()
        if spec.rolled:
            made.attributes[ROLLED] = ir.UnitAttr.get(made.context)
        arguments = [Value(argument) for argument in made.add_entry_block().arguments]
        with cg.emitting(made, self._target):
            spec.emit(self, arguments[: len(elements)], arguments[len(elements) :])

    def opened(self, buffer: Value) -> ir.Value:
        """Cast a buffer to the nominal extent; emitted once, next to the buffer's def."""
        found = self._open.get(buffer.ssa)
        if found is None:
            owner = buffer.ssa.owner
            begin = ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else None
            with begin or ir.InsertionPoint.after(owner):
                found = self._open[buffer.ssa] = cg.viewed(buffer.ssa, _open(buffer.element))
        return found


@dataclass(eq=False)
class _Alone:
    """The home of a function of the library: a module with nothing else."""

    func: Any
    shared_symbols: dict[Hashable, str] = field(default_factory=dict)
    emitted: list[ir.Operation] = field(default_factory=list)
    uses_library: bool = False


def _alone(spec: SharedFunction, symbol: str, elements: Sequence[ir.Type], count: int, target: CpuTarget) -> ir.Module:
    """Emit a function, and what it calls, in a module of their own."""
    with ir.Location.unknown(elements[0].context):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            place = func.FuncOp("place", ir.FunctionType.get([], []), visibility="private")
        SharedFunctions(_Alone(place), target)._emit(spec, symbol, elements, count)
        erase(place.operation)
    return module


def _symbol(spec: SharedFunction, elements: Sequence[ir.Type]) -> str:
    return "_".join([spec.name, *(str(element) for element in elements)])


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
    for each in fields(value):
        check_value(getattr(value, each.name), f"{where}.{each.name}")


def _open(element: ir.Type) -> ir.Type:
    return ir.MemRefType.get([EXTENT], element)
