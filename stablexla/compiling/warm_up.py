"""Work of a process's first compilation, done ahead: imports, contexts, registration of passes, LLVM's target.

It imports nothing of that itself, so that a call on another thread returns at once.
"""

from __future__ import annotations

import threading
from contextlib import suppress

_lock = threading.Lock()
_warm: set[str] = set()


def warm_up(target: str = "cpu", *, background: bool = False) -> None:
    """Do now what the first compilation of a process would do before any program: about 0.3 s.

    It imports the compiler and compiles a small program, outside of the cache of whole programs. All threads have that
    then: the modules, the registries of passes and LLVM's target. MLIR's contexts belong to one thread each; those of a
    warm-up in the background go to the first thread that needs a pair, and every further thread makes its own at its
    first compilation, which takes 10 ms.

    Args:
        target: as `sx.compile` takes it.
        background: whether another thread does it, while this one goes on. A later `warm_up()` waits for it. An error
            is left to the first compilation, which meets it too.

    Raises:
        StablexlaError: as `sx.compile` does for this target.

    >>> sx.warm_up(background=True)  # first of all, before files are read and models are made
    >>> sx.warm_up()  # waits
    """
    if not background:
        with _lock:
            _compile_once(target)
    elif _lock.acquire(blocking=False):  # if not, some thread is at it
        threading.Thread(target=_in_background, args=(target,), name="stablexla-warm-up").start()


def _in_background(target: str) -> None:
    try:
        with suppress(Exception):
            _compile_once(target)
            from stablexla.dialects.contexts import leave_contexts

            leave_contexts()
    finally:
        _lock.release()


def _compile_once(target: str) -> None:
    if target in _warm:
        return
    import stablexla as sx
    from stablexla.compiling.core import compile_watched
    from stablexla.compiling.request import Request

    b = sx.XlaBuilder("warm_up")
    x = b.parameter(0, sx.f32[9, 9])
    compile_watched(Request(b.build(sx.tanh(sx.dot(x, x))), target=target))
    _warm.add(target)
