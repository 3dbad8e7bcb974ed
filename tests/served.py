"""Commands that fork from one process which has imported what they import: tests/filecheck/served.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVED = Path(__file__).parent / "filecheck" / "served.py"


@contextmanager
def serving(folder: Path, *modules: str) -> Iterator[list[str]]:
    """The beginning of the commands, while the server runs: a tool's name, or `python` and a file, follow.

    Args:
        folder: where its socket is.
        modules: what it imports beside the tools, as far as it is installed.
    """
    path = folder / "socket"
    command = [sys.executable, str(SERVED), "serve", str(path), *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert server.stdout.readline() == b"ready\n"
        yield [sys.executable, "-I", "-S", str(SERVED), "ask", str(path)]
        server.stdin.close()
