"""Tombstones of erased operations, against use after erasure: reading one, or a value of it, raises and names the pass.

MLIR frees an erased operation, and a value that a rewrite holds of it is a dangling pointer: reading one, or looking
the operation up in a set, may end the process, or give what took its place in memory. Under tests an erased operation
is taken out of the program and kept until its pass has ended, marked; nothing may be read of it any more. conftest.py
turns this on for all tests.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects import erasing
from stablexla.targets.pipeline.passes import ModulePass

OF_OPERATIONS = ("attributes", "name", "operands", "regions", "results", "result", "location", "parent", "op_operands")
OF_VALUES = ("owner", "uses", "type", "location")


class ErasedError(Exception):
    """Something was read of an operation that a pass has erased."""


_STONES: dict[int, str] = {}
"""The addresses of what is buried, those inside of it too, with the pass that erased it; of all threads."""


class _Graveyard(threading.local):
    """Operations that this thread's running pass has erased."""

    def __init__(self) -> None:
        self.running = ""
        self.buried: list[Any] = []
        self.addresses: list[int] = []
        self.placeholders: dict[Any, Any] = {}

    def bury(self, op: Any) -> None:
        """Take an operation out of its block; what it uses loses these uses. Outside of passes it just ends."""
        if not self.running:
            op.erase()
            return
        inside = nested(op)
        addresses = [_address(inner) for inner in inside]
        if op.attached:
            op.detach_from_parent()
        made = {v for inner in inside for v in (*inner.results, *_arguments(inner))}
        for inner in inside:
            for number, operand in enumerate(inner.operands):
                if operand not in made:
                    inner.operands[number] = self._instead_of(operand)
        _STONES.update(dict.fromkeys(addresses, self.running))
        self.addresses += addresses
        self.buried.append(op)

    def _instead_of(self, value: Any) -> Any:
        """Return another value of the same type, of no operation in the program."""
        type_ = value.type
        made = self.placeholders.get(type_)
        if made is None:
            mlir = hlo_ir if isinstance(value, hlo_ir.Value) else ir
            with mlir.Location.unknown(value.context):
                made = mlir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], ip=False)
            self.placeholders[type_] = made
        return made.results[0]

    def clear(self) -> None:
        """End what is buried, users first."""
        for address in self.addresses:
            _STONES.pop(address, None)
        for op in (*self.buried, *self.placeholders.values()):
            op.erase()
        self.addresses.clear()
        self.buried.clear()
        self.placeholders.clear()


_GRAVEYARD = _Graveyard()


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_CAPSULES = {ir.Operation: b"mlir.ir.Operation._CAPIPtr", hlo_ir.Operation: b"jaxlib.mlir.ir.Operation._CAPIPtr"}
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _address(op: Any) -> int:
    """Return where an operation lies; its own hash changes with its attributes."""
    op = op.operation
    return int(_pointer(op._CAPIPtr, _CAPSULES[type(op)]))


def nested(op: Any) -> list[Any]:
    """Return an operation and all inside of it, in either MLIR."""
    found = []

    def note(each: Any) -> Any:
        found.append(each.operation)
        return advance

    advance = (hlo_ir if isinstance(op, hlo_ir.Operation) else ir).WalkResult.ADVANCE
    op.walk(note)
    return found


def _arguments(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            yield from block.arguments


def _holder(mlir: Any) -> Callable[[Any], Any]:
    """Return a function that returns a value's operation, or that of its block, and reads no checked properties."""
    owner, block, result = vars(mlir.Value)["owner"].fget, vars(mlir.Block)["owner"].fget, mlir.OpResult

    def holder(value: Any) -> Any:
        return owner(value) if isinstance(value, result) else block(owner(value))

    return holder


def _checked(plain: property, holder: Callable[[Any], Any]) -> property:
    """A property that refuses to read what is erased; `holder` returns the operation that it belongs to."""
    read = plain.fget
    assert read is not None

    def get(self: Any) -> Any:
        if _STONES and (op := holder(self)) is not None and (found := _STONES.get(_address(op))) is not None:
            raise ErasedError(f"read of an operation that was erased by {found}")
        return read(self)

    return property(get, plain.fset)


@contextmanager
def running(name: str) -> Iterator[None]:
    """Attribute erasures to the pass `name`; when it ends, erased operations are destroyed."""
    before, _GRAVEYARD.running = _GRAVEYARD.running, name
    try:
        yield
    finally:
        _GRAVEYARD.running = before
        if not before:
            _GRAVEYARD.clear()


def install() -> None:
    """From now on erased operations leave tombstones, in both MLIRs."""
    erasing.destroy = _GRAVEYARD.bury
    for mlir in (ir, hlo_ir):
        base = mlir.Operation.__mro__[1]
        for name in OF_OPERATIONS:
            if name in vars(base):
                setattr(base, name, _checked(vars(base)[name], lambda op: op))
        base.__hash__ = _checked(property(base.__hash__), lambda op: op).fget
        holder = _holder(mlir)  # before the properties that it reads are checked
        for kind, name in product((mlir.Value, mlir.OpResult, mlir.BlockArgument), OF_VALUES):
            if name in vars(kind):
                setattr(kind, name, _checked(vars(kind)[name], holder))
    bind = ModulePass.bind

    @functools.wraps(bind)
    def bound(self: ModulePass, given: Any) -> Callable[[Any], Any]:
        run = bind(self, given)

        def watched(module: Any) -> Any:
            with running(self.name):
                return run(module)

        return watched

    ModulePass.bind = bound  # type: ignore[method-assign]
