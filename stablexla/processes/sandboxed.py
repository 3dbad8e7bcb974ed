"""A compiled function whose runs happen in a sandbox: a process of its own, started anew when it has ended."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError, LoadError, UnsupportedError
from stablexla.executable.running import check_bounds
from stablexla.processes import wire
from stablexla.processes.process import Process, how_it_ended, last_words
from stablexla.processes.sandbox_process import no_calls
from stablexla.processes.shared_arrays import SharedArrays
from stablexla.targets.pipeline.sandbox import Sandbox
from stablexla.targets.runtime import container, get_num_threads
from stablexla.targets.runtime.arguments import fit, raise_wrong_count
from stablexla.targets.runtime.saved_code import constants_of
from stablexla.targets.runtime.stopped import raise_stopped
from stablexla.targets.signature.interface import Signature

Array = npt.NDArray[Any]

MEMORY = 2 << 30
"""Bytes of a run where the sandbox says nothing."""
_FOR_A_THREAD = 16 << 20  # its stack, and what the allocator keeps for it
_START, _LOAD = 60.0, 30.0
"""Seconds that a process may take to come up, and to load a program."""
_TICK, _SPEAK = 0.05, 5.0
"""Seconds between looks at limits, and those in which an answer that has begun is there."""
_LONGEST = 1 << 20
_HARMLESS = ("assertion",)
"""Kinds of host calls that need nothing of the user's process."""
_CALLS = {"function": "the custom call", "ffi": "the custom call", "composite": "the kernel of the composite"}


class SandboxedFunction:
    """The counterpart of `CompiledFunction` for a program whose machine code this process does not load.

    Args:
        signature, description, sections: of a saved program, none of whose code is looked at here.
        sandbox: the limits.

    Raises:
        LoadError: no such program.
        UnsupportedError: the program calls functions of the user's, or the machine lacks what the sandbox requires.
    """

    host = None
    keep_alive = None

    def __init__(
        self,
        signature: Signature,
        description: Mapping[str, Any],
        sections: Mapping[str, memoryview],
        sandbox: Sandbox,
    ) -> None:
        function = description["function"]
        _refuse_calls(signature.name, function)
        self.name, self.num_devices = signature.name, signature.num_devices
        self.parameters, self.results = signature.parameter_specs(), signature.result_specs()
        self.arena_bytes = int(function["arena_bytes"])
        self.aliases = {int(result): int(parameter) for result, parameter in function["aliases"]}
        self.flush_denormals = bool(function["flush_denormals"])
        self.collectives = tuple(function["collectives"])
        self.saved_form = function, sections
        self._sandbox = sandbox
        self._seed: int | None = None
        self._file = b"".join(container.pieces(description, sections))
        self._lock = threading.Lock()
        self._kept: list[_Runner] = []
        weakref.finalize(self, _close, self._kept)
        _functions.add(self)
        self.protections = self._runner().protections

    @property
    def constants(self) -> list[Array]:
        """The program's constants."""
        description, sections = self.saved_form
        return constants_of(description["constants"], sections["constants"])

    def seed(self, number: int) -> None:
        """Seed the random numbers, also those of the processes to come."""
        with self._lock:
            self._seed = number
            self._runner()

    def __call__(self, *arguments: object) -> Any:
        """Run the program, as `CompiledFunction` does."""
        made = self.execute(arguments)
        return made[0] if len(made) == 1 else tuple(made)

    def execute(self, arguments: Sequence[object], donate: bool = False) -> list[Array]:
        """Run the program; arguments are copied, so that nothing is donated.

        Raises:
            ExecutionError: arguments that do not fit; a run that failed, crashed or exceeded a limit.
        """
        return self.execute_replicated([arguments])[0]

    def execute_replicated(
        self, arguments: Sequence[Sequence[object]], first: int = 0, donate: bool = False, time_limit: float | None = 60
    ) -> list[list[Array]]:
        """Run the program on all devices, which are threads of the other process."""
        given = [self._fitting(each) for each in arguments]
        if len(given) != self.num_devices:
            raise ExecutionError(
                f"{self.name}: a sandbox runs all {self.num_devices} devices of a program in one process"
            )
        with self._turn():
            runner = self._runner()
            for device, arrays in enumerate(given):
                for target, array in zip(runner.room.arguments(device), arrays, strict=True):
                    np.copyto(target, array)
            runner.ask(wire.ASK, {"devices": len(given), "time_limit": time_limit}, self._sandbox)
            # the other process may go on writing there: what is returned is a copy
            return [[array.copy() for array in runner.room.results(device)] for device in range(len(given))]

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other run is in the process; the limits of this one hold meanwhile."""
        while not self._lock.acquire(timeout=_TICK):
            check_bounds(self.name)
        try:
            yield
        finally:
            self._lock.release()

    def refuse(self, why: str, count: int) -> None:
        """Nobody else waits for a run that does not begin."""

    def _fitting(self, arguments: Sequence[object]) -> list[Array]:
        if len(arguments) != len(self.parameters):
            raise_wrong_count(self.name, self.parameters, len(arguments))
        return [fit(value, spec, self.name, i) for i, (value, spec) in enumerate(zip(arguments, self.parameters))]

    def _runner(self) -> _Runner:
        """Return the process, a new one if there is none, with the seed that was set last."""
        if self._kept and not self._kept[0].is_alive:
            _close(self._kept)
        if not self._kept:
            self._kept.append(_Runner(self.name, self.parameters, self.results, self.num_devices, self._sandbox))
            try:
                self._kept[0].load(self._file)
            except BaseException:
                _close(self._kept)
                raise
        runner = self._kept[0]
        if self._seed is not None and runner.seed != self._seed:
            runner.ask(wire.SEED, {"number": self._seed}, self._sandbox)
            runner.seed = self._seed
        return runner


_functions: weakref.WeakSet[SandboxedFunction] = weakref.WeakSet()


def _renew_locks() -> None:
    """Free them in a forked child: the threads whose runs held them are the parent's."""
    for function in list(_functions):
        function._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _refuse_calls(program: str, function: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for programs that need this process, or another target than the CPU."""
    if "gpu" in function:
        raise UnsupportedError(f"{program}: a sandbox runs programs for the CPU alone", hint='target="cpu"')
    for call in function["host_calls"] or ():
        if call["call"] not in _HARMLESS:
            name = f" {call['target']!r}" if "target" in call else ""
            raise no_calls(program, f"{_CALLS.get(call['call'], call['call'])}{name}")


def _close(kept: list[_Runner]) -> None:
    while kept:
        kept.pop().close()


class _Runner(Process):
    """The process of one function.

    Raises:
        ExecutionError: it cannot be started.
    """

    def __init__(
        self, name: str, parameters: Sequence[Any], results: Sequence[Any], devices: int, sandbox: Sandbox
    ) -> None:
        self._name, self.seed = name, _NO_SEED
        self.protections: tuple[str, ...] = ()
        self._threads = get_num_threads()
        try:
            self.room = SharedArrays(parameters, results, devices)
        except (OSError, OverflowError, ValueError) as error:
            raise ExecutionError(f"{name}: no memory for arguments and results: {error}") from None
        given = {
            "required": sandbox.required,
            "memory": (sandbox.memory or MEMORY) + _FOR_A_THREAD * (self._threads + devices),
            "threads": self._threads,
            "room": self.room.number,
        }
        code = "from stablexla.processes.sandbox_process import main; main()"
        try:
            super().__init__(["-c", code, json.dumps(given)], inherits=False, descriptors=(self.room.number,))
        except (OSError, ValueError) as error:
            raise ExecutionError(f"{name}: no process can be started to run it in: {error}") from None
        finally:
            self.room.close()

    def load(self, file: bytes) -> None:
        """Send the program, and wait until it is loaded.

        Raises:
            LoadError, UnsupportedError: it is not.
        """
        until = monotonic() + _START + _LOAD
        try:
            with contextlib.suppress(wire.Closed):  # it says why before it ends
                self.send(wire.ASK, {}, file, until)
            answer = self.receive(until, _LONGEST)
        except TimeoutError:
            self.kill()
            raise LoadError("loading it takes too long") from None
        except (wire.Closed, ValueError):
            self.kill()
            said = last_words(self.log())
            raise LoadError("\n  ".join([f"loading it ended the process ({self._how()})", *said])) from None
        if answer.kind != wire.READY:
            raise _error_of(answer)
        self.protections = tuple(map(str, answer.values.get("protections", ())))

    def ask(self, kind: str, values: Mapping[str, Any], sandbox: Sandbox) -> None:
        """Ask for a run, and wait for its end.

        Raises:
            ExecutionError: it failed, crashed, or exceeded a limit.
        """
        limit = sandbox.time_limit
        until = math.inf if limit is None else monotonic() + limit
        self._limit_processor_time(limit)
        try:
            self.send(kind, values, until=monotonic() + _SPEAK)
            while not self.is_readable(_TICK):
                check_bounds(self._name)
                if limit is not None and monotonic() > until:
                    raise_stopped(self._name, "time limit", "", limit)
            answer = self.receive(monotonic() + _SPEAK, _LONGEST)
        except ValueError:
            self.end()
            raise ExecutionError(f"{self._name}: the process of the sandbox says something else than results") from None
        except (wire.Closed, TimeoutError):
            self._raise_end(limit)
        except BaseException:  # a limit; Ctrl-C
            self.end()
            raise
        if answer.kind != wire.DONE:
            raise _error_of(answer)

    def end(self) -> None:
        """End the process, and wait until it has ended: the next run has another one."""
        self.kill()
        self.exit_code()

    def _limit_processor_time(self, limit: float | None) -> None:
        """Let the kernel end a run that nobody waits for any more."""
        if limit is None:
            return
        try:
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_CPU)
            most = self._processor_seconds() + math.ceil(limit * self._threads) + 1
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (most, hard))
        except (OSError, ValueError):
            pass  # it has ended

    def _processor_seconds(self) -> int:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")

    def _raise_end(self, limit: float | None) -> NoReturn:
        """Raise the error for a run that ended the process."""
        code = self.exit_code()
        self.end()
        ends: dict[int, str] = {
            signal.SIGSYS: "asked the kernel for something that no program in a sandbox may: its filter ended the "
            "process (SIGSYS)",
            signal.SIGXCPU: f"took the processor for longer than its time limit of {limit} s allows (SIGXCPU)",
        }
        said = ends.get(-code) if code is not None and code < 0 else None
        what = said or f"ended the process ({how_it_ended(code)})"
        raise ExecutionError("\n  ".join([f"{self._name}: the run {what}", *last_words(self.log())]))

    def _how(self) -> str:
        return how_it_ended(self.exit_code())


_NO_SEED = -1


def _error_of(answer: wire.Message) -> Exception:
    """Return the error in an answer, which may say anything."""
    try:
        return wire.error_of(answer.values)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return ExecutionError("the process of the sandbox says something else than an error")
