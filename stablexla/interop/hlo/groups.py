"""The groups of devices of HLO's collectives, as its protos write them: lists, an iota, or axes of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stablexla.dialects.attributes.device_groups import Axis, BrokenRule, axis_groups
from stablexla.interop.encodings.protobuf import BYTES, Field, encode, fields, packed, unpacked

GROUPS, OLD_GROUPS, IOTA, MESH, PAIRS = 87, 49, 92, 93, 52
"""Fields of HloInstructionProto that say which devices take part."""
MOST = 1 << 24
"""Limit of the devices of a mesh or an iota: a few bytes of input must not exhaust memory."""

Groups = Sequence[Sequence[int]]


def groups_of(instruction: Sequence[Field]) -> Groups:
    """Return the groups of a collective, or its pairs of source and target; nothing when it has none.

    Raises:
        ValueError: they are none.
    """
    found: list[Sequence[int]] = []
    for field in instruction:
        if field.number == GROUPS:
            found += [_numbers(list(fields(group.data)), 1) for group in fields(field.data)]
        elif field.number == OLD_GROUPS:
            found.append(_numbers(list(fields(field.data)), 1))
        elif field.number == IOTA:
            found += _iota_groups(list(fields(field.data)))
        elif field.number == MESH:
            found += _mesh_groups(list(fields(field.data)))
        elif field.number == PAIRS:
            pair = list(fields(field.data))
            found.append([_number(pair, 1), _number(pair, 2)])
    return found


def listed(field: Field) -> Field:
    """Return groups that are axes of a mesh as lists; any other field unchanged.

    XLA's conversion to StableHLO refuses them for an all-to-all of several arrays.
    """
    if field.number != MESH:
        return field
    rows = [Field(1, BYTES, encode([Field(1, BYTES, packed(row))])) for row in _mesh_groups(list(fields(field.data)))]
    return Field(GROUPS, BYTES, encode(rows))


def _numbers(message: Sequence[Field], number: int) -> list[int]:
    """Return a repeated field of numbers, packed or not."""
    found: list[int] = []
    for field in message:
        if field.number == number:
            found += [field.value] if isinstance(field.value, int) else unpacked(field.value)
    return found


def _number(message: Sequence[Field], number: int, default: int = 0) -> int:
    """Return a field of one number."""
    return next(iter(_numbers(message, number)), default)


def _iota(extents: Sequence[int], order: Sequence[int]) -> np.ndarray:
    if prod(extents) > MOST or sorted(order) not in ([], list(range(len(extents)))):
        raise ValueError("no iota of devices")
    return np.arange(prod(extents)).reshape(extents).transpose(order or range(len(extents)))


def _iota_groups(message: Sequence[Field]) -> Groups:
    numbers = _iota(_numbers(message, 3), _numbers(message, 4))
    rows: list[list[int]] = numbers.reshape(_number(message, 1), _number(message, 2)).tolist()
    return rows


def _mesh_groups(message: Sequence[Field]) -> Groups:
    mesh = [f for field in message if field.number == 1 for f in fields(field.data)]
    named = [list(fields(f.data)) for f in mesh if f.number == 1]
    sizes = {str(i): _number(axis, 2) for i, axis in enumerate(named)}
    devices = _numbers([f for f in mesh if f.number == 2], 2)
    for field in mesh:
        if field.number == 3:
            tile = list(fields(field.data))
            devices = _iota(_numbers(tile, 1), _numbers(tile, 2)).reshape(-1).tolist()
    if prod(sizes.values()) > MOST:
        raise ValueError("no mesh of devices")
    axes = [_axis(list(fields(field.data))) for field in message if field.number == 2]
    try:
        return axis_groups(sizes, axes, devices)
    except BrokenRule as broken:
        raise ValueError(broken.message) from None


def _axis(message: Sequence[Field]) -> Axis:
    name = str(_number(message, 1))
    for field in message:
        if field.number == 2:
            part = list(fields(field.data))
            return Axis(name, _number(part, 1, 1), _number(part, 2, 1))
    return Axis(name)
