"""Tokens, data from and to the outside, and channels to other programs.

Operations without a token execute in program order within a builder.
"""

from __future__ import annotations

from stablexla.builder.builder import XlaBuilder
from stablexla.builder.checking import Operands, Packed, Rules, checking
from stablexla.builder.device_pairs import PAIRS, Pairs, channel_number, checked_pairs, table_attribute
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import ANY, operation
from stablexla.dialects.shapes import Shape

__all__ = [
    "after_all", "infeed_with_token", "outfeed", "outfeed_with_token", "recv_from_host", "recv_with_token", "send",
    "send_to_host", "send_with_token",
]  # fmt: skip

# Types of channels, as StableHLO numbers them.
DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE = 1, 2, 3


@operation("stablehlo.after_all")
def after_all(operands: Operands, *more: XlaOp) -> XlaOp:
    """A token that comes after all of these; they may be given as a sequence or one by one.

    Without any, `b.create_token()` makes one.

    Raises:
        ShapeError: (I1) an operand that is no token; no operand.

    Source: `AfterAll` of XLA's operation semantics; StableHLO `after_all`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.after_all((b.create_token(), b.create_token()))
    XlaOp(stablehlo.after_all, token)
    """
    with checking("after_all", operands=operands, more=more) as rule:
        tokens = [*rule.sequence("operands", operands), *rule.sequence("more", more)]
        rule("", bool(tokens), "without operands there is no builder", "b.create_token()")
        rule.one_builder(tokens)
        for number, token in enumerate(tokens):
            rule("I1", token.shape.is_token, f"token {number} must be a token, not {token.shape}")
    return tokens[0].builder.emit("stablehlo.after_all", tokens, Shape.token())


@operation("stablehlo.infeed", ANY)
def infeed_with_token(token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
    """`b.infeed` after a token: the tuple of the data and the next token.

    Raises:
        ShapeError: (C2) a shape that holds a tuple in a tuple or a token; (C3) a token that is none.

    Source: `Infeed` of XLA's operation semantics; StableHLO `infeed`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.infeed_with_token(b.create_token(), sx.f32[2, 3])
    XlaOp(stablehlo.infeed, (f32[2,3], token))
    """
    return infeed_in(None, "infeed_with_token", token, shape, config)


def infeed_in(builder: XlaBuilder | None, name: str, token: XlaOp | None, shape: Shape, config: str) -> XlaOp:
    """The tuple of data and next token; without a token, what is built comes after the last effect of `builder`."""
    with checking(name, token=token, shape=shape, config=config) as rule:
        wanted = rule.static_shape("shape", shape)
        rule("C2", _is_flat(wanted), "shape must be that of an array or of a tuple of arrays")
        attributes = {"infeed_config": rule.text("config", config)}
        before = builder.token_before() if builder is not None and token is None else _token(rule, "C3", token)
        if builder is not None and not builder.innermost().is_inside(before.builder):
            rule.foreign(f"token belongs to the builder {before.builder.name!r}", [before])
    return before.builder.emit("stablehlo.infeed", [before], Shape.tuple((wanted, Shape.token())), attributes)


@operation("stablehlo.outfeed", ANY)
def outfeed(operand: Packed, shape_with_layout: Shape | None = None, outfeed_config: str = "") -> XlaOp:
    """Puts `operand` into the device's outfeed, as one item for `executable.transfer_from_outfeed()`.

    Args:
        operand: an array, or a tuple of arrays, for which a sequence may stand.
        shape_with_layout: its shape, if given.
        outfeed_config: a text that is kept.

    Returns:
        The token of what comes after it.

    Raises:
        ShapeError: (I1) a tuple in a tuple or a token; another shape than `shape_with_layout`.

    Source: XLA's builder; StableHLO `outfeed`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.outfeed(b.parameter(0, sx.f32[2, 3]))
    XlaOp(stablehlo.outfeed, token)
    """
    with checking("outfeed", operand=operand) as rule:
        x = rule.packed("operand", operand)
        attributes = _checked_outfeed(rule, x, shape_with_layout, outfeed_config)
    before = x.builder.token_before()
    return x.builder.follow(x.builder.emit("stablehlo.outfeed", [x, before], Shape.token(), attributes))


@operation("stablehlo.outfeed", ANY)
def outfeed_with_token(
    operand: Packed, token: XlaOp, shape_with_layout: Shape | None = None, outfeed_config: str = ""
) -> XlaOp:
    """`outfeed` after a token; the next token.

    Raises:
        ShapeError: (I1) a tuple in a tuple or a token as the operand; (I2) a token that is none; another shape than
            `shape_with_layout`.

    Source: XLA's builder; StableHLO `outfeed`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.outfeed_with_token(b.parameter(0, sx.f32[2, 3]), b.create_token())
    XlaOp(stablehlo.outfeed, token)
    """
    with checking("outfeed_with_token", operand=operand, token=token) as rule:
        x = rule.packed("operand", operand)
        before = _token(rule, "I2", token)
        rule.one_builder([x, before])
        attributes = _checked_outfeed(rule, x, shape_with_layout, outfeed_config)
    return x.builder.emit("stablehlo.outfeed", [x, before], Shape.token(), attributes)


def _checked_outfeed(rule: Rules, x: XlaOp, wanted: Shape | None, config: str) -> dict[str, object]:
    """The attributes of an outfeed of `x`."""
    rule("I1", _is_flat(x.shape), "operand must be an array or a tuple of arrays")
    if wanted is not None:
        wanted = rule.shape("shape_with_layout", wanted)
        rule("", wanted == x.shape, f"operand must have the shape_with_layout {wanted}")
    return {"outfeed_config": rule.text("outfeed_config", config)}


@operation("stablehlo.send", ANY)
def send(operand: XlaOp, channel_handle: int, source_target_pairs: Pairs = ()) -> XlaOp:
    """Sends `operand` to the `recv` of the same channel, in this program or in another one.

    Args:
        operand: an array.
        channel_handle: the channel's number.
        source_target_pairs: with them, the devices of this program that send, each with the one that gets it; they
            number partitions, or replicas where there is one partition. Such a send does not wait, and follows nothing
            but the other sends over its channel.

    Returns:
        The token of what comes after it.

    Raises:
        ShapeError: (I1) no array; (C1) not pairs; (C2) a source twice; (C3) a target twice; (C4) a negative number.

    Source: `Send` of XLA's operation semantics; StableHLO `send`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.send(b.parameter(0, sx.f32[2, 3]), 1)
    XlaOp(stablehlo.send, token)
    """
    with checking("send", operand=operand, channel_handle=channel_handle) as rule:
        x = rule.op("operand", operand)
        rule("I1", x.shape.is_array, "operand must be an array")
        channel_number(rule, "channel_handle", channel_handle)
        pairs = checked_pairs(rule, source_target_pairs)
    if pairs:
        return send_with_token(x, x.builder.create_token(), channel_handle, pairs)
    return x.builder.follow(send_with_token(x, x.builder.token_before(), channel_handle))


@operation("stablehlo.send", ANY)
def send_with_token(operand: XlaOp, token: XlaOp, channel_handle: int, source_target_pairs: Pairs = ()) -> XlaOp:
    """`send` after a token; the next token.

    Raises:
        ShapeError: (I1) no array; (I2) a token that is none; (C1) to (C4) as `send`.

    Source: `Send` of XLA's operation semantics; StableHLO `send`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.send_with_token(b.parameter(0, sx.f32[2, 3]), b.create_token(), 1)
    XlaOp(stablehlo.send, token)
    """
    with checking("send_with_token", operand=operand, token=token, channel_handle=channel_handle) as rule:
        return _send(rule, operand, token, channel_handle, DEVICE_TO_DEVICE, source_target_pairs)


@operation("stablehlo.send", ANY)
def send_to_host(operand: XlaOp, token: XlaOp, shape_with_layout: Shape, channel_handle: int) -> XlaOp:
    """Sends `operand` to the caller's `executable.transfer_from_channel(channel_handle)`; the next token.

    Raises:
        ShapeError: (I1) no array, or another one than `shape_with_layout`; (I2) a token that is none.

    Source: XLA's builder; StableHLO `send`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.send_to_host(b.parameter(0, sx.f32[2, 3]), b.create_token(), sx.f32[2, 3], 1)
    XlaOp(stablehlo.send, token)
    """
    with checking("send_to_host", operand=operand, token=token, channel_handle=channel_handle) as rule:
        x, wanted = rule.op("operand", operand), rule.shape("shape_with_layout", shape_with_layout)
        rule("I1", x.shape == wanted, f"operand must have the shape_with_layout {wanted}")
        return _send(rule, x, token, channel_handle, DEVICE_TO_HOST)


def _send(rule: Rules, operand: object, token: object, channel_handle: object, kind: int, pairs: Pairs = ()) -> XlaOp:
    x, before = rule.op("operand", operand), _token(rule, "I2", token)
    rule("I1", x.shape.is_array, "operand must be an array")
    rule.one_builder([x, before])
    attributes = x.builder.channel(channel_number(rule, "channel_handle", channel_handle), kind)
    attributes |= _pairs(rule, pairs, x)
    return x.builder.emit("stablehlo.send", [x, before], Shape.token(), attributes)


@operation("stablehlo.recv", ANY)
def recv_with_token(token: XlaOp, shape: Shape, channel_handle: int, source_target_pairs: Pairs = ()) -> XlaOp:
    """`b.recv` after a token: the tuple of the data and the next token.

    Raises:
        ShapeError: (I1) a token that is none; (C3) a shape that is no array's; (C1) to (C4) as `send` for the pairs.

    Source: `Recv` of XLA's operation semantics; StableHLO `recv`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.recv_with_token(b.create_token(), sx.f32[2, 3], 1)
    XlaOp(stablehlo.recv, (f32[2,3], token))
    """
    with checking("recv_with_token", token=token, shape=shape, channel_handle=channel_handle) as rule:
        return _recv(rule, token, shape, channel_handle, DEVICE_TO_DEVICE, source_target_pairs)


@operation("stablehlo.recv", ANY)
def recv_from_host(token: XlaOp, shape: Shape, channel_handle: int) -> XlaOp:
    """What the caller gives to `executable.transfer_to_channel(channel_handle, value)`, and the next token.

    Raises:
        ShapeError: (C3) a shape that is no array's; (I1) a token that is none.

    Source: XLA's builder; StableHLO `recv`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.recv_from_host(b.create_token(), sx.f32[2, 3], 1)
    XlaOp(stablehlo.recv, (f32[2,3], token))
    """
    with checking("recv_from_host", token=token, shape=shape, channel_handle=channel_handle) as rule:
        return _recv(rule, token, shape, channel_handle, HOST_TO_DEVICE)


def _recv(rule: Rules, token: object, shape: object, channel_handle: object, kind: int, pairs: Pairs = ()) -> XlaOp:
    before = _token(rule, "I1", token)
    wanted = rule.static_shape("shape", rule.array_shape("shape", shape, "C3"))
    attributes = before.builder.channel(channel_number(rule, "channel_handle", channel_handle), kind)
    attributes |= _pairs(rule, pairs, before)
    return before.builder.emit("stablehlo.recv", [before], Shape.tuple((wanted, Shape.token())), attributes)


def _pairs(rule: Rules, given: Pairs, x: XlaOp) -> dict[str, object]:
    pairs = checked_pairs(rule, given)
    return {PAIRS: table_attribute(pairs, 2, x.builder.context)} if pairs else {}


def _token(rule: Rules, number: str, token: object) -> XlaOp:
    op = rule.op("token", token)
    rule(number, op.shape.is_token, f"token must be a token, not {op.shape}")
    return op


def _is_flat(shape: Shape) -> bool:
    """An array, or a tuple of arrays, which may be empty."""
    return shape.is_array or (shape.is_tuple and all(part.is_array for part in shape.tuple_shapes))
