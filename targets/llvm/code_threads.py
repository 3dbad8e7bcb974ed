"""Threads that make machine code, while the thread that opened them goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import mlir.ir as ir

from stablexla.dialects.caller import untraced
from stablexla.dialects.contexts import WORK, kept_with_contexts, many_threads
from stablexla.dialects.stopping import look

if TYPE_CHECKING:
    from concurrent.futures import Future

Job = Callable[[], bytes]
# A thread that comes back from LLVM gets the GIL from one that runs Python after this long. Python's own 5 ms are as
# long as the compilation of a kernel.
_SWITCH_INTERVAL = 2e-4


class CodeThreads:
    """A queue of jobs, each of which makes an object file, and the threads that work on it.

    The opening thread counts as one of `count`: it works on the queue, too, from when it asks for the results.
    """

    def __init__(self, context: ir.Context, count: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # 3 ms, for programs of several parts

        self._jobs: list[tuple[Job, Future[bytes]]] = []
        self._mine: dict[int, bytes] = {}  # what the opening thread made, by number
        self._work = kept_with_contexts(WORK)
        self._resources = ExitStack()
        self._resources.enter_context(many_threads(context))
        self._pool = ThreadPoolExecutor(max(1, count - 1), initializer=untraced)
        self._resources.callback(self._pool.shutdown, cancel_futures=True)
        _hurry(1)
        self._resources.callback(_hurry, -1)

    def add(self, job: Job) -> int:
        """Add a job at the end of the queue; return its number."""
        future = self._pool.submit(job)
        self._jobs.append((job, future))
        self._work[future] = None
        return len(self._jobs) - 1

    def result(self, number: int) -> bytes:
        """Return what a job made, once it is done."""
        self._help(number)
        return self._mine[number] if number in self._mine else self._jobs[number][1].result()

    def results(self) -> list[bytes]:
        """Return what all jobs made, in their order, once they are done."""
        for number in reversed(range(len(self._jobs))):
            look()
            self._help(number)
        return [self.result(number) for number in range(len(self._jobs))]

    def _help(self, number: int) -> None:
        """Do a job that no thread has begun."""
        job, future = self._jobs[number]
        if number not in self._mine and future.cancel():
            self._mine[number] = job()

    def close(self) -> None:
        """End the threads, after the jobs that they are working on."""
        self._resources.close()
        for _, future in self._jobs:
            self._work.pop(future, None)


def object_files(context: ir.Context, jobs: Sequence[Job], most: int) -> list[bytes]:
    """Return what the jobs make, on `most` threads; none or one job needs none."""
    if len(jobs) < 2:
        return [job() for job in jobs]
    threads = CodeThreads(context, min(most, len(jobs)))
    try:
        for job in jobs:
            threads.add(job)
        return threads.results()
    finally:
        threads.close()


_lock = threading.Lock()
_hurried = 0
_kept_interval = 0.0


def _hurry(by: int) -> None:
    """Let threads pass on the GIL more often as long as anyone needs it."""
    global _hurried, _kept_interval
    with _lock:
        _hurried += by
        if by > 0 and _hurried == 1:
            _kept_interval = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_INTERVAL)
        elif _hurried == 0:
            sys.setswitchinterval(_kept_interval)
