"""Renaming of shared libraries in ELF images: DT_SONAME and DT_NEEDED, by which the dynamic linker finds them.

Only 64-bit little-endian images are supported, as Linux runs on x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from mmap import mmap

_LOAD, _DYNAMIC = 1, 2  # types of program headers
_NEEDED, _STRTAB, _SONAME = 1, 5, 14  # tags of the dynamic section


def rename_libraries(image: mmap, names: Mapping[bytes, bytes]) -> None:
    """Rename a library (DT_SONAME) and those that it is linked with (DT_NEEDED), in place.

    Raises:
        ValueError: a new name is not as long as the old one, or the image is not a 64-bit little-endian ELF.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF image")
    for at in _name_offsets(image):
        old = image[at : image.find(b"\0", at)]
        new = names.get(old, old)
        if len(new) != len(old):
            raise ValueError(f"{new!r} is not as long as {old!r}")
        image[at : at + len(old)] = new


def _name_offsets(image: mmap) -> Iterator[int]:
    """Yield the file offsets of the strings of DT_SONAME and DT_NEEDED."""
    segments = list(_segments(image))
    offset, size = next((offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC)
    entries = list(struct.iter_unpack("<QQ", image[offset : offset + size]))
    address = next(value for tag, value in entries if tag == _STRTAB)
    strings = next(
        offset + address - start
        for kind, offset, start, size in segments
        if kind == _LOAD and start <= address < start + size
    )
    return (strings + value for tag, value in entries if tag in (_NEEDED, _SONAME))


def _segments(image: mmap) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, file offset, virtual address and file size of each program header."""
    (table,) = struct.unpack_from("<Q", image, 32)
    entry, count = struct.unpack_from("<HH", image, 54)
    for number in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", image, table + number * entry)
        yield kind, offset, address, size
