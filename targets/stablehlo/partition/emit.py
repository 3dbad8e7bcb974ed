"""Emission of collectives and slices that move parts of arrays between devices, as StableHLO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.targets.stablehlo.partition.axes import Axes, Axis, Sharding, count, groups_along, positions
from stablexla.targets.stablehlo.partition.moves import Exchange, Gather, Move, Permute, Slice

LONGEST = 2**31 - 1
"""The longest dimension whose offsets are of 32 bits."""

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
        return hlo.dynamic_slice(value, self._starts(sizes, added), sizes)

    def among_zeros(self, value: Any, cut: Sharding) -> Any:
        """Emit the array of zeros, -0 of floats, but for the device's part of it, which is `value`."""
        shape = list(value.type.shape)
        wide = hlo.tensor(value.type, [n * count(axes) for n, axes in zip(shape, cut, strict=True)])
        return hlo.dynamic_update(_nothing(wide), value, self._starts(shape, cut))

    def _starts(self, sizes: Sequence[int], cut: Sharding) -> list[Any]:
        zero: Any = None
        starts = []
        wide = any(size * count(axes) > LONGEST for size, axes in zip(sizes, cut, strict=True) if axes)
        for size, axes in zip(sizes, cut, strict=True):
            if axes:
                starts.append(self.start(axes, size, wide))
            else:
                zero = zero or hlo.array(np.array(0, np.int64 if wide else np.int32))
                starts.append(zero)
        return starts

    def start(self, axes: Axes, size: int, wide: bool = False) -> Any:
        """Emit the offset of the device's part of a dimension: a scalar of type i32, or i64 where it is long."""
        type_ = np.int64 if wide or size * count(axes) > LONGEST else np.int32
        table = hlo.array((np.array(positions(axes, self.devices), np.int64) * size).astype(type_))
        return hlo.reshape(hlo.dynamic_slice(table, [partition_id()], [1]), [])

    def gather(self, value: Any, dimension: int, groups: Groups) -> Any:
        """Emit an all-gather along a dimension."""
        shape = list(value.type.shape)
        shape[dimension] *= len(groups[0])
        attributes = {"all_gather_dim": hlo.i64(dimension), **self._flattened(groups)}
        return hlo.emit("stablehlo.all_gather", [value], [hlo.tensor(value.type, shape)], attributes)

    def _exchange(self, value: Any, gathered: int, cut: int, groups: Groups) -> Any:
        shape, size = list(value.type.shape), len(groups[0])
        shape[gathered] *= size
        shape[cut] //= size
        attributes = {
            "split_dimension": hlo.i64(cut),
            "concat_dimension": hlo.i64(gathered),
            "split_count": hlo.i64(size),
            "replica_groups": hlo.table(groups),
            "channel_handle": self._next_channel(),
        }
        return hlo.emit("stablehlo.all_to_all", [value], [hlo.tensor(value.type, shape)], attributes)

    def _permute(self, value: Any, pairs: Groups) -> Any:
        attributes = {"source_target_pairs": hlo.table(pairs), "channel_handle": self._next_channel()}
        return hlo.emit("stablehlo.collective_permute", [value], [value.type], attributes)

    def reduce(self, value: Any, axes: Axes, others: Iterable[Axis], reducer: str) -> Any:
        """Emit an all-reduce along some axes, with a binary operation on scalars as combiner."""
        groups = groups_along(axes, others, self.devices)
        op = hlo.operation("stablehlo.all_reduce", [value], [value.type], self._flattened(groups), regions=1)
        return _reduced(op, reducer)

    def reduce_scatter(self, value: Any, dimension: int, axes: Axes, others: Iterable[Axis], reducer: str) -> Any:
        """Emit a reduce-scatter: `reduce`, of which each device keeps its part along a dimension."""
        groups = groups_along(axes, others, self.devices)
        shape = list(value.type.shape)
        shape[dimension] //= len(groups[0])
        attributes = {"scatter_dimension": hlo.i64(dimension), **self._flattened(groups)}
        type_ = hlo.tensor(value.type, shape)
        return _reduced(hlo.operation("stablehlo.reduce_scatter", [value], [type_], attributes, regions=1), reducer)

    def on_first(self, value: Any, axes: Axes) -> Any:
        """Emit a value that is kept where the device is the first one along some axes, and adds nothing elsewhere."""
        is_first = hlo.compare(self.start(axes, 1), hlo.array(np.array(0, np.int32)), "EQ")
        return hlo.select(is_first, value, _nothing(value.type))

    def from_first(self, value: Any) -> Any:
        """Emit a broadcast of the first partition's value."""
        attributes = {"replica_groups": hlo.table([range(self.devices)]), "channel_handle": self._next_channel()}
        return hlo.emit("stablehlo.collective_broadcast", [value], [value.type], attributes)

    def _flattened(self, groups: Groups) -> dict[str, Any]:
        return {
            "replica_groups": self.flattened(groups),
            "channel_handle": self._next_channel(),
            "use_global_device_ids": hlo_ir.UnitAttr.get(),
        }

    def flattened(self, groups: Groups) -> Any:
        """Convert groups of partitions to groups of device numbers, in every replica."""
        return hlo.table([[r * self.devices + d for d in group] for r in range(self.replicas) for group in groups])

    def _next_channel(self) -> Any:
        self._channel += 1
        return hlo_ir.Attribute.parse(f"#stablehlo.channel_handle<handle = {self._channel}, type = 1>")


def _reduced(op: Any, reducer: str) -> Any:
    """Add a combiner of two scalars to a collective; return its result."""
    hlo.combiner(op, op.results[0].type, lambda this, that: hlo.emit(reducer, [this, that], [this.type]))
    return op.results[0]


def zeros(type_: Any) -> Any:
    """Emit an array of zeros."""
    return hlo.broadcast(hlo.convert(hlo.array(np.array(0)), type_.element_type), type_.shape)


def _nothing(type_: Any) -> Any:
    """Emit an array of what adds nothing: of floats -0, as -0 + 0 is 0."""
    return hlo.broadcast(hlo.number(type_, "-0"), type_.shape)


def partition_id() -> Any:
    """Emit the number of the partition, a scalar of type ui32."""
    return hlo.emit("stablehlo.partition_id", [], [hlo_ir.Type.parse("tensor<ui32>")])
