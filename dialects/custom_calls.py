"""The functions that custom calls can name: C functions by their addresses, and Python functions on arrays."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stablexla.dialects.errors import CompileError


@dataclass(frozen=True)
class CustomCallTarget:
    """A function under the name that custom calls know it by.

    Attributes:
        name: that name.
        address: of a C function, or 0.
        function: a Python function, or None.
        keep: what has to live as long as the address is used.
    """

    name: str
    address: int = 0
    function: Callable[..., Any] | None = None
    keep: object = None


TARGETS: dict[str, CustomCallTarget] = {}


def find_custom_call(name: str, place: str = "") -> CustomCallTarget:
    """The target of that name.

    Args:
        place: where it is called, for the error.

    Raises:
        CompileError: there is none; the error lists those that there are, the likeliest first.
    """
    if name in TARGETS:
        return TARGETS[name]
    near = difflib.get_close_matches(name, TARGETS, n=3)
    names = [*near, *sorted(set(TARGETS) - set(near))]
    known = f"known are {', '.join(map(repr, names))}" if names else "none is registered"
    hint = repr(near[0]) if near else f"sx.register_custom_call({name!r}, function)"
    raise CompileError(f"custom_call: there is no target {name!r}; {known}{place}", hint=hint)
