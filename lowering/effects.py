"""Lowering of tokens, of data that comes from outside, and of channels.

What has effects stays in the order of the program, so that a token has nothing to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.lowering.context import LoweringContext, new_token
from stablexla.lowering.generic import fill
from stablexla.lowering.host import host_call
from stablexla.lowering.registry import lowers
from stablexla.lowering.shape import constant_value
from stablexla.lowering.types import TensorType

HERE = 0
"""The number of the only device."""


@lowers("stablehlo.create_token")
def create_token(ctx: LoweringContext) -> ir.Value:
    """A token that waits for nothing."""
    return new_token()


@lowers("stablehlo.after_all")
def after_all(ctx: LoweringContext, *tokens: ir.Value) -> ir.Value:
    """One token for many."""
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
    """The arrays as one item of a channel: to the caller of the program, or to whoever receives there."""
    *arrays, token = operands
    if HERE in _pairs(ctx.attributes, 0):
        types = ctx.operand_types[:-1]
        host_call(ctx, "send", arrays, types, [], effect=True, **_channel(ctx.attributes))
    return token


@lowers("stablehlo.recv")
def recv(ctx: LoweringContext, token: ir.Value) -> Sequence[ir.Value]:
    """The next item of a channel; zeros where nobody sends to this device."""
    types = ctx.result_types[:-1]
    if HERE not in _pairs(ctx.attributes, 1):
        return [*(zeros(t) for t in types), token]
    return [*host_call(ctx, "recv", [], [], types, effect=True, **_channel(ctx.attributes)), token]


def zeros(type_: TensorType) -> ir.Value:
    """What a device gets that nobody sends anything."""
    zero = constant_value(0, type_.element)
    return fill(zero, type_) if type_.rank else zero


def _pairs(attributes: Any, side: int) -> list[int]:
    """The devices that send (0) or receive (1); this one when that is not said."""
    if "source_target_pairs" not in attributes:
        return [HERE]
    pairs = np.array(attributes["source_target_pairs"]).reshape(-1, 2)
    return [int(device) for device in pairs[:, side]] or [HERE]


def _channel(attributes: Any) -> dict[str, object]:
    host = bool(attributes["is_host_transfer"]) if "is_host_transfer" in attributes else False
    return {"channel": int(stablehlo.ChannelHandle(attributes["channel_handle"]).handle), "host": host}
