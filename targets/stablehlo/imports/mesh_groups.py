"""Replica groups written as axes of a mesh become lists of device numbers, while the mesh is still there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes.device_groups import Axis, BrokenRule, Groups, axis_groups, grid_of
from stablexla.dialects.errors import VerificationError
from stablexla.lowering.support.context import place_of
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.meshes import axis_sizes, meshes_of

GROUPS = "replica_groups"


@module_pass(
    "stablexla-resolve-mesh-groups",
    "writes groups of devices that are axes of a mesh as lists of numbers, in programs for several devices",
    side="stablehlo",
)
def resolve_mesh_groups(module: hlo_ir.Module) -> None:
    """Replace mesh-axis groups of all collectives by numbers of the mesh's devices.

    Raises:
        VerificationError: the mesh or one of its axes is not there.
    """
    if grid_of(module).size == 1:
        return
    found: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        if is_of_mesh(op):
            found.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note)
    meshes = meshes_of(module)
    for op in found:
        groups = groups_of(op, meshes)
        with op.context:
            op.attributes[GROUPS] = hlo_ir.DenseIntElementsAttr.get(np.array(groups, np.int64))


def is_of_mesh(op: Any) -> bool:
    """Whether an operation's groups are written as axes of a mesh."""
    return GROUPS in op.attributes and stablehlo.ReplicaGroupMeshAxesAttr.isinstance(op.attributes[GROUPS])


def groups_of(op: Any, meshes: Mapping[str, Any]) -> Groups:
    """Return mesh-axis groups as numbers of the mesh's devices.

    Args:
        meshes: those of the module.

    Raises:
        VerificationError: the mesh or one of its axes is not there.
    """
    attribute = stablehlo.ReplicaGroupMeshAxesAttr(op.attributes[GROUPS])
    try:
        axes, devices = _mesh(attribute.mesh, meshes)
        return axis_groups(axes, [_axis(stablehlo.AxisRefAttr(a)) for a in hlo_ir.ArrayAttr(attribute.axes)], devices)
    except BrokenRule as broken:
        raise VerificationError(broken.message + place_of(op.location), operation=op.name) from None


def _mesh(attribute: Any, meshes: Mapping[str, Any]) -> tuple[dict[str, int], list[int]]:
    """Return a mesh's axis sizes, and its devices in order; no devices where that is the order of their numbers."""
    if stablehlo.MeshAttr.isinstance(attribute):
        inline = stablehlo.MeshAttr(attribute)
        rows = [stablehlo.MeshAxisAttr(a) for a in hlo_ir.ArrayAttr(inline.axes)]
        return {str(row.name): int(row.size) for row in rows}, _numbers(inline.device_ids)
    name = str(hlo_ir.FlatSymbolRefAttr(attribute).value)
    if name not in meshes:
        raise BrokenRule("", f"replica_groups are axes of the mesh @{name}, which the module does not have")
    return axis_sizes(meshes[name]), [int(d) for d in meshes[name].device_ids]


def _numbers(attribute: Any) -> list[int]:
    return [] if attribute is None else [int(d) for d in np.array(attribute).flat]


def _axis(reference: Any) -> Axis:
    part = reference.sub_axis_info
    if part is None:
        return Axis(str(reference.name))
    cut = stablehlo.SubAxisInfoAttr(part)
    return Axis(str(reference.name), int(cut.pre_size), int(cut.size))
