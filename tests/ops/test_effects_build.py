"""How tokens, infeeds, outfeeds and channels are written down, and what is refused."""

from __future__ import annotations

import re

import stablexla as sx
from tests.ops.building import build, refused

X, TOKEN = sx.f32[2], sx.Shape.token()
NESTED = sx.Shape.parse("((f32[2]))")


def token(x: sx.XlaOp) -> sx.XlaOp:
    return x.builder.create_token()


class TestAfterAll:
    def test_forms(self):
        b = sx.XlaBuilder("test")
        first, second = b.create_token(), b.create_token()
        assert str(sx.after_all(first).shape) == "token"
        made = sx.after_all((first, second)), sx.after_all(first, second), sx.after_all(operands=[first, second])
        assert str(b.build(sx.tuple(made))).count("stablehlo.after_all %0, %1") == 3

    def test_after_all_i1(self):
        assert "operands[1] must be a token, not f32[2]" in str(refused("I1", lambda x: sx.after_all((token(x), x)), X))

    def test_without_operands(self):
        assert "b.create_token()" in str(refused("", lambda x: sx.after_all(()), X))


class TestInfeed:
    def test_implicit_and_explicit_order(self):
        def program(x):
            x.builder.infeed(X)
            sx.outfeed(x)
            sx.send(x, 3)
            x.builder.recv(X, 3)
            return sx.infeed_with_token(token(x), X, "config")

        text = str(build(program, X))
        names = re.findall(r"= \"?stablehlo\.(\w+)", text)
        assert names == ["create_token", "infeed", "outfeed", "send", "recv", "create_token", "infeed"]
        assert text.count("create_token") == 2
        assert 'infeed_config = "config"' in text

    def test_empty_tuples_are_taken(self):
        made = build(lambda x: x.builder.infeed(sx.Shape.tuple(())), X)
        assert str(made.result_shape) == "()"

    def test_infeed_with_token_c2(self):
        refused("C2", lambda x: sx.infeed_with_token(token(x), NESTED), X)
        refused("C2", lambda x: sx.infeed_with_token(token(x), TOKEN), X)
        refused("", lambda x: sx.infeed_with_token(token(x), "f32[2]"), X)
        refused("", lambda x: sx.infeed_with_token(token(x), X, 1), X)

    def test_infeed_with_token_c3(self):
        refused("C3", lambda x: sx.infeed_with_token(x, X), X)


class TestOutfeed:
    def test_forms(self):
        text = str(build(lambda x: sx.outfeed(sx.tuple((x, x)), outfeed_config="abc"), X))
        assert '"stablehlo.outfeed"(%arg0, %arg0, %0)' in text
        assert 'outfeed_config = "abc"' in text
        assert build(lambda x: sx.outfeed_with_token(x, token(x), X), X).result_shape == TOKEN

    def test_outfeed_i1(self):
        refused("I1", lambda x: sx.outfeed(x), NESTED)
        refused("I1", lambda x: sx.outfeed(x), TOKEN)
        assert "operand must have the shape_with_layout f32[3]" in str(
            refused("", lambda x: sx.outfeed(x, sx.f32[3]), X)
        )

    def test_outfeed_with_token_i1(self):
        refused("I1", lambda x: sx.outfeed_with_token(token(x), token(x)), X)
        refused("", lambda x: sx.outfeed_with_token(x, token(x), None, 1), X)

    def test_outfeed_with_token_i2(self):
        refused("I2", lambda x: sx.outfeed_with_token(x, x), X)


class TestChannels:
    def test_attributes(self):
        def program(x):
            after = sx.send_to_host(x, token(x), X, 4)
            return sx.recv_from_host(after, sx.s32[()], 5)

        text = str(build(program, X))
        assert "handle = 4, type = 2" in text
        assert "handle = 5, type = 3" in text
        assert text.count("is_host_transfer = true") == 2

    def test_send_i1(self):
        refused("I1", lambda x: sx.send(sx.tuple((x, x)), 1), X)
        refused("", lambda x: sx.send(x, "one"), X)

    def test_send_c1(self):
        refused("C1", lambda x: sx.send(x, 1, ((0, 1, 2),)), X)

    def test_send_c2(self):
        refused("C2", lambda x: sx.send(x, 1, ((0, 1), (0, 2))), X)

    def test_send_c3(self):
        refused("C3", lambda x: sx.send(x, 1, ((0, 1), (2, 1))), X)

    def test_send_c4(self):
        refused("C4", lambda x: sx.send(x, 1, ((0, -1),)), X)

    def test_pairs_of_all_forms(self):
        twice = ((0, 1), (0, 2))
        refused("C2", lambda x: sx.send_with_token(x, token(x), 1, twice), X)
        refused("C2", lambda x: x.builder.recv(X, 1, twice), X)
        refused("C2", lambda x: sx.recv_with_token(token(x), X, 1, twice), X)

    def test_send_with_token_i1(self):
        refused("I1", lambda x: sx.send_with_token(sx.tuple((x,)), token(x), 1), X)

    def test_send_with_token_i2(self):
        refused("I2", lambda x: sx.send_with_token(x, x, 1), X)

    def test_send_to_host_i1(self):
        refused("I1", lambda x: sx.send_to_host(x, token(x), sx.f32[3], 1), X)

    def test_send_to_host_i2(self):
        refused("I2", lambda x: sx.send_to_host(x, x, X, 1), X)

    def test_recv_with_token_c3(self):
        refused("C3", lambda x: sx.recv_with_token(token(x), NESTED, 1), X)

    def test_recv_with_token_i1(self):
        refused("I1", lambda x: sx.recv_with_token(x, X, 1), X)

    def test_recv_from_host_c3(self):
        refused("C3", lambda x: sx.recv_from_host(token(x), TOKEN, 1), X)

    def test_recv_from_host_i1(self):
        refused("I1", lambda x: sx.recv_from_host(x, X, 1), X)
