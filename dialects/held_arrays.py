"""Large constants whose elements stay where they are: a module names the array, and MLIR holds no copy of it.

The attribute is a `dense_resource` on the array's own memory, in a context of either MLIR. Of dense elements a context
would keep a copy until it is freed, and there are two contexts.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.copying import copy_of_module
from stablexla.dialects.element_types import BY_DTYPE

LEAST_BYTES = 64 << 10
"""Of an array that is held; smaller ones are elements of the program, which folding sees."""
ELIDED = "stablexla.elided"
"""Attribute of a module, and of constants in it, whose elements are not in its bytes."""
_COMPARED = 1 << 14
"""Elements that are compared at a time."""

_KEPT, _BORROWED = (f"stablexla_{kind}_{os.urandom(6).hex()}_" for kind in ("kept", "borrowed"))
"""Beginnings of names that no other process gives, whose programs may be read here."""
_NAME = re.compile(rf"(?:{_KEPT}|{_BORROWED})\d+")
_NO_RESOURCES = re.compile(r"\n*\{-#\s*#-\}\s*$")
_PLACE = "stablexla.place"
_arrays: weakref.WeakValueDictionary[str, npt.NDArray[Any]] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_resources: set[Any] = set()  # the type ids of such attributes in both MLIRs
_holding: ContextVar[bool] = ContextVar("stablexla_holding", default=False)


@contextmanager
def holding(allowed: bool) -> Iterator[None]:
    """Allow steps to hold arrays inside a `with` block: not where a user sees modules, whose text must be whole."""
    token = _holding.set(allowed)
    try:
        yield
    finally:
        _holding.reset(token)


def elements_attribute(array: npt.NDArray[Any], type_: Any, *, borrowed: bool = False) -> Any:
    """Return the attribute of an array in a step of a pipeline: one that is held, where that is allowed."""
    if _holding.get() and can_be_held(array):
        return held_attribute(array, type_, borrowed=borrowed)
    return _ir_of(type_.context).DenseElementsAttr.get(array, type=type_)


def can_be_held(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is large, and of elements that are one number of whole bytes each."""
    element = BY_DTYPE.get(array.dtype)
    if element is None or array.nbytes < LEAST_BYTES:
        return False
    return element.bits >= 8 and not (element.is_complex or element.is_pred)


def holds_arrays(size: int) -> bool:
    """Return whether steps hold arrays of so many bytes: whoever reads their elements reads the array itself."""
    return _holding.get() and size >= LEAST_BYTES


def is_one_number(array: npt.NDArray[Any]) -> bool:
    """Return whether all elements have the same bits; none is one, too."""
    if not array.size or not any(array.strides):  # a view of one number
        return True
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    parts = (raw[at : at + _COMPARED] for at in range(0, array.size, _COMPARED))
    return all(bool((part == raw[0]).all()) for part in parts)


def held_attribute(array: npt.NDArray[Any], type_: Any, *, borrowed: bool = False) -> Any:
    """Return the attribute of an array, whose memory the context keeps.

    Args:
        array: in row-major order, with the elements of the type; nobody may change it while the context is there.
        type_: the ranked tensor type, of either MLIR.
        borrowed: it may change after compiling: what the executable needs of it is copied.
    """
    if array.dtype.isbuiltin != 1:  # none of Python's buffers
        array = array.view(f"u{array.dtype.itemsize}")
    name = f"{_BORROWED if borrowed else _KEPT}{next(_numbers)}"
    _arrays[name] = array
    context = type_.context
    made = _ir_of(context).DenseResourceElementsAttr.get_from_buffer(array, name, type_, context=context)
    _resources.add(made.typeid)
    return made


def held_array(attribute: Any) -> npt.NDArray[Any] | None:
    """Return the array of an attribute, elements that numpy lacks as integers; None for other attributes."""
    return _arrays.get(_name(attribute))


def is_borrowed(attribute: Any) -> bool:
    """Return whether the array of an attribute may change after compiling."""
    return _name(attribute).startswith(_BORROWED)


def leave_pages(array: npt.NDArray[Any]) -> None:
    """Take an array out of memory, if that is a file mapped to be read; whoever reads the array maps it again."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and memoryview(base).readonly and hasattr(base, "madvise"):
        start = array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
        first, last = -(-start // mmap.PAGESIZE), (start + array.nbytes) // mmap.PAGESIZE
        if last > first:
            base.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


# ---- modules that hold arrays: copies and texts ---------------------------------------------------------------------


def holds(module: Any) -> bool:
    """Return whether constants of a StableHLO module hold arrays."""
    return bool(_held(module))


def copy_in(module: Any, context: Any) -> Any:
    """Copy a StableHLO module into another context, where it holds the same arrays."""

    def note(op: Any, value: Any) -> None:
        op.attributes["value"] = _zero(op)
        op.attributes[_PLACE] = hlo_ir.StringAttr.get(_name(value))

    noted = _changed(module, note)
    copy = type(module).parse(_bytes(noted), context)
    again: dict[str, Any] = {}
    for op in _constants(copy) if noted is not module else ():
        if _PLACE in op.attributes:
            name = hlo_ir.StringAttr(op.attributes[_PLACE]).value
            if name not in again:
                borrowed = name.startswith(_BORROWED)
                again[name] = held_attribute(_arrays[name], op.results[0].type, borrowed=borrowed)
            op.attributes["value"] = again[name]
            del op.attributes[_PLACE]
    return copy


def with_elements(module: Any) -> Any:
    """Return a StableHLO module that holds no arrays, to print and write it: a copy, where this one does."""

    def dense(op: Any, value: Any) -> None:
        op.attributes["value"] = hlo_ir.DenseElementsAttr.get(held_array(value), type=op.results[0].type)

    return _changed(module, dense)


def short_text(module: Any, limit: int | None, **options: bool) -> str:
    """Return a module's text, without the elements of constants that have more than `limit`, if it is given.

    Args:
        options: of `get_asm`.
    """
    if limit is None:
        return str(with_elements(module).operation.get_asm(**options)).rstrip("\n")
    text = module.operation.get_asm(large_elements_limit=limit, large_resource_limit=limit, **options)
    return _NO_RESOURCES.sub("", _NAME.sub("__elided__", str(text))).rstrip("\n")


def with_elided(module: Any) -> Any:
    """Return a StableHLO module with zeros for the arrays that it holds; `with_placeholders` reads it back."""

    def mark(op: Any, _: Any) -> None:
        op.attributes["value"] = _zero(op)
        op.attributes[ELIDED] = hlo_ir.UnitAttr.get()

    copy = _changed(module, mark)
    if copy is not module:
        copy.operation.attributes[ELIDED] = hlo_ir.UnitAttr.get(copy.context)
    return copy


def with_placeholders(module: Any) -> Any:
    """Hold zeros in a module for elided elements: they take no memory, and what is computed of them has no meaning."""
    for op in _constants(module) if ELIDED in module.operation.attributes else ():
        if ELIDED in op.attributes:
            type_ = op.results[0].type
            zeros = np.zeros(prod(type_.shape) * type_.element_type.width // 8, np.uint8)
            zeros[0] = 1  # or it would be one number
            op.attributes["value"] = held_attribute(zeros, type_)
            del op.attributes[ELIDED]
    return module


def _changed(module: Any, change: Callable[[Any, Any], None]) -> Any:
    """Return a copy of a module in which each constant that holds an array is changed; itself, where none does."""
    if not holds(module):
        return module
    copy = copy_of_module(module)
    with copy.context, hlo_ir.Location.unknown():
        for op, value in _held(copy):
            change(op, value)
    return copy


def _zero(constant: Any) -> Any:
    type_ = constant.results[0].type
    zero = "0" if isinstance(type_.element_type, hlo_ir.IntegerType) else "0.0"
    return hlo_ir.Attribute.parse(f"dense<{zero}> : {type_}")


def _held(module: Any) -> list[tuple[Any, Any]]:
    """Return the constants that hold arrays, with their attributes."""
    if not _arrays or not isinstance(module, hlo_ir.Module):
        return []
    found = ((op, value_of(op)) for op in _constants(module))
    return [(op, value) for op, value in found if value is not None and _name(value) in _arrays]


def _constants(module: Any) -> list[Any]:
    found = []

    def note(op: Any) -> Any:
        if op.name == "stablehlo.constant":
            found.append(op)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note)
    return found


def value_of(constant: Any) -> Any:
    """Return the attribute of a constant; None where the bindings have no class for it, as for complex numbers."""
    try:
        return constant.attributes["value"]
    except TypeError:
        return None


def _name(attribute: Any) -> str:
    """Return the name of a resource, "" for other attributes, whose text would have all of their elements."""
    if not type(attribute).__name__.startswith(("Attribute", "DenseRes")) or attribute.typeid not in _resources:
        return ""
    return str(attribute).split("<", 1)[1].split(">", 1)[0]


def _bytes(module: Any) -> bytes:
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _ir_of(context: Any) -> Any:
    if isinstance(context, hlo_ir.Context):
        return hlo_ir
    import mlir.ir as ir

    return ir
