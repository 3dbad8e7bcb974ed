"""Attributes of collectives and messages: channels, replica groups, and source-target pairs.

Also the errors for groups and pairs that do not fit the devices that the program is compiled for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes.device_groups import BrokenRule, Mode, mode_of
from stablexla.dialects.errors import VerificationError
from stablexla.lowering.support.context import LoweringContext, arrays_of
from stablexla.lowering.support.types import tensor_type

HERE = 0
"""The number of the only device of a program that is compiled for one."""
SEVERAL = "sx.compile(program, num_replicas=N), --replicas N of the tool, or mhlo.num_replicas in the module"

PAIRS, FRONTEND, XLA_PAIRS = "source_target_pairs", "mhlo.frontend_attributes", "_xla_send_recv_source_target_pairs"

WITH_FLAG = frozenset(
    ["stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.cross-replica-sum", "stablehlo.reduce_scatter"]
)
"""Operations with `use_global_device_ids`, by which their groups number all devices."""


def channel_of(attributes: Any) -> int:
    """Return an operation's channel number, 0 without a channel."""
    if "channel_handle" not in attributes:
        return 0
    return int(stablehlo.ChannelHandle(attributes["channel_handle"]).handle)


def table_of(attributes: Any, name: str) -> list[list[int]]:
    """Return the rows of a table of numbers; none without such an attribute."""
    if name not in attributes:
        return []
    rows: list[list[int]] = np.atleast_2d(np.array(attributes[name])).tolist()
    return rows


def message_pairs(attributes: Any) -> list[list[int]]:
    """Return the (source, target) pairs of a send or receive as written; none for a host transfer.

    In programs from XLA they may be in a frontend attribute.
    """
    if is_host_transfer(attributes):
        return []
    if PAIRS not in attributes and FRONTEND in attributes:
        named = hlo_ir.DictAttr(attributes[FRONTEND])
        text = hlo_ir.StringAttr(named[XLA_PAIRS]).value if XLA_PAIRS in named else ""
        return [[int(n) for n in row.split(",")] for row in re.findall(r"\{([\d\s,]+)\}", text)]
    return table_of(attributes, PAIRS)


def is_host_transfer(attributes: Any) -> bool:
    """Whether a send or receive transfers to or from the caller of the program."""
    return bool(attributes["is_host_transfer"]) if "is_host_transfer" in attributes else False


def mode_for(ctx: LoweringContext) -> Mode:
    """Return the mode by which the operation interprets its groups or pairs."""
    flag: bool | None = "use_global_device_ids" in ctx.attributes
    if ctx.op_name not in WITH_FLAG:
        flag = flag or None
    return mode_of(channel_of(ctx.attributes), flag)


def check_alone(ctx: LoweringContext, name: str, devices: Sequence[int]) -> None:
    """Check that a program for one device names no other.

    Raises:
        UnsupportedError: it does.
    """
    others = sorted(set(devices) - {HERE})
    if others:
        raise ctx.unsupported(f"{name} names device {others[0]}, and this program is compiled for one device", SEVERAL)


def refused(ctx: LoweringContext, broken: BrokenRule) -> VerificationError:
    """Return the error for groups or shapes that do not fit the devices that the program is compiled for."""
    grid = ctx.grid
    devices = f"{counted(grid.replicas, 'replica')} of {counted(grid.partitions, 'partition')}"
    rule = f" ({broken.rule})" if broken.rule else ""
    shapes = {f"operand {i}": tensor_type(v.type) for i, v in enumerate(arrays_of(ctx.op.operands))}
    counts = () if broken.fits is None else (("replicas", broken.fits.replicas), ("partitions", broken.fits.partitions))
    given = [(what, count) for what, count in counts if count > 1]
    error = VerificationError(
        f"{broken.message}{rule}; it is compiled for {devices}{ctx.place}",
        operation=ctx.op_name,
        operands=shapes,
        hint=f"sx.compile(program, {', '.join(f'num_{what}={count}' for what, count in given)})" if given else "",
        option=" ".join(f"--{what} {count}" for what, count in given),
    )
    error.rule = broken.rule
    return error


def counted(count: int, what: str) -> str:
    """Return a count with its noun, in words."""
    return f"{count} {what}{'s' * (count > 1)}"
