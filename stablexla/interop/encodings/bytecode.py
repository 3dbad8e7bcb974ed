"""Header and names of operations of MLIR bytecode, read without MLIR: version, producer, and the operations used.

Only the header, the lengths of the sections and the names are read: what MLIR cannot tell of a file that is too new
for it. All else is left to MLIR's reader, which runs in a process of its own (`reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stablexla.dialects.lazy_dataclass import dataclass

MAGIC = b"ML\xefR"
NEWEST = 6
"""The newest version of bytecode that jaxlib's MLIR reads."""

_STRINGS, _DIALECTS, _RESOURCES, _DIALECT_VERSION, _PROPERTIES = 0, 1, 5, 7, 8  # kinds; each has those before 5
_DIALECTS_HAVE_VERSIONS, _OPERATIONS_ARE_COUNTED, _HAS_PROPERTIES = 1, 4, 5  # versions
_ALIGNED = 0x80


class MalformedError(Exception):
    """Bytes that are not bytecode; the message says what is wrong, and where."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} (at byte {at})")


class Cursor:
    """A position in bytes, with methods to read them."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.data)

    def fail(self, what: str) -> MalformedError:
        return MalformedError(what, self.at)

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise self.fail(f"{size} bytes are to follow, and {len(self.data) - self.at} do")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        """Read a variable-length number: the zeros below the lowest 1 of its first byte count the bytes after it."""
        first = self.take(1)[0]
        more = (first & -first).bit_length() - 1 if first else 8
        rest = int.from_bytes(self.take(more), "little")
        return rest if more == 8 else (rest << 8 | first) >> (more + 1)

    def flagged(self) -> tuple[int, bool]:
        """Read a number and the flag in its lowest bit."""
        number = self.number()
        return number >> 1, bool(number & 1)

    def text(self) -> str:
        """Read the bytes up to a zero."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise self.fail("a name without an end")
        return self.take(end + 1 - self.at)[:-1].decode(errors="backslashreplace")

    def section(self) -> tuple[int, bytes]:
        """Read the next section: its kind and its contents."""
        tag = self.take(1)[0]
        size = self.number()
        if tag & _ALIGNED:
            alignment = self.number()
            self.take(-self.at % max(alignment, 1))
        return tag & ~_ALIGNED, self.take(size)


@dataclass(frozen=True)
class OperationName:
    """An operation that a file names."""

    dialect: str
    name: str

    def __str__(self) -> str:
        return f"{self.dialect}.{self.name}" if self.name else self.dialect


@dataclass(frozen=True)
class Bytecode:
    """Header and names of operations of a file.

    Attributes:
        version: of the encoding.
        producer: the writer's name.
        operation_names: each operation that occurs, by dialect.
        has_resources: whether it holds constants outside of its attributes.
    """

    version: int
    producer: str
    operation_names: tuple[OperationName, ...]
    has_resources: bool


def read_header(data: bytes) -> tuple[int, str]:
    """Read the version of the encoding and the producer.

    Raises:
        MalformedError: there is neither.
    """
    cursor = _after_magic(data)
    return cursor.number(), cursor.text()


def _after_magic(data: bytes) -> Cursor:
    if not data.startswith(MAGIC):
        raise MalformedError("no bytecode", 0)
    return Cursor(data, len(MAGIC))


def read_bytecode(data: bytes) -> Bytecode:
    """Read the header and the names of operations.

    Raises:
        MalformedError: the file ends too early, or is damaged in these.

    >>> from stablexla.interop.encodings.formats import to_bytecode
    >>> found = read_bytecode(to_bytecode("func.func @main() { return }"))
    >>> found.producer[:4], [str(name) for name in found.operation_names]
    ('MLIR', ['builtin.module', 'func.func', 'func.return'])
    """
    cursor = _after_magic(data)
    version, producer = cursor.number(), cursor.text()
    sections: dict[int, bytes] = {}
    while not cursor.is_at_end:
        kind, contents = cursor.section()
        sections[kind] = contents
    if not {*range(_RESOURCES), *[_PROPERTIES] * (version >= _HAS_PROPERTIES)} <= sections.keys():
        raise cursor.fail("ends too early")
    strings = list(_strings(Cursor(sections[_STRINGS])))
    try:
        names = tuple(_operations(Cursor(sections[_DIALECTS]), version, strings))
    except (IndexError, UnicodeDecodeError):
        raise MalformedError("the name of a dialect or an operation that is none", 0) from None
    return Bytecode(version, producer, names, _RESOURCES in sections)


def _strings(cursor: Cursor) -> Iterator[bytes]:
    """Read the strings; their lengths come first, last string first."""
    lengths = [cursor.number() for _ in range(cursor.number())]
    for length in reversed(lengths):
        yield cursor.take(length)[:-1]


def _operations(cursor: Cursor, version: int, strings: list[bytes]) -> Iterator[OperationName]:
    dialects: list[str] = []
    for _ in range(cursor.number()):
        index, has_version = cursor.flagged() if version >= _DIALECTS_HAVE_VERSIONS else (cursor.number(), False)
        dialects.append(strings[index].decode())
        if has_version and cursor.section()[0] != _DIALECT_VERSION:
            raise cursor.fail("another section where the version of a dialect belongs")
    if version >= _OPERATIONS_ARE_COUNTED:
        cursor.number()
    while not cursor.is_at_end:
        dialect = dialects[cursor.number()]
        for _ in range(cursor.number()):
            index = cursor.flagged()[0] if version >= _HAS_PROPERTIES else cursor.number()
            yield OperationName(dialect, strings[index].decode())
