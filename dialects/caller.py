"""Threads that work for the user's: warnings at the line of the user's program, no calls of theirs in its traces."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

_INNER = ("stablexla", "jax", "jaxlib", "contextlib")
_waiting: ContextVar[FrameType | None] = ContextVar("_waiting", default=None)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line."""
    frame = _waiting.get() or user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry)


def user_frame() -> FrameType | None:
    """Return the innermost frame of this thread outside this package and JAX's, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INNER:
        frame = frame.f_back
    return frame


@contextmanager
def working_for(frame: FrameType | None) -> Iterator[None]:
    """Warn inside, on a thread that works for another, at the line where that one waits."""
    before = _waiting.set(frame)
    try:
        yield
    finally:
        _waiting.reset(before)


def untraced() -> None:
    """End the trace of this thread's calls by a tracer in C, as jax.profiler's: each of the compiler's is an event."""
    if sys.getprofile() is None:
        sys.setprofile(None)
