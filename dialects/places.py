"""Source lines of operations, from MLIR's locations of any producer."""

from __future__ import annotations

import linecache
import os
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.source_files import is_library, is_machinery, short_name


@dataclass(frozen=True)
class Place:
    """A line of a program's source; of an operation inside a library's function the library's line.

    Lines of JAX's own code and of `stablexla.interop` are left out.

    Attributes:
        file, line, column: where it is, from 1; "" and 0 where that is not known.
        function: in which function, or "".
        name: the producer's name of the operation, such as JAX's `jit(f)/mlp/dot_general`, or "".
        callers: the places in the user's code that it was called from, the nearest first.
        others: further places that took part, where the operation was made of several.
    """

    file: str = ""
    line: int = 0
    column: int = 0
    function: str = ""
    name: str = ""
    callers: tuple[Place, ...] = ()
    others: tuple[Place, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there is anything to print."""
        return bool(self.line or self.name)

    @property
    def text(self) -> str:
        """The source line itself, where the file can be read."""
        return linecache.getline(self.file, self.line).strip() if self.line else ""

    @property
    def user_call(self) -> Place | None:
        """The user's call of the library that the place is in; None elsewhere."""
        return self.callers[0] if self.callers and is_library(self.file) else None

    @property
    def brief(self) -> str:
        """As `model.py:17:9`, the user's call for a library's line; without a line the producer's name."""
        place = self.user_call or self
        return place._position if place.line else self.name

    @property
    def _position(self) -> str:
        return _short(self.file) + (f":{self.line}" if self.line else "") + (f":{self.column}" if self.column else "")

    @property
    def _where(self) -> str:
        return f"{self._position} in {self.function}" if self.function else self._position

    def __str__(self) -> str:
        """Return `model.py:17:9 in normalize`, or a library's line and the user's call; then the producer's name."""
        where = self._where if self.user_call is None else f"{self._where}, called from {self.user_call._where}"
        if not self.name:
            return where or "unknown"
        return f"{where} ({self.name})" if where else self.name


def _short(file: str) -> str:
    """Return a path relative to the working directory if it is below it, a library's without the path to it."""
    if is_library(file):
        return short_name(file)
    if not os.path.isabs(file):
        return "<text>" if file == "-" else file
    here = os.path.relpath(file)
    return file if here.startswith("..") else here


def place_of(location: Any) -> Place:
    """Return the place of a location of either MLIR."""
    place = _place_of(location)
    return Place(name=place.name) if is_machinery(place.file) else place


def _place_of(location: Any) -> Place:
    kind = _kind(location)
    if kind == "FileLineColLoc":
        return Place(str(location.filename), int(location.start_line), int(location.start_col))
    if kind == "NameLoc":
        return _named(str(location.name_str), _place_of(location.child_loc))
    if kind == "CallSiteLoc":
        return _called(_place_of(location.callee), _place_of(location.caller))
    if kind == "FusedLoc":
        parts = [place for place in map(place_of, location.locations) if place.is_known]
        return _fused(parts)
    return Place()


def _kind(location: Any) -> str:
    """Return the kind of a location by its class in jaxlib's MLIR; upstream's has one class for all."""
    if type(location).__name__ != "Location":
        return type(location).__name__
    asked = {"is_a_file": "FileLineColLoc", "is_a_name": "NameLoc", "is_a_callsite": "CallSiteLoc"}
    asked["is_a_fused"] = "FusedLoc"
    return next((kind for name, kind in asked.items() if getattr(location, name, bool)()), "")


def _named(name: str, inner: Place) -> Place:
    """Return a name: a function's when it names a frame, the producer's own otherwise."""
    is_path = "/" in name or ":" in name or name.startswith("%") or not name
    if not inner.is_known:
        return Place(name=name)
    if inner.function or inner.callers or is_path:
        label = f"{name}/{inner.name}" if inner.name and name else name or inner.name
        return _with(inner, name=label)
    return _with(inner, function=name)


def _called(callee: Place, caller: Place) -> Place:
    """Return the innermost frame outside the machinery, and the user's frames that it was called from."""
    if not callee.is_known:
        return caller
    chain = (callee, *callee.callers, *([caller] if caller.is_known else []), *caller.callers)
    plain = [_with(p, callers=()) for p in chain]
    lines = [i for i, p in enumerate(plain) if p.line and not is_machinery(p.file)]
    first = lines[0] if lines else 0
    names = dict.fromkeys(p.name for p in reversed(plain[: first + 1]) if p.name)
    callers = dict.fromkeys(plain[i] for i in lines[1:] if not is_library(plain[i].file))
    return _with(plain[first], name="/".join(names), callers=tuple(callers))


def _fused(parts: list[Place]) -> Place:
    if not parts:
        return Place()
    return _with(parts[0], others=tuple(parts[1:]))


def _with(place: Place, **changes: Any) -> Place:
    values = {name: getattr(place, name) for name in place.__dataclass_fields__}
    return Place(**(values | changes))


def within_call(inner: Any, call: Any) -> Any:
    """Return the location of an operation of an inlined function, seen from the call."""
    kind: Any = hlo_ir if isinstance(inner, hlo_ir.Location) else ir
    return kind.Location.callsite(inner, [call], inner.context)
