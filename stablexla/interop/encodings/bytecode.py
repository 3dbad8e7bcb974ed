"""A reader of MLIR bytecode without MLIR: header, sections and tables, each number checked before its use.

MLIR's reader trusts many of them. `bytecode_operations.py` reads operations; attributes and types are left to MLIR, as
dialects define their encodings.
"""

from __future__ import annotations

from collections.abc import Iterator

from stablexla.dialects.lazy_dataclass import dataclass

MAGIC = b"ML\xefR"
NEWEST = 6
"""The newest version of bytecode that jaxlib's MLIR reads."""

STRINGS, DIALECTS, VALUES, OFFSETS, OPERATIONS, RESOURCES, RESOURCE_OFFSETS, DIALECT_VERSION, PROPERTIES = range(9)
SECTIONS = (
    "strings",
    "dialects",
    "attributes and types",
    "offsets of attributes and types",
    "operations",
    "resources",
    "offsets of resources",
    "version of a dialect",
    "properties",
)
NEEDED = (STRINGS, DIALECTS, VALUES, OFFSETS, OPERATIONS)
# Features by version.
DIALECTS_HAVE_VERSIONS, REGIONS_ARE_SECTIONS, USES_HAVE_ORDER, OPERATIONS_ARE_COUNTED, HAS_PROPERTIES = 1, 2, 3, 4, 5

_ALIGNED = 0x80
_PADDING = 0xCB
_LARGEST_ALIGNMENT = 1 << 12


class MalformedError(Exception):
    """Bytes that are not bytecode; `at` is the position."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} (at byte {at})")
        self.what, self.at = what, at


class Cursor:
    """A position in bytes that end at `end`, with methods to read them."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.at

    def fail(self, what: str) -> MalformedError:
        return MalformedError(what, self.at)

    def byte(self) -> int:
        if self.at >= self.end:
            raise self.fail("ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Read a variable-length number: the zeros below the lowest 1 of its first byte count the bytes after it."""
        at = self.at
        if at >= self.end:
            raise self.fail("ends too early")
        first = self.data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        more = (first & -first).bit_length() - 1 if first else 8
        if at + 1 + more > self.end:
            raise self.fail("ends inside a number")
        self.at = at + 1 + more
        if more == 8:
            return int.from_bytes(self.data[at + 1 : self.at], "little")
        return int.from_bytes(self.data[at : self.at], "little") >> (more + 1)

    def flagged(self) -> tuple[int, bool]:
        """Read a number and the flag in its lowest bit."""
        number = self.number()
        return number >> 1, bool(number & 1)

    def count(self, of: str) -> int:
        """Read a count of items: at most the bytes left, as each takes one at least."""
        number = self.number()
        if number > self.left:
            raise self.fail(f"{number} {of}, in {self.left} bytes")
        return number

    def index(self, size: int, of: str) -> int:
        """Read a number below `size`."""
        number = self.number()
        if number >= size:
            raise self.fail(f"{of} {number}, of {size}")
        return number

    def take(self, size: int) -> Cursor:
        """Return the next `size` bytes as a cursor of their own."""
        if size > self.left:
            raise self.fail(f"{size} bytes are to follow, and {self.left} do")
        self.at += size
        return Cursor(self.data, self.at - size, self.at)

    def text(self) -> str:
        """Read the bytes up to a zero."""
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            raise self.fail("a name without an end")
        raw, self.at = self.data[self.at : end], end + 1
        return raw.decode(errors="backslashreplace")

    def section(self) -> tuple[int, Cursor]:
        """Read the next section: its kind and its contents."""
        tag = self.byte()
        kind, size = tag & ~_ALIGNED, self.number()
        if kind >= len(SECTIONS):
            raise self.fail(f"a section of the unknown kind {kind}")
        if tag & _ALIGNED:
            alignment = self.number()
            if alignment & (alignment - 1) or not 0 < alignment <= _LARGEST_ALIGNMENT:
                raise self.fail(f"a section aligned to {alignment} bytes")
            self._skip_padding(alignment)
        return kind, self.take(size)

    def _skip_padding(self, alignment: int) -> None:
        while self.at % alignment:
            if self.byte() != _PADDING:
                raise self.fail("padding that is none")


@dataclass(frozen=True)
class Dialect:
    """A dialect of a file, with the bytes of its version, if any."""

    name: str
    version: bytes = b""


@dataclass(frozen=True)
class OperationName:
    """An operation of a file, and whether it was registered with the writer."""

    dialect: str
    name: str
    registered: bool | None = None

    def __str__(self) -> str:
        return f"{self.dialect}.{self.name}" if self.name else self.dialect


@dataclass(frozen=True)
class Bytecode:
    """The header and tables of a bytecode file.

    Attributes:
        version: of the encoding.
        producer: the writer's name.
        strings, dialects, operation_names: its tables.
        attributes, types: how many it has.
        properties: how many; None when there is no such section.
        sections: the bytes of each section, by its kind.
    """

    version: int
    producer: str
    strings: tuple[bytes, ...]
    dialects: tuple[Dialect, ...]
    operation_names: tuple[OperationName, ...]
    attributes: int
    types: int
    properties: int | None
    sections: dict[int, Cursor]


def read_header(data: bytes) -> tuple[int, str]:
    """Read the version of the encoding and the producer.

    Raises:
        MalformedError: there is neither.
    """
    cursor = Cursor(data, len(MAGIC), len(data))
    if not data.startswith(MAGIC):
        raise MalformedError("no bytecode", 0)
    return cursor.number(), cursor.text()


def read_bytecode(data: bytes) -> Bytecode:
    """Read the header and all tables.

    Raises:
        MalformedError: something in them cannot be.

    >>> from stablexla.interop.encodings.formats import to_bytecode
    >>> found = read_bytecode(to_bytecode("func.func @main() { return }"))
    >>> found.producer[:4], [str(name) for name in found.operation_names]
    ('MLIR', ['builtin.module', 'func.func', 'func.return'])
    """
    version, producer = read_header(data)
    if version > NEWEST:
        raise MalformedError(f"bytecode of version {version}, the newest that can be read is {NEWEST}", len(MAGIC))
    cursor = Cursor(data, len(MAGIC), len(data))
    cursor.number()
    cursor.text()
    sections = _sections(cursor, version)
    strings = tuple(_strings(_again(sections[STRINGS])))
    dialects, names = _dialects(_again(sections[DIALECTS]), version, strings)
    attributes, types = _offsets(_again(sections[OFFSETS]), sections[VALUES].left, len(dialects))
    properties = _properties(_again(sections[PROPERTIES])) if PROPERTIES in sections else None
    return Bytecode(version, producer, strings, dialects, names, attributes, types, properties, sections)


def _again(cursor: Cursor) -> Cursor:
    return Cursor(cursor.data, cursor.at, cursor.end)


def _sections(cursor: Cursor, version: int) -> dict[int, Cursor]:
    sections: dict[int, Cursor] = {}
    while cursor.left:
        kind, contents = cursor.section()
        if kind in sections or kind == DIALECT_VERSION:
            raise cursor.fail(f"the section of {SECTIONS[kind]} where none belongs")
        sections[kind] = contents
    needed = NEEDED + ((PROPERTIES,) if version >= HAS_PROPERTIES else ())
    missing = [SECTIONS[kind] for kind in needed if kind not in sections]
    if missing:
        raise cursor.fail(f"ends too early: {', '.join(missing)} are missing")
    if (RESOURCES in sections) != (RESOURCE_OFFSETS in sections):
        raise cursor.fail("resources without offsets, or offsets without resources")
    return sections


def _strings(cursor: Cursor) -> Iterator[bytes]:
    """Read the strings; their lengths come first, last string first."""
    lengths = [cursor.number() for _ in range(cursor.count("strings"))]
    if 0 in lengths or sum(lengths) != cursor.left:
        raise cursor.fail(f"strings of {sum(lengths)} bytes in {cursor.left} bytes")
    for length in reversed(lengths):
        yield cursor.data[cursor.at : cursor.at + length - 1]
        cursor.at += length


def _dialects(
    cursor: Cursor, version: int, strings: tuple[bytes, ...]
) -> tuple[tuple[Dialect, ...], tuple[OperationName, ...]]:
    dialects = tuple(_dialect(cursor, version, strings) for _ in range(cursor.count("dialects")))
    if version >= OPERATIONS_ARE_COUNTED:
        cursor.count("names of operations")
    names: list[OperationName] = []
    while cursor.left:
        dialect = dialects[cursor.index(len(dialects), "dialect")].name
        for _ in range(cursor.count("names of operations")):
            index, registered = cursor.flagged() if version >= HAS_PROPERTIES else (cursor.number(), None)
            names.append(OperationName(dialect, _string(strings, index, cursor), registered))
    return dialects, tuple(names)


def _dialect(cursor: Cursor, version: int, strings: tuple[bytes, ...]) -> Dialect:
    if version < DIALECTS_HAVE_VERSIONS:
        return Dialect(_string(strings, cursor.number(), cursor))
    index, has_version = cursor.flagged()
    name = _string(strings, index, cursor)
    if not has_version:
        return Dialect(name)
    kind, contents = cursor.section()
    if kind != DIALECT_VERSION:
        raise cursor.fail(f"the section of {SECTIONS[kind]} where a version belongs")
    return Dialect(name, contents.data[contents.at : contents.end])


def _string(strings: tuple[bytes, ...], index: int, cursor: Cursor) -> str:
    if index >= len(strings):
        raise cursor.fail(f"string {index}, of {len(strings)}")
    try:
        return strings[index].decode()
    except UnicodeDecodeError:
        raise cursor.fail("a name that is no text") from None


def _offsets(cursor: Cursor, size: int, dialects: int) -> tuple[int, int]:
    """Return the numbers of attributes and types; all of them are within `size` bytes."""
    attributes, types = cursor.number(), cursor.number()
    end = 0
    for what, count in (("attributes", attributes), ("types", types)):
        if count > cursor.left:
            raise cursor.fail(f"{count} {what}, in {cursor.left} bytes")
        while count:
            cursor.index(dialects, "dialect")
            group = cursor.number()
            if group > count:
                raise cursor.fail(f"{group} {what} where {count} are left")
            end += sum(cursor.flagged()[0] for _ in range(group))
            count -= group
    if end > size or cursor.left:
        raise cursor.fail(f"attributes and types of {end} bytes in {size} bytes")
    return attributes, types


def _properties(cursor: Cursor) -> int:
    if not cursor.left:
        return 0
    count = cursor.count("properties")
    for _ in range(count):
        cursor.take(cursor.number())
    if cursor.left:
        raise cursor.fail("more properties than were counted")
    return count
