"""What the builder emits for loops, branches, calls and composites, and what it refuses.

Oracles: the reference interpreter, and Python for values.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused


class TestWhile:
    def test_one_value(self):
        make = lambda x: sx.while_(lambda s: s < 100, lambda s: s * 3, x)  # noqa: E731
        assert [evaluate(make, np.int32(v)) for v in (1, 40, 100)] == [243, 120, 100]

    def test_tuple_of_the_description(self):
        """A counter, and a vector to which a constant vector is added 1000 times."""

        def make(count, total):
            step = np.arange(10, dtype=np.float32)
            return list(
                sx.while_(
                    condition=lambda s: s[0] < 1000,
                    body=lambda s: (s[0] + 1, s[1] + s[1].builder.constant(step)),
                    init=sx.tuple((count, total)),
                )
            )

        count, total = evaluate(make, np.int32(0), np.zeros(10, np.float32))
        assert count == 1000
        np.testing.assert_array_equal(total, 1000 * np.arange(10))

    def test_nested_tuples_and_loops(self):
        def inner(s):
            return sx.while_(lambda t: t > 10, lambda t: t - 10, s)

        def body(s):
            (i, (x,)), last = s
            return (i + 1, (inner(x * 7),)), last

        def packed(s):
            (i, (x,)), last = s
            return sx.tuple((sx.tuple((i + 1, sx.tuple((inner(x * 7),)))), last))

        def loop(step):
            return lambda x: sx.while_(lambda s: s[0][0] < 3, step, state(x))

        assert str(build(loop(body), sx.s32[()])) == str(build(loop(packed), sx.s32[()]))

        def make(x):
            made = loop(packed)(x)
            return [made[0][0], made[0][1][0], made[1]]

        value = 5
        for _ in range(3):
            value = (value * 7 - 1) % 10 + 1
        assert evaluate(make, np.int32(5)) == [3, value, True]

    def test_computations_as_they_are(self):
        pair = sx.Shape.tuple((sx.s32[()], sx.f32[2]))
        b = sx.XlaBuilder("condition")
        condition = b.build(b.parameter(0, pair)[0] < 4)
        b = sx.XlaBuilder("body")
        i, x = b.parameter(0, pair)
        body = b.build(sx.tuple((i + 1, x * 2)))
        result = evaluate(
            lambda x: list(sx.while_(condition, body, sx.tuple((x.builder.constant(0), x)))), np.float32([1, 3])
        )
        np.testing.assert_array_equal(result[1], [16, 48])

    def test_while_c1(self):
        refused("C1", lambda x: sx.while_(lambda s: s, lambda s: s, x), sx.f32[()])
        refused("C1", lambda x: sx.while_(lambda s: s > 0, lambda s: s, x), sx.f32[2])
        refused("C1", lambda x: sx.while_(build(lambda s: s > 0, sx.s32[()]), lambda s: s, x), sx.f32[()])

    def test_while_c2(self):
        refused("C2", lambda x: sx.while_(lambda s: s > 0, lambda s: (s, s), x), sx.f32[()])
        refused("C2", lambda x: sx.while_(lambda s: s > 0, lambda s: s > 0, x), sx.f32[()])
        refused("C2", lambda x: sx.while_(lambda s: s > 0, build(lambda s: s, sx.s32[()]), x), sx.f32[()])


def state(x):
    return sx.tuple((sx.tuple((x.builder.constant(0), sx.tuple((x,)))), x.builder.constant(True)))


class TestConditional:
    def test_of_a_truth_value(self):
        def make(p, x, y):
            return sx.conditional(p, x, lambda a: a + 1, y, lambda a: sx.reshape(a, ()) * 2)

        for p, expected in ((True, 6), (False, 20)):
            assert evaluate(make, np.array(p), np.float32(5), np.float32([10])) == expected

    def test_of_an_index(self):
        def make(i, x):
            branches = [lambda a: a + 1, lambda a: a * 2, lambda a: -a]
            return sx.conditional(i, branches, [x, x, x])

        results = [evaluate(make, np.int32(i), np.float32(5)) for i in (-1, 0, 1, 2, 3, 100)]
        assert results == [-5, 6, 10, -5, -5, -5]

    def test_keywords(self):
        def by_pred(p, x):
            return sx.conditional(p, true_operand=x, true_computation=sx.neg, false_operand=x, false_computation=sx.abs)

        def by_index(i, x):
            return sx.conditional(branch_index=i, branch_computations=[sx.neg, sx.abs], branch_operands=[x, x])

        assert evaluate(by_pred, np.array(True), np.int32(3)) == -3
        assert evaluate(by_index, np.int32(1), np.int32(-3)) == 3
        b = sx.XlaBuilder("test")
        x = b.constant(1)
        for arguments in [(), (x,), (x, x), (x, x, x, x)]:
            with pytest.raises(sx.ShapeError, match=r"conditional: .* must be"):
                sx.conditional(*arguments)
        with pytest.raises(sx.ShapeError, match="branch_index is given beside the arguments of the other form"):
            sx.conditional(x, [], [], branch_index=x)

    def test_tuples_in_and_out(self):
        def make(p, x, y):
            both = sx.tuple((x, y))
            swapped = sx.conditional(p, both, lambda t: (t[1], t[0]), both, lambda t: t)
            return list(swapped)

        assert evaluate(make, np.array(True), np.int32(1), np.int32(2)) == [2, 1]
        assert evaluate(make, np.array(False), np.int32(1), np.int32(2)) == [1, 2]

    def test_empty_tuples(self):
        def make(p):
            nothing = p.builder.empty_tuple()
            return sx.conditional(p, nothing, lambda t: t.builder.constant(1), nothing, lambda t: t.builder.constant(2))

        assert evaluate(make, np.array(False)) == 2

    def test_conditional_i1(self):
        refused("I1", lambda p, x: sx.conditional(p, x, sx.neg, x, sx.abs), sx.pred[1], sx.f32[()])
        refused("I1", lambda i, x: sx.conditional(i, [sx.neg], [x]), sx.s64[()], sx.f32[()])

    def test_conditional_c1(self):
        refused("C1", lambda i: sx.conditional(i, [], []), sx.s32[()])
        refused("C1", lambda i: sx.conditional(i, [sx.neg, sx.abs], [i]), sx.s32[()])

    def test_conditional_c3(self):
        refused("C3", lambda p, x: sx.conditional(p, x, lambda a: a > 0, x, sx.abs), sx.pred[()], sx.f32[()])
        refused("C3", lambda p, x: sx.conditional(p, x, lambda a: (a,), x, lambda a: a), sx.pred[()], sx.f32[()])

    def test_branch_that_takes_something_else(self):
        wrong = build(sx.neg, sx.f64[()])
        error = refused("", lambda p, x: sx.conditional(p, x, wrong, x, sx.abs), sx.pred[()], sx.f32[()])
        assert "must take f32[]" in error.summary


class TestCall:
    def test_values(self):
        def make(x, y):
            return list(sx.call(lambda a, t: (a - t[0], t[1]), (x, sx.tuple((y, x)))))

        assert evaluate(make, np.int32(5), np.int32(3)) == [2, 5]

    def test_without_arguments(self):
        b = sx.XlaBuilder("five")
        five = b.build(b.constant(5))
        assert evaluate(lambda x: x + x.builder.call(five), np.int32(1)) == 6
        refused("", lambda x: sx.call(five, ()), sx.f32[2])

    def test_refusals(self):
        computation = build(lambda a, c: a + c, sx.f32[2], sx.f32[2])
        refused("", lambda x: sx.call(computation, x), sx.f32[2])
        refused("", lambda x, y: sx.call(computation, (x, y)), sx.f32[2], sx.f32[3])
        other = sx.XlaBuilder("other").constant(1)
        refused("", lambda x: x.builder.call(computation, (x, other)), sx.f32[2])


class TestCompositeCall:
    def test_text(self):
        def make(x):
            given = {"beta": 1, "kind": "fast", "axes": (0, 1), "e": 0.5}
            return sx.composite_call(x, "my.swish", given, swish, version=2)

        text = str(build(make, sx.f32[2]))
        listed = 'axes = array<i64: 0, 1>, beta = 1 : i64, e = 5.000000e-01 : f64, kind = "fast"'
        rest = "decomposition = @swish, version = 2 : i32"
        assert f'stablehlo.composite "my.swish" %arg0 {{composite_attributes = {{{listed}}}, {rest}}}' in text
        assert "func.func private @swish" in text
        spelled = lambda x: sx.composite_call(x, "my.swish", "{n = 1 : i32}", swish)  # noqa: E731
        assert "composite_attributes = {n = 1 : i32}" in str(build(spelled, sx.f32[2]))

    def test_values_are_those_of_the_decomposition(self):
        result = evaluate(
            lambda x, y: sx.composite_call((x, y), "my.sub", decomposition=sx.sub), np.int32(7), np.int32(3)
        )
        assert result == 4

    def test_several_results(self):
        make = lambda x: list(sx.composite_call(x, "my.pair", None, lambda a: (a + 1, a > 0)))  # noqa: E731
        assert evaluate(make, np.int32(7)) == [8, True]

    def test_without_inputs(self):
        c = sx.XlaBuilder("seven")
        seven = c.build(c.constant(7))
        b = sx.XlaBuilder("test")
        made = b.build(b.composite_call((), "my.seven", {"n": 7}, seven) + 1)
        assert 'stablehlo.composite "my.seven"' in str(made)
        assert sx.compile(made)() == 8
        missing = lambda x: sx.composite_call((), "my.seven", None, seven)  # noqa: E731
        assert "b.composite_call((), name, ...)" in str(refused("", missing, sx.f32[2]))
        other = lambda x: sx.XlaBuilder("other").composite_call(x, "my.neg", None, sx.neg)  # noqa: E731
        assert "inputs[0] belongs to the builder 'test'" in str(refused("", other, sx.f32[2]))

    @pytest.mark.parametrize("name", ["swish", "", ".swish", "my.", "1my.swish", None, "my swish.x"])
    def test_composite_call_c1(self, name):
        refused("C1", lambda x: sx.composite_call(x, name, None, swish), sx.f32[2])

    def test_composite_call_c3(self):
        refused("C3", lambda x: sx.composite_call(x, "my.neg", None, build(sx.neg, sx.f64[2])), sx.f32[2])

    def test_refusals(self):
        refused("", lambda x: sx.composite_call(x, "my.swish"), sx.f32[2])
        refused("", lambda x: sx.composite_call((), "my.swish", None, swish), sx.f32[2])
        refused("", lambda x: sx.composite_call(x, "my.swish", "{n = ", swish), sx.f32[2])
        refused("", lambda x: sx.composite_call(x, "my.swish", "1 : i32", swish), sx.f32[2])


def swish(x):
    return x * sx.logistic(x)


class TestOptimizationBarrier:
    def test_values(self):
        assert evaluate(sx.optimization_barrier, np.int32(7)) == 7
        make = lambda x, y: list(sx.optimization_barrier(sx.tuple((x, y))))  # noqa: E731
        assert evaluate(make, np.int32(7), np.array(True)) == [7, True]
