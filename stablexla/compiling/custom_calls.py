"""Functions for custom calls: C functions by address, Python functions on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any

from stablexla.dialects.custom_calls import TARGETS, CustomCallTarget
from stablexla.targets.runtime._runtime import register_ffi_type

# The base class of ctypes' function pointers; it has no public name.
_FunctionPointer: Any = ctypes.CFUNCTYPE(None).__mro__[1]


STAGES = ("instantiate", "prepare", "initialize", "execute")
TYPE = ("type_id", "type_info")
TYPED_FFI = "API_VERSION_TYPED_FFI"
_ELSEWHERE = 1
"""In place of an address in another process."""


def register_custom_call(name: str, function_or_address: object, *, api_version: str = "API_VERSION_ORIGINAL") -> None:
    """Register a function for `sx.custom_call` under `name`, replacing a previous one.

    Programs keep the function that was registered when they were compiled.

    Args:
        name: `call_target_name` of the custom calls.
        function_or_address: one of

            - a C function `void target(void* out, void** in)`: a function pointer of ctypes, its address as an integer,
              or a capsule. `in` has the addresses of the operands: elements in row-major order unless the call asks for
              another layout, each in a byte at least. `out` is the address of the result; for a tuple, of a list of the
              results' addresses.
            - with `api_version="API_VERSION_TYPED_FFI"` a handler of XLA's foreign function interface, in one of the
              same forms, as `jax.ffi.pycapsule` makes them; or a mapping of stages ("instantiate", "prepare",
              "initialize", "execute") to handlers, which needs no `api_version`. The type of what a handler keeps
              from one stage to the next stands beside them, by the addresses "type_id" and "type_info".
            - a Python function. It is called with a read-only numpy array for each operand, which is no copy, and whose
              contents it may use until it returns. It returns an array of the right type and shape, or a tuple of them.
              Attributes of typed calls arrive by keyword, another call's text as `opaque=`.
              An exception ends the program, and reaches its caller. It may run in several threads at once.
        api_version: by which of XLA's conventions a C function is called.

    Raises:
        TypeError: something else.
        ValueError: a convention that is not known here.

    Source: `CustomCall` of XLA's operation semantics; the header `xla/ffi/api/c_api.h` of version 0.3.

    >>> sx.register_custom_call("softsign", lambda x: x / (1 + abs(x)))
    >>> b = sx.XlaBuilder("example")
    >>> x = b.parameter(0, sx.f32[3])
    >>> sx.compile(b.build(sx.custom_call("softsign", x, sx.f32[3])))(np.array([-1, 0, 3], np.float32))
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a custom call is a text, not {name!r}")
    if api_version not in ("API_VERSION_ORIGINAL", TYPED_FFI):
        raise ValueError(f"functions are called by API_VERSION_ORIGINAL or {TYPED_FFI}, not {api_version}")
    TARGETS[name] = _target(name, function_or_address, typed=api_version == TYPED_FFI)


def unregister_custom_call(name: str) -> None:
    """Unregister a function for custom calls; compiled programs keep it.

    Raises:
        KeyError: there is none under that name.
    """
    del TARGETS[name]


@contextmanager
def handlers_elsewhere(names: Sequence[str]) -> Iterator[None]:
    """Compile calls of handlers that another process has, by their names: here they are never called."""
    others = {name: CustomCallTarget(name, stages=(0, 0, 0, _ELSEWHERE)) for name in names}
    before = {name: TARGETS[name] for name in names if name in TARGETS}
    TARGETS.update(others)
    try:
        yield
    finally:
        for name in names:
            del TARGETS[name]
        TARGETS.update(before)


def _target(name: str, given: object, *, typed: bool) -> CustomCallTarget:
    if isinstance(given, Mapping):
        unknown = set(given) - {*STAGES, *TYPE}
        addresses = tuple(_address(given[stage]) if stage in given else 0 for stage in STAGES)
        if unknown or not addresses[-1]:
            raise TypeError(f"handlers are those of the stages {', '.join(STAGES)}, the last at least, not {given!r}")
        if all(key in given for key in TYPE):
            register_ffi_type(name, *(_address(given[key]) for key in TYPE))
        return CustomCallTarget(name, stages=addresses, keep=given)
    address = _address(given)
    if address and typed:
        return CustomCallTarget(name, stages=(0, 0, 0, address), keep=given)
    if address:
        return CustomCallTarget(name, address=address, keep=given)
    if callable(given):
        return CustomCallTarget(name, function=given)
    raise TypeError(f"{given!r} is neither a function nor the address of one")


def _address(given: object) -> int:
    """Return the address of a C function, or 0."""
    if isinstance(given, _FunctionPointer):
        return ctypes.cast(given, ctypes.c_void_p).value or 0
    if type(given).__name__ == "PyCapsule":
        return _address_of_capsule(given)
    if callable(given) or isinstance(given, bool):
        return 0
    try:
        return index(given)  # type: ignore[arg-type]  # the error is ours
    except TypeError:
        return 0


def _address_of_capsule(capsule: object) -> int:
    api = ctypes.pythonapi
    name_of: Callable[..., Any] = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    return int(address_of(capsule, name_of(capsule)) or 0)
