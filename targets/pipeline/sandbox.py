"""Limits of programs that are compiled and run in processes of their own; `stablexla/processes/` enforces them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass

PROTECTIONS = ("limits", "no new privileges", "landlock", "landlock network", "seccomp")
"""Protections of a process in a sandbox, from the oldest means of Linux to the newest."""
_MOST = 1 << 48
"""More bytes than an address space has, and more seconds than the kernel counts."""


@dataclass(frozen=True)
class Sandbox:
    """Where programs of strangers run: a process of their own with limits, which can open, start and reach nothing.

    Give it to `CompileOptions(sandbox=...)` or `load_executable(path, sandbox=...)`. Custom calls, host callbacks and
    infeeds cannot be had in there. A run that crashes, asks the kernel for something that no program needs, or exceeds
    a limit is an `ExecutionError`; the next one starts a new process.

    Attributes:
        memory: bytes that a run may take beside its arguments, results and constants; None is 2 GiB.
        time_limit: seconds that each run may take; None is for ever.
        required: which of `PROTECTIONS` must hold: without them nothing is run. "seccomp" alone keeps a program from
            files, other processes and the network.

    Raises:
        CompileError: a value that no process could have.

    >>> sx.Sandbox(memory=1 << 30, time_limit=10)
    Sandbox(memory=1073741824, time_limit=10)
    """

    memory: int | None = None
    time_limit: float | None = None
    required: Sequence[str] = ("seccomp",)

    def __post_init__(self) -> None:
        memory, limit = self.memory, self.time_limit
        if memory is not None and not (isinstance(memory, int) and not isinstance(memory, bool) and 0 < memory < _MOST):
            raise CompileError(f"memory of a sandbox must be a number of bytes, not {memory!r}")
        is_number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if limit is not None and not (is_number and 0 < limit < _MOST):
            raise CompileError(f"time_limit of a sandbox must be a number of seconds, not {limit!r}")
        if not isinstance(self.required, Iterable):
            raise CompileError(f"required of a sandbox must be names of protections, not {self.required!r}")
        given = (self.required,) if isinstance(self.required, str) else tuple(self.required)
        object.__setattr__(self, "required", given)
        if unknown := [name for name in given if name not in PROTECTIONS]:
            raise CompileError(f"a sandbox cannot have {unknown[0]!r}", hint=" or ".join(map(repr, PROTECTIONS)))

    def __repr__(self) -> str:
        given = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return f"Sandbox({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"
