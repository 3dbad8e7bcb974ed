"""Removal of sharding annotations, after partitioning.

Operations that need several devices are refused, with the name of the mesh.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
from jaxlib.mlir.dialects import sdy

from stablexla.dialects.custom_calls import PARTITIONER_NOTES
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.inlining import inline_block
from stablexla.lowering.support.context import place_of
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.imports.mesh_groups import GROUPS, is_of_mesh
from stablexla.targets.stablehlo.meshes import axis_sizes, call_target, drop_attributes, drop_meshes, meshes_of

ATTRIBUTES = ("sdy.sharding", "sdy.sharding_rule")

# Operations with one operand and one result of its type that change the sharding alone.
MOVES = frozenset(
    [
        "sdy.all_gather",
        "sdy.all_slice",
        "sdy.all_to_all",
        "sdy.collective_permute",
        "sdy.data_flow_edge",
        "sdy.func_data_flow_edge",
        "sdy.propagation_barrier",
        "sdy.replicated_to_unreduced",
        "sdy.reshard",
        "sdy.sharded_to_unreduced",
        "sdy.sharding_constraint",
    ]
)
# A mesh may also be written where it is used: mesh<["x"=2]>.
_INLINE_MESH = re.compile(r"\bmesh<(\[[^\]]*\])")
_INLINE_AXIS = re.compile(r'"([^"]*)"=(\d+)')
_AXIS = re.compile(r'axis_ref<\s*name\s*=\s*"([^"]*)"')
SUMS = frozenset(["sdy.all_reduce", "sdy.reduce_scatter"])


@module_pass(
    "stablexla-drop-shardings",
    "drops Shardy's meshes, constraints and attributes, and inlines manual computations on meshes of one device",
    side="stablehlo",
    acts_on=for_any(["sdy.", "stablehlo.custom_call"]),
)
def drop_shardings(module: hlo_ir.Module) -> None:
    """Drop sharding annotations; in a module without a mesh only names of operations are checked.

    Raises:
        UnsupportedError: a manual computation, a sum or a collective over several devices.
    """
    sizes = {name: axis_sizes(mesh) for name, mesh in meshes_of(module).items()}
    for op in _noted(module, bool(sizes)):
        if op.name.startswith("sdy."):
            _replace(op, sizes)
        elif _is_note(op):
            _replace_note(op)
        else:
            drop_attributes(op, ATTRIBUTES)
            _drop_groups(op, sizes)
    drop_meshes(module)


def _noted(module: hlo_ir.Module, has_meshes: bool) -> list[Any]:
    """Return sharding annotations, nested ones first, and with meshes also all operations that reference one."""
    found: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        name = op.name
        if name.startswith("sdy."):
            if name not in ("sdy.mesh", "sdy.return"):
                found.append(op.operation)
        elif (name == "stablehlo.custom_call" and _is_note(op)) or (
            has_meshes and (name == "func.func" or any(key in op.attributes for key in (*ATTRIBUTES, GROUPS)))
        ):
            found.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note, hlo_ir.WalkOrder.POST_ORDER)
    return found


def _replace(op: Any, sizes: dict[str, dict[str, int]]) -> None:
    if op.name in SUMS:
        _refuse_several(op, sizes)
    if op.name in MOVES or op.name in SUMS:
        op.results[0].replace_all_uses_with(op.operands[0])
    elif op.name == "sdy.manual_computation":
        _refuse_several(op, sizes)
        _inline(op)
        return
    elif op.name == "sdy.named_computation":
        _inline(op)
        return
    elif op.name == "sdy.constant":
        _replace_constant(op)
        return
    elif op.name != "sdy.sharding_group":
        raise UnsupportedError(f"it has no meaning here{place_of(op.location)}", operation=op.name)
    erase(op)


def _is_note(op: Any) -> bool:
    return op.name == "stablehlo.custom_call" and call_target(op) in PARTITIONER_NOTES


def _replace_note(op: Any) -> None:
    if len(op.results) and [v.type for v in op.results] != [v.type for v in op.operands]:
        raise UnsupportedError(
            f"{call_target(op)!r} makes {op.results[0].type} of {op.operands[0].type}, an array's part on one of "
            f"several devices or the whole of such parts; this program is compiled for one device"
            f"{place_of(op.location)}",
            operation="custom_call",
            hint="a mesh of one device",
        )
    for result, operand in zip(list(op.results), list(op.operands), strict=len(op.results) > 0):
        result.replace_all_uses_with(operand)
    erase(op)


def _replace_constant(op: Any) -> None:
    with hlo_ir.InsertionPoint(op), op.location:
        made = hlo_ir.Operation.create(
            "stablehlo.constant", results=[op.results[0].type], attributes={"value": op.attributes["value"]}
        )
    op.results[0].replace_all_uses_with(made.results[0])
    erase(op)


def _refuse_several(op: Any, sizes: dict[str, dict[str, int]]) -> None:
    """Refuse an operation whose axes have more than one device."""
    text = op.get_asm(skip_regions=True, large_elements_limit=4)
    axes = _axes_of(op)
    meshes = {f"@{n}": mesh for n, mesh in sizes.items() if re.search(rf'@"?{re.escape(n)}(?![\w$.])', text)}
    for inline in _INLINE_MESH.findall(text):
        meshes[f"mesh<{inline}>"] = {axis: int(size) for axis, size in _INLINE_AXIS.findall(inline)}
    for name, mesh in meshes.items():
        several = {axis: size for axis, size in mesh.items() if size > 1 and (axes is None or axis in axes)}
        if several:
            listed = ", ".join(f'"{axis}"={size}' for axis, size in several.items())
            raise UnsupportedError(
                f"it works on the parts of arrays that {prod(several.values())} devices hold, mesh {name} with "
                f"{listed}; this program is compiled for one device{place_of(op.location)}",
                operation=op.name,
                hint="a mesh of one device",
            )


def _axes_of(op: Any) -> frozenset[str] | None:
    """Return the mesh axes of an operation; None where it names none."""
    if "manual_axes" in op.attributes:
        return frozenset(str(axis) for axis in sdy.ManualAxesAttr(op.attributes["manual_axes"]))
    if GROUPS in op.attributes:
        return frozenset(_AXIS.findall(str(op.attributes[GROUPS])))
    return None


def _inline(op: Any) -> None:
    """Inline an operation's region in its place."""
    values = inline_block(op.regions[0].blocks[0], list(op.operands), op)
    for result, value in zip(list(op.results), values, strict=True):
        result.replace_all_uses_with(value)
    erase(op)


def _drop_groups(op: Any, sizes: dict[str, dict[str, int]]) -> None:
    """Replace mesh-axis groups by the group of the one device."""
    if is_of_mesh(op):
        _refuse_several(op, sizes)
        op.attributes[GROUPS] = hlo_ir.DenseIntElementsAttr.get(np.zeros((1, 1), np.int64))
