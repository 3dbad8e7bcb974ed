"""The cache of machine code that is on by default: a program that was compiled once starts from a file from then on.

It lies in the folder `stablexla` of the user's cache folder (`XDG_CACHE_HOME`, or `~/.cache`), or in
`STABLEXLA_KERNEL_CACHE=DIR`; `STABLEXLA_KERNEL_CACHE=off` turns it off. `STABLEXLA_CACHE_LIMIT` bounds its size.
"""

from __future__ import annotations

from pathlib import Path

from stablexla.dialects.lazy_dataclass import dataclass

__all__ = ["KernelCacheStats", "clear", "stats"]


@dataclass(frozen=True)
class KernelCacheStats:
    """What the cache did in this process, and what its folder holds.

    Attributes:
        folder: the folder; None when the cache is off, or no folder can be used.
        hits: programs of this process that were found.
        misses: programs that were compiled, and stored.
        bypassed: programs that were compiled without looking: functions of this process take part in their compilation,
            or programs for the target cannot be saved.
        entries: files in the folder.
        bytes: their size.
    """

    folder: Path | None
    hits: int
    misses: int
    bypassed: int
    entries: int
    bytes: int


def stats() -> KernelCacheStats:
    """The counts of this process, and the contents of the folder.

    >>> sx.kernel_cache.stats().bytes >= 0
    True
    """
    from stablexla.compiling import cache

    folder = cache.Folder.by_default()
    found = cache.entries(folder.path) if folder is not None else []
    counts = cache.counts
    size = sum(each.st_size for _, each in found)
    path = None if folder is None else folder.path
    return KernelCacheStats(path, counts.hits, counts.misses, counts.bypassed, len(found), size)


def clear() -> int:
    """Remove all entries from the folder, and from that of the library; returns how many programs there were.

    Programs in use go on running.

    >>> sx.kernel_cache.clear() >= 0
    True
    """
    from stablexla.compiling import cache

    if (library := cache.Folder.of_library()) is not None:
        cache.limit(library.path, -1)
    folder = cache.Folder.by_default()
    if folder is None:
        return 0
    cache.remove_unfinished(folder.path)
    return cache.limit(folder.path, -1)
