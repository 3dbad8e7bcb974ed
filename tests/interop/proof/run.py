"""Runs calls in child processes, so that one that dies or hangs is a line of the table and not the end."""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.interop.proof.judge import Verdict
from tests.interop.proof.trial import Trial, trial_of

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 300.0

Done = Callable[[str, list[Trial]], None]


class Child:
    """A process that runs `worker`, started when it is needed."""

    def __init__(self, cache: Path, fresh: bool, platforms: str) -> None:
        """`fresh`: nothing is taken from the cache."""
        self._platforms = platforms
        self._command = [
            sys.executable,
            "-m",
            "tests.interop.proof.worker",
            str(cache),
            *(["--fresh"] if fresh else []),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def trials(self, path: str) -> list[Trial]:
        """What became of all calls of a function."""
        found: list[Trial] = []
        while True:
            label = ""
            for told in self._ask(path, len(found)):
                if "done" in told:
                    return found
                if "begin" in told:
                    label = told["begin"]
                else:
                    found.append(trial_of(told["trial"]))
            found.append(Trial(label, self._how_it_ended()))
            if not label:  # it ended before a first call
                return found

    def _ask(self, path: str, skip: int) -> Iterator[dict[str, Any]]:
        """What the child says, until it is done, or dead, or silent for too long."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"path": path, "skip": skip}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(TIMEOUT):
                line = process.stdout.readline()
                if not line:
                    return
                told: dict[str, Any] = json.loads(line)
                yield told
                if "done" in told:
                    return

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": self._platforms},
                start_new_session=True,
            )
        return self._process

    def _how_it_ended(self) -> Verdict:
        assert self._process is not None
        try:
            code = self._process.wait(5)
            verdict = Verdict("died", note=_signal(code))
        except subprocess.TimeoutExpired:
            verdict = Verdict("timeout", note=f"nothing after {TIMEOUT:.0f} s")
        self.close()
        return verdict

    def close(self) -> None:
        """Ends the process."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


def _signal(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def run_all(
    paths: Sequence[str], jobs: int, cache: Path, done: Done, *, fresh: bool = False, platforms: str = "cpu"
) -> None:
    """Runs the functions of these paths in `jobs` processes; `done` is called for each, from many threads in turn."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for path in paths:
        waiting.put(path)
    lock = threading.Lock()

    def work() -> None:
        child = Child(cache, fresh, platforms)
        try:
            while True:
                path = waiting.get_nowait()
                found = child.trials(path)
                with lock:
                    done(path, found)
        except queue.Empty:
            pass
        finally:
            child.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
