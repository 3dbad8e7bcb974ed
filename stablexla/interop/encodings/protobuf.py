"""The part of protocol buffers' encoding needed to find and change an HLO module, and for jaxlib's messages.

HLO comes as an `HloModuleProto`, or as an `HloProto` or another message that has one as its first field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stablexla.dialects.lazy_dataclass import dataclass

# Fields of HloModuleProto.
_NAME, _ENTRY_NAME, _COMPUTATIONS = 1, 2, 3
VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(slots=True)
class Field:
    """A field of a message: its number, how it is encoded, and a number or bytes."""

    number: int
    kind: int
    value: bytes | int

    @property
    def data(self) -> bytes:
        """The bytes of a field with some; empty for a number."""
        return self.value if isinstance(self.value, bytes) else b""


def find_hlo_module(data: bytes) -> bytes | None:
    """Return the HloModuleProto in the data, which may be it or enclose it; None without one.

    >>> find_hlo_module(b"\\x0a\\x01m\\x12\\x01e\\x1a\\x00"), find_hlo_module(b"no module at all")
    (b'\\n\\x01m\\x12\\x01e\\x1a\\x00', None)
    """
    for _ in range(2):
        try:
            found = {field.number: field.value for field in fields(data)}
        except ValueError:
            return None
        if _is_module(found):
            return data
        inner = found.get(_NAME)
        if not isinstance(inner, bytes):
            return None
        data = inner
    return None


def _is_module(found: dict[int, bytes | int]) -> bool:
    name, entry = found.get(_NAME), found.get(_ENTRY_NAME)
    if not isinstance(name, bytes) or not isinstance(entry, bytes) or not isinstance(found.get(_COMPUTATIONS), bytes):
        return False
    try:
        return name.decode().isprintable() and entry.decode().isprintable()
    except UnicodeDecodeError:
        return False


def fields(data: bytes) -> Iterator[Field]:
    """Return the fields of a message in order; a repeated one occurs several times.

    Raises:
        ValueError: it is no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)  # most numbers are of one byte
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("no field has the number 0")
        if kind == VARINT:
            value, at = _varint(data, at)
            yield Field(number, kind, value)
            continue
        if kind == BYTES:
            size, at = (data[at], at + 1) if at < end and data[at] < 0x80 else _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("no such kind of field")
        if at + size > end:
            raise ValueError("the message ends too early")
        yield Field(number, kind, data[at : at + size])
        at += size


def encode(message: Sequence[Field]) -> bytes:
    """Return the bytes of a message.

    >>> encode(list(fields(b"\\x0a\\x01m\\x10\\xac\\x02")))
    b'\\n\\x01m\\x10\\xac\\x02'
    """
    parts: list[bytes] = []
    for field in message:
        parts.append(_encoded(field.number << 3 | field.kind))
        if isinstance(field.value, int):
            parts.append(_encoded(field.value))
        else:
            parts += [_encoded(len(field.value))] * (field.kind == BYTES) + [field.value]
    return b"".join(parts)


def packed(numbers: Sequence[int]) -> bytes:
    """Encode non-negative numbers as a repeated field."""
    return b"".join(map(_encoded, numbers))


def unpacked(data: bytes) -> list[int]:
    """Decode the numbers of a repeated field.

    >>> unpacked(packed([0, 300]))
    [0, 300]
    """
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
