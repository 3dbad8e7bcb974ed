"""The StableHLO artifact inside a file that `jax.export.Exported.serialize()` wrote, found without JAX.

Such a file is a flatbuffer: a table whose first entries point back and forth by offsets, as the schema numbers them.
"""

from __future__ import annotations

import struct

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings.bytecode import MAGIC

# Entries of the table, by the schema: the version of the schema, the function's name, platforms, and the module.
_SCHEMA, _NAME, _PLATFORMS, _MODULE = 0, 1, 9, 13


@dataclass(frozen=True)
class Exported:
    """The contents of the file: schema version, the function's name, the platforms, and the module's artifact."""

    schema: int
    name: str
    platforms: tuple[str, ...]
    artifact: bytes


def is_exported(data: bytes) -> bool:
    """Return whether the data are such a file."""
    return find_exported(data) is not None


def is_cut(data: bytes) -> bool:
    """Return whether the data begin as such a file, and lack some of it."""
    try:
        return _Table(data).has_program() and not is_exported(data)
    except struct.error:
        return False


def find_exported(data: bytes) -> Exported | None:
    """Return the parts of the file; None for other data.

    >>> find_exported(b"something else") is None
    True
    """
    table = _Table(data)
    try:
        artifact = table.vector(_MODULE)
        if not artifact.startswith(MAGIC):
            return None
        return Exported(
            table.short(_SCHEMA), table.vector(_NAME).decode(), tuple(table.strings(_PLATFORMS)), bytes(artifact)
        )
    except (struct.error, ValueError):
        return None


class _Table:
    """The root table of a flatbuffer."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def vector(self, number: int) -> bytes:
        """Return an entry's bytes; empty when there is none."""
        at = self._entry(number)
        return self._bytes(at + self._word(at)) if at else b""

    def has_program(self) -> bool:
        """Return whether the entry of the program begins as MLIR's bytecode, whether it ends in the data or not."""
        at = self._entry(_MODULE)
        return bool(at) and self.data.startswith(MAGIC, at + self._word(at) + 4)

    def strings(self, number: int) -> list[str]:
        at = self._entry(number)
        if not at:
            return []
        start = at + self._word(at)
        places = [start + 4 + 4 * i for i in range(min(self._word(start), 64))]
        return [self._bytes(place + self._word(place)).decode() for place in places]

    def short(self, number: int) -> int:
        at = self._entry(number)
        return int.from_bytes(self.data[at : at + 2], "little") if at else 0

    def _entry(self, number: int) -> int:
        """Return the position of an entry; 0 when the table has none."""
        root = self._word(0)
        fields = root - struct.unpack_from("<i", self.data, root)[0]
        size, place = struct.unpack_from("<H", self.data, fields)[0], 4 + 2 * number
        if fields < 0 or place + 2 > size:
            return 0
        offset: int = struct.unpack_from("<H", self.data, fields + place)[0]
        return root + offset if offset else 0

    def _bytes(self, at: int) -> bytes:
        size = self._word(at)
        if at + 4 + size > len(self.data):
            raise ValueError("a vector that goes beyond the end")
        return self.data[at + 4 : at + 4 + size]

    def _word(self, at: int) -> int:
        word: int = struct.unpack_from("<I", self.data, at)[0]
        return word
