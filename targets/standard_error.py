"""What native code prints on standard error, as lines: some of it MLIR and LLVM say nowhere else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Collects the lines that native code prints on standard error. One thread at a time; others print into it too."""
    lines: list[str] = []
    with _lock:
        kept = os.dup(2)
        memory = os.memfd_create("stderr")
        os.dup2(memory, 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            size = os.lseek(memory, 0, os.SEEK_CUR)
            text = os.pread(memory, size, 0).decode(errors="replace")
            os.close(memory)
            lines.extend(line for line in text.splitlines() if line.strip())
