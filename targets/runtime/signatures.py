"""Signatures of saved programs: an HMAC-SHA256 of all of a file, which stands behind it.

The checksums of `container.py` find damage; whoever alters a file can make them right again. Only who has the key can
make the signature.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256

from stablexla.dialects.errors import LoadError, StablexlaError

MARK = b"\x93signed\n"
"""Stands between a file and its signature, and is signed as well."""
SHORTEST = 16
_DIGEST = 32
SIZE = len(MARK) + _DIGEST
"""Bytes of a signature with its mark."""

Buffer = bytes | bytearray | memoryview


def checked(key: object) -> bytes:
    """Return a key.

    Raises:
        StablexlaError: it is none.
    """
    if not isinstance(key, (bytes, bytearray, memoryview)) or len(bytes(key)) < SHORTEST:
        what = f"{len(bytes(key))} bytes" if isinstance(key, (bytes, bytearray, memoryview)) else type(key).__name__
        raise StablexlaError(
            f"a key for signatures is at least {SHORTEST} secret bytes, not {what}", hint="secrets.token_bytes(32)"
        )
    return bytes(key)


def signature(pieces: Iterable[Buffer], key: bytes) -> bytes:
    """Return what stands behind a signed file of these pieces."""
    digest = hmac.new(checked(key), digestmod=sha256)
    for piece in (*pieces, MARK):
        digest.update(piece)
    return MARK + digest.digest()


def is_signed(data: Buffer) -> bool:
    """Return whether a signature stands at the end of a file; it need not be right."""
    end = memoryview(data)[-SIZE:]
    return len(end) == SIZE and bytes(end[: len(MARK)]) == MARK


def is_cut(end: Buffer) -> bool:
    """Return whether these bytes are the beginning of a signature that lacks its end."""
    start = bytes(memoryview(end)[: len(MARK)])
    return 0 < memoryview(end).nbytes < SIZE and MARK.startswith(start)


def verify(data: Buffer, key: bytes, file: str) -> memoryview:
    """Return a file without its signature, none of whose contents have been looked at before.

    Raises:
        LoadError: it has none, or another.
        StablexlaError: that is no key.
    """
    key, view = checked(key), memoryview(data)
    if not is_signed(view):
        if (found := bytes(view[-SIZE + 1 :]).rfind(MARK)) >= 0 and is_cut(view[-SIZE + 1 :][found:]):
            raise LoadError(f"{file}: the file is damaged: its signature ends too early", hint="copy it again")
        raise LoadError(
            f"{file}: the file is not signed, and a key was given; or its end is missing",
            hint="executable.save(path, key=key), by whoever has the key",
        )
    contents = view[:-SIZE]
    if not hmac.compare_digest(signature([contents], key), bytes(view[-SIZE:])):
        raise LoadError(
            f"{file}: the signature is not that of this key: the file was altered, or signed with another one"
        )
    return contents
