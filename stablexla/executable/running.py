"""A run in a thread of its own, which can be cancelled."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.dialects.uncopied import Uncopied
from stablexla.targets.kinds import kind_of
from stablexla.targets.pipeline.options import DEFAULT_TARGET
from stablexla.targets.runtime._runtime import RunLimits

Array = npt.NDArray[Any]


class Running(Uncopied):
    """A run that `Executable.start` began. The program may be started again meanwhile. It ends with the process.

    >>> b = sx.XlaBuilder("for_ever")
    >>> x = b.parameter(0, sx.s32[()])
    >>> loop = sx.compile(b.build(sx.while_(lambda i: i < 0, lambda i: i ^ 1, x)))
    >>> run = loop.start([np.int32(-2)])
    >>> run.cancel()
    >>> try:
    ...     run.result()
    ... except sx.ExecutionError as error:
    ...     print(error.summary.splitlines()[0])
    for_ever: the run was cancelled
    """

    _in_place = "run.result(), whose arrays can be"

    def __init__(self, name: str, run: Callable[[], list[Array]], time_limit: float | None, target: str) -> None:
        self.name, self._target = name, target
        if time_limit is not None:
            _check_ends_runs(target, "time_limit")
        self._limits = RunLimits(checked_limit(time_limit, "time_limit"))
        from concurrent.futures import Future  # 3 ms, for runs that nobody waits for

        self._future: Future[list[Array]] = Future()
        self._thread = threading.Thread(target=self._work, args=[run], name=f"stablexla {name}", daemon=True)
        _unfinished.add(self)
        self._thread.start()

    def _work(self, run: Callable[[], list[Array]]) -> None:
        try:
            with self._limits:
                made = run()
        except BaseException as error:  # raised by `result`
            self._future.set_exception(error)
        else:
            self._future.set_result(made)
        finally:
            _unfinished.discard(self)

    def result(self, timeout: float | None = None) -> list[Array]:
        """Return the results, a list of arrays as `execute` gives; waits for them. Ctrl-C ends the wait, not the run.

        Args:
            timeout: how many seconds to wait at most; None is for ever.

        Raises:
            ExecutionError: what `execute` raises; the run was cancelled, or took longer than its time limit.
            TimeoutError: it is still running after `timeout`.
        """
        try:
            return self._future.result(timeout)
        except TimeoutError:
            if self._future.done():
                raise
            raise TimeoutError(f"{self.name}: still running after {timeout:g} s") from None

    def cancel(self) -> None:
        """End the run at the next kernel or iteration of a loop; it does nothing when the run has ended.

        Raises:
            UnsupportedError: runs for the target cannot be ended.
        """
        if not self.done():
            _check_ends_runs(self._target, "cancel")
        self._limits.cancel()

    def done(self) -> bool:
        """Return whether the run has ended, in whatever way."""
        return self._future.done()

    def __repr__(self) -> str:
        if not self.done():
            return f"<Running {self.name}>"
        error = self._future.exception()
        return f"<Running {self.name}: {'done' if error is None else str(error).splitlines()[0]}>"


_unfinished: set[Running] = set()
_SECONDS_AT_EXIT = 10.0


@atexit.register
def _end_all() -> None:
    """End the runs that are in progress when Python ends, as their threads must not come back into it."""
    runs = list(_unfinished)
    for run in runs:
        run.cancel()
    end = monotonic() + _SECONDS_AT_EXIT
    for run in runs:
        run._thread.join(max(0.0, end - monotonic()))


def limits(time_limit: float | None, target: str) -> AbstractContextManager[object]:
    """Return the limits of the runs inside it, of a program for a target; nothing where there is no limit.

    Raises:
        ExecutionError: a time limit that is no number of seconds.
        UnsupportedError: runs for the target cannot be ended.
    """
    if time_limit is None:
        return nullcontext()
    _check_ends_runs(target, "time_limit")
    return RunLimits(checked_limit(time_limit, "time_limit"))


def _check_ends_runs(target: str, what: str) -> None:
    if not kind_of(target).ends_runs:
        raise UnsupportedError(
            f"{what}: runs of programs for the target {target} cannot be ended",
            hint=f'no {what}, or target="{DEFAULT_TARGET}"',
            option=f"no --time-limit, or --target={DEFAULT_TARGET}",
        )


def checked_limit(seconds: float | None, name: str) -> float | None:
    """Return a valid timeout.

    Raises:
        ExecutionError: it is no number of seconds.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds < float("inf")):
        raise ExecutionError(f"{name} is a number of seconds or None, not {seconds!r}")
    return seconds
