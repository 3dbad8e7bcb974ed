"""Every environment variable that stablexla reads, in one typed table; no other code reads the environment.

A knob can be set in code as well, for the length of a `with` block: `with knobs.scoped(dump=path): ...`.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from stablexla.dialects.caller import warn
from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.system import has_more_privileges

T = TypeVar("T")

LAUNCHERS = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""Variables that MPI launchers set for the processes that they start; each launcher has its own."""

OF_TESTS = "STABLEXLA_TEST_"
"""Prefix of the variables by which tests talk to the processes that they start."""

_FORCED = "--xla_force_host_platform_device_count"

_set_in_code: ContextVar[dict[str, Any]] = ContextVar("stablexla_knobs")


@dataclass(frozen=True)
class Knob(Generic[T]):
    """One variable.

    Attributes:
        variable: its name in the environment.
        default: the value when it is not set or empty.
        read: the value that a text spells; raises ValueError when it spells none.
        summary: what it does, in one sentence.
    """

    variable: str
    default: T
    read: Callable[[str], T]
    summary: str

    @overload
    def __get__(self, owner: None, kind: type) -> Knob[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object, kind: type) -> Knob[T] | T:
        if owner is None:
            return self
        inside = _set_in_code.get({})
        if self.variable in inside:
            value: T = inside[self.variable]
            return value
        text = "" if IS_PRIVILEGED else os.environ.get(self.variable, "")
        if not text:
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise StablexlaError(f"{self.variable}={text}: {error}\n  {self.variable}: {self.summary}") from None


def _is_privileged() -> bool:
    return has_more_privileges() or os.getuid() != os.geteuid() or os.getgid() != os.getegid()


IS_PRIVILEGED = _is_privileged()
"""Whether whoever started this program has not all of its privileges (set-user-ID and the like): variables are theirs
then, and name libraries and folders to it. None is read, as by C's `secure_getenv`."""


def is_launched() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in LAUNCHERS)


def _flag(text: str) -> bool:
    values = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
    if text.lower() not in values:
        raise ValueError("it is either 1 or 0")
    return values[text.lower()]


def _times(text: str) -> bool | Literal["passes"]:
    if text.lower() == "passes":
        return "passes"
    try:
        return _flag(text)
    except ValueError:
        raise ValueError("it is 1, 0 or passes") from None


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ValueError("it is a number of threads, from 1 to 1024")
    return int(text)


def _devices(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ValueError("it is a number of devices, from 1 to 1024")
    return int(text)


def _forced_devices(text: str) -> int | None:
    """Read the number of devices among XLA's flags; the last counts. A text without dashes is the name of a file."""
    if not text.lstrip().startswith("-"):
        text = Path(text).read_text() if Path(text).is_file() else ""
    given = [value for name, _, value in (word.partition("=") for word in text.split()) if name == _FORCED]
    return _devices(given[-1]) if given else None


def user_cache_folder() -> Path | None:
    """The folder for caches of this user, by the XDG base directory specification; None if there is no home."""
    if IS_PRIVILEGED:
        return None
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def _guard(text: str) -> Literal["ends", "starts"] | None:
    if text.lower() == "starts":
        return "starts"
    try:
        return "ends" if text.lower() == "ends" or _flag(text) else None
    except ValueError:
        raise ValueError("it is 1, which is ends, or starts, or 0") from None


def _folder(text: str) -> Path:
    if _folder_or_off(text) == "off":
        raise ValueError("it is a folder; STABLEXLA_KERNEL_CACHE=off turns the cache off")
    return Path(text)


def _folder_or_off(text: str) -> Path | Literal["off"]:
    return "off" if text.lower() in ("off", "0") else Path(text)


def number_of_bytes(text: str) -> int:
    """Return the number that a text such as 500M spells; raises ValueError."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = text[:-1] if text[-1:].upper() in units else text
    if not number.isdecimal():
        raise ValueError("it is a number of bytes, or one with K, M or G behind it")
    return int(number) * units.get(text[-1:].upper(), 1)


class Knobs:
    """The table."""

    dump: Knob[Path | None] = Knob(
        "STABLEXLA_DUMP", None, Path, "A folder; the IR after every step of every compilation is written below it."
    )
    override: Knob[Path | None] = Knob(
        "STABLEXLA_OVERRIDE",
        None,
        Path,
        "A folder laid out as a dump; a stage's file found in it takes the place of what the step made.",
    )
    print_after_all: Knob[bool] = Knob(
        "STABLEXLA_PRINT_AFTER_ALL", False, _flag, "1 prints the IR after every single pass on standard error."
    )
    time: Knob[bool | Literal["passes"]] = Knob(
        "STABLEXLA_TIME",
        False,
        _times,
        "1 prints a table of the seconds that each step took; with passes, each pass has a row too.",
    )
    full_tracebacks: Knob[bool] = Knob(
        "STABLEXLA_FULL_TRACEBACKS",
        False,
        _flag,
        "1 keeps the frames of this package in tracebacks of errors of the builder and the compiler, which end at your "
        "line without.",
    )
    num_threads: Knob[int | None] = Knob(
        "STABLEXLA_NUM_THREADS", None, _threads, "Threads that run programs; as many as the process may use by default."
    )

    memory_limit: Knob[int | None] = Knob(
        "STABLEXLA_MEMORY_LIMIT",
        None,
        number_of_bytes,
        "How much memory results and temporaries may take in a process, as 500M or 2G; see sx.set_memory_limit.",
    )
    num_devices: Knob[int | None] = Knob(
        "STABLEXLA_NUM_DEVICES",
        None,
        _devices,
        "Devices of the platform stablexla in JAX; 1 by default.",
    )
    forced_devices: Knob[int | None] = Knob(
        "XLA_FLAGS",
        None,
        _forced_devices,
        f"Of XLA's flags, {_FORCED}=N is read: devices of the platform stablexla in JAX.",
    )

    guard: Knob[Literal["ends", "starts"] | None] = Knob(
        "STABLEXLA_GUARD",
        None,
        _guard,
        "1 runs programs with guard pages behind their arrays, and canaries around them; starts has the pages before.",
    )

    choices: Knob[str] = Knob(
        "STABLEXLA_CHOICES",
        "",
        str,
        "Sizes at which rewrites and emitters begin: usual, eager (all at once, for tests) or drawn:NUMBER.",
    )

    ptxas: Knob[Path | None] = Knob(
        "STABLEXLA_PTXAS",
        None,
        Path,
        "NVIDIA's assembler, or none; that of its package, or one on PATH, when it is not set.",
    )
    cuda_driver: Knob[Path | None] = Knob(
        "STABLEXLA_CUDA_DRIVER", None, Path, "The library of the CUDA driver, in place of the system's libcuda.so.1."
    )
    python: Knob[Path | None] = Knob(
        "STABLEXLA_PYTHON", None, Path, "The Python that compiles for libstablexla_pjrt.so, which reads it itself."
    )
    cache: Knob[Path | None] = Knob(
        "STABLEXLA_CACHE",
        None,
        _folder,
        "A folder in which compiled programs are kept, and looked for before compiling.",
    )
    kernel_cache: Knob[Path | Literal["off"] | None] = Knob(
        "STABLEXLA_KERNEL_CACHE",
        None,
        _folder_or_off,
        "off, or the folder of the cache that is on by default; without it one in the user's cache folder.",
    )
    library: Knob[Path | Literal["off"] | None] = Knob(
        "STABLEXLA_LIBRARY",
        None,
        _folder_or_off,
        "off, or the folder of the machine code that all programs share; without it one in the user's cache folder.",
    )
    kept_kernels: Knob[bool | None] = Knob(
        "STABLEXLA_KEPT_KERNELS",
        None,
        _flag,
        "1 keeps the code of kernels for other programs, 0 does not; by default it is kept where programs are.",
    )
    llvm: Knob[Path | Literal["off"] | None] = Knob(
        "STABLEXLA_LLVM",
        None,
        _folder_or_off,
        "A libLLVM.so of version 22 or later that makes machine code, or off; that of the extra fast, if installed.",
    )
    cache_limit: Knob[int] = Knob(
        "STABLEXLA_CACHE_LIMIT",
        2 << 30,
        number_of_bytes,
        "About how big such a folder may become, as 500M or 2G; what was not used for longest goes first.",
    )

    def table(self) -> dict[str, Knob[Any]]:
        """The knobs by the names they have in code."""
        return {name: knob for name, knob in vars(type(self)).items() if isinstance(knob, Knob)}

    @contextmanager
    def scoped(self, **values: object) -> Iterator[None]:
        """Sets knobs by name for the length of a `with` block, in this thread.

        >>> with knobs.scoped(num_threads=2):
        ...     knobs.num_threads
        2
        """
        table = self.table()
        changed = {**_set_in_code.get({}), **{table[name].variable: value for name, value in values.items()}}
        token = _set_in_code.set(changed)
        try:
            yield
        finally:
            _set_in_code.reset(token)


knobs = Knobs()


@functools.cache
def warn_of_unknown_variables() -> None:
    """Warn, once in a process, of variables that begin as ours do and are none."""
    known = [knob.variable for knob in knobs.table().values()]
    for name in sorted(os.environ):
        if name.startswith("STABLEXLA_") and not name.startswith(OF_TESTS) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; {near[0]}?" if near else f": those that there are begin with {', '.join(known)}"
            warn(f"the environment variable {name} is not read{meant}")
