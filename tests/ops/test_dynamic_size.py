"""Programs on arrays whose size is known only when they run.

Oracles: the reference interpreter on the same program for plain arrays of the true sizes, numpy, and XLA:CPU with sizes
set at run time. Behind every array stands poison, which none of them may show.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.bounded import check

RNG = np.random.default_rng(7)


def numbers(*shape: int) -> np.ndarray:
    """Floats whose products and sums are exact."""
    return (RNG.integers(-20, 21, shape) / 4).astype(np.float32)


ROWS = (sx.f32["<=8", 3],)
SIZES = [0, 1, 5, 8]


def zero(x: sx.XlaOp) -> sx.XlaOp:
    return x.builder.constant(0.0, x.shape.element_type)


class TestTheSpecificationsExample:
    @pytest.mark.parametrize("size", [5, 6, 10, 0])
    def test_reductions_ignore_what_stands_behind_the_size(self, size: int) -> None:
        v = np.arange(1, 11, dtype=np.float32)
        b = sx.XlaBuilder("example")
        padded = sx.set_dimension_size(b.constant(v), b.parameter(0, sx.s32[()]), 0)
        total = sx.reduce(padded, b.constant(0.0), sx.add, (0,))
        product = sx.reduce(padded, b.constant(1.0), sx.mul, (0,))
        results = sx.compile(b.build(sx.tuple((total, product))))(size)
        np.testing.assert_array_equal(results, [v[:size].sum(), v[:size].prod()])

    def test_with_constants_as_it_is_printed(self) -> None:
        b = sx.XlaBuilder("example")
        v = b.constant(np.arange(1, 11, dtype=np.float32))
        five, six = sx.set_dimension_size(v, b.constant(5), 0), sx.set_dimension_size(v, b.constant(6), dimension=0)
        roots = [
            sx.reduce(five, b.constant(0.0), sx.add, (0,)),
            sx.reduce(five, b.constant(1.0), sx.mul, (0,)),
            sx.reduce(six, b.constant(0.0), sx.add, (0,)),
        ]
        assert list(map(float, sx.compile(b.build(sx.tuple(roots)))())) == [15.0, 120.0, 21.0]


@pytest.mark.parametrize("size", SIZES)
class TestElementByElement:
    def test_operations_of_one_and_two_operands(self, size: int) -> None:
        x, y = numbers(size, 3), numbers(size, 3)
        check(
            lambda a, c: [a * c - 2.0, sx.max(a, c), -a, a > c, sx.select(a > c, a, c), sx.clamp(-0.5, a, 0.5)],
            (*ROWS, *ROWS),
            x,
            y,
        )

    def test_static_operands_count_up_to_the_size(self, size: int) -> None:
        x, row, whole = numbers(size, 3), numbers(3), numbers(8, 3)
        shapes = (*ROWS, sx.f32[3], sx.f32[8, 3])

        def make(a: sx.XlaOp, r: sx.XlaOp, w: sx.XlaOp) -> list[sx.XlaOp]:
            if a.shape.dimensions[0] != 8:  # the program for plain arrays
                w = w[: a.shape.dimensions[0]]
            return [sx.add(a, r, broadcast_dimensions=(1,)), a + w, w * a]

        check(make, shapes, x, row, whole)

    def test_conversions_and_functions(self, size: int) -> None:
        x = numbers(size, 3)
        check(
            lambda a: [
                sx.convert_element_type(a, "bf16"),
                sx.bitcast_convert_type(a, "s32"),
                sx.map((a,), lambda e: e * e),
                sx.is_finite(a),
                sx.reduce_precision(a, 5, 10),
            ],
            ROWS,
            x,
        )
        # XLA:CPU has no barrier for dynamic dimensions.
        check(sx.optimization_barrier, ROWS, x, xla=False)
        # As on plain arrays, whose accuracy has tests of its own: CHLO's operations have no portable form for XLA:CPU.
        b = sx.XlaBuilder("plain")
        v = b.parameter(0, sx.f32[size, 3])
        expected = sx.compile(b.build(sx.tuple((sx.erf(v), sx.tan(v), sx.exp(v))))).execute([x])
        check(lambda a: [sx.erf(a), sx.tan(a), sx.exp(a)], ROWS, x, expected=expected, interpreter=False, xla=False)


@pytest.mark.parametrize("name", ["pred", "s4", "u8", "s8", "s16", "u32", "s64", "f8e5m2", "bf16", "f16", "f64", "c64"])
def test_element_types(name: str) -> None:
    dtype = element_type(name).dtype
    x = RNG.integers(0, 2, (3, 2)).astype(dtype)
    b = sx.XlaBuilder("types")
    p = b.parameter(0, sx.Shape(name, ("<=5", 2)))
    compiled = sx.compile(b.build(sx.tuple((p, sx.transpose(p, (1, 0)), sx.concatenate((p, p), 0)))))
    for actual, wanted in zip(compiled(x), (x, x.T, np.concatenate([x, x])), strict=True):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual.astype(np.complex64), wanted.astype(np.complex64))


@pytest.mark.parametrize("size", SIZES)
class TestShapes:
    def test_broadcasts(self, size: int) -> None:
        def make(a: sx.XlaOp) -> list[sx.XlaOp]:
            rows = a.shape.dimensions[0]
            return [sx.broadcast(a, (2,)), sx.broadcast_in_dim(a, (rows, 2, 3), (0, 2))]

        check(make, ROWS, numbers(size, 3))

    def test_reshapes_keep_join_and_split(self, size: int) -> None:
        def make(a: sx.XlaOp) -> list[sx.XlaOp]:
            rows = a.shape.dimensions[0]
            joined = sx.reshape(a, (rows * 3,))
            return [sx.reshape(a, (1, rows, 3, 1)), joined, sx.reshape(joined, (rows, 3)), sx.collapse(a, (0, 1))]

        check(make, ROWS, numbers(size, 3))

    def test_transposes(self, size: int) -> None:
        check(lambda a: [sx.transpose(a, (1, 0)), sx.transpose(a, (1, 0))[1]], ROWS, numbers(size, 3))

    def test_reversals(self, size: int) -> None:
        check(lambda a: [sx.rev(a, (0,)), sx.rev(a, (0, 1)), sx.rev(a, (1,))], ROWS, numbers(size, 3))

    def test_slices(self, size: int) -> None:
        x = numbers(size, 3)
        check(lambda a: a[:, 1:], ROWS, x)
        cuts = [slice(0, 4), slice(2, 7), slice(0, 8, 3), slice(1, 8, 2), slice(7, 8), slice(3, 3)]
        check(lambda a: [a[cut] for cut in cuts], ROWS, x)

    def test_concatenations(self, size: int) -> None:
        x, y, z = numbers(size, 3), numbers(2, 3), numbers(8 - size, 3)
        shapes = (*ROWS, sx.f32["<=4", 3], *ROWS)
        check(lambda a, c, d: [sx.concatenate((a, c, d), 0), sx.concatenate((d, a), 0)], shapes, x, y, z)
        check(lambda a: sx.concatenate((a, a * 2), 1), ROWS, x)

    def test_concatenation_with_static_parts(self, size: int) -> None:
        x, y = numbers(size, 3), numbers(2, 3)
        check(lambda a, c: [sx.concatenate((c, a, c), 0), sx.concatenate((a, c), 0)], (*ROWS, sx.f32[2, 3]), x, y)

    @pytest.mark.parametrize("config", [(1, 2, 0), (0, 3, 0), (2, 0, 1), (0, 0, 2)])
    def test_padding(self, size: int, config: tuple[int, int, int]) -> None:
        check(lambda a: sx.pad(a, 7.0, (config, (1, 0, 0))), ROWS, numbers(size, 3))

    def test_sizes(self, size: int) -> None:
        x = numbers(size, 3)
        check(
            lambda a: [sx.get_dimension_size(a, 0), sx.get_dimension_size(a, 1), sx.get_dimension_size(a * 2, 0)],
            ROWS,
            x,
            expected=[np.int32(size), np.int32(3), np.int32(size)],
        )


@pytest.mark.parametrize("size", SIZES)
class TestReductions:
    def test_of_known_computations(self, size: int) -> None:
        x = RNG.integers(-4, 5, (size, 3)).astype(np.int32)

        def make(a: sx.XlaOp) -> list[sx.XlaOp]:
            b = a.builder
            return [
                sx.reduce(a, b.constant(3), sx.add, (0,)),
                sx.reduce(a, b.constant(2), sx.mul, (0, 1)),
                sx.reduce(a, b.constant(0), sx.xor, (0,)),
                sx.reduce(a, b.constant(-5), sx.max, (0,)),
                sx.reduce(a, b.constant(1), sx.min, (0, 1)),
                sx.reduce(a, b.constant(0), sx.add, (1,)),
            ]

        check(make, (sx.s32["<=8", 3],), x, xla=False)  # XLA:CPU adds the initial value for each padding element

    def test_of_several_operands(self, size: int) -> None:
        """The place and the value of the largest element of each column."""

        def bigger(best: sx.XlaOp, at: sx.XlaOp, value: sx.XlaOp, place: sx.XlaOp) -> list[sx.XlaOp]:
            keep = best >= value
            return [sx.select(keep, best, value), sx.select(keep, at, place)]

        def make(a: sx.XlaOp) -> sx.XlaOp:
            b = a.builder
            index = b.iota(sx.Shape("s32", a.shape.dimensions), 0)
            return list(sx.reduce((a, index), (b.constant(-np.inf, "f32"), b.constant(-1)), bigger, (0,)))

        check(make, ROWS, numbers(size, 3))

    def test_negative_zeros_stay(self, size: int) -> None:
        x = np.full((size, 3), -0.0, np.float32)
        (total,) = check(lambda a: sx.reduce(a, a.builder.constant(-0.0), sx.add, (0,)), ROWS, x, xla=False)
        assert np.signbit(total).all()

    def test_contractions(self, size: int) -> None:
        x, y, w = numbers(size, 3), numbers(size, 4), numbers(3, 5)
        shapes = (*ROWS, sx.f32["<=8", 4], sx.f32[3, 5])
        both = sx.DotDimensionNumbers((0,), (0,))
        # The interpreter ends the process on a contraction of nothing.
        expected, works = [x.T @ y, x @ w], size > 0
        check(
            lambda a, c, m: [sx.dot_general(a, c, both), sx.dot(a, m)],
            shapes,
            x,
            y,
            w,
            expected=expected,
            interpreter=works,
        )

    def test_contraction_with_a_static_operand_of_infinities(self, size: int) -> None:
        x, y = numbers(size, 3), np.full((8, 2), np.inf, np.float32)
        y[:size] = 1.0
        b = sx.XlaBuilder("dot")
        a, c = b.parameter(0, *ROWS), b.parameter(1, sx.f32[8, 2])
        got = sx.compile(b.build(sx.dot_general(a, c, sx.DotDimensionNumbers((0,), (0,)))))(x, y)
        np.testing.assert_allclose(got, x.T @ y[:size], rtol=1e-5, atol=1e-6)

    def test_batches(self, size: int) -> None:
        x, y = numbers(size, 3, 2), numbers(size, 2, 4)
        shapes = (sx.f32["<=8", 3, 2], sx.f32["<=8", 2, 4])
        batched = sx.DotDimensionNumbers((2,), (1,), (0,), (0,))
        check(lambda a, c: sx.dot_general(a, c, batched), shapes, x, y)
