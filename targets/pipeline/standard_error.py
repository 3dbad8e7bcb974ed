"""Capture of native code's standard error as lines: some messages of MLIR and LLVM appear nowhere else."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stablexla.dialects.system import memory_file

_lock = threading.Lock()
_is_read_by_others = False


def leave_for_others() -> None:
    """Keep captured text in standard error, a file that another process reads when this one ends."""
    global _is_read_by_others
    _is_read_by_others = True


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Capture lines that native code prints on standard error. One thread at a time; others print into it too."""
    lines: list[str] = []
    with _lock, _captured_in_file(lines) if _is_read_by_others else _captured_in_memory(lines):
        yield lines


@contextmanager
def _captured_in_memory(lines: list[str]) -> Iterator[None]:
    memory = memory_file("stderr")
    kept = -1
    with contextlib.suppress(OSError):  # it is closed
        kept = os.dup(2)
    if memory != 2:
        os.dup2(memory, 2)
    try:
        yield
    finally:
        lines.extend(_lines_from(2, 0))
        if kept >= 0:
            os.dup2(kept, 2)
            os.close(kept)
        elif memory != 2:
            os.close(2)
        os.close(memory)


@contextmanager
def _captured_in_file(lines: list[str]) -> Iterator[None]:
    start = os.lseek(2, 0, os.SEEK_END)
    try:
        yield
    finally:
        lines.extend(_lines_from(2, start))
        os.ftruncate(2, start)
        os.lseek(2, start, os.SEEK_SET)


def _lines_from(file: int, start: int) -> list[str]:
    size = os.lseek(file, 0, os.SEEK_CUR) - start
    text = os.pread(file, max(0, size), start).decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()]
