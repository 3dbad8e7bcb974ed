"""Deadlock-free order of sends and receives between devices: sends run before receives that block.

A program may be written in any order that its values and tokens allow, such as a receive before the send that it
answers. XLA splits both in two for that: Recv, Send, SendDone, RecvDone. Here a send never blocks, so that it is
enough to receive as late as possible.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.device_groups import grid_of
from stablexla.lowering.rules.devices.attributes import channel_of, message_pairs
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

SEND, RECV = "stablehlo.send", "stablehlo.recv"
FEEDS = frozenset(["stablehlo.infeed", "stablehlo.outfeed", SEND, RECV])


@module_pass(
    "stablexla-order-channels",
    "moves what devices receive from each other behind all that does not need it, such as what they send",
    side="stablehlo",
    acts_on=for_any([RECV]),
)
def order_channels(module: hlo_ir.Module) -> None:
    """Move sends before receives; items of one channel keep their order, as do transfers to and from the host."""
    if grid_of(module).size == 1 or not any(map(_is_between_devices, operations_of(module, RECV))):
        return
    blocks: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        blocks.extend(block for region in op.regions for block in region.blocks)
        return hlo_ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for block in blocks[:-1]:  # the last one is the module's
        _order(block)


def _order(block: Any) -> None:
    """Sort a block topologically: each operation follows those whose results it uses and those of its streams.

    All devices run the same program: data from another one is there once this one is past its own send of it.
    Of several receives, one for which that holds comes first.
    """
    *rest, last = [_Operation(view.operation) for view in block.operations]
    if not any(op.waits for op in rest):
        return
    ordered: list[_Operation] = []
    while rest:
        later, ready = _without_waiting(rest, ordered)
        chosen = next((op for op in ready if _is_sent(op, ordered, later)), ready[0] if ready else None)
        if chosen is not None:
            ordered.append(chosen)
        rest = [op for op in later if op is not chosen]
    for op in ordered:
        op.operation.move_before(last.operation)


def _without_waiting(rest: list[_Operation], ordered: list[_Operation]) -> tuple[list[_Operation], list[_Operation]]:
    """Order all operations that need not block; return the rest, and the receives in it that might come next."""
    later: list[_Operation] = []
    ready: list[_Operation] = []
    behind: set[Any] = set()
    for op in rest:
        is_free = behind.isdisjoint(op.needs)
        if is_free and not op.waits:
            ordered.append(op)
            continue
        if is_free:
            ready.append(op)
        later.append(op)
        behind |= op.gives
    return later, ready


def _is_sent(op: _Operation, ordered: list[_Operation], later: list[_Operation]) -> bool:
    """Whether each channel of a receive has had enough sends for its earlier receives and this one."""
    for name, channel in op.channels:
        if name != RECV or not any((SEND, channel) in other.channels for other in later):
            continue
        counts = [sum(each.channels.count((which, channel)) for each in ordered) for which in (SEND, RECV)]
        if counts[0] <= counts[1]:
            return False
    return True


class _Operation:
    """An operation of a block with all nested ones.

    Attributes:
        waits: whether it receives from another device.
        channels: its sends to other devices and receives from them: operation and channel.
        needs: values that it uses, and the streams whose order it keeps.
        gives: its results, and these streams.
    """

    def __init__(self, operation: Any) -> None:
        self.operation = operation
        self.channels: list[tuple[str, int]] = []
        values: set[Any] = set()
        streams: set[Any] = set()

        def note(op: Any) -> hlo_ir.WalkResult:
            values.update(op.operands)
            if _is_between_devices(op):
                self.channels.append((op.name, channel_of(op.attributes)))
            elif op.name in FEEDS or (op.name == "stablehlo.custom_call" and _has_effect(op)):
                streams.add("host")
            return hlo_ir.WalkResult.ADVANCE

        operation.walk(note)
        streams.update(self.channels)
        self.waits = any(name == RECV for name, _ in self.channels)
        self.needs = values | streams
        self.gives = set(operation.results) | streams


def _has_effect(op: Any) -> bool:
    return "has_side_effect" in op.attributes and bool(op.attributes["has_side_effect"])


def _is_between_devices(op: Any) -> bool:
    return op.name in (SEND, RECV) and bool(message_pairs(op.attributes))
