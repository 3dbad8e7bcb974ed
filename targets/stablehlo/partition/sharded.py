"""Pass that partitions a module (SPMD), and the shardings of the partitioned program's parameters and results.

Shardy's propagation chooses the sharding of every array; the per-device program is made here. Shardy's own passes for
that are not used: see the decision record on sharded programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jaxlib.mlir.ir as hlo_ir
import jaxlib.mlir.passmanager as hlo_passes
from jaxlib.mlir.dialects import sdy

from stablexla.dialects.caller import warn
from stablexla.dialects.custom_calls import OF_MEMORY, ON_PARTS
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import CompileError, ReplicationWarning
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.signature.array_sharding import ArraySharding
from stablexla.targets.signature.signature import count_of, main_of
from stablexla.targets.stablehlo.inlining import inline_calls
from stablexla.targets.stablehlo.meshes import call_target, drop_attributes, drop_meshes

# The partitioner is imported only when a program is sharded: every program passes here.
if TYPE_CHECKING:
    from stablexla.targets.stablehlo.partition.partitioner import Part

SHARDING, GSPMD = "sdy.sharding", "mhlo.sharding"
PROPAGATE = (
    "builtin.module(sdy-import-pipeline,sdy-user-priority-propagate,"
    "sdy-export-pipeline{avoid-export-for-partitioning=true})"
)
DROPPED = (SHARDING, "sdy.sharding_rule", GSPMD, "stablexla.before", ON_PARTS)


@dataclass(frozen=True)
class Partitioned:
    """The program that each device runs, and the shardings of the whole program's parameters and results."""

    module: hlo_ir.Module
    inputs: tuple[ArraySharding, ...]
    outputs: tuple[ArraySharding, ...]


def is_sharded(module: hlo_ir.Module) -> bool:
    """Whether a module has shardings over several partitions."""
    return count_of(module, "partitions") > 1 and (_says(module, SHARDING, "sdy.") or _says(module, GSPMD))


def partitioned(module: hlo_ir.Module) -> Partitioned | None:
    """Partition a module in place for its number of partitions; None where nothing is sharded.

    Raises:
        UnsupportedError: a mesh of another number of devices, or a part of the program that cannot be partitioned.
        CompileError: Shardy's propagation failed.
    """
    if not is_sharded(module):
        return None
    from stablexla.targets.stablehlo.partition.annotations import Meshes
    from stablexla.targets.stablehlo.partition.emit import Emitter
    from stablexla.targets.stablehlo.partition.gspmd import as_shardy
    from stablexla.targets.stablehlo.partition.partitioner import Partitioner

    devices = count_of(module, "partitions")
    with module.context:
        is_gspmd = _says(module, GSPMD)
        inline_calls(module)
        _drop_inner_constraints(module)
        if is_gspmd:
            as_shardy(module, devices)
        Meshes(module, devices)  # checks the number of devices
        try:
            hlo_passes.PassManager.parse(PROPAGATE).run(module.operation)
        except Exception as error:
            raise CompileError(f"Shardy cannot propagate the shardings: {error}") from None
        known = Meshes(module, devices)
        emitter = Emitter(module, devices, count_of(module, "replicas"))
        partitioner = Partitioner(known, emitter)
        taken, given = partitioner.function(main_of(module))
        _drop_annotations(module)
        _warn(partitioner.replicated, devices)
        return Partitioned(module, _places(taken, devices), _places(given, devices))


@module_pass(
    "stablexla-partition",
    "makes a program on sharded arrays the program of one of its partitions",
    side="stablehlo",
)
def partition(module: hlo_ir.Module) -> None:
    """Partition a module; one with a single partition, or without shardings, is left as it is."""
    partitioned(module)


def _places(parts: Sequence[Part], devices: int) -> tuple[ArraySharding, ...]:
    return tuple(part.on_devices(devices) for part in parts if part.shape is not None)


def _says(module: hlo_ir.Module, key: str, dialect: str = "?") -> bool:
    """Whether any operation has the attribute, or is one of the dialect and no mesh."""
    found = False

    def look(op: Any) -> hlo_ir.WalkResult:
        nonlocal found
        if key in op.attributes or (op.name.startswith(dialect) and op.name != "sdy.mesh"):
            found = True
        elif op.name == "func.func":
            rows = [row for each in ("arg_attrs", "res_attrs") if each in op.attributes for row in op.attributes[each]]
            found = any(key in hlo_ir.DictAttr(row) for row in rows)
        return hlo_ir.WalkResult.INTERRUPT if found else hlo_ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _drop_inner_constraints(module: hlo_ir.Module) -> None:
    """Drop constraints of memory, and of shardings on scalars, as in reductions, unless they are the devices' sums."""
    found: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        if (
            op.name == "sdy.sharding_constraint"
            and op.operation.results[0].type.rank == 0
            and not len(sdy.TensorShardingAttr(op.attributes["sharding"]).unreduced_axes)
        ) or (op.name == "stablehlo.custom_call" and call_target(op) in OF_MEMORY):
            found.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in found:
        op.results[0].replace_all_uses_with(op.operands[0])
        erase(op)


def _drop_annotations(module: hlo_ir.Module) -> None:
    def drop(op: Any) -> hlo_ir.WalkResult:
        drop_attributes(op, DROPPED)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(drop)
    drop_meshes(module)


def _warn(replicated: dict[str, list[str]], devices: int) -> None:
    for name, places in replicated.items():
        times = f" ({len(places)} times)" if len(places) > 1 else ""
        warn(
            f"{name}{times}: each of {devices} devices computes all of it, on arrays put together for it{places[0]}",
            ReplicationWarning,
        )
