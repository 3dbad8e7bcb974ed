"""Sends and receives between devices, written in the orders that values and tokens allow: nobody waits for ever.

Oracle: who sends what to whom is plain; `run` fails at once when all devices wait for each other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.loading import load
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.stablehlo.channel_order import order_channels

PAIRS = "source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>"


def send(name: str, value: str, token: str = "%t", channel: int = 1, pairs: str = PAIRS) -> str:
    attributes = f"{{{CHANNEL.format(channel)}, {pairs}}}"
    types = "(tensor<4xf32>, !stablehlo.token) -> !stablehlo.token"
    return f'%{name} = "stablehlo.send"({value}, {token}) {attributes} : {types}'


def recv(name: str, token: str = "%t", channel: int = 1, pairs: str = PAIRS) -> str:
    attributes = f"{{{CHANNEL.format(channel)}, {pairs}}}"
    return (
        f'%{name}:2 = "stablehlo.recv"({token}) {attributes} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)'
    )


def add(name: str, x: str, y: str) -> str:
    return f"%{name} = stablehlo.add {x}, {y} : tensor<4xf32>"


def function(lines: list[str], *results: str) -> str:
    types = ", ".join(["tensor<4xf32>"] * len(results))
    body = "\n  ".join(["%t = stablehlo.create_token : !stablehlo.token", *lines])
    return (
        f"module attributes {{mhlo.num_replicas = 2 : i32}} {{\nfunc.func @main(%x: tensor<4xf32>) -> ({types}) {{\n"
        f"  {body}\n  return {', '.join(results)} : {types}\n}}\n}}"
    )


X = [np.arange(4, dtype=np.float32) + 10 * d for d in range(2)]


def execute(text: str) -> list[list[np.ndarray]]:
    executable = sx.compile(text)
    executable.collective_timeout = 20
    return executable.execute_replicated([[x] for x in X])


def ordered(text: str) -> list[str]:
    """The names of the values that are sent, received and added, in the order after the pass."""
    module = copy_of(load(text))
    order_channels(module)
    return re.findall(r"stablehlo\.(send|recv|add|all_reduce|outfeed)\b", str(module))


def test_a_receive_before_the_send_that_it_answers() -> None:
    text = function([recv("r"), add("y", "%r#0", "%r#0"), send("s", "%x")], "%y")
    assert ordered(text) == ["send", "recv", "add"]
    for (result,), x in zip(execute(text), reversed(X), strict=True):
        np.testing.assert_array_equal(result, 2 * x)


def test_all_legal_orders_of_two_exchanges() -> None:
    """Of the statements of two channels, in any order in which values come before their use."""
    statements = {
        "r": recv("r"),
        "y": add("y", "%r#0", "%x"),
        "s": send("s", "%x"),
        "q": recv("q", channel=2),
        "u": send("u", "%y", channel=2),
        "z": add("z", "%q#0", "%r#0"),
    }
    before = [("r", "y"), ("y", "u"), ("q", "z"), ("r", "z")]
    legal = [p for p in itertools.permutations(statements) if all(p.index(a) < p.index(b) for a, b in before)]
    assert len(legal) == 54
    both = X[0] + X[1]
    for order in [legal[0], *legal[1::7], legal[-1]]:
        for device, (result,) in enumerate(execute(function([statements[name] for name in order], "%z"))):
            np.testing.assert_array_equal(result, both + X[1 - device])


def test_tokens_are_obeyed() -> None:
    """What follows a receive by its token stays behind it, and devices that wait for each other are told so."""
    text = function([recv("r"), send("s", "%x", "%r#1")], "%r#0")
    assert ordered(text) == ["recv", "send"]
    with pytest.raises(sx.CollectiveError, match="recv"):
        execute(text)


def test_items_of_a_channel_keep_their_order() -> None:
    """The second item could be sent earlier than the first, which depends on what is received."""
    lines = [recv("r", channel=2), add("y", "%r#0", "%x"), send("a", "%y"), send("b", "%x"), send("c", "%x", channel=2)]
    lines += [recv("p"), recv("q")]
    text = function(lines, "%p#0", "%q#0")
    assert ordered(text) == ["send", "recv", "add", "send", "send", "recv", "recv"]
    for device, (first, second) in enumerate(execute(text)):
        np.testing.assert_array_equal(first, X[0] + X[1])
        np.testing.assert_array_equal(second, X[1 - device])


def test_collectives_do_not_wait_for_receives() -> None:
    reduce = """%g = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %m : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>"""
    text = function([recv("r"), reduce, send("s", "%g"), add("y", "%r#0", "%x")], "%y")
    assert ordered(text) == ["all_reduce", "send", "recv", "add"]
    for (result,), x in zip(execute(text), X, strict=True):
        np.testing.assert_array_equal(result, X[1] + x)


def test_what_the_host_sees_keeps_its_order() -> None:
    out = '%{} = "stablehlo.outfeed"({}, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token'
    text = function([recv("r"), out.format("o", "%r#0"), out.format("p", "%x"), send("s", "%x")], "%x")
    assert ordered(text) == ["send", "recv", "outfeed", "outfeed"]


def test_inside_control_flow() -> None:
    """A loop that receives first, and a loop that only sends after one that only receives."""
    while_ = """%i = stablehlo.constant dense<0> : tensor<i32>
    %w{0}:2 = "stablehlo.while"(%i, {1}) ({{
    ^bb0(%n: tensor<i32>, %v: tensor<4xf32>):
      %three = stablehlo.constant dense<3> : tensor<i32>
      %go = stablehlo.compare LT, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    }}, {{
    ^bb0(%n: tensor<i32>, %v: tensor<4xf32>):
      %one = stablehlo.constant dense<1> : tensor<i32>
      %k = stablehlo.add %n, %one : tensor<i32>
      {2}
      stablehlo.return %k, {3} : tensor<i32>, tensor<4xf32>
    }}) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)"""
    exchange = "\n".join([recv("r"), send("s", "%v")])
    text = function([while_.format(0, "%x", exchange, "%r#0")], "%w0#1")
    for (result,), x in zip(execute(text), reversed(X), strict=True):  # three exchanges are one
        np.testing.assert_array_equal(result, x)
    receiving = while_.format(0, "%x", "\n".join([recv("r"), add("sum", "%v", "%r#0")]), "%sum")
    sending = while_.format(1, "%x", send("s", "%v"), "%v").replace("%i ", "%j ").replace("(%i,", "(%j,")
    text = function([receiving, sending], "%w0#1")
    for device, (result,) in enumerate(execute(text)):
        np.testing.assert_array_equal(result, X[device] + 3 * X[1 - device])


HLO = """HloModule exchange

ENTRY main {
  x = f32[4] parameter(0)
  before = token[] after-all()
  STATEMENTS
  ROOT result = f32[4] get-tuple-element(received), index=0
}
"""
BETWEEN = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
HLO_STATEMENTS = {
    "Recv": f"receiving = (f32[4], u32[], token[]) recv(before), {BETWEEN}",
    "Send": f"sending = (f32[4], u32[], token[]) send(x, before), {BETWEEN}",
    "SendDone": "sent = token[] send-done(sending), channel_id=1",
    "RecvDone": "received = (f32[4], token[]) recv-done(receiving), channel_id=1",
}


@pytest.mark.parametrize(
    "order",
    [
        ("Recv", "Send", "SendDone", "RecvDone"),
        ("Recv", "Send", "RecvDone", "SendDone"),
        ("Recv", "RecvDone", "Send", "SendDone"),
        ("Send", "SendDone", "Recv", "RecvDone"),
        ("Send", "Recv", "RecvDone", "SendDone"),
    ],
    ids="-".join,
)
def test_the_four_instructions_of_xla(order: tuple[str, ...]) -> None:
    text = HLO.replace("STATEMENTS", "\n  ".join(HLO_STATEMENTS[name] for name in order))
    executable = sx.compile(text, num_replicas=2)
    for (result,), x in zip(executable.execute_replicated([[x] for x in X]), reversed(X), strict=True):
        np.testing.assert_array_equal(result, x)


# ---- the builder -----------------------------------------------------------------------------------------------------

RING = ((0, 1), (1, 2), (2, 0))
Make = Callable[[sx.XlaBuilder, sx.XlaOp], Any]


def received_first(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    got = b.recv(sx.f32[4], 1, RING)
    sx.send(x, 1, RING)
    return got


def sent_first(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    sx.send(x, 1, RING)
    return b.recv(sx.f32[4], 1, RING)


def with_tokens(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    token = sx.send_with_token(x, b.create_token(), 1, RING)
    return sx.recv_with_token(token, sx.f32[4], 1, RING)[0]


@pytest.mark.parametrize("make", [received_first, sent_first, with_tokens])
@pytest.mark.parametrize("counts", [(3, 1), (1, 3), (2, 3)], ids=str)
def test_rings(make: Make, counts: tuple[int, int]) -> None:
    """The numbers are those of partitions; where there is one partition, of replicas."""
    b = sx.XlaBuilder("ring")
    executable = sx.compile(
        b.build(make(b, b.parameter(0, sx.f32[4]))), num_replicas=counts[0], num_partitions=counts[1]
    )
    xs = [np.full(4, d, np.float32) for d in range(counts[0] * counts[1])]
    results = executable.execute_replicated([[x] for x in xs])
    for d, (result,) in enumerate(results):
        ring = d // 3 * 3
        np.testing.assert_array_equal(result, xs[ring + (d - ring + 2) % 3])


def test_who_gets_nothing_gets_zeros() -> None:
    b = sx.XlaBuilder("test")
    x = b.parameter(0, sx.f32[4])
    sx.send(x + 1.0, 1, ((0, 2),))
    executable = sx.compile(b.build(b.recv(sx.f32[4], 1, ((0, 2),))), num_replicas=3)
    results = executable.execute_replicated([[np.full(4, d, np.float32)] for d in range(3)])
    for (result,), wanted in zip(results, [0, 0, 1], strict=True):
        np.testing.assert_array_equal(result, np.full(4, wanted, np.float32))
