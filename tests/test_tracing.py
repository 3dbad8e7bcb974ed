"""Functions given for computations that read values around them.

Oracles: the reference interpreter, XLA:CPU and numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import ELEMENT_TYPES
from tests.ops.building import build, evaluate, refused
from tests.programs import run

X = np.float32([[0.5, -1, 2], [3, 0.25, -2]])
V = np.float32([2, -3, 0.5])
S = np.float32(1.5)
N = np.int32(3)
BOTH = ("interpreter", "xla")


def counted(times: int | sx.XlaOp, start: sx.XlaOp, step: Callable[[sx.XlaOp], sx.XlaOp]) -> sx.XlaOp:
    """`step` applied so many times."""
    first = (start.builder.constant(0), start)
    return sx.while_(lambda s: s[0] < times, lambda s: (s[0] + 1, step(s[1])), first)[1]


class TestLoops:
    def test_condition_and_body(self) -> None:
        def make(b: sx.XlaBuilder, x: Any, s: Any, n: Any) -> Any:
            return counted(n, x, lambda a: a * s + x)

        expected = X
        for _ in range(N):
            expected = expected * S + X
        run(make, X, S, N, against=BOTH, expected=[expected], ulp=1)

    def test_two_loops_share_a_value(self) -> None:
        def make(b: sx.XlaBuilder, x: Any, v: Any) -> Any:
            shared = sx.exp(v)
            one = counted(2, x, lambda a: sx.add(a, shared, (1,)))
            two = counted(3, x, lambda a: sx.mul(a, shared, (1,)))
            return [one, two, shared]

        run(make, X, V, against=BOTH, ulp=8)

    def test_loops_in_loops(self) -> None:
        """The innermost reads the state of each loop around it, and values of the program."""

        def make(b: sx.XlaBuilder, x: Any, s: Any, n: Any) -> Any:
            def outer(a: Any) -> Any:
                def middle(c: Any) -> Any:
                    return counted(n, c, lambda d: d * s + a - c)

                return counted(2, x, middle) + a

            return counted(2, x, outer)

        a = X
        for _ in range(2):
            c = X
            for _ in range(2):
                d = c
                for _ in range(N):
                    d = d * S + a - c
                c = d
            a = c + a
        run(make, X, S, N, against=BOTH, expected=[a], ulp=4)

    def test_state_that_is_replaced_by_a_value_around_it(self) -> None:
        run(lambda b, x, s: counted(2, x, lambda a: sx.broadcast(s, (2, 3))), X, S, against=BOTH, expected=[X * 0 + S])

    def test_elements_of_a_tuple_around_it(self) -> None:
        text = str(build(lambda x, v: _pick(sx.tuple((x, sx.tuple((v, v + 1))))), sx.f32[2], sx.f32[2]))
        assert "func.call" not in text
        run(lambda b, x, v: _pick(sx.tuple((x, sx.tuple((v, v + 1))))), V, V, expected=[V + 2 * (V + 1)])

    def test_a_value_made_by_the_builder_inside(self) -> None:
        """Operations of the builder that are written in a function are the function's."""

        def make(b: sx.XlaBuilder, x: Any) -> Any:
            return counted(3, x, lambda a: a + b.constant(V) * b.iota(sx.f32[3], 0))

        run(make, V, against=BOTH, expected=[V + 3 * V * np.float32([0, 1, 2])])
        loop = build(lambda x: make(x.builder, x), sx.f32[3]).text()
        assert loop.index("stablehlo.while") < loop.index("stablehlo.iota")

    def test_a_builder_that_has_built_before(self) -> None:
        b = sx.XlaBuilder("twice")
        x = b.parameter(0, sx.f32[3])
        b.build(x)
        loop = b.build(counted(3, x, lambda a: a + x))
        np.testing.assert_array_equal(sx.compile(loop)(V), 4 * V)

    def test_invariants_are_not_copied(self) -> None:
        """The array is read where it is: the loop on buffers has a counter alone."""
        b = sx.XlaBuilder("invariant")
        x, v = b.parameter(0, sx.f32[64, 64]), b.parameter(1, sx.f32[64, 64])
        computation = b.build(counted(10, x, lambda a: sx.sin(a) + v))
        executable = sx.compile(computation)
        loop = executable.ir("buffers").partition("scf.while")[2]
        assert "memref.copy" not in loop
        assert loop.startswith(" (%arg4 = %c0_i32) : (i32) -> i32 {")

    def test_without_values_around_the_text_is_as_before(self) -> None:
        text = str(build(lambda x: counted(3, x, sx.sin), sx.f32[3]))
        assert text.count("stablehlo.constant") == 3


def _pick(pair: sx.XlaOp) -> sx.XlaOp:
    x, (_, last) = pair
    return counted(2, x, lambda a: a + pair[1][1]) if last is not None else x


class TestScans:
    @pytest.mark.parametrize("is_reverse", [False, True])
    def test_slices_and_values_around(self, is_reverse: bool) -> None:
        def make(b: sx.XlaBuilder, x: Any, v: Any, s: Any) -> Any:
            zero = b.constant(np.zeros(3, np.float32))
            step = lambda a, c: (c * s + a * v, c * s + a * v)  # noqa: E731
            return list(sx.scan(x, zero, step, 0, is_reverse=is_reverse))

        total, rows = np.zeros(3, np.float32), []
        for row in X[::-1] if is_reverse else X:
            total = total * S + row * V
            rows.append(total)
        run(make, X, V, S, against=BOTH, expected=[np.stack(rows[::-1] if is_reverse else rows), total], ulp=1)

    def test_a_scan_in_a_loop(self) -> None:
        """A function of the inner one reads the state of the outer, through the call of its computation."""

        def make(b: sx.XlaBuilder, x: Any, s: Any) -> Any:
            def step(a: Any) -> Any:
                return sx.scan(x, b.constant(0.0), lambda row, c: c + sx.reduce(row * a, 0.0, sx.add, (0,)) * s, 0)

            return counted(3, b.constant(1.0), step)

        total = np.float32(1)
        for _ in range(3):
            total = np.float32(sum(np.sum(row * total) * S for row in X))
        run(make, X, S, against=BOTH, expected=[total], ulp=8)


class TestBranches:
    @pytest.mark.parametrize("p", [False, True])
    def test_two(self, p: bool) -> None:
        def make(b: sx.XlaBuilder, choice: Any, x: Any, s: Any) -> Any:
            return sx.conditional(choice, x, lambda a: a * s, x, lambda a: x - a + s)

        run(make, np.bool_(p), X, S, against=BOTH, expected=[X * S if p else X * 0 + S])

    @pytest.mark.parametrize("index", [0, 1, 2, 7])
    def test_several_without_operands(self, index: int) -> None:
        def make(b: sx.XlaBuilder, choice: Any, x: Any, v: Any) -> Any:
            functions = [lambda _: x, lambda _: sx.add(x, v, (1,)), lambda _: sx.neg(x)]
            return sx.conditional(choice, functions, [b.empty_tuple()] * 3)

        wanted = [X, X + V, -X][min(index, 2)]
        run(make, np.int32(index), X, V, against=BOTH, expected=[wanted])

    def test_what_a_branch_writes_runs_in_it_alone(self) -> None:
        """Also where all operands are from around it: effects of a branch that is not taken do not happen."""

        def make(x: Any, p: Any) -> Any:
            def put(a: Any) -> Any:
                sx.outfeed(x)
                return sx.exp(x)

            return sx.conditional(p, x, put, x, lambda a: a)

        text = str(build(make, sx.f32[2], sx.pred[()]))
        assert text.index("stablehlo.if") < text.index("stablehlo.outfeed") < text.index("stablehlo.exponential")
        b = sx.XlaBuilder("branch")
        executable = sx.compile(b.build(make(b.parameter(0, sx.f32[2]), b.parameter(1, sx.pred[()]))))
        x = np.float32([1, 2])
        executable(x, False)
        executable(x * 3, True)
        np.testing.assert_array_equal(executable.transfer_from_outfeed(), x * 3)

    def test_a_branch_in_a_loop(self) -> None:
        def make(b: sx.XlaBuilder, x: Any, s: Any) -> Any:
            def step(a: Any) -> Any:
                large = sx.reduce(a, -np.inf, sx.max, (0, 1)) > s
                return sx.conditional(large, a, lambda c: c - s, a, lambda c: c + x)

            return counted(4, x, step)

        a = X
        for _ in range(4):
            a = a - S if a.max() > S else a + X
        run(make, X, S, against=BOTH, expected=[a])


class TestMapsAndCalls:
    def test_a_map_with_a_scalar_around_it(self) -> None:
        """It is a further operand: XLA's map reads nothing around it."""
        make = lambda b, x, s: sx.map(x, lambda a: sx.max(a, s) + 1)  # noqa: E731
        run(make, X, S, against=BOTH, expected=[np.maximum(X, S) + 1])

    def test_a_map_with_static_operands_and_an_array_around_it(self) -> None:
        def make(b: sx.XlaBuilder, x: Any, v: Any, s: Any) -> Any:
            return sx.map(x, lambda a, t: a * t + sx.reduce(v, 0.0, sx.add, (0,)), static_operands=s)

        run(make, X, V, S, against=BOTH, expected=[X * S + V.sum()])

    def test_a_call_has_further_arguments(self) -> None:
        make = lambda x, v: sx.call(lambda a: a * v + 2, x)  # noqa: E731
        text = str(build(make, sx.f32[3], sx.f32[3]))
        assert "call @computation(%arg0, %arg1) : (tensor<3xf32>, tensor<3xf32>)" in text
        run(lambda b, x, v: make(x, v), V, V + 1, against=BOTH, expected=[V * (V + 1) + 2])

    def test_calls_of_one_function_on_other_values_share_it(self) -> None:
        def make(b: sx.XlaBuilder, x: Any, v: Any) -> Any:
            return sum((sx.call(lambda a, w=w: a * w, x) for w in (v, x, v)), start=x)

        assert str(build(lambda x, v: make(x.builder, x, v), sx.f32[3], sx.f32[3])).count("func.func private") == 1
        run(make, V, V + 1, against=BOTH, expected=[V + V * (V + 1) + V * V + V * (V + 1)])


#: Operations whose computations see their parameters: each with a function of two scalars that reads a third.
OTHERS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "reduce": lambda x, f: sx.reduce(x, 0.0, f, (0,)),
    "reduce_all": lambda x, f: sx.reduce_all(x, 0.0, f),
    "reduce_window": lambda x, f: sx.reduce_window(x, 0.0, f, (2,), (1,), "VALID"),
    "scatter": lambda x, f: sx.scatter(
        x, x.builder.constant([[1]]), x.builder.constant([2.0]), f, dimension_numbers=_SCATTERED
    ),
    "select_and_scatter": lambda x, f: sx.select_and_scatter(x, sx.ge, (2,), (2,), "VALID", x[:2], 0.0, f),
    "sort": lambda x, f: sx.sort(x, lambda a, c: f(a, c) > f(c, a), 0),
    "all_reduce": lambda x, f: sx.all_reduce(x, f),
    "composite_call": lambda x, f: sx.composite_call((x, x), "my.f", None, f),
}
_SCATTERED = sx.ScatterDimensionNumbers((), (0,), (0,), 1)


@pytest.mark.parametrize("name", OTHERS)
def test_numbers_around_other_computations(name: str) -> None:
    """A number that is known is written in the computation once more."""

    def make(b: sx.XlaBuilder, x: Any) -> Any:
        two = b.constant(2.0)
        return OTHERS[name](x, lambda a, c: sx.max(a, c) + two - two)

    x = np.float32([1, 5, 2, 4])
    plain = OTHERS[name]
    wanted = sx.compile(build(lambda x: plain(x, lambda a, c: sx.max(a, c) + 2.0 - 2.0), sx.f32[4])).execute([x])
    run(make, x, against=() if name in ("all_reduce", "composite_call") else ("interpreter",), expected=wanted)


@pytest.mark.parametrize("name", OTHERS)
def test_values_around_other_computations_are_refused(name: str) -> None:
    error = refused("", lambda x, s: OTHERS[name](x, lambda a, c: a + c + s), sx.f32[4], sx.f32[()])
    assert error.operation == name
    assert "reads a value around it, f32[]" in error.summary
    assert "while_, conditional, scan, map and call" in error.hint


def test_constants_of_every_type() -> None:
    for each in ELEMENT_TYPES:
        number = True if each.is_pred else 1

        def make(x: Any, each: Any = each, number: Any = number) -> Any:
            one, some = x.builder.constant(number, each), x.builder.constant([number, number], each)
            return sx.conditional(x > 0, x, lambda _: (one, some), x, lambda _: (one, some))

        build(make, sx.f32[()])


class TestOutside:
    def test_an_op_of_a_function_that_has_returned(self) -> None:
        """It has no value outside: the error names the function."""

        def leaked(x: Any) -> Any:
            kept: list[Any] = []

            def step(s: Any) -> Any:
                kept.append(s * 2)
                return s + 1

            sx.while_(lambda s: s < 9, step, x)
            return kept[0]

        for use in (sx.neg, lambda y: y, lambda y: sx.tuple((y,))):
            with pytest.raises(sx.ShapeError, match="'step'"):
                build(lambda x, use=use: use(leaked(x)), sx.s32[()])
        error = refused("", lambda x: leaked(x) + x, sx.s32[()])
        assert "an op of the function 'step' is used outside of it" in error.summary
        assert error.hint == "return it from there"

    def test_a_computation_that_was_built_sees_its_parameters(self) -> None:
        def make(x: Any) -> Any:
            c = x.builder.create_sub_builder("inner")
            return sx.call(c.build(c.parameter(0, sx.f32[2]) + x), x)

        error = refused("", make, sx.f32[2])
        assert "different builders, 'inner' and 'test'" in error.summary
        assert "pass the value in as one" in error.hint

    def test_a_builder_inside_a_function_is_apart(self) -> None:
        """A loop of another builder does not read the values of the function in which it is written."""

        def make(x: Any) -> Any:
            def step(a: Any) -> Any:
                c = sx.XlaBuilder("apart")
                y = c.parameter(0, sx.f32[2])
                return sx.call(c.build(counted(2, y, lambda d: d + a)), a)

            return counted(2, x, step)

        assert "different builders" in refused("", make, sx.f32[2]).summary

    def test_an_error_inside_leaves_nothing_behind(self) -> None:
        """After it, operations belong to their own builder again."""

        def make(x: Any) -> Any:
            with pytest.raises(ZeroDivisionError):
                counted(2, x, lambda a: a + 1 // 0)
            return x + x.builder.constant(1.0)

        np.testing.assert_array_equal(evaluate(make, V), V + 1)


def test_partitioned_programs() -> None:
    """An array around a loop is cut over the devices as the state is."""
    b = sx.XlaBuilder("cut")
    with b.scoped_sharding("{devices=[2]<=[2]}"):
        x, v = b.parameter(0, sx.f32[8]), b.parameter(1, sx.f32[8])
    computation = b.build(counted(3, x, lambda a: a * 2 + v))
    x_, v_ = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    executable = sx.compile(computation, num_partitions=2)
    np.testing.assert_array_equal(executable(x_, v_), x_ * 8 + 7)


def test_sizes_at_run_time() -> None:
    """The size of an array around a loop comes along with it."""
    b = sx.XlaBuilder("bounded")
    x, size = b.parameter(0, sx.f32[6]), b.parameter(1, sx.s32[()])
    some = sx.set_dimension_size(x, size, 0)
    computation = b.build(counted(3, b.constant(0.0), lambda a: a + sx.reduce(some, 0.0, sx.add, (0,))))
    assert sx.compile(computation)(np.ones(6, np.float32), 4) == 12


def test_comparison_with_an_oracle() -> None:
    """`compare` goes into loops that read values around them."""
    b = sx.XlaBuilder("compared")
    x, v = b.parameter(0, sx.f32[4]), b.parameter(1, sx.f32[4])
    executable = sx.compile(b.build(counted(3, x, lambda a: sx.sin(a) * v)))
    x_ = np.arange(4, dtype=np.float32)
    assert executable.compare([x_, x_ + 1], "interpreter")
