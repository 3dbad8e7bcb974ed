"""Conversion of a collective's mesh-axis groups to groups of partitions in every replica."""

from __future__ import annotations

from typing import Any

from stablexla.dialects import hlo
from stablexla.targets.stablehlo.imports.mesh_groups import GROUPS, groups_of, is_of_mesh
from stablexla.targets.stablehlo.partition.annotations import Meshes
from stablexla.targets.stablehlo.partition.emit import Emitter


def resolve_groups(op: Any, meshes: Meshes, emitter: Emitter) -> None:
    """Convert an operation's mesh-axis groups, if it has any.

    Raises:
        VerificationError: the mesh or one of its axes is not there.
    """
    if not is_of_mesh(op):
        return
    groups = groups_of(op, meshes.attributes)
    if sum(map(len, groups)) == 1:  # a mesh of one device: all devices are alike
        groups = tuple((device,) for device in range(meshes.devices))
    is_flat = "use_global_device_ids" in op.attributes
    op.attributes[GROUPS] = emitter.flattened(groups) if is_flat else hlo.table(groups)
