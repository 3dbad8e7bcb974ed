"""Statistics of the memory pool, which holds results and arenas of all executables."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets import runtime


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
