"""The library: machine code of functions that take sizes as arguments, which programs link instead of compiling them.

A function is known by a digest of all that its code depends on. What one program lacked is there for the next, in this
process, and in others by a store.
"""

from __future__ import annotations

import hashlib
from typing import Protocol


class Store(Protocol):
    """Keeps code from one process to another."""

    def get(self, digest: str) -> bytes | None:
        """Return an object file, or None."""

    def put(self, digest: str, code: bytes) -> None:
        """Keep an object file; that it could not be kept is no error."""


class Library:
    """Object files by digest.

    >>> library = Library()
    >>> library.put(digest_of("sum", 16), b"code")
    >>> library.find(digest_of("sum", 16)), library.find(digest_of("sum", 8))
    (b'code', None)
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self._files: dict[str, bytes] = {}

    def find(self, digest: str) -> bytes | None:
        """Return the object file; None when it has to be made."""
        found = self._files.get(digest)
        if found is None and self.store is not None:
            found = self.store.get(digest)
            if found is not None:
                self._files[digest] = found
        return found

    def put(self, digest: str, code: bytes) -> None:
        """Add an object file."""
        self._files[digest] = code
        if self.store is not None:
            self.store.put(digest, code)


LIBRARY = Library()


def digest_of(*key: object) -> str:
    """Return the digest of a key, whose parts are told apart by their `repr`."""
    return hashlib.sha256(repr(key).encode()).hexdigest()
