"""The ways out in errors: each is followed, and the program that comes of it computes what was meant.

Oracle: numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.ops.building import refused

X = np.float32([[1, -2, 3], [4, 5, -6]])
V = np.float32([2, -1, 0.5])
M = np.bool_([[True, False, True], [False, True, True]])
I = np.int32([[1, 2, 3], [4, 5, 6]])  # noqa: E741
S = np.float32(2.5)


def shape_of(array: Any) -> sx.Shape:
    return sx.Shape(np.asarray(array).dtype, np.shape(array))


def computed(make: Callable[..., Any], *arrays: Any) -> Any:
    b = sx.XlaBuilder("meant")
    ops = [b.parameter(n, shape_of(array)) for n, array in enumerate(arrays)]
    return sx.compile(b.build(make(*ops)))(*arrays)


class TestConversions:
    """Of the two operands the one whose type holds less is converted."""

    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (M, X),
            (X, M),
            (I, X),
            (X, I),
            (I, I.astype(np.int64)),
            (X.astype(np.float64), X),
            (np.abs(I).astype(np.uint32), I),
            (X.astype(np.complex64), X),
        ],
    )
    def test_products(self, x: Any, y: Any) -> None:
        hint = refused("C1", lambda lhs, rhs: lhs * rhs, shape_of(x), shape_of(y)).hint

        def make(lhs: sx.XlaOp, rhs: sx.XlaOp) -> sx.XlaOp:
            converted = eval(hint, {"sx": sx, "lhs": lhs, "rhs": rhs})
            return converted * rhs if "(lhs," in hint else lhs * converted

        result = computed(make, x, y)
        assert result.dtype in (x.dtype, y.dtype)
        np.testing.assert_array_equal(result, x * y)


class TestScalars:
    """A scalar among the operands of select and clamp stands for an array of it, as in XLA's builder."""

    @pytest.mark.parametrize(
        ("make", "args", "wanted"),
        [
            (sx.select, (M, S, X), np.where(M, S, X)),
            (sx.select, (M, X, S), np.where(M, X, S)),
            (sx.select, (M, S, np.float32(1)), np.where(M, S, np.float32(1))),
            (sx.select, (np.bool_(True), S, X), np.full_like(X, S)),
            (lambda m, s: sx.select(m, s, 0.0), (M, S), np.where(M, S, 0)),
            (sx.clamp, (np.float32(-1), X, S), np.clip(X, -1, S)),
            (sx.clamp, (X, S, X + 2), np.clip(S, X, X + 2)),
            (lambda s, x: sx.clamp(0.0, s, x), (S, X), np.minimum(np.maximum(S, 0), X)),
        ],
    )
    def test_they_are_taken(self, make: Callable[..., Any], args: Any, wanted: Any) -> None:
        assert_same(computed(make, *args), wanted.astype(np.float32))

    def test_the_broadcast_of_a_bound(self) -> None:
        error = refused("C1", lambda v, x: sx.clamp(v, x, 9.0), sx.f32[3], sx.f32[2, 3])
        made = computed(lambda v, x: sx.clamp(eval(error.hint, {"sx": sx, "min": v}), x, 9.0), V, X)
        assert_same(made, np.clip(X, V, 9))
        assert refused("C1", lambda v, x: sx.clamp(v, x, 9.0), sx.f32[5], sx.f32[2, 3]).hint == ""

    def test_arrays_that_differ_are_refused(self) -> None:
        refused("C2", lambda m, v, x: sx.select(m, v, x), sx.pred[2, 3], sx.f32[3], sx.f32[2, 3])


class TestDimensions:
    @pytest.mark.parametrize(
        "use",
        [
            lambda x, d: sx.reduce(x, 0.0, sx.add, (d,)),
            lambda x, d: sx.rev(x, (d,)),
            lambda x, d: sx.concatenate((x, x), d),
            lambda x, d: x.builder.iota(sx.s32[2, 3], d),
            lambda x, d: sx.get_dimension_size(x, d),
            lambda x, d: sx.all_gather(x, d, 2),
            lambda x, d: sx.dot_general(x, x, sx.DotDimensionNumbers((d,), (1,))),
            lambda x, d: sx.scan(x, x.builder.constant(V[:2]), lambda a, c: (a + c, a + c), d),
        ],
    )
    def test_negative_ones(self, use: Callable[..., Any]) -> None:
        with pytest.raises(sx.ShapeError) as raised:
            use(sx.XlaBuilder("b").parameter(0, sx.f32[2, 3]), -1)
        assert raised.value.hint.startswith("1")
        use(sx.XlaBuilder("b").parameter(0, sx.f32[2, 3]), 1)

    def test_negative_ones_of_a_permutation(self) -> None:
        error = refused("C2", lambda x: sx.transpose(x, (-1, 0)), sx.f32[2, 3])
        assert_same(computed(lambda x: sx.transpose(x, eval(error.hint)), X), X.T)
        assert refused("C2", lambda x: sx.transpose(x, (-1, 1)), sx.f32[2, 3]).hint == ""

    def test_too_large_ones_have_no_way_out(self) -> None:
        for place in (-3, 2):
            assert refused("C4", lambda x, d=place: sx.reduce(x, 0.0, sx.add, (d,)), sx.f32[2, 3]).hint == ""

    def test_a_number_for_a_sequence(self) -> None:
        error = refused("", lambda x: sx.reduce(x, 0.0, sx.add, 0), sx.f32[2, 3])  # type: ignore[arg-type]
        result = computed(lambda x: sx.reduce(x, 0.0, sx.add, eval(error.hint)), X)
        assert_same(result, X.sum(axis=0))
        assert refused("", lambda x: sx.reshape(x, True), sx.f32[1]).hint == ""  # type: ignore[arg-type]

    def test_none_for_a_size(self) -> None:
        with pytest.raises(sx.ShapeError, match=r"not \(None, 3\)") as raised:
            sx.f32[None, 3]  # type: ignore[index]
        assert "a size without a bound, None, is left open in MLIR's text alone" in raised.value.hint
        assert str(sx.f32[eval(raised.value.hint.partition(",")[0]), 3]) == "f32[<=8,3]"


class TestSpellings:
    @pytest.mark.parametrize(
        ("use", "given", "meant"),
        [
            (lambda x, w: sx.rng_bit_generator(w, x.builder.constant(np.uint64([1, 2])), sx.u32[2]), given, meant)
            for given, meant in (
                *(("THREE_FRY", "rng_three_fry"), ("threefry", "rng_three_fry"), ("PHILOX", "rng_philox")),
                ("RNG_DEFAULT", "rng_default"),
            )
        ]
        + [
            (lambda x, w: sx.compare(x, x, comparison_direction=w), "lt", "LT"),
            (lambda x, w: sx.compare(x, x, comparison_direction="LT", compare_type=w), "TOTAL_ORDER", "TOTALORDER"),
            (lambda x, w: sx.dot(x, x[0], w), "highest", "HIGHEST"),
            (lambda x, w: sx.fft(x, w, (3,)), "rfft", "RFFT"),
        ],
    )
    def test_of_enumerations(self, use: Callable[..., Any], given: str, meant: str) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError) as raised:
            use(x, given)
        assert raised.value.hint == f'"{meant}"'
        use(x, meant)

    def test_another_word(self) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError, match="must be EQ, NE") as raised:
            sx.compare(x, x, comparison_direction="above")
        assert raised.value.hint == ""

    def test_letters_of_a_convolution(self) -> None:
        letters = ("NHWC", "HWIO", "NHWC")
        for numbers in (letters, list(letters), sx.ConvDimensionNumbers.of(*letters)):
            b = sx.XlaBuilder("b")
            x, w = b.parameter(0, sx.f32[8, 32, 32, 3]), b.parameter(1, sx.f32[5, 5, 3, 16])
            made = [
                sx.conv_general(x, w, (2, 2), "VALID", numbers),
                sx.conv_with_general_dimensions(x, w, (2, 2), "VALID", numbers),
                sx.conv_general_dilated(x, w, (2, 2), "VALID", None, None, numbers),
            ]
            assert [str(op.shape) for op in made] == ["f32[8,14,14,16]"] * 3
        b = sx.XlaBuilder("b")
        x, w = b.parameter(0, sx.f32[8, 32, 32, 3]), b.parameter(1, sx.f32[5, 5, 3, 16])
        with pytest.raises(sx.ShapeError, match="dimension_numbers must be") as raised:
            sx.conv_general(x, w, (2, 2), "VALID", "NHWC")
        sx.conv_general(x, w, (2, 2), "VALID", eval(raised.value.hint))


class TestSlips:
    def test_branches_in_the_order_of_jax(self) -> None:
        def conditional(p: sx.XlaOp, x: sx.XlaOp, *more: Any) -> sx.XlaOp:
            return sx.conditional(p, sx.sin, sx.cos, *more)

        for make in (conditional, lambda p, x: conditional(p, x, x)):
            error = refused("", make, sx.pred[()], sx.f32[2])
            assert error.summary.startswith("true_operand must be an operand, not the computation sin of ")
            text = error.hint.partition(":")[0]

        def followed(pred: sx.XlaOp, x: sx.XlaOp) -> Any:
            return eval(text, {"sx": sx, "pred": pred, "x": x, "f": sx.sin, "g": sx.cos})

        for p in (True, False):
            assert_same(computed(followed, np.bool_(p), V), np.sin(V) if p else np.cos(V), ulp=1)

    @pytest.mark.parametrize("sizes", [((9,), (3,)), ((8, 9), (3, 2))])
    def test_a_convolution_without_batch_and_features(self, sizes: Any) -> None:
        left, right = (
            np.random.default_rng(n).integers(-4, 5, size).astype(np.float32) for n, size in enumerate(sizes)
        )
        strides = (1,) * len(sizes[0])
        error = refused("C1", lambda x, w: sx.conv(x, w, strides, "VALID"), shape_of(left), shape_of(right))
        assert "batch, features and spatial dimensions" in error.summary

        def followed(lhs: sx.XlaOp, rhs: sx.XlaOp) -> Any:
            return sx.conv(*eval(error.hint, {"sx": sx, "lhs": lhs, "rhs": rhs}), strides, "VALID")

        windows = np.lib.stride_tricks.sliding_window_view(left, right.shape)
        axes = tuple(range(-right.ndim, 0))
        np.testing.assert_array_equal(computed(followed, left, right)[0, 0], (windows * right).sum(axis=axes))

    def test_groups_of_devices(self) -> None:
        error = refused("C3", lambda x: sx.all_reduce(x, sx.add, replica_groups=[[0, 9]]), sx.f32[2])
        assert "replica_groups list 2 devices, and so their numbers must be 0 to 1, each once" in error.summary

    def test_a_parameter_with_the_array_itself(self) -> None:
        ones = np.ones((2, 2))
        for wrong in ((ones, sx.f32[2]), (ones, ones), (0, ones), (0, sx.f32[2], ones)):
            with pytest.raises(sx.ShapeError, match="parameter: "):
                sx.XlaBuilder("b").parameter(*wrong)  # type: ignore[arg-type]

    def test_functions_have_their_name_and_line(self) -> None:
        def step() -> None: ...

        error = refused("", lambda x: sx.while_(step, sx.sin, x), sx.f32[()])
        assert f"step of test_hints.py:{step.__code__.co_firstlineno} can't be called" in error.summary
        error = refused("", lambda x: sx.neg(object()), sx.f32[()])  # type: ignore[arg-type]
        assert " at 0x" not in str(error)


class TestArguments:
    """What a call of an executable suggests for an array of another shape."""

    @pytest.mark.parametrize(
        ("given", "meant", "hint"),
        [
            ((3, 4), (4, 3), ".T"),
            ((2, 3, 4), (4, 3, 2), ".T"),
            ((12,), (4, 3), ".reshape((4, 3))"),
            ((4, 3), (12,), ".reshape((12,))"),
            ((1, 4, 3), (4, 3), ".reshape((4, 3))"),
            ((4, 1, 3), (4, 3), ".reshape((4, 3))"),
            ((6, 2), (4, 3), ""),
            ((2, 3, 4), (2, 4, 3), ""),
            ((5,), (4, 3), ""),
        ],
    )
    def test_shapes(self, given: Any, meant: Any, hint: str) -> None:
        b = sx.XlaBuilder("b")
        run = sx.compile(b.build(b.parameter(0, sx.Shape("f32", meant)) + 0))
        x = np.arange(np.prod(given), dtype=np.float32).reshape(given)
        with pytest.raises(sx.ExecutionError) as raised:
            run(x)
        assert raised.value.hint == hint
        if hint:
            wanted = x.T if hint == ".T" else x.reshape(meant)
            np.testing.assert_array_equal(run(eval(f"x{hint}")), wanted)


class TestIndices:
    """Of an index that is known only when the program runs: what numpy's own indexing makes of it."""

    @pytest.mark.parametrize(
        ("place", "index", "others"),
        [
            (0, np.int32(1), ()),
            (1, np.int32(2), (slice(None),)),
            (0, np.int32([1, 0, 1]), ()),
            (1, np.int32([2, 0]), (slice(None),)),
        ],
    )
    def test_ops(self, place: int, index: Any, others: tuple[Any, ...]) -> None:
        hint = refused("", lambda x, i: x[(*others, i)], shape_of(X), shape_of(index)).hint
        result = computed(lambda x, i: eval(hint, {"sx": sx, "x": x, "index": i}), X, index)
        np.testing.assert_array_equal(result, np.take(X, index, place))

    @pytest.mark.parametrize("index", [[1, 0], np.array([0, 1, 1])])
    def test_lists(self, index: Any) -> None:
        hint = refused("", lambda x: x[index], shape_of(X)).hint
        result = computed(lambda x: eval(hint, {"sx": sx, "b": x.builder, "x": x, "index": index}), X)
        np.testing.assert_array_equal(result, X[index])

    def test_masks(self) -> None:
        """Whose result has a shape that depends on values, in numpy."""
        hint = refused("", lambda x: x[x > 0], shape_of(X)).hint
        result = computed(lambda x: eval(hint, {"sx": sx, "x": x, "index": x > 0}), X)
        np.testing.assert_array_equal(result, np.where(X > 0, X, 0))

    def test_new_dimensions(self) -> None:
        assert "sx.reshape" in refused("", lambda x: x[None], shape_of(X)).hint


class TestOtherHabits:
    @pytest.mark.parametrize(
        "make",
        [lambda x: sx.max(x, axis=0), lambda x: sx.max(x), lambda x: sx.max(x, dim=0)],
        ids=["axis", "alone", "dim"],
    )
    def test_reductions_under_the_name_of_a_function_of_two(self, make: Callable[..., Any]) -> None:
        hint = refused("", make, shape_of(X)).hint
        result = computed(lambda x: eval(hint, {"sx": sx, "np": np, "x": x}), X)
        np.testing.assert_array_equal(result, X.max(0))

    def test_a_keyword_of_no_reduction(self) -> None:
        assert "sx.max(lhs, rhs" in refused("", lambda x: sx.max(x, other=x), shape_of(X)).hint

    @pytest.mark.parametrize(("sizes", "wanted"), [((-1,), (6,)), ((3, -1), (3, 2)), ((1, -1, 2), (1, 3, 2))])
    def test_sizes_that_follow_from_the_others(self, sizes: Any, wanted: Any) -> None:
        assert eval(refused("", lambda x: sx.reshape(x, sizes), shape_of(X)).hint) == wanted

    @pytest.mark.parametrize("sizes", [(-1, -1), (4, -1), (-2,), (-1, 0)])
    def test_sizes_that_follow_from_nothing(self, sizes: Any) -> None:
        assert refused("", lambda x: sx.reshape(x, sizes), shape_of(X)).hint == ""

    def test_one_group_and_one_pair(self) -> None:
        """Their hints are the group in a list, not one of its numbers."""
        hint = refused("", lambda x: sx.all_reduce(x, sx.add, [0, 1]), shape_of(V)).hint
        assert eval(hint) == [[0, 1]]
        assert eval(refused("", lambda x: sx.collective_permute(x, (0, 1)), shape_of(V)).hint) == [(0, 1)]
        mixed = refused("", lambda x: sx.all_reduce(x, sx.add, [[0], 1]), shape_of(V))
        assert "replica_groups[1]" in mixed.summary

    def test_global_numbers_without_groups(self) -> None:
        def make(x: sx.XlaOp, groups: Any = ()) -> sx.XlaOp:
            return sx.all_reduce(x, sx.add, groups, channel_id=1, use_global_device_ids=True)

        hint = refused("", make, shape_of(V)).hint
        b = sx.XlaBuilder("meant")
        made = sx.compile(b.build(make(b.parameter(0, sx.f32[3]), eval(hint))), num_replicas=4)
        assert_same(made.execute_replicated([[V]] * 4)[3][0], V * 4)

    def test_computations_by_name(self) -> None:
        hint = refused("", lambda x: sx.reduce(x, 0.0, "add", (0,)), shape_of(X)).hint
        assert eval(hint, {"sx": sx}) is sx.add
        assert refused("", lambda x: sx.reduce(x, 0.0, "plus", (0,)), shape_of(X)).hint == ""

    def test_states_of_loops(self) -> None:
        two = refused("", lambda x: sx.while_(lambda i, a: i < 2, lambda i, a: (i, a), (x, x)), sx.f32[()])
        assert "one parameter, the tuple" in two.hint
        assert refused("", lambda x: sx.map(x, lambda a, c: a), shape_of(V)).hint == ""
        number = refused("", lambda x: sx.while_(lambda s: s[0] < 2, lambda s: s, (0, x)), shape_of(X))
        assert number.summary.startswith("init[0] must be an XlaOp")
        truth = refused("", lambda x: sx.while_(lambda s: True, lambda s: s, x), shape_of(X))
        for error in (number, truth):
            assert error.hint.startswith("b.constant(value)")
