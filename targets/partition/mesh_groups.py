"""Groups that a collective names as axes of a mesh, as groups of devices."""

from __future__ import annotations

import re
from typing import Any

from stablexla.dialects.errors import UnsupportedError
from stablexla.targets.partition.annotations import Meshes
from stablexla.targets.partition.axes import groups_along
from stablexla.targets.partition.emit import Emitter

KEY = "replica_groups"
_MESH = re.compile(r'mesh\s*=\s*@"?([^,">]+)')
_AXIS = re.compile(r'axis_ref<\s*name\s*=\s*"([^"]*)"')


def resolve_groups(op: Any, meshes: Meshes, emitter: Emitter) -> None:
    """Does so for an operation that has such groups.

    Raises:
        UnsupportedError: the mesh has no name.
    """
    if KEY not in op.attributes or "mesh_axes" not in str(op.attributes[KEY]):
        return
    text = str(op.attributes[KEY])
    mesh = _MESH.search(text)
    if mesh is None:
        raise UnsupportedError(f"groups of {text}", operation=op.name)
    groups = groups_along(meshes.named(mesh[1], _AXIS.findall(text)), meshes.all_named(mesh[1]), meshes.devices)
    is_flat = "use_global_device_ids" in op.attributes
    op.attributes[KEY] = emitter.flattened(groups) if is_flat else emitter.plain(groups)
