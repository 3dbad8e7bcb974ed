"""Lowering of what replicas and partitions do together, for the one device that there is: it is alone in its group."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
import numpy as np

from stablexla.lowering.context import LoweringContext
from stablexla.lowering.effects import HERE, zeros
from stablexla.lowering.registry import lowers
from stablexla.lowering.storage import constant
from stablexla.lowering.types import value_type


@lowers("stablehlo.replica_id", "stablehlo.partition_id")
def device_number(ctx: LoweringContext) -> ir.Value:
    """The number of the only replica or partition."""
    return constant(value_type(ctx.result.element), HERE)


@lowers(
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.cross-replica-sum",
    "stablehlo.reduce_scatter",
)
def alone(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands: what is gathered, reduced or exchanged among one is what it brought."""
    _check_groups(ctx)
    if ctx.operand_types != ctx.result_types:
        raise ctx.unsupported("it is written for several devices, and this program is compiled for one")
    return operands


@lowers("stablehlo.collective_permute")
def collective_permute(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands where the device sends to itself, else zeros."""
    pairs = np.array(ctx.attributes["source_target_pairs"]).reshape(-1, 2)
    _check_devices(ctx, "source_target_pairs", pairs)
    return operands if len(pairs) else [zeros(t) for t in ctx.result_types]


def _check_groups(ctx: LoweringContext) -> None:
    try:
        groups = np.array(ctx.attributes["replica_groups"])
    except (TypeError, ValueError):  # axes of a mesh, which has one device
        return
    _check_devices(ctx, "replica_groups", groups)


def _check_devices(ctx: LoweringContext, name: str, devices: np.ndarray) -> None:
    """Raises UnsupportedError where there is a device beside this one; -1 fills up rows."""
    others = sorted({int(d) for d in devices.flat} - {HERE, -1})
    if others:
        raise ctx.unsupported(f"{name} names device {others[0]}, and this program is compiled for one device")
