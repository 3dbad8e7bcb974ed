"""File format of saved programs: a JSON description and named sections with checksums, written atomically.

After the magic and the format's number come the length and the checksum of the description, then the description, which
has the sections' offsets. A signature may stand behind all of it (`signatures.py`). Contents of the sections are
decided elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

from stablexla.dialects.errors import LoadError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.runtime import signatures

MAGIC = b"\x93stablexla\r\n\x1a"
FORMAT = 1
"""Version: incremented when files, or what machine code expects of the runtime, change incompatibly."""
ALIGNMENT = 64

_MAPPED = 8 << 20
"""Bytes of files that are worth a map."""
_HEAD = struct.Struct("<HIQ32s")  # format, 0, length of the description, its checksum
_START = len(MAGIC) + _HEAD.size

Buffer = bytes | bytearray | memoryview
Part = Buffer | Sequence[Buffer]


@dataclass(frozen=True)
class Container:
    """A file that was read and validated.

    Attributes:
        description: plain values.
        sections: the bytes of each.
    """

    description: dict[str, Any]
    sections: Mapping[str, memoryview]


def write(
    path: Path,
    description: Mapping[str, Any],
    sections: Mapping[str, Part],
    mode: int = 0o666,
    *,
    key: bytes | None = None,
    folder: int | None = None,
) -> None:
    """Write a file atomically: concurrent readers get the old one or the new one.

    Args:
        mode: its permissions, before the process's umask.
        key: what it is signed with.
        folder: a descriptor of the folder that the path is relative to, wherever that lies by now.

    Raises:
        OSError: it cannot be written.
        StablexlaError: that is no key.
    """
    parts = pieces(description, sections)
    if key is not None:
        parts.append(signatures.signature(parts, key))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode, dir_fd=folder)) as file:
            for piece in parts:
                file.write(piece)
        os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        if isinstance(error, OSError) and error.errno is not None:  # which would name the temporary file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def pieces(description: Mapping[str, Any], sections: Mapping[str, Part]) -> list[Buffer]:
    """Return the bytes of a file, in pieces."""
    table, body, offset = {}, list[Buffer](), 0
    for name, part in sections.items():
        buffers = [part] if isinstance(part, (bytes, bytearray, memoryview)) else list(part)
        digest, size = hashlib.sha256(), 0
        for buffer in buffers:
            digest.update(buffer)
            size += memoryview(buffer).nbytes
        table[name] = {"offset": offset, "size": size, "sha256": digest.hexdigest()}
        body += [*buffers, bytes(-size % ALIGNMENT)]
        offset += _padded(size)
    text = json.dumps({**description, "sections": table}).encode()
    text += b" " * (-(_START + len(text)) % ALIGNMENT)
    return [MAGIC, _HEAD.pack(FORMAT, 0, len(text), hashlib.sha256(text).digest()), text, *body]


def read(path: Path, key: bytes | None = None) -> Container:
    """Read and validate a file.

    Args:
        key: what it must be signed with; the signature is looked at before anything else.

    Raises:
        LoadError: it cannot be read, is no such file, of another format, damaged, or not signed with the key.
        StablexlaError: that is no key.
    """
    try:
        with path.open("rb") as file:
            data = contents(file)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(data if key is None else signatures.verify(data, key, str(path)), str(path))


def contents(file: BinaryIO) -> Buffer:
    """Return what an open file has; a large one is mapped, so that processes share its memory.

    It must not be written into, as nobody does who writes another one in its place (`write`).
    """
    size = os.fstat(file.fileno()).st_size
    if size < _MAPPED:
        return file.read()
    untracked = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # else each map keeps a descriptor
    return memoryview(mmap(file.fileno(), size, access=ACCESS_READ, **untracked))


def parse(data: Buffer, file: str) -> Container:
    """Validate the contents of the file of that name, as `read`."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise LoadError(f"{file}: this is no saved program", hint="executable.save(path) writes one")
    if len(view) < _START:
        raise _damaged(file, "it ends too early")
    number, _, length, digest = _HEAD.unpack_from(view, len(MAGIC))
    if number != FORMAT:
        raise LoadError(
            f"{file}: the program was saved in format {number}, and this stablexla reads format {FORMAT}",
            hint="compile it again and save it",
        )
    text = view[_START : _START + length]
    if len(text) != length:
        raise _damaged(file, "it ends too early")
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(file, "its description has another checksum")
    body = view[_START + length :]
    try:
        description = json.loads(bytes(text))
        table = description.pop("sections")
        sections = {name: _section(file, name, place, body) for name, place in table.items()}
        end = max((_padded(place["offset"] + place["size"]) for place in table.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # the checksum matches, so it was written by other means
        raise _damaged(file, f"its description does not hold together: {error!r}") from None
    if len(body) < end:
        raise _damaged(file, "it ends too early")
    if behind := len(body) - end:
        if signatures.is_cut(body[end:]):
            raise _damaged(file, "its signature ends too early")
        if not (signatures.is_signed(body) and behind == signatures.SIZE):
            raise _damaged(file, f"there are {behind} bytes behind its end")
    return Container(description, sections)


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def _section(file: str, name: str, place: Mapping[str, Any], body: memoryview) -> memoryview:
    section = body[place["offset"] : place["offset"] + place["size"]]
    if len(section) != place["size"]:
        raise _damaged(file, "it ends too early")
    end = place["offset"] + place["size"]
    if hashlib.sha256(section).hexdigest() != place["sha256"] or any(body[end : _padded(end)]):
        raise _damaged(file, f"its section {name!r} has another checksum")
    return section


def _damaged(file: str, how: str) -> LoadError:
    return LoadError(f"{file}: the file is damaged: {how}", hint="compile the program again and save it")
