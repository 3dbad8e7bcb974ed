"""IREE, compiled for this processor with what makes it fastest; arguments are device arrays before time is taken.

A process of its own compiles and tries each program first: a crash or a hang there is a failure here, not the end.
What was compiled is kept on disk, together with the time that it took.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.base import Array, FailedError, MissingEngineError
from benchmarks.programs.registry import Program

Flags = tuple[tuple[str, ...], ...]

COMMON = (
    "--iree-input-type=stablehlo",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)
# The first that compiles is taken: some programs are refused at the higher levels.
FLAGS = ((*COMMON, "--iree-opt-level=O3", "--iree-opt-data-tiling"), (*COMMON, "--iree-opt-level=O2"), COMMON)
DOUBLES = "--iree-input-demote-f64-to-f32=false"
"""Without it f64 becomes f32, the arguments' too."""
PATIENCE = 60.0
"""Seconds that compiling and the first run may take, when nothing else is said."""
SLOW = "not done after"
KEPT = Path(__file__).parents[2] / "build" / "benchmarks" / "iree"
CHILD = [sys.executable, "-m", "benchmarks.engines.iree_child"]


class _Child:
    """The process that compiles and tries; begun anew when it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, text: str, flags: Flags, patience: float) -> tuple[bytes, float]:
        """The compiled module and the seconds that it took."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump((text, flags, patience), process.stdin)
        process.stdin.flush()
        # It stops the compiler itself in time, and says so; what hangs while it runs is ended here.
        ready, _, _ = select.select([process.stdout], [], [], patience * 1.1)
        if not ready:
            self._end(process)
            raise FailedError(f"{SLOW} {patience:.0f} s")
        try:
            answer = pickle.load(process.stdout)
        except EOFError:
            raise FailedError(f"its process ended with {process.wait()}") from None
        if isinstance(answer, str):
            raise FailedError(answer)
        module: bytes = answer[0]
        seconds: float = answer[1]
        return module, seconds

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self._process = None


class _Prepared:
    def __init__(self, module: bytes, seconds: float) -> None:
        self._runtime = import_module("iree.runtime")
        self.compile_seconds: float | None = seconds
        self._config = self._runtime.Config("local-task")
        module_ = self._runtime.VmModule.copy_buffer(self._config.vm_instance, module)
        self._function = self._runtime.load_vm_module(module_, self._config).main

    def bind(self, arguments: Sequence[Array]) -> None:
        self._given = arguments
        self._arguments = self._on_device(arguments)

    def _on_device(self, arguments: Sequence[Array]) -> list[Any]:
        return [self._runtime.asdevicearray(self._config.device, a) for a in arguments]

    def _execute(self, arguments: Sequence[Any]) -> list[Any]:
        found = self._function(*arguments)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def run(self) -> None:
        self._execute(self._arguments)

    def results(self) -> list[Array]:
        """A call has to leave its arguments as they are, which an update in place does not."""
        made = [np.asarray(each.to_host()) for each in self._execute(self._arguments)]
        for number, (given, left) in enumerate(zip(self._given, self._arguments, strict=True)):
            if np.asarray(left.to_host()).tobytes() != given.tobytes():
                raise FailedError(f"it writes over argument {number}")
        return made

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        return lambda: [each.to_host() for each in self._execute(self._on_device(arguments))]


class _Engine:
    """IREE.

    Attributes:
        patience: seconds that compiling and the first run may take.
    """

    name = "iree"

    def __init__(self) -> None:
        self.patience = PATIENCE
        try:
            import_module("iree.runtime")
            version("iree-base-compiler")
        except ImportError:
            raise MissingEngineError("iree needs its packages: pip install 'stablexla[bench]'") from None
        self.version = version("iree-base-runtime")
        self._child = _Child()

    def prepare(self, program: Program, text: str) -> _Prepared:
        answer = self._kept(text)
        if isinstance(answer, str):
            raise FailedError(answer)
        return _Prepared(*answer)

    def _kept(self, text: str) -> tuple[bytes, float] | str:
        """From disk when it is there; failures are kept as well, being too slow until there is more patience."""
        flags: Flags = tuple((*each, DOUBLES) for each in FLAGS) if "f64" in text else FLAGS
        threads = len(os.sched_getaffinity(0))
        key = hashlib.sha256(repr((text, flags, self.version, threads)).encode()).hexdigest()[:32]
        file = KEPT / f"{key}.pickle"
        if file.exists():
            found: tuple[bytes, float] | str = pickle.loads(file.read_bytes())
            if not (isinstance(found, str) and SLOW in found and _seconds(found) < self.patience):
                return found
        try:
            answer: tuple[bytes, float] | str = self._child.ask(text, flags, self.patience)
        except FailedError as error:
            answer = str(error)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(answer))
        return answer


def _seconds(answer: str) -> float:
    """After how many seconds it was given up."""
    return float(answer.split()[-2])


engine = _Engine
