"""The memory that a run may take: what the user allows, and what the machine and its control groups can give.

The native runtime asks `check_room` before a run takes more new memory than 64 MiB or than the limit; smaller runs find
out from their allocations.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from stablexla.dialects.errors import OutOfMemoryError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.runtime._runtime import ArraySpec, pool_stats, trim_pool

T = TypeVar("T")

UNLIMITED = 2**64 - 1
"""The pool's limit where there is none."""
SMALL = 64 << 20
"""Bytes that are taken without asking the system: that takes 0.2 ms, and their pages ten times as long."""
_ROWS = 5


@dataclass(frozen=True)
class Room:
    """How many bytes something can still give, and what that is."""

    bytes: int
    whose: str


def available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Room | None:
    """Return the least of what the machine, its control groups and the process's own limits leave; None if unknown.

    Args:
        proc, groups: where the kernel's files are.
    """
    memory = _numbers(proc / "meminfo", 1024)
    swap = memory.get("SwapFree", 0)
    rooms = [*_of_groups(proc, groups, swap), *_of_the_process(proc)]
    if "MemAvailable" in memory:
        rooms.append(Room(memory["MemAvailable"] + swap, "the machine"))
    return min(rooms, key=lambda room: room.bytes, default=None)


def check_room(program: str, results: Sequence[ArraySpec], arena_bytes: int, needed: int, devices: int) -> None:
    """Refuse a run before it takes memory.

    Args:
        program: its name.
        results, arena_bytes: what it takes memory for, on each device.
        needed: bytes of the pool's blocks for that, on all `devices` together.

    Raises:
        OutOfMemoryError: there is not so much.
    """
    now = pool_stats()
    limit = now["memory_limit_bytes"]
    rooms = [] if limit == UNLIMITED else [_left_by_the_limit(limit, now["in_use_bytes"])]
    fresh = max(0, needed - now["cached_bytes"])
    system = available() if fresh > SMALL else None
    if system is not None:
        rooms.append(Room(system.bytes + now["cached_bytes"], system.whose))
    room = min(rooms, key=lambda room: room.bytes, default=None)
    if room is None or needed <= room.bytes:
        if system is not None and needed > system.bytes:  # held blocks of other sizes would not make way by themselves
            trim_pool()
        return
    where = f" on {devices} devices" if devices > 1 else ""
    raise OutOfMemoryError(
        f"{program}: a call{where} needs {told_bytes(needed)} of new memory, but {room.whose} has only "
        f"{told_bytes(room.bytes)} left",
        needed=needed,
        available=room.bytes,
        result=_largest_result(results, arena_bytes),
        operands=_largest(results, arena_bytes),
        hint="executable.memory_estimate() says beforehand what a call needs",
    )


def raise_out_of_memory(purpose: str, size: int) -> NoReturn:
    """Report that an allocation of `size` bytes failed, and why."""
    now = pool_stats()
    limit = now["memory_limit_bytes"]
    room = None if limit == UNLIMITED else _left_by_the_limit(limit, now["in_use_bytes"])
    if room is None or room.bytes >= size:
        room = available()
    why = "" if room is None else f"; {room.whose} has {told_bytes(room.bytes)} left"
    raise OutOfMemoryError(
        f"no memory for {purpose}: {size} bytes were asked for{why}",
        needed=size,
        available=None if room is None else room.bytes,
    )


def raise_no_heap() -> NoReturn:
    """Report that the runtime could not allocate a structure of its own."""
    raise OutOfMemoryError("no memory for the runtime's own structures", needed=0)


def copied(copy: Callable[[], T], size: int, purpose: str) -> T:
    """Make an array of `size` bytes outside of the pool.

    Raises:
        OutOfMemoryError: there is no memory for it.
    """
    if size > SMALL and (room := available()) is not None and room.bytes < size:
        raise_out_of_memory(purpose, size)
    try:
        return copy()
    except MemoryError:
        raise_out_of_memory(purpose, size)


def told_bytes(size: int) -> str:
    """Return a number of bytes, large ones in a unit that is easier to read as well.

    >>> told_bytes(512), told_bytes(3 << 40)
    ('512 bytes', '3.0 TiB (3298534883328 bytes)')
    """
    value, unit = float(size), ""
    for unit in ("", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024 or unit == "EiB":
            break
        value /= 1024
    return f"{value:.1f} {unit} ({size} bytes)" if unit else f"{size} bytes"


def _largest(results: Sequence[ArraySpec], arena_bytes: int) -> dict[str, str]:
    """Return the rows of what takes the most."""
    rows = [(spec.nbytes, f"result {i}", f"{spec}: {told_bytes(spec.nbytes)}") for i, spec in enumerate(results)]
    rows.append((arena_bytes, "temporaries", told_bytes(arena_bytes)))
    rows = sorted((row for row in rows if row[0]), key=lambda row: -row[0])
    found = {name: text for _, name, text in rows[:_ROWS]}
    if rest := rows[_ROWS:]:
        found[f"{len(rest)} more"] = told_bytes(sum(size for size, _, _ in rest))
    return found


def _largest_result(results: Sequence[ArraySpec], arena_bytes: int) -> int | None:
    number = max(range(len(results)), key=lambda i: results[i].nbytes, default=None)
    return None if number is None or results[number].nbytes < arena_bytes else number


def _left_by_the_limit(limit: int, in_use: int) -> Room:
    return Room(max(0, limit - in_use), f"sx.set_memory_limit({limit})")


def _of_the_process(proc: Path) -> Iterator[Room]:
    """What `ulimit -v` and `ulimit -d` leave."""
    try:
        pages = (proc / "self/statm").read_text().split()
    except OSError:
        return
    page = resource.getpagesize()
    for kind, used, whose in (
        (resource.RLIMIT_AS, pages[0], "the limit on address space (ulimit -v)"),
        (resource.RLIMIT_DATA, pages[5], "the limit on data (ulimit -d)"),
    ):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Room(max(0, limit - int(used) * page), whose)


def _of_groups(proc: Path, root: Path, swap: int) -> Iterator[Room]:
    """What the process's control groups and all groups around them leave."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for folder in (root, root / "unified"):
                yield from _along(folder, path, "memory.max", "memory.current", ("inactive_file", "active_file"), swap)
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
            yield from _along(root / controllers, path, *names, 0)


def _along(mount: Path, path: str, limit: str, used: str, cached: Sequence[str], swap: int) -> Iterator[Room]:
    """What a group and its ancestors leave: pages of files count as free, as the kernel takes them back."""
    group = Path(path)
    for each in (group, *group.parents):
        folder = mount / str(each).lstrip("/")
        most, now = _number(folder / limit), _number(folder / used)
        if most is None or now is None:
            continue
        statistics = _numbers(folder / "memory.stat", 1)
        free = most - now + sum(statistics.get(name, 0) for name in cached)
        swapped = min(swap, _swap_left(folder, swap))
        yield Room(max(0, free + swapped), f"control group {each} ({limit})")


def _swap_left(folder: Path, swap: int) -> int:
    most, now = _number(folder / "memory.swap.max"), _number(folder / "memory.swap.current")
    return swap if most is None or now is None else max(0, most - now)


def _number(file: Path) -> int | None:
    """Return the number in a file; None without one, as "max" is none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _numbers(file: Path, unit: int) -> dict[str, int]:
    """Return the first number of each line `name: number`."""
    try:
        rows = [line.replace(":", " ").split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) * unit for row in rows if len(row) > 1 and row[1].isdecimal()}
