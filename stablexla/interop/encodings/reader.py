"""Reads untrusted bytes in a process of its own, which may crash, hang or exhaust memory.

MLIR's reader of bytecode and XLA's of HLO do each of these on damaged bytes. The first such bytes start the process,
which is kept. It answers with bytecode that MLIR wrote of a verified module.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import monotonic
from typing import IO

import jaxlib.mlir.ir as ir

from stablexla.dialects import contexts
from stablexla.dialects.errors import ParseError
from stablexla.interop.encodings.reader_process import ANSWER, REQUEST, Kind, read
from stablexla.processes.pipes import READ, WRITE, is_ready

SECONDS, BYTES_A_SECOND = 4, 1 << 20
"""How long a reader may take of a processor: this, and a second for so many bytes."""
PATIENCE = 12
"""How many times as long it may take by the clock, on a machine that has other things to do."""
MEMORY, MEMORY_FOR_A_BYTE = 2 << 30, 64
"""How much memory a reader may take: this, and so much for each byte."""
_CHUNK = 1 << 20


class Refused(Exception):
    """A reader's refusal of bytes."""

    def __init__(self, *messages: str) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


class _Ended(Exception):
    """The process ended before it answered."""


class ReaderProcess:
    """A process for one request at a time."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OSError(errno.ENOENT, "this Python does not know where it is")
        self.owner = os.getpid()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("reader_process.py")), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def ask(self, kind: Kind, data: bytes) -> bytes:
        """Return the bytecode of the module in `data`.

        Raises:
            Refused: there is none, or the process did not live to tell.
        """
        seconds = SECONDS + len(data) // BYTES_A_SECOND
        memory = MEMORY + MEMORY_FOR_A_BYTE * len(data)
        request = REQUEST.pack(kind.encode(), seconds, memory, len(data))
        until = monotonic() + PATIENCE * seconds
        try:
            self._write(request, until)
            self._write(data, until)
            good, size = ANSWER.unpack(self._read(ANSWER.size, until))
            answer = self._read(size, until)
        except _Ended:
            raise Refused(self._last_words()) from None
        if not good:
            raise Refused(*json.loads(answer))
        return answer

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """End the process, unless it belongs to the parent of a fork."""
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()

    def _write(self, data: bytes, until: float) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        view = memoryview(data)
        os.set_blocking(pipe.fileno(), False)
        while view:
            self._wait(pipe, WRITE, until)
            try:
                view = view[os.write(pipe.fileno(), view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _Ended from None

    def _read(self, size: int, until: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        parts: list[bytes] = []
        while size:
            self._wait(pipe, READ, until)
            parts.append(os.read(pipe.fileno(), min(size, _CHUNK)))
            size -= len(parts[-1])
            if not parts[-1]:
                raise _Ended
        return b"".join(parts)

    def _wait(self, pipe: IO[bytes], what: int, until: float) -> None:
        if not is_ready(pipe, what, until - monotonic()):
            self._process.kill()
            raise _Ended

    def _last_words(self) -> str:
        """Return why the process ended."""
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if "LLVM ERROR" in line or "Check failed" in line or "what():" in line]
        if -code in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL):
            return "reading it takes too long"
        if "bad_alloc" in " ".join(said + lines[-3:]) or "out of memory" in " ".join(lines[-8:]):
            return "reading it takes too much memory"
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its reader crashed ({name}{': ' + said[0] if said else ''})"


_lock = threading.Lock()
_kept: ReaderProcess | None = None


def start() -> None:
    """Start the process, if there is none yet, without waiting; a failure is reported at its first use."""
    with _lock, contextlib.suppress(OSError):
        _process()


def _process() -> ReaderProcess:
    global _kept
    if _kept is None or not _kept.alive:
        if _kept is not None:
            _kept.close()
        _kept = ReaderProcess()
    return _kept


def read_in_child(kind: Kind, data: bytes, file: str) -> bytes:
    """Return the bytecode of the module in the data, read in the other process.

    Args:
        kind: what they are to be.
        data: the bytes.
        file: what to call them in errors.

    Raises:
        Refused: they hold no module; with the reader's messages.
        ParseError: there can be no other process.
    """
    with _lock:
        try:
            process = _process()
        except OSError as error:
            raise ParseError(
                f"no process can be started to read it in: {error.strerror}",
                file=file,
                hint="sx.load(..., trusted=True), for bytes from where you trust: they are then read in this process",
            ) from None
        try:
            return process.ask(kind, data)
        except BaseException:  # also of Ctrl-C, which leaves a request half done
            if not process.alive or not isinstance(sys.exception(), Refused):
                _forget()
            raise


def read_here(kind: Kind, data: bytes) -> ir.Module | bytes:
    """Read in this process, for trusted bytes. A module is not written as bytecode.

    Raises:
        Refused: they hold no module.
    """
    try:
        made: ir.Module | bytes = read(kind, data, contexts)
        return made
    except ValueError as error:
        raise Refused(*(str(a) for a in error.args)) from None


def _after_fork() -> None:
    """Replace the lock: another thread, gone after the fork, may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _forget() -> None:
    global _kept
    if _kept is not None:
        _kept.close()
        _kept = None
