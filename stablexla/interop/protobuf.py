"""As much of protocol buffers' encoding as it takes to find an HLO module in a file.

HLO comes as an `HloModuleProto`, or as an `HloProto` or another message that has one as its first field.
"""

from __future__ import annotations

from collections.abc import Iterator

# Fields of HloModuleProto.
_NAME, _ENTRY_NAME, _COMPUTATIONS = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def find_hlo_module(data: bytes) -> bytes | None:
    """The HloModuleProto in the data, which may be it or enclose it; None when there is none.

    >>> find_hlo_module(b"\\x0a\\x01m\\x12\\x01e\\x1a\\x00"), find_hlo_module(b"no module at all")
    (b'\\n\\x01m\\x12\\x01e\\x1a\\x00', None)
    """
    for _ in range(2):
        try:
            found = dict(_fields(data))
        except ValueError:
            return None
        if _is_module(found):
            return data
        inner = found.get(_NAME)
        if not isinstance(inner, bytes):
            return None
        data = inner
    return None


def _is_module(fields: dict[int, bytes | int]) -> bool:
    name, entry = fields.get(_NAME), fields.get(_ENTRY_NAME)
    if not isinstance(name, bytes) or not isinstance(entry, bytes) or not isinstance(fields.get(_COMPUTATIONS), bytes):
        return False
    try:
        return name.decode().isprintable() and entry.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message, by number; one that is repeated comes several times."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("no field has the number 0")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("no such kind of field")
        if at + size > len(data):
            raise ValueError("the message ends too early")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("the message ends too early")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")
