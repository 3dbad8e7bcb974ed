"""What several devices do together, as kernels: their configuration says who takes part and which bytes go where.

A collective is never written over its operands: others read them until all of its group are done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo
from mlir.dialects import linalg, tensor

from stablexla.dialects.device_groups import BrokenRule, Groups, Mode, mode_of
from stablexla.dialects.errors import VerificationError
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.context import LoweringContext, arrays_of, place_of
from stablexla.lowering.generic import REDUCTION, empty, filled
from stablexla.lowering.host import as_array, in_main, unknown
from stablexla.lowering.kernels import kernel
from stablexla.lowering.storage import from_storage, to_storage
from stablexla.lowering.types import storage_type, tensor_storage, tensor_type

COLLECTIVE = "collective"
"""The kind of these kernels."""
DEVICE = "device"
"""The kind of kernels that give the number of the device that runs the program."""

HERE = 0
"""The number of the only device of a program that is compiled for one."""
SEVERAL = "sx.compile(program, num_replicas=N), --replicas N of the tool, or mhlo.num_replicas in the module"

PAIRS, FRONTEND, XLA_PAIRS = "source_target_pairs", "mhlo.frontend_attributes", "_xla_send_recv_source_target_pairs"

Fold = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Layout:
    """Which bytes of each member's operand go where in each member's result.

    The part of member i for member j lies at j * `source_step` of i's operand, and comes to i * `target_step` of j's
    result. All is in bytes but the extents; the innermost one is a run of bytes that lie together on both sides.
    """

    extents: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]
    source_step: int = 0
    target_step: int = 0

    @classmethod
    def of(
        cls,
        part: Sequence[int],
        source: TensorType,
        target: TensorType,
        *,
        split: int | None = None,
        joined: int | None = None,
    ) -> Layout:
        """The layout of parts of a shape.

        Args:
            source, target: a member's operand and result.
            split: the dimension of the operand along which the parts of all members lie one after another.
            joined: that of the result.
        """
        size = source.element.bytes
        strides, others = _strides(source.shape, size), _strides(target.shape, size)
        rows = [row for row in zip(part, strides, others, strict=True) if row[0] != 1]
        rows.append((size, 1, 1))
        merged = [rows.pop()]
        for extent, stride, other in reversed(rows):
            inner = merged[0]
            if (stride, other) == (inner[0] * inner[1], inner[0] * inner[2]):
                merged[0] = (extent * inner[0], inner[1], inner[2])
            else:
                merged.insert(0, (extent, stride, other))
        if not prod(part):
            merged = [(0, 1, 1)]
        extents, source_strides, target_strides = (tuple(column) for column in zip(*merged, strict=True))
        source_step = 0 if split is None else part[split] * strides[split]
        target_step = 0 if joined is None else part[joined] * others[joined]
        return cls(extents, source_strides, target_strides, source_step, target_step)

    @property
    def plain(self) -> tuple[object, ...]:
        """It, as it stands in a configuration."""
        return self.extents, self.source_strides, self.target_strides, self.source_step, self.target_step


def _strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    return tuple(size * prod(shape[d + 1 :]) for d in range(len(shape)))


def together(
    ctx: LoweringContext,
    operation: str,
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    layouts: Sequence[Layout],
    *,
    groups: Groups = (),
    pairs: Groups = (),
    fold: Fold | None = None,
) -> list[ir.Value]:
    """A call of what devices do together.

    Args:
        operation: its name.
        operands: arrays or scalars, no tokens.
        groups: who takes part with whom, by numbers of devices.
        pairs: (source, target) of what moves arrays from device to device.
        fold: of two elements, for what reduces; its operands' and results' one element type is that of `result_types`.

    Raises:
        UnsupportedError: inside of another operation's computation, where there are single elements only.
    """
    if not in_main():
        raise ctx.unsupported("it has no lowering inside the computation of another operation")
    config = {
        "op": operation,
        "place": place_of(ctx.op.location),
        "inputs": [str(t) for t in operand_types],
        "outputs": [str(t) for t in result_types],
        "groups": groups,
        "pairs": pairs,
        "channel": channel_of(ctx.attributes),
        "copies": [layout.plain for layout in layouts],
        "element_bytes": [t.element.bytes for t in operand_types or result_types],
    }

    def body(*_: ir.Value) -> list[ir.Value]:
        if fold is None:
            return [unknown(t) for t in result_types]
        return [_folded(result_types[0], fold), *(unknown(t) for t in result_types[1:])]

    arrays = [as_array(v, t) for v, t in zip(operands, operand_types, strict=True)]
    return kernel(ctx, COLLECTIVE, arrays, body, attributes=config, result_types=result_types, effect=True)


def _folded(type_: TensorType, fold: Fold) -> ir.Value:
    """A result as far as tensors can say it: the fold of nobody knows which elements, everywhere.

    It keeps the computation where the target's emitter finds it: in the one reduction of the kernel.
    """
    element = type_.element
    one = TensorType(element, ())
    maps = [ir.AffineMap.get_identity(1), ir.AffineMap.get(1, 0, [])]
    reduction = ir.Operation.create(
        "linalg.generic",
        results=[tensor_storage(one)],
        operands=[empty(TensorType(element, (2,))), empty(one)],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{REDUCTION}>")]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    stored = storage_type(element)
    block = reduction.regions[0].blocks.append(stored, stored, arg_locs=[ir.Location.current] * 2)
    with ir.InsertionPoint(block):
        next_, so_far = (from_storage(a, element) for a in block.arguments)
        linalg.YieldOp([to_storage(fold(so_far, next_), element)])
    found = tensor.extract(reduction.result, [])
    return filled(found, empty(type_)) if type_.rank else from_storage(found, element)


def channel_of(attributes: Any) -> int:
    """The number of an operation's channel, 0 without one."""
    if "channel_handle" not in attributes:
        return 0
    return int(stablehlo.ChannelHandle(attributes["channel_handle"]).handle)


def table_of(attributes: Any, name: str) -> list[list[int]]:
    """The rows of a table of numbers; none where there is no such attribute."""
    if name not in attributes:
        return []
    rows: list[list[int]] = np.atleast_2d(np.array(attributes[name])).tolist()
    return rows


def message_pairs(attributes: Any) -> list[list[int]]:
    """The pairs (source, target) of a send or receive as they are written; none where the host is at the other end.

    Where a program comes from XLA, they may be in an attribute of a frontend.
    """
    if is_host_transfer(attributes):
        return []
    if PAIRS not in attributes and FRONTEND in attributes:
        named = hlo_ir.DictAttr(attributes[FRONTEND])
        text = hlo_ir.StringAttr(named[XLA_PAIRS]).value if XLA_PAIRS in named else ""
        return [[int(n) for n in row.split(",")] for row in re.findall(r"\{([\d\s,]+)\}", text)]
    return table_of(attributes, PAIRS)


def is_host_transfer(attributes: Any) -> bool:
    """Whether a send or receive is from or to the caller of the program."""
    return bool(attributes["is_host_transfer"]) if "is_host_transfer" in attributes else False


def mode_for(ctx: LoweringContext) -> Mode:
    """How the operation reads its groups or pairs."""
    flag = "use_global_device_ids" in ctx.attributes if ctx.op_name in WITH_FLAG else None
    return mode_of(channel_of(ctx.attributes), flag)


WITH_FLAG = frozenset(
    ["stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.cross-replica-sum", "stablehlo.reduce_scatter"]
)
"""Operations that may say that their groups number all devices."""


def check_alone(ctx: LoweringContext, name: str, devices: Sequence[int]) -> None:
    """Sees that a program for one device speaks of no other.

    Raises:
        UnsupportedError: it does.
    """
    others = sorted(set(devices) - {HERE})
    if others:
        raise ctx.unsupported(f"{name} names device {others[0]}, and this program is compiled for one device", SEVERAL)


def refused(ctx: LoweringContext, broken: BrokenRule) -> VerificationError:
    """The error for groups or shapes that do not fit the devices that the program is compiled for."""
    grid = ctx.grid
    devices = f"{_counted(grid.replicas, 'replica')} of {_counted(grid.partitions, 'partition')}"
    rule = f" ({broken.rule})" if broken.rule else ""
    shapes = {f"operand {i}": tensor_type(v.type) for i, v in enumerate(arrays_of(ctx.op.operands))}
    error = VerificationError(
        f"{broken.message}{rule}; it is compiled for {devices}{ctx.place}", operation=ctx.op_name, operands=shapes
    )
    error.rule = broken.rule
    return error


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"
