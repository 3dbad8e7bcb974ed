"""Whether MLIR bytecode is all there. MLIR's reader does not always end on a file that was cut off; this does.

What stands inside the sections is left to MLIR's reader.
"""

from __future__ import annotations

MAGIC = b"ML\xefR"
_ALIGNED = 0x80
_PADDING = 0xCB
# Strings, dialects, attributes and types, their offsets, and the operations; other kinds may be left out.
_NEEDED = {0, 1, 2, 3, 4}


def is_complete(data: bytes) -> bool:
    """Whether the sections end where the data ends: magic, version, producer, then sections with their lengths."""
    try:
        _, at = _number(data, len(MAGIC))
        at = data.index(b"\0", at) + 1
        kinds = set()
        while at < len(data):
            kinds.add(data[at] & ~_ALIGNED)
            at = _after_section(data, at)
    except (IndexError, ValueError):
        return False
    return at == len(data) and kinds >= _NEEDED


def _after_section(data: bytes, at: int) -> int:
    kind = data[at]
    length, at = _number(data, at + 1)
    if kind & _ALIGNED:
        _, at = _number(data, at)
        while data[at] == _PADDING:
            at += 1
    return at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and the place after it: the zeros below its lowest 1 count the bytes that follow."""
    first = data[at]
    more = (first & -first).bit_length() - 1 if first else 8
    if at + 1 + more > len(data):
        raise ValueError("the data end inside a number")
    if more == 8:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(data[at : at + 1 + more], "little") >> (more + 1), at + 1 + more
