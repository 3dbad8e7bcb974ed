"""The library: machine code of functions that take sizes as arguments, and of kernels, which programs link instead of
compiling them.

A function is known by a digest of all that its code depends on. What one program lacked is there for the next, in this
process, and in others by a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from threading import Lock
from typing import Protocol


class Store(Protocol):
    """Keeps code from one process to another."""

    def get(self, digest: str) -> bytes | None:
        """Return an entry, or None."""

    def put(self, digests: Sequence[str], entry: bytes) -> None:
        """Keep an entry under each of the digests; that it could not be kept is no error."""


class Library:
    """Entries by digest: object files of functions, and parts with kernels (`kept_kernels.py`).

    Attributes:
        store: keeps them from one process to another; None is for this process alone.
        limit: about how many bytes stay in memory; what was not used for longest goes first.

    >>> library = Library()
    >>> library.put([digest_of("sum", 16)], b"code")
    >>> library.find(digest_of("sum", 16)), library.find(digest_of("sum", 8))
    (b'code', None)
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self.store: Store | None = None
        self.limit = limit
        self._files: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = Lock()

    def find(self, digest: str) -> bytes | None:
        """Return what there is; None when it has to be made."""
        found = self._files.get(digest)
        if found is None and self.store is not None:
            found = self.store.get(digest)
        if found is not None:
            self._hold(digest, found)
        return found

    def put(self, digests: Sequence[str], entry: bytes) -> None:
        """Add an entry under each of the digests."""
        for digest in digests:
            self._hold(digest, entry)
        if self.store is not None:
            self.store.put(digests, entry)

    def _hold(self, digest: str, entry: bytes) -> None:
        """Hold it in memory as the one that was used last."""
        with self._lock:
            self._bytes += len(entry) - len(self._files.pop(digest, b""))
            self._files[digest] = entry
            while self._bytes > self.limit:
                self._bytes -= len(self._files.pop(next(iter(self._files))))


LIBRARY = Library()


def digest_of(*key: object) -> str:
    """Return the digest of a key, whose parts are told apart by their `repr`."""
    return hashlib.sha256(repr(key).encode()).hexdigest()
