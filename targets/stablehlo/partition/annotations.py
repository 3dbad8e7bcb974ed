"""Shardings from Shardy's attributes: meshes, and annotations of values, functions and manual computations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import sdy

from stablexla.dialects.errors import UnsupportedError
from stablexla.targets.stablehlo.meshes import axis_sizes, meshes_of
from stablexla.targets.stablehlo.partition.axes import (
    NOT_PARTIAL,
    Axes,
    Axis,
    Partial,
    Sharding,
    coordinates_of,
    count,
    fitting,
    split_axis,
    whole,
)

SHARDING = "sdy.sharding"


class Meshes:
    """The meshes of a module, with their axes by name.

    Attributes:
        attributes: each as it is written in the module.
    """

    def __init__(self, module: hlo_ir.Module, devices: int) -> None:
        """Raises UnsupportedError for a mesh of another number of devices."""
        self.devices = devices
        self.attributes = meshes_of(module)
        self._named = {name: self._axes(mesh) for name, mesh in self.attributes.items()}

    def _axes(self, mesh: Any) -> dict[str, list[Axis]]:
        axes = axis_sizes(mesh)
        names, sizes = list(axes), list(axes.values())
        if not names or prod(sizes) == 1:  # a mesh of one device means that all devices hold it
            return {name: [] for name in names}
        if prod(sizes) != self.devices:
            listed = ", ".join(f'"{name}"={size}' for name, size in zip(names, sizes, strict=True))
            raise UnsupportedError(
                f"a mesh of {prod(sizes)} devices ({listed}), and the program has {self.devices} partitions",
                operation="sdy.mesh",
                hint=f"num_partitions={prod(sizes)}",
            )
        ids = [int(i) for i in mesh.device_ids] or list(range(self.devices))
        columns = coordinates_of(sizes, ids)
        return {n: split_axis(n, s, c) for n, s, c in zip(names, sizes, columns, strict=True)}

    def _mesh_of(self, attribute: Any) -> dict[str, list[Axis]]:
        where = attribute.mesh_or_ref
        if isinstance(where, hlo_ir.FlatSymbolRefAttr):
            return self._named[str(hlo_ir.FlatSymbolRefAttr(where).value)]
        return self._axes(sdy.MeshAttr(where))

    def exact(self, attribute: Any) -> Sharding:
        """Convert a `#sdy.sharding`, without sub-axes that are no product of prime ones."""
        attribute = sdy.TensorShardingAttr(attribute)
        mesh = self._mesh_of(attribute)
        dimensions = (sdy.DimensionShardingAttr(each).axes for each in attribute.dimension_shardings)
        return tuple(_parts(mesh, axes) for axes in dimensions)

    def read(self, attribute: Any, shape: Sequence[int]) -> Sharding:
        """Convert a `#sdy.sharding` of an array, without axes that do not divide it evenly."""
        found = self.exact(attribute)
        return fitting(shape, found) if len(found) == len(shape) else whole(len(shape))

    def of_values(self, attribute: Any, shapes: Sequence[Sequence[int] | None]) -> list[Sharding]:
        """Convert a `#sdy.sharding_per_value` of arrays; `()` for values that are no arrays."""
        each = sdy.TensorShardingPerValueAttr(attribute).shardings
        return [() if s is None else self.read(a, s) for a, s in zip(each, shapes, strict=True)]

    def partial(self, attribute: Any) -> Partial:
        """Return the axes along which an array with this `#sdy.sharding` is the sum of what the devices hold."""
        attribute = sdy.TensorShardingAttr(attribute)
        if not len(attribute.unreduced_axes):
            return NOT_PARTIAL
        return frozenset(_parts(self._mesh_of(attribute), attribute.unreduced_axes))

    def partials(self, attribute: Any) -> list[Partial]:
        """Return `partial` of each array of a `#sdy.sharding_per_value`."""
        return [self.partial(each) for each in sdy.TensorShardingPerValueAttr(attribute).shardings]

    def exactly(self, attribute: Any) -> list[Sharding]:
        """Convert as `of_values`, but keep axes that do not divide evenly."""
        return [self.exact(each) for each in sdy.TensorShardingPerValueAttr(attribute).shardings]

    def manual_axes(self, op: Any) -> Axes:
        """Return the manual axes of a manual computation, along which its body sees local parts."""
        names = [str(axis) for axis in sdy.ManualAxesAttr(op.attributes["manual_axes"])]
        attributes = [
            sdy.TensorShardingAttr(each)
            for key in ("in_shardings", "out_shardings")
            for each in sdy.TensorShardingPerValueAttr(op.attributes[key]).shardings
        ]
        meshes = [self._mesh_of(a) for a in attributes] or [m for m in self._named.values() if set(names) <= set(m)]
        mesh = next((m for m in meshes if set(names) <= set(m)), None)
        if mesh is None:
            raise UnsupportedError(f"no mesh has the axes {', '.join(names)}", operation=op.name)
        return tuple(part for name in names for part in mesh[name])


def _parts(mesh: dict[str, list[Axis]], axes: Any) -> Axes:
    found: list[Axis] = []
    for axis in map(sdy.AxisRefAttr, axes):
        parts = mesh[str(axis.name)]
        if axis.sub_axis_info is not None:
            info = sdy.SubAxisInfoAttr(axis.sub_axis_info)
            starts = [count(parts[:i]) for i in range(len(parts) + 1)]
            first, last = int(info.pre_size), int(info.pre_size) * int(info.size)
            if first not in starts or last not in starts:
                break
            parts = parts[starts.index(first) : starts.index(last)]
        found += parts
    return tuple(found)


def shape_of(type_: Any) -> tuple[int, ...] | None:
    """Return the shape of an array; None for a token or a tuple."""
    return tuple(type_.shape) if isinstance(type_, hlo_ir.RankedTensorType) else None
