"""Tombstones of erased operations, against use after erasure: reading one, or a value of it, raises and names the pass.

MLIR frees an erased operation, and a value that a rewrite holds of it is a dangling pointer: reading one may end the
process, or give what took its place in memory. Under tests an erased operation is taken out of the program and kept
until its pass has ended, marked; nothing may be read of it any more. conftest.py turns this on for all tests.
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


class _Graveyard(threading.local):
    """Operations that this thread's running pass has erased, those inside of them too."""

    def __init__(self) -> None:
        self.running = ""
        self.stones: dict[int, str] = {}
        self.buried: list[Any] = []
        self.placeholders: list[Any] = []
        self.is_burying = False

    def bury(self, op: Any) -> None:
        """Take an operation out of its block; what it uses loses these uses. Outside of passes it just ends."""
        if not self.running:
            op.erase()
            return
        self.is_burying = True
        try:
            inside = list(nested(op))
            self.stones.update(dict.fromkeys(map(_address, inside), self.running))
            for inner in inside:
                for number, operand in enumerate(inner.operands):
                    if _address(_maker(operand)) not in self.stones:
                        inner.operands[number] = self._instead_of(operand)
            if op.attached:
                op.detach_from_parent()
            self.buried.append(op)
        finally:
            self.is_burying = False

    def _instead_of(self, value: Any) -> Any:
        """Return another value of the same type, of no operation in the program."""
        mlir = hlo_ir if isinstance(value, hlo_ir.Value) else ir
        with mlir.Location.unknown(value.context):
            made = mlir.Operation.create("builtin.unrealized_conversion_cast", results=[value.type], ip=False)
        self.placeholders.append(made)
        return made.results[0]

    def clear(self) -> None:
        """End what is buried, users first."""
        self.stones.clear()
        for op in (*self.buried, *self.placeholders):
            op.erase()
        self.buried.clear()
        self.placeholders.clear()

    def check(self, op: Any) -> None:
        if not self.is_burying and (found := self.stones.get(_address(op))) is not None:
            raise ErasedError(f"read of an operation that was erased by {found}")


_GRAVEYARD = _Graveyard()


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_CAPSULES = {ir.Operation: b"mlir.ir.Operation._CAPIPtr", hlo_ir.Operation: b"jaxlib.mlir.ir.Operation._CAPIPtr"}
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _address(op: Any) -> int:
    """Return where an operation lies; its own hash changes with its attributes."""
    op = op.operation
    return int(_pointer(op._CAPIPtr, _CAPSULES[type(op)]))


def _maker(value: Any) -> Any:
    """Return the operation that a value is a result of, or whose region it is an argument of."""
    owner = value.owner
    return getattr(owner, "owner", owner).operation


def nested(op: Any) -> Iterator[Any]:
    """Yield an operation and all inside of it, in either MLIR."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from nested(view.operation)


def _checked(plain: property, owner: Callable[[Any], Any] | None) -> property:
    """A property that refuses to read what is erased; `owner` returns a value's operation or block."""
    read = plain.fget
    assert read is not None

    def get(self: Any) -> Any:
        if _GRAVEYARD.stones:
            holder = self if owner is None else owner(self)
            op = getattr(holder, "owner", holder)
            if op is not None:
                _GRAVEYARD.check(op)
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
                setattr(base, name, _checked(vars(base)[name], None))
        owner = vars(mlir.Value)["owner"].fget
        for kind, name in product((mlir.Value, mlir.OpResult, mlir.BlockArgument), OF_VALUES):
            if name in vars(kind):
                setattr(kind, name, _checked(vars(kind)[name], owner))
    bind = ModulePass.bind

    @functools.wraps(bind)
    def bound(self: ModulePass, given: Any) -> Callable[[Any], Any]:
        run = bind(self, given)

        def watched(module: Any) -> Any:
            with running(self.name):
                return run(module)

        return watched

    ModulePass.bind = bound  # type: ignore[method-assign]
