"""Compilations that end early: on Ctrl-C, or at a time limit.

A KeyboardInterrupt at any line would be lost in calls that LLVM makes of Python. So the first Ctrl-C is noted, and
raised where a compilation looks for it: between passes, kernels, operations and parts of machine code. The second one
is raised at once, as it may be code of the user's that does not come back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from stablexla.dialects.errors import CompileError


class _Late(BaseException):
    """The time limit has passed; no handler of errors on the way may take it for one of its own."""


class _State(threading.local):
    deadline: float | None = None
    is_interrupted = False
    depth = 0
    stop: threading.Event | None = None


_state = _State()


def look() -> None:
    """Raise what ends the compilation that this thread works on, if anything does."""
    if _state.depth == 0:
        return
    if _state.is_interrupted:
        _state.is_interrupted = False
        raise KeyboardInterrupt
    if _state.stop is not None and _state.stop.is_set():
        raise KeyboardInterrupt
    if _state.deadline is not None and monotonic() > _state.deadline:
        raise _Late


@contextmanager
def stopped_by(stop: threading.Event) -> Iterator[None]:
    """Let compilations inside, on a thread that gets no Ctrl-C itself, end once another thread has set `stop`."""
    _state.stop = stop
    try:
        yield
    finally:
        _state.stop = None


@contextmanager
def stoppable(time_limit: float | None) -> Iterator[None]:
    """Let the compilation inside end at a time limit, and on Ctrl-C where this is the main thread.

    Raises:
        CompileError: it took longer than `time_limit` seconds.
    """
    outer = _state.deadline
    if time_limit is not None:
        _state.deadline = min(monotonic() + time_limit, outer or float("inf"))
    handles = _state.depth == 0 and _takes_interrupts()
    if handles:
        signal.signal(signal.SIGINT, _note)
    _state.depth += 1
    try:
        yield
        look()
    except _Late:
        if outer is not None and monotonic() > outer:
            raise
        raise CompileError(f"compiling has taken longer than its time limit of {time_limit:g} s") from None
    finally:
        _state.depth -= 1
        _state.deadline = outer
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _state.is_interrupted = False


def _takes_interrupts() -> bool:
    """Return whether Ctrl-C raises KeyboardInterrupt in this thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _note(number: int, frame: FrameType | None) -> None:
    if _state.is_interrupted:
        signal.default_int_handler(number, frame)
    _state.is_interrupted = True
