"""Lowering of tokens, infeed, outfeed, and send and receive over channels.

Operations with effects stay in program order, so that tokens add no dependences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlir.ir as ir

from stablexla.dialects.attributes.device_groups import BrokenRule, Groups, PairRules, mode_of, resolve_pairs
from stablexla.lowering.rules.calls.host import host_call
from stablexla.lowering.rules.devices.attributes import (
    PAIRS,
    channel_of,
    check_alone,
    is_host_transfer,
    message_pairs,
    refused,
)
from stablexla.lowering.rules.devices.devices import Layout, together
from stablexla.lowering.rules.shape import constant_value
from stablexla.lowering.support.context import LoweringContext, new_token
from stablexla.lowering.support.generic import fill
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.types import TensorType


@lowers("stablehlo.create_token")
def create_token(ctx: LoweringContext) -> ir.Value:
    """A token that waits for nothing."""
    return new_token()


@lowers("stablehlo.after_all")
def after_all(ctx: LoweringContext, *tokens: ir.Value) -> ir.Value:
    """One token that joins many."""
    return new_token()


@lowers("stablehlo.infeed")
def infeed(ctx: LoweringContext, token: ir.Value) -> Sequence[ir.Value]:
    """The next item of the device's infeed; without arrays nothing is read."""
    types = ctx.result_types[:-1]
    return [*(host_call(ctx, "infeed", [], [], types, effect=True) if types else []), token]


@lowers("stablehlo.outfeed")
def outfeed(ctx: LoweringContext, *operands: ir.Value) -> ir.Value:
    """The arrays as one item of the device's outfeed."""
    *arrays, token = operands
    host_call(ctx, "outfeed", arrays, ctx.operand_types[:-1], [], effect=True)
    return token


@lowers("stablehlo.send")
def send(ctx: LoweringContext, *operands: ir.Value) -> ir.Value:
    """The arrays as one item of a channel, to another device, the caller of the program, or a receive of the program.

    With `source_target_pairs` only the sources send, each to its target.
    """
    *arrays, token = operands
    types = ctx.operand_types[:-1]
    pairs = _pairs(ctx)
    if pairs and ctx.grid.size > 1:
        together(ctx, "send", arrays, types, [], [Layout.of(t.shape, t, t) for t in types], pairs=pairs)
    else:
        host_call(ctx, "send", arrays, types, [], effect=True, **_channel(ctx.attributes))
    return token


@lowers("stablehlo.recv")
def recv(ctx: LoweringContext, token: ir.Value) -> Sequence[ir.Value]:
    """The next item of a channel; zeros where nobody sends to this device."""
    types = ctx.result_types[:-1]
    pairs = _pairs(ctx)
    if pairs and ctx.grid.size > 1:
        layouts = [Layout.of(t.shape, t, t) for t in types]
        return [*together(ctx, "recv", [], [], types, layouts, pairs=pairs), token]
    return [*host_call(ctx, "recv", [], [], types, effect=True, **_channel(ctx.attributes)), token]


def zeros(type_: TensorType) -> ir.Value:
    """Return zeros of a type, the result on a device without a sender."""
    zero = constant_value(0, type_.element)
    return fill(zero, type_) if type_.rank else zero


def _pairs(ctx: LoweringContext) -> Groups:
    """Return the (source, target) pairs by device number; none where none are written or for a host transfer.

    With a channel the numbers are partitions. Messages always have a channel, so with one partition they are replicas.
    """
    table, grid = message_pairs(ctx.attributes), ctx.grid
    if grid.size == 1:
        check_alone(ctx, PAIRS, [device for pair in table for device in pair])
    if not table or grid.size == 1:
        return tuple((source, target) for source, target in table)
    mode = mode_of(channel_of(ctx.attributes) if grid.partitions > 1 else 0, None)
    try:
        return resolve_pairs(table, mode, grid, PairRules("C1", "C2", "C3", "C4"))
    except BrokenRule as broken:
        raise refused(ctx, broken) from None


def _channel(attributes: Any) -> dict[str, Any]:
    return {"channel": channel_of(attributes), "host": is_host_transfer(attributes)}
