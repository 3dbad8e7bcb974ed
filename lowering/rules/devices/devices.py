"""Kernels of collectives: the configuration holds the groups and the copies between devices.

A collective's result never aliases its operands: other members read them until the whole group is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.attributes.device_groups import Groups
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.rules.calls.host import in_main, unknown
from stablexla.lowering.rules.devices.attributes import channel_of
from stablexla.lowering.support.context import LoweringContext, place_of
from stablexla.lowering.support.generic import REDUCTION, empty, filled, loop_nest
from stablexla.lowering.support.kernels import as_array, kernel
from stablexla.lowering.support.storage import from_storage, to_storage

COLLECTIVE = "collective"
"""The kind of these kernels."""
DEVICE = "device"
"""The kind of kernels that return the number of the device that runs the program."""

Fold = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Layout:
    """Strided copies between the members of a group: offsets, extents and strides of source and target.

    The part of member i for member j begins at j * `source_step` of i's operand and at i * `target_step` of j's
    result. All are in bytes but the extents; the innermost one is a run of bytes contiguous on both sides.
    """

    extents: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]
    source_step: int = 0
    target_step: int = 0

    @classmethod
    def of(
        cls,
        part: Sequence[int],
        source: TensorType,
        target: TensorType,
        *,
        split: int | None = None,
        joined: int | None = None,
    ) -> Layout:
        """Return the layout of parts of a shape.

        Args:
            source, target: a member's operand and result.
            split: the dimension of the operand along which the parts of all members are concatenated.
            joined: that of the result.
        """
        size = source.element.bytes
        strides, others = _strides(source.shape, size), _strides(target.shape, size)
        rows = [row for row in zip(part, strides, others, strict=True) if row[0] != 1]
        rows.append((size, 1, 1))
        merged = [rows.pop()]
        for extent, stride, other in reversed(rows):
            inner = merged[0]
            if (stride, other) == (inner[0] * inner[1], inner[0] * inner[2]):
                merged[0] = (extent * inner[0], inner[1], inner[2])
            else:
                merged.insert(0, (extent, stride, other))
        if not prod(part):
            merged = [(0, 1, 1)]
        extents, source_strides, target_strides = (tuple(column) for column in zip(*merged, strict=True))
        source_step = 0 if split is None else part[split] * strides[split]
        target_step = 0 if joined is None else part[joined] * others[joined]
        return cls(extents, source_strides, target_strides, source_step, target_step)


@dataclass(frozen=True)
class DeviceConfig:
    """Which number of the device is wanted, `replica_id` or `partition_id`, and the number of partitions."""

    what: str
    partitions: int


@dataclass(frozen=True)
class CollectiveConfig:
    """A collective or a message between devices.

    Attributes:
        op: its name.
        place: the user's line, for errors.
        inputs, outputs: types of the operands and results.
        groups: the groups, by device numbers.
        pairs: (source, target), for operations that move arrays from device to device.
        copies: a layout for each operand.
        element_bytes: bytes of an element of each operand, or result where there is none.
        mpi: the MPI implementation whose own reduction is called, where there is one.
    """

    op: str
    place: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: Groups
    pairs: Groups
    channel: int
    copies: tuple[Layout, ...]
    element_bytes: tuple[int, ...]
    mpi: str | None = None


def _strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    return tuple(size * prod(shape[d + 1 :]) for d in range(len(shape)))


def device_kernel(ctx: LoweringContext, what: str, partitions: int, type_: TensorType) -> ir.Value:
    """Emit the replica (device number / partitions, `replica_id`) or partition (the remainder, `partition_id`)."""

    def make() -> ir.Value:
        config = DeviceConfig(what, partitions)
        (made,) = kernel(ctx, DEVICE, [], lambda: [unknown(type_)], config=config, result_types=[type_])
        return made

    return ctx.once(f"{what} of {partitions}", make)


def together(
    ctx: LoweringContext,
    operation: str,
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    layouts: Sequence[Layout],
    *,
    groups: Groups = (),
    pairs: Groups = (),
    fold: Fold | None = None,
) -> list[ir.Value]:
    """Emit the kernel of a collective or a message between devices.

    Args:
        operation: its name.
        operands: arrays or scalars, no tokens.
        groups: the groups, by device numbers.
        pairs: (source, target), for operations that move arrays from device to device.
        fold: the combiner of a reduction; its operands and results have the one element type of `result_types`.

    Raises:
        UnsupportedError: inside of another operation's computation, where there are single elements only.
    """
    if not in_main():
        raise ctx.unsupported("it has no lowering inside the computation of another operation")
    config = CollectiveConfig(
        op=operation,
        place=place_of(ctx.op.location),
        inputs=tuple(map(str, operand_types)),
        outputs=tuple(map(str, result_types)),
        groups=groups,
        pairs=pairs,
        channel=channel_of(ctx.attributes),
        copies=tuple(layouts),
        element_bytes=tuple(t.element.bytes for t in operand_types or result_types),
    )

    def body(*_: ir.Value) -> list[ir.Value]:
        if fold is None:
            return [unknown(t) for t in result_types]
        return [_folded(result_types[0], fold), *(unknown(t) for t in result_types[1:])]

    arrays = [as_array(v, t) for v, t in zip(operands, operand_types, strict=True)]
    return kernel(ctx, COLLECTIVE, arrays, body, config=config, result_types=result_types, effect=True)


def _folded(type_: TensorType, fold: Fold) -> ir.Value:
    """Return a placeholder result that holds the combiner: the reduction of undefined elements, broadcast.

    The target's emitter finds the combiner in the one reduction of the kernel.
    """
    element = type_.element
    one = TensorType(element, ())
    maps = [ir.AffineMap.get_identity(1), ir.AffineMap.get(1, 0, [])]
    indexing_maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    iterators = ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{REDUCTION}>")])

    def body(elements: Sequence[ir.Value]) -> list[ir.Value]:
        next_, so_far = (from_storage(a, element) for a in elements)
        return [to_storage(fold(so_far, next_), element)]

    reduction = loop_nest([empty(TensorType(element, (2,))), empty(one)], 1, indexing_maps, iterators, body)
    found = tensor.extract(reduction.result, [])
    return filled(found, empty(type_)) if type_.rank else from_storage(found, element)
