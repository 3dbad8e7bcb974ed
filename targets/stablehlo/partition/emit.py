"""Emission of collectives and slices that move parts of arrays between devices, as StableHLO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.targets.stablehlo.partition.axes import Axes, Axis, Sharding, count, groups_along, positions
from stablexla.targets.stablehlo.partition.moves import Exchange, Gather, Move, Permute, Slice

Groups = Sequence[Sequence[int]]


class Emitter:
    """Emits collectives, each on a channel of its own.

    Attributes:
        devices: the number of partitions; each replica does the same.
    """

    def __init__(self, module: hlo_ir.Module, devices: int, replicas: int) -> None:
        self.devices, self.replicas = devices, replicas
        self._channel = 0
        module.operation.walk(self._note_channel)

    def _note_channel(self, op: Any) -> hlo_ir.WalkResult:
        if "channel_handle" in op.attributes:
            text = str(op.attributes["channel_handle"])
            self._channel = max(self._channel, int(text.split("handle =")[1].split(",")[0]))
        return hlo_ir.WalkResult.ADVANCE

    def move(self, value: Any, move: Move) -> Any:
        """Emit one step of a reshard at the insertion point."""
        match move:
            case Slice(added):
                return self.slice(value, added)
            case Gather(dimension, groups):
                return self.gather(value, dimension, groups)
            case Exchange(gathered, cut, groups):
                return self._exchange(value, gathered, cut, groups)
            case Permute(pairs):
                return self._permute(value, pairs)

    def slice(self, value: Any, added: Sharding) -> Any:
        """Emit a slice: the device's part of a value."""
        shape = list(value.type.shape)
        sizes = [n // count(axes) for n, axes in zip(shape, added, strict=True)]
        zero: Any = None
        starts = []
        for size, axes in zip(sizes, added, strict=True):
            if axes:
                starts.append(self.start(axes, size))
            else:
                zero = zero or constant(np.array(0, np.int32))
                starts.append(zero)
        return create("stablehlo.dynamic_slice", [like(value.type, sizes)], [value, *starts], slice_sizes=array(sizes))

    def start(self, axes: Axes, size: int) -> Any:
        """Emit the offset of the device's part of a dimension, as a scalar of type i32."""
        table = constant(np.array(positions(axes, self.devices), np.int32) * np.int32(size))
        number = create("stablehlo.partition_id", [scalar("ui32")], [])
        found = create("stablehlo.dynamic_slice", [like(table.type, [1])], [table, number], slice_sizes=array([1]))
        return create("stablehlo.reshape", [like(table.type, [])], [found])

    def gather(self, value: Any, dimension: int, groups: Groups) -> Any:
        """Emit an all-gather along a dimension."""
        shape = list(value.type.shape)
        shape[dimension] *= len(groups[0])
        attributes = {"all_gather_dim": number(dimension), **self._flattened(groups)}
        return create("stablehlo.all_gather", [like(value.type, shape)], [value], **attributes)

    def _exchange(self, value: Any, gathered: int, cut: int, groups: Groups) -> Any:
        shape, size = list(value.type.shape), len(groups[0])
        shape[gathered] *= size
        shape[cut] //= size
        return create(
            "stablehlo.all_to_all",
            [like(value.type, shape)],
            [value],
            split_dimension=number(cut),
            concat_dimension=number(gathered),
            split_count=number(size),
            replica_groups=table(groups),
            channel_handle=self._next_channel(),
        )

    def _permute(self, value: Any, pairs: Groups) -> Any:
        return create(
            "stablehlo.collective_permute",
            [value.type],
            [value],
            source_target_pairs=table(pairs),
            channel_handle=self._next_channel(),
        )

    def reduce(self, value: Any, axes: Axes, others: Iterable[Axis], reducer: str) -> Any:
        """Emit an all-reduce along some axes, with a binary operation on scalars as combiner."""
        groups = groups_along(axes, others, self.devices)
        op = operation("stablehlo.all_reduce", [value.type], [value], 1, **self._flattened(groups))
        add_reducer(op, value.type, reducer)
        return op.results[0]

    def reduce_scatter(self, value: Any, dimension: int, axes: Axes, others: Iterable[Axis], reducer: str) -> Any:
        """Emit a reduce-scatter: `reduce`, of which each device keeps its part along a dimension."""
        groups = groups_along(axes, others, self.devices)
        shape = list(value.type.shape)
        shape[dimension] //= len(groups[0])
        attributes = {"scatter_dimension": number(dimension), **self._flattened(groups)}
        op = operation("stablehlo.reduce_scatter", [like(value.type, shape)], [value], 1, **attributes)
        add_reducer(op, value.type, reducer)
        return op.results[0]

    def from_first(self, value: Any) -> Any:
        """Emit a broadcast of the first partition's value."""
        return create(
            "stablehlo.collective_broadcast",
            [value.type],
            [value],
            replica_groups=table([range(self.devices)]),
            channel_handle=self._next_channel(),
        )

    def _flattened(self, groups: Groups) -> dict[str, Any]:
        return {
            "replica_groups": self.flattened(groups),
            "channel_handle": self._next_channel(),
            "use_global_device_ids": hlo_ir.UnitAttr.get(),
        }

    def flattened(self, groups: Groups) -> Any:
        """Convert groups of partitions to groups of device numbers, in every replica."""
        return table([[r * self.devices + d for d in group] for r in range(self.replicas) for group in groups])

    def _next_channel(self) -> Any:
        self._channel += 1
        return hlo_ir.Attribute.parse(f"#stablehlo.channel_handle<handle = {self._channel}, type = 1>")


def operation(name: str, types: Sequence[Any], operands: Sequence[Any], regions: int = 0, **attributes: Any) -> Any:
    return hlo_ir.Operation.create(
        name, results=list(types), operands=list(operands), attributes=attributes, regions=regions
    )


def create(name: str, types: Sequence[Any], operands: Sequence[Any], **attributes: Any) -> Any:
    """Create an operation; return its only result."""
    return operation(name, types, operands, **attributes).results[0]


def add_reducer(op: Any, type_: Any, reducer: str) -> None:
    """Add to an operation the region of a combiner of two scalars."""
    element = like(type_, [])
    block = hlo_ir.Block.create_at_start(op.regions[0], [element, element], [op.location] * 2)
    with hlo_ir.InsertionPoint(block):
        result = create(reducer, [element], list(block.arguments))
        operation("stablehlo.return", [], [result])


def constant(value: np.ndarray[Any, Any]) -> Any:
    attribute = hlo_ir.DenseElementsAttr.get(value)
    return create("stablehlo.constant", [attribute.type], [], value=attribute)


def like(type_: Any, shape: Sequence[int]) -> Any:
    """Return a type with another shape."""
    return hlo_ir.RankedTensorType.get(list(shape), type_.element_type, loc=hlo_ir.Location.unknown())


def scalar(element: str) -> Any:
    return hlo_ir.Type.parse(f"tensor<{element}>")


def number(value: int) -> Any:
    return hlo_ir.IntegerAttr.get(hlo_ir.IntegerType.get_signless(64), value)


def array(values: Sequence[int]) -> Any:
    return hlo_ir.DenseI64ArrayAttr.get(list(values))


def table(rows: Iterable[Iterable[int]]) -> Any:
    return hlo_ir.DenseIntElementsAttr.get(np.array([list(row) for row in rows], np.int64))
