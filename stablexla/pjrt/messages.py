"""The messages of protocol buffers that jaxlib sends with a program, and those that describe an executable to it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings.protobuf import BYTES, VARINT, Field, encode, fields, packed, unpacked
from stablexla.targets.signature.array_sharding import ArraySharding

# Fields of CompileOptionsProto, ExecutableBuildOptionsProto, DeviceAssignmentProto and its rows, and a map's entry.
_BUILD, _OVERRIDES, _REPLICAS, _PARTITIONS, _ASSIGNMENT, _ROWS, _IDS, _KEY, _VALUE = 3, 7, 4, 5, 9, 3, 1, 1, 2
# Fields of OptionOverrideProto: a string, a bool, an integer or a double.
_STRING, _BOOL, _INTEGER, _DOUBLE = 1, 2, 3, 4
# Kinds of OpSharding.
_REPLICATED, _OTHER, _UNREDUCED = 0, 3, 6

Override = bool | int | float | str


@dataclass(frozen=True)
class Options:
    """What stablexla reads of `CompileOptionsProto`.

    Attributes:
        devices: their numbers by replica and partition, all partitions of the first replica first.
        overrides: `compiler_options` of JAX, by name.
    """

    num_replicas: int
    num_partitions: int
    devices: tuple[int, ...]
    overrides: Mapping[str, Override]

    @staticmethod
    def parse(data: bytes) -> Options:
        """Read the message; fields that it lacks have jaxlib's defaults."""
        given = list(fields(data))
        build = {f.number: f for f in fields(next((f.data for f in given if f.number == _BUILD), b""))}
        counts = [int(build[n].value or 1) if n in build else 1 for n in (_REPLICAS, _PARTITIONS)]
        rows = (
            [_numbers(f.data) for f in fields(build[_ASSIGNMENT].data) if f.number == _ROWS]
            if _ASSIGNMENT in build
            else []
        )
        devices = [row[replica] for replica in range(counts[0]) for row in rows] or list(range(counts[0] * counts[1]))
        overrides = dict(_override(f.data) for f in given if f.number == _OVERRIDES)
        return Options(counts[0], counts[1], tuple(devices), overrides)

    def assignment(self) -> bytes:
        """Write a DeviceAssignmentProto."""
        rows = [self.devices[partition :: self.num_partitions] for partition in range(self.num_partitions)]
        counts = _field(1, self.num_replicas) + _field(2, self.num_partitions)
        return counts + b"".join(_field(_ROWS, _field(_IDS, packed(row))) for row in rows)


def _override(entry: bytes) -> tuple[str, Override]:
    parts = {f.number: f.data for f in fields(entry)}
    value: Override = ""
    for field in fields(parts.get(_VALUE, b"")):
        value = _plain(field)
    return parts.get(_KEY, b"").decode(), value


def _plain(field: Field) -> Override:
    if field.number == _DOUBLE:
        bits = field.value if isinstance(field.value, bytes) else struct.pack("<Q", field.value)
        return float(struct.unpack("<d", bits)[0])
    if field.number == _STRING:
        return field.data.decode()
    return bool(field.value) if field.number == _BOOL else int(field.value)


def _numbers(row: bytes) -> list[int]:
    """Return the device numbers of a row of an assignment, packed or not."""
    found: list[int] = []
    for field in fields(row):
        if field.number == _IDS:
            found += unpacked(field.data) if isinstance(field.value, bytes) else [field.value]
    return found


def _field(number: int, value: int | bytes) -> bytes:
    return encode([Field(number, BYTES if isinstance(value, bytes) else VARINT, value)])


# A frontend attribute of OpSharding (jaxlib 0.12): how summands are put together.
_SUM = _field(7, _field(_KEY, b"sdy::reduction_op") + _field(_VALUE, b"SUM"))


def shardings(are_tokens: Sequence[bool], known: Sequence[ArraySharding] | None, partitions: int) -> list[bytes]:
    """Write an OpSharding for each value, tokens among them; none for one partition, which has the whole arrays."""
    if known is None:
        return [_field(1, _REPLICATED)] * len(are_tokens) if partitions > 1 else []
    arrays: Iterator[ArraySharding] = iter(known)
    return [_field(1, _REPLICATED) if is_token else _sharding(next(arrays)) for is_token in are_tokens]


def _sharding(sharding: ArraySharding) -> bytes:
    """Write an OpSharding: tiles of each dimension, then summands and copies of the tiles."""
    if sharding.is_replicated:
        return _field(1, _REPLICATED)
    parts: Sequence[Any] = sharding.parts
    summands = sharding.summands or (0,) * len(parts)
    counts = [len({part[d] for part in parts}) for d in range(len(sharding.shape))]
    order = sorted(range(len(parts)), key=lambda i: (parts[i], summands[i], i))
    added = len(set(summands))
    copies = len(parts) // (prod(counts) * added)
    if not sharding.summands:
        dimensions = [*counts, copies] if copies > 1 else counts
        last = _field(6, 1) if copies > 1 else b""
        return _field(1, _OTHER) + _field(3, packed(dimensions)) + _field(4, packed(order)) + last
    if added == len(parts):
        return _field(1, _UNREDUCED) + _SUM
    dimensions = [*counts, added, copies] if copies > 1 else [*counts, added]
    last = _field(8, packed([_UNREDUCED, _REPLICATED] if copies > 1 else [_UNREDUCED]))
    return _field(1, _OTHER) + _field(3, packed(dimensions)) + _field(4, packed(order)) + _SUM + last
