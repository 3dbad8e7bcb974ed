"""HLO modules as protos, prepared for XLA's conversion to StableHLO, and their numbers of devices.

XLA's conversion makes unnamed operations of some opcodes, refuses some groups of devices, takes remaining shardings in
a module for a request to partition it, and writes the origins of values as attributes of MHLO.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings.protobuf import BYTES, Field, encode, fields, unpacked
from stablexla.interop.hlo.groups import MOST, groups_of, listed

Message: TypeAlias = list[Field]

# Fields of HloModuleProto, HloComputationProto and HloInstructionProto.
_COMPUTATIONS, _SCHEDULE, _MODULE_SHARDINGS = 3, 7, (11, 14)
_INSTRUCTIONS = 2
_OPCODE, _CHANNEL, _TARGET, _DOT_NUMBERS, _SHARDING, _CONFIG, _GLOBAL, _ORIGINAL = 2, 26, 28, 30, 40, 43, 71, 88

UNKNOWN = ("exp2", "log2", "mulhi", "scaled-dot", "shuffle")
"""Opcodes that the conversion does not know; they become custom calls named `hlo.<opcode>`."""

_OF_REPLICAS = ("all-gather", "all-reduce", "reduce-scatter", "ragged-all-to-all")
"""Collectives whose groups name replicas also when they have a channel, unless they say that the numbers are global."""
_OF_PARTITIONS = ("all-to-all", "collective-broadcast", "collective-permute", "collective-reduce")
"""Collectives that name partitions when they have a channel, and replicas otherwise."""
_BEFORE_PARTITIONING = {b"Sharding", b"SPMDFullToShardShape", b"SPMDShardToFullShape"}
"""Custom calls that the partitioner consumes."""


@dataclass
class Devices:
    """The number of devices of a module: the first number that is too large, 0 where it has none."""

    replicas: int = 0
    partitions: int = 0
    both: int = 0

    def counts(self, replicas: int | None, partitions: int | None) -> tuple[int | None, int | None]:
        """Return the replicas and partitions to run on: as given, or else those of the module, if known."""
        if replicas is None and self.replicas > 1:
            replicas = self.replicas
        if partitions is None:
            named = max(self.partitions, -(-self.both // (replicas or 1)))
            partitions = named if named > 1 else None
        return replicas, partitions


def prepare(data: bytes) -> tuple[bytes, Devices]:
    """Return the module as XLA's conversion takes it, and its devices.

    Raises:
        ValueError: the data are damaged.
    """
    module = list(fields(data))
    computations = [(field, list(fields(field.data))) for field in module if field.number == _COMPUTATIONS]
    instructions = [
        [(field, list(fields(field.data))) for field in body if field.number == _INSTRUCTIONS]
        for _, body in computations
    ]
    every = [instruction for of_one in instructions for _, instruction in of_one]
    devices = _devices(every)
    partitioned = _is_partitioned(data, module, every, devices)
    for (field, body), of_one in zip(computations, instructions, strict=True):
        if _rewrite(of_one, partitioned):
            field.value = encode(body)
    return encode([f for f in module if not (partitioned and f.number in _MODULE_SHARDINGS)]), devices


def _rewrite(instructions: Sequence[tuple[Field, Message]], partitioned: bool) -> bool:
    """Rewrite the instructions of a computation; return whether any changed."""
    changed, dropped = False, (_ORIGINAL, _SHARDING) if partitioned else (_ORIGINAL,)
    for field, instruction in instructions:
        opcode = _text(instruction, _OPCODE)
        new = _as_custom_call(instruction, opcode) if opcode in UNKNOWN else instruction
        new = [listed(field) for field in new if field.number not in dropped]
        if new != instruction:
            field.value, changed = encode(new), True
    return changed


def _text(instruction: Message, number: int) -> str:
    return next((field.data.decode(errors="replace") for field in instruction if field.number == number), "")


def _number(instruction: Message, number: int) -> int:
    return next((f.value for f in instruction if f.number == number and isinstance(f.value, int)), 0)


def _devices(instructions: Sequence[Message]) -> Devices:
    found = Devices()
    for instruction in instructions:
        opcode = _text(instruction, _OPCODE).removesuffix("-start")
        if opcode not in (*_OF_REPLICAS, *_OF_PARTITIONS):
            continue
        named = [device for group in groups_of(instruction) for device in group]
        count = 1 + max((device for device in named if device < MOST), default=-1)  # -1 fills up a row
        if not _number(instruction, _CHANNEL) or (opcode in _OF_REPLICAS and not _number(instruction, _GLOBAL)):
            found.replicas = max(found.replicas, count)
        elif opcode in _OF_REPLICAS:
            found.both = max(found.both, count)
        else:
            found.partitions = max(found.partitions, count)
    return found


def _is_partitioned(data: bytes, module: Message, instructions: Sequence[Message], devices: Devices) -> bool:
    """Return whether the module is partitioned already, so that its shardings only describe its origin."""
    if any(field.number in (_SCHEDULE, *_MODULE_SHARDINGS) for field in module):
        return True
    if b"xla.sdy." in data:
        return False
    opcodes = {_text(instruction, _OPCODE) for instruction in instructions}
    targets = {_text(instruction, _TARGET).encode() for instruction in instructions}
    return not targets & _BEFORE_PARTITIONING and (devices != Devices() or "partition-id" in opcodes)


def _as_custom_call(instruction: Message, opcode: str) -> Message:
    """Rewrite a dot as a custom call with its contracting and batch dimensions as configuration."""
    numbers = [field for f in instruction if f.number == _DOT_NUMBERS for field in fields(f.data)]
    dimensions = [[d for f in numbers if f.number == number for d in unpacked(f.data)] for number in range(1, 5)]
    kept = [field for field in instruction if field.number not in (_OPCODE, _TARGET, _CONFIG)]
    new = {_OPCODE: "custom-call", _TARGET: f"hlo.{opcode}", _CONFIG: json.dumps(dimensions)}
    return [*kept, *(Field(number, BYTES, text.encode()) for number, text in new.items())]
