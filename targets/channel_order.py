"""The order of what devices send to each other: what can be sent before something is waited for is sent before it.

A program may be written in any order that its values and tokens allow, such as a receive and then the send that it is
the answer to. XLA splits both in two for that: Recv, Send, SendDone, RecvDone. Here a send never waits, so that it is
enough to wait as late as possible.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.device_groups import grid_of
from stablexla.lowering.devices import channel_of, message_pairs
from stablexla.targets.inlining import operations_of
from stablexla.targets.passes import module_pass

FEEDS = frozenset(["stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"])


@module_pass(
    "stablexla-order-channels",
    "moves what devices receive from each other behind all that does not need it, such as what they send",
    side="stablehlo",
)
def order_channels(module: hlo_ir.Module) -> None:
    """Items of one channel keep their order, and so does what goes to the host or comes from it."""
    if grid_of(module).size == 1 or not any(map(_is_between_devices, operations_of(module, "stablehlo.recv"))):
        return
    blocks: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        blocks.extend(block for region in op.regions for block in region.blocks)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for block in blocks[:-1]:  # the last one is the module's
        _order(block)


def _order(block: Any) -> None:
    """Sorts a block; each operation comes after those whose results it uses and those of the same stream."""
    *rest, last = [_Operation(view.operation) for view in block.operations]
    if not any(op.waits for op in rest):
        return
    ordered = []
    while rest:
        later: list[_Operation] = []
        behind: set[Any] = set()
        for op in rest:
            if op.waits or not behind.isdisjoint(op.needs):
                later.append(op)
                behind |= op.gives
            else:
                ordered.append(op)
        ordered += later[:1]  # all that it needs is there
        rest = later[1:]
    for op in ordered:
        op.operation.move_before(last.operation)


class _Operation:
    """An operation of a block with all inside it.

    Attributes:
        waits: whether it receives something from another device.
        needs: values that it uses, and the streams whose order it keeps.
        gives: its results, and these streams.
    """

    def __init__(self, operation: Any) -> None:
        self.operation = operation
        streams: set[Any] = set()
        values: set[Any] = set()
        self.waits = False

        def note(op: Any) -> hlo_ir.WalkResult:
            values.update(op.operands)
            if op.name in FEEDS or op.name == "stablehlo.custom_call":
                streams.update(_stream(op))
                self.waits |= op.name == "stablehlo.recv" and _is_between_devices(op)
            return hlo_ir.WalkResult.ADVANCE

        operation.walk(note)
        self.needs = values | streams
        self.gives = set(operation.results) | streams


def _stream(op: Any) -> list[object]:
    """What the operation keeps its place in: a channel between devices, or all that the host has to do."""
    if op.name == "stablehlo.custom_call":
        attributes = op.attributes
        return ["host"] if "has_side_effect" in attributes and bool(attributes["has_side_effect"]) else []
    if not _is_between_devices(op):
        return ["host"]
    return [(op.name, channel_of(op.attributes))]


def _is_between_devices(op: Any) -> bool:
    return bool(message_pairs(op.attributes))
