"""Reads untrusted bytes in a process of its own, which may crash, hang or exhaust memory.

MLIR's reader of bytecode and XLA's of HLO do each of these on damaged bytes. The first such bytes start the process,
which is kept. It answers with bytecode that MLIR wrote of a verified module.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from time import monotonic

import jaxlib.mlir.ir as ir

from stablexla.dialects import contexts
from stablexla.dialects.errors import ParseError
from stablexla.interop.encodings.reader_process import Kind, read
from stablexla.processes import wire
from stablexla.processes.process import Process, how_it_ended

SECONDS, BYTES_A_SECOND = 4, 1 << 20
"""How long a reader may take of a processor: this, and a second for so many bytes."""
PATIENCE = 12
"""How many times as long it may take by the clock, on a machine that has other things to do."""
MEMORY, MEMORY_FOR_A_BYTE = 2 << 30, 64
"""How much memory a reader may take: this, and so much for each byte."""


class Refused(Exception):
    """A reader's refusal of bytes."""

    def __init__(self, *messages: str) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


class ReaderProcess(Process):
    """A process for one request at a time."""

    def __init__(self) -> None:
        super().__init__([str(Path(__file__).with_name("reader_process.py"))])

    def ask(self, kind: Kind, data: bytes) -> bytes:
        """Return the bytecode of the module in `data`.

        Raises:
            Refused: there is none, or the process did not live to tell.
        """
        seconds = SECONDS + len(data) // BYTES_A_SECOND
        request = {"kind": kind, "seconds": seconds, "memory": MEMORY + MEMORY_FOR_A_BYTE * len(data)}
        until = monotonic() + PATIENCE * seconds
        try:
            self.send(wire.ASK, request, data, until)
            answer = self.receive(until)
        except (wire.Closed, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self.kill()
            raise Refused(self._last_words()) from None
        if answer.kind == wire.ERROR:
            raise Refused(*answer.values["messages"])
        return answer.data

    def _last_words(self) -> str:
        """Return why the process ended."""
        code = self.exit_code()
        lines = self.log()[-4000:].splitlines()
        said = [line.strip() for line in lines if "LLVM ERROR" in line or "Check failed" in line or "what():" in line]
        if code is not None and -code in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL):
            return "reading it takes too long"
        if "bad_alloc" in " ".join(said + lines[-3:]) or "out of memory" in " ".join(lines[-8:]):
            return "reading it takes too much memory"
        return f"its reader crashed ({how_it_ended(code)}{': ' + said[0] if said else ''})"


_lock = threading.Lock()
_kept: ReaderProcess | None = None


def start() -> None:
    """Start the process, if there is none yet, without waiting; a failure is reported at its first use."""
    with _lock, contextlib.suppress(OSError):
        _process()


def _process() -> ReaderProcess:
    global _kept
    if _kept is None or not _kept.is_alive:
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
            if not process.is_alive or not isinstance(sys.exception(), Refused):
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
