"""The user's line: the innermost stack frame outside this package, as an MLIR location and in errors.

Finding it costs a few microseconds, and a look-up for a known line. Tracebacks of building errors end there.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from functools import wraps
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import stablexla
from stablexla.dialects.errors import ShapeError, SourceLine, StablexlaError
from stablexla.targets.pipeline.knobs import knobs

if TYPE_CHECKING:  # a program that is in the cache starts without MLIR
    import jaxlib.mlir.ir as ir

P = ParamSpec("P")
R = TypeVar("R")

# Frames of this package are ours; the other layers lie in its folder, too.
_OURS = os.path.join(os.path.dirname(os.path.abspath(str(stablexla.__file__))), "")


def user_frame() -> FrameType | None:
    """Return the innermost frame of the user's code, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_OURS) or _is_between(frame)):
        frame = frame.f_back
    return frame


def _is_between(frame: FrameType) -> bool:
    """Return whether it stands between the user and this package: `contextlib`'s, for a `with`, or code that
    `dataclasses` wrote for a class of this package, such as its constructor."""
    module = str(frame.f_globals.get("__name__"))
    return module == "contextlib" or (frame.f_code.co_filename == "<string>" and module.startswith("stablexla."))


def raised_by_user(error: BaseException) -> bool:
    """Return whether the user's code raised `error`, rather than this package or the call itself."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            return True
        trace = trace.tb_next
    return False


def user_line() -> SourceLine | None:
    """Return the current line of the user's program, with its text."""
    frame = user_frame()
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line, frame.f_globals).strip()
    return SourceLine(file, line, frame.f_code.co_name, text)


def ends_at_user(function: Callable[P, R]) -> Callable[P, R]:
    """Make errors of a public function end at the user's line, and name it: tracebacks have no frames of this package.

    Arguments that do not fit its parameters are a `ShapeError` as well.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                from stablexla.builder.names import unfit

                raise unfit(function, error) from None
        except StablexlaError as error:
            if isinstance(error, ShapeError) and error.source is None:
                error.add_source(user_line())
            _end_at_user(error)
            raise

    return call


class EndingAtUser:
    """A `with` block whose errors have tracebacks without frames of this package; a public function's outermost one."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            _end_at_user(error)


def _end_at_user(error: BaseException) -> None:
    """Take the frames of this package out of an error's traceback; what then raises it once more adds none.

    They stay where this package raised what is no error of its own: they are all that there is to find the mistake by.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    is_ours = last is not None and last.tb_frame.f_code.co_filename.startswith(_OURS)
    if not knobs.full_tracebacks and (isinstance(error, StablexlaError) or not is_ours):
        error.__traceback__ = _of_user(error.__traceback__)


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that is the user's, such as the lines of a loop's body."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            kept.append(trace)
        trace = trace.tb_next
    made = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made


class Locations:
    """MLIR locations of one context, cached by the place in the user's code."""

    def __init__(self, context: ir.Context) -> None:
        import jaxlib.mlir.ir as ir

        self._context = context
        self._location = ir.Location
        self._unknown = ir.Location.unknown(context)
        self._made: dict[tuple[CodeType, int], ir.Location] = {}

    def here(self) -> ir.Location:
        """Return the user's line as `"function"("file":line:column)`; without the function's name at module level."""
        frame = user_frame()
        if frame is None:
            return self._unknown
        place = (frame.f_code, frame.f_lasti)
        location = self._made.get(place)
        if location is None:
            location = self._made[place] = self._make(frame)
        return location

    def named(self, name: str) -> ir.Location:
        """Return the user's line under a name of its own, such as a parameter's."""
        return self._location.name(name, self.here(), self._context) if name else self.here()

    def _make(self, frame: FrameType) -> ir.Location:
        code = frame.f_code
        place = self._location.file(code.co_filename, frame.f_lineno, _column(frame), self._context)
        if code.co_name == "<module>":
            return place
        return self._location.name(code.co_name, place, self._context)


def _column(frame: FrameType) -> int:
    """Return the column of the running expression, from 1; 0 where Python does not know it."""
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    column = position[2] if position is not None else None
    return 0 if column is None else column + 1
