"""Shardy's meshes and annotations in a module, for the passes that read them and those that drop them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jaxlib.mlir.ir as hlo_ir
from jaxlib.mlir.dialects import sdy

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of


def meshes_of(module: hlo_ir.Module) -> dict[str, Any]:
    """Return the meshes of a module by name."""
    return {
        symbol_of(op): sdy.MeshAttr(op.attributes["mesh"])
        for op in (each.operation for each in module.body.operations)
        if op.name == "sdy.mesh"
    }


def axis_sizes(mesh: Any) -> dict[str, int]:
    """Return the axes of a mesh and their sizes."""
    axes = map(sdy.MeshAxisAttr, mesh.axes)
    return {str(axis.name): int(axis.size) for axis in axes}


def drop_meshes(module: hlo_ir.Module) -> None:
    """Erase all meshes; none may be referenced any more."""
    for op in [each.operation for each in module.body.operations]:
        if op.name == "sdy.mesh":
            erase(op)


def drop_attributes(op: Any, names: Collection[str]) -> None:
    """Drop attributes of an operation, and of a function's parameters and results."""
    for name in names:
        if name in op.attributes:
            del op.attributes[name]
    for key in ("arg_attrs", "res_attrs"):
        if key in op.attributes:
            rows = [hlo_ir.DictAttr(row) for row in hlo_ir.ArrayAttr(op.attributes[key])]
            rest = [{n.name: n.attr for n in row if n.name not in names} for row in rows]
            op.attributes[key] = hlo_ir.ArrayAttr.get([hlo_ir.DictAttr.get(each) for each in rest])


def call_target(op: Any) -> str:
    """Return a custom call's target, without the prefix that JAX writes for the devices of one process."""
    return str(hlo_ir.StringAttr(op.attributes["call_target_name"]).value).removeprefix("local_")
