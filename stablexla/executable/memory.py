"""Memory of programs: what a call needs, what may be used, and the state of the pool of results and arenas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from stablexla.dialects.errors import ExecutionError, OutOfMemoryError, SourceLine, StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets import runtime
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime._runtime import ArraySpec, CompiledFunction, GpuFunction
from stablexla.targets.runtime.available_memory import UNLIMITED, told_bytes
from stablexla.targets.signature.interface import Signature


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory that a program needs, in bytes; `Executable.memory_estimate` returns it. `print()` it for a table.

    Attributes:
        arguments: the arguments of a device; of dynamic sizes at their bounds, as all that follows.
        results: the results of a device.
        arena: the temporaries of a call on a device.
        copies: arguments of a device that are padded to their bounds, and results that are cut.
        donated: how much of `results` can lie in donated arguments.
        constants, code: constants, packed weights included, and machine code: once, as long as the executable.
        devices: how many devices run it in this process.
    """

    arguments: int
    results: int
    arena: int
    copies: int
    donated: int
    constants: int
    code: int
    devices: int = 1

    @property
    def call(self) -> int:
        """Bytes that a call allocates on all devices: results, arena and copies, without donation."""
        return self.devices * (self.results + self.arena + self.copies)

    @property
    def total(self) -> int:
        """All of it: arguments and `call` on all devices, constants, code."""
        return self.devices * self.arguments + self.call + self.constants + self.code

    def _rows(self) -> list[tuple[str, int]]:
        each = f" of each of {self.devices} devices" if self.devices > 1 else ""
        rows = [
            (f"arguments{each}", self.arguments),
            (f"results{each}", self.results),
            (f"arena for temporaries{each}", self.arena),
            (f"copies for dynamic sizes{each}", self.copies),
            ("constants", self.constants),
            ("machine code", self.code),
            ("a call takes", self.call),
            ("total", self.total),
        ]
        return [(name, size) for name, size in rows if size or name in ("a call takes", "total")]

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {told_bytes(size)}" for name, size in rows)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{told_bytes(size)}</td></tr>" for name, size in self._rows())
        return f"<table>{rows}</table>"


def estimate_of(function: CompiledFunction | GpuFunction, signature: Signature, devices: int) -> MemoryEstimate:
    """Return the memory of a compiled function on so many devices of this process."""
    padded = [spec for spec, d in zip(function.parameters, signature.dynamic_parameters, strict=False) if d]
    cut = [spec for spec, d in zip(function.results, signature.dynamic_results, strict=False) if d]
    return MemoryEstimate(
        arguments=_bytes(function.parameters),
        results=_bytes(function.results),
        arena=function.arena_bytes,
        copies=_bytes([*padded, *cut]),
        donated=_bytes([function.results[result] for result in function.aliases]),
        constants=sum(constant.nbytes for constant in function.constants),
        code=int(getattr(function.keep_alive, "nbytes", 0)),
        devices=devices,
    )


def _bytes(specs: Sequence[ArraySpec]) -> int:
    return sum(spec.nbytes for spec in specs)


def located(error: OutOfMemoryError, source: Callable[[], Any]) -> OutOfMemoryError:
    """Return the error with the user's line of the largest result, where that can be found.

    Args:
        source: returns the program in StableHLO.
    """
    if error.result is None:
        return error
    from stablexla.dialects.places import place_of
    from stablexla.targets.signature.signature import body_of

    try:
        *_, last = body_of(source()).operations
        made = last.operation.operands[error.result].owner
        if not hasattr(made, "location"):  # an argument
            return error
        place = place_of(made.location)
    except (StablexlaError, MemoryError):
        return error
    place = place.user_call or place
    if place.line:
        error = OutOfMemoryError(
            error.summary,
            needed=error.needed,
            available=error.available,
            result=error.result,
            operands=error.operands,
            source=SourceLine(place.file, place.line, place.function, place.text),
            hint=error.hint,
        )
    return error


@dataclass(frozen=True)
class MemoryStats:
    """The pool's state: bytes, and numbers of requests.

    Attributes:
        in_use: memory of results that are alive, and of the temporaries of calls that are running.
        held: free memory that the pool keeps, with its pages, for later calls.
        peak: the most that was in use at one time, since the process began.
        limit: `held` never becomes larger.
        hits: requests served from held memory.
        misses: requests served by the system.
    """

    in_use: int
    held: int
    peak: int
    limit: int
    hits: int
    misses: int


def memory_stats() -> MemoryStats:
    """Return the state of the pool of results and temporaries in this process.

    A block is as large as its size class, at most a quarter more than requested. Results of a megabyte and more use
    huge pages where the system has them; held pages cost no page faults when they are used again.

    >>> negate = sx.compile("func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {"
    ...                     " %0 = stablehlo.negate %x : tensor<1000xf32> return %0 : tensor<1000xf32> }")
    >>> before = sx.memory_stats().in_use
    >>> result = negate(np.zeros(1000, np.float32))
    >>> sx.memory_stats().in_use - before
    4096
    >>> del result
    >>> sx.memory_stats().held >= 4096
    True
    """
    now = runtime.pool_stats()
    return MemoryStats(
        now["in_use_bytes"],
        now["cached_bytes"],
        now["peak_bytes"],
        now["limit_bytes"],
        now["reused"],
        now["allocated"],
    )


def set_memory_limit(size: int | None) -> None:
    """Limit the memory of the pool in this process: results that are alive, temporaries, constants, held memory.

    A call that needs more than is left of it is refused before it begins, with an `OutOfMemoryError`. Arguments
    and what else the process has do not count. It begins as `STABLEXLA_MEMORY_LIMIT`, or none.

    Args:
        size: bytes; None for no limit. What is in use already stays.

    Raises:
        ExecutionError: no number of bytes.
        StablexlaError: STABLEXLA_MEMORY_LIMIT is none either.

    >>> b = sx.XlaBuilder("table")
    >>> table = sx.compile(b.build(b.iota(sx.f32[1 << 20], 0)))
    >>> sx.set_memory_limit(sx.memory_stats().in_use + 1_000_000)
    >>> try:
    ...     table()
    ... except sx.OutOfMemoryError as error:
    ...     print(error.needed, error.available)
    4194304 1000000
    >>> sx.set_memory_limit(None)
    >>> table().nbytes
    4194304
    """
    is_number = isinstance(size, int) and not isinstance(size, bool)
    if size is not None and not (is_number and 0 <= size < UNLIMITED):
        raise ExecutionError(f"a memory limit is a number of bytes or None, not {size!r}")
    limit_of_environment()
    runtime.set_memory_limit(UNLIMITED if size is None else size)


def memory_limit() -> int | None:
    """Return the limit that `set_memory_limit` set, in bytes; None for no limit."""
    limit_of_environment()
    limit = runtime.pool_stats()["memory_limit_bytes"]
    return None if limit == UNLIMITED else limit


@functools.cache
def limit_of_environment() -> None:
    """Set the limit that the knob STABLEXLA_MEMORY_LIMIT gives, once in a process.

    Raises:
        StablexlaError: it is no number of bytes.
    """
    if knobs.memory_limit is not None:
        runtime.set_memory_limit(knobs.memory_limit)
