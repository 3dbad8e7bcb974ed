"""Small programs whose code changes with the gates, for `test_gates.py`; of whole numbers, so that sums are exact."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.targets.gpu.programs import softmax, total

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """A program and its arguments.

    Attributes:
        make: writes it, for a builder and parameters of the arguments' shapes.
        scale: the difference that is allowed, as a fraction of the largest result: none where all sums are exact.
        expected: the results in numpy.
        against: the oracle without these: XLA is slow at loops and reductions, the interpreter at products, and it
            ends the process on complex numbers.
        is_jax: `make` is a function of JAX.
    """

    make: Callable[..., Any]
    arguments: tuple[Array, ...]
    scale: float = 0
    expected: Callable[..., Any] | None = None
    against: str = "interpreter"
    is_jax: bool = False

    def build(self) -> Any:
        if self.is_jax:
            import jax

            return jax.jit(self.make).lower(*self.arguments).as_text()
        b = sx.XlaBuilder("gate")
        root = self.make(b, *(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(self.arguments)))
        return b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)


Product = functools.partial(Program, against="xla")


def whole(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Small whole numbers of both signs."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def distinct(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(1).permutation(int(np.prod(shape))).reshape(shape).astype(dtype)


def places(most: int, *shape: int) -> Array:
    return np.random.default_rng(2).integers(0, most, shape).astype(np.int32)


def scanned(dimension: int, operation: Any = sx.add, start: float = 0.0) -> Callable[..., Any]:
    """An inclusive scan, as JAX writes cumulative sums."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        shape = x.shape.dimensions
        sizes = [n if d == dimension else 1 for d, n in enumerate(shape)]
        padding = [(0, 0)] * len(shape)
        padding[dimension] = (shape[dimension] - 1, 0)
        init = b.constant(start, x.shape.element_type)
        return sx.reduce_window(x, init, operation, tuple(sizes), (1,) * len(shape), tuple(padding))

    return make


def larger(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
    """The maximum, as a combiner that no emitter knows."""
    return sx.select(sx.lt(a, b), b, a)


def windows(*sizes: int, operation: Any = sx.add, start: float = 0.0, padding: Any = "SAME") -> Callable[..., Any]:
    return lambda b, x: sx.reduce_window(
        x, b.constant(start, x.shape.element_type), operation, sizes, (1,) * len(sizes), padding
    )


def dotted(left: int = 1, right: int = 0, element: str | None = None) -> Callable[..., Any]:
    """A product of two matrices, summed over these dimensions."""
    numbers = sx.DotDimensionNumbers((left,), (right,))
    return lambda b, x, y: sx.dot_general(x, y, numbers, preferred_element_type=element)


def turned(*order: int) -> Callable[..., Any]:
    return lambda b, x: sx.transpose(x, order)


def convolved(
    padding: int = 1, groups: int = 1, lhs_dilation: int = 1, rhs_dilation: int = 1, sums: Any = None
) -> Callable[..., Any]:
    """A convolution of images [batch, y, x, features] with weights [y, x, in, out]."""
    numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        around, dilations = ((padding, padding),) * 2, ((lhs_dilation,) * 2, (rhs_dilation,) * 2)
        groups_and_type: dict[str, Any] = {"feature_group_count": groups, "preferred_element_type": sums}
        return sx.conv_general_dilated(x, w, (1, 1), around, *dilations, numbers, **groups_and_type)

    return make


def residual_bytes(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
    """Bytes, and what they stand for added to a product."""
    q = sx.convert_element_type(sx.round_nearest_even(x * 2.0), "s8")
    return [q, sx.dot(x, y) + sx.convert_element_type(q, "f32") * 0.5]


def three_convolutions(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
    """One after the other, of images [batch, features, y, x]."""
    numbers = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
    for _ in range(3):
        x = sx.conv_general_dilated(x, w, (1, 1), ((1, 1),) * 2, (1, 1), (1, 1), numbers)
    return x


def transformed(kind: str, *length: int) -> Callable[..., Any]:
    return lambda b, x: sx.fft(x, kind, length)


def sorted_by(comparator: Callable[..., Any], dimension: int = -1) -> Callable[..., Any]:
    return lambda b, *xs: sx.sort(
        list(xs) if len(xs) > 1 else xs[0], comparator, dimension=dimension % len(xs[0].shape.dimensions)
    )


def looked_up(b: sx.XlaBuilder, table: sx.XlaOp, at: sx.XlaOp) -> sx.XlaOp:
    """Elements, or rows, of a table."""
    row = table.shape.dimensions[1:]
    return sx.gather(table, at, 1, tuple(range(1, 1 + len(row))), (1, *row), (0,), (0,))


def added_at(b: sx.XlaBuilder, x: sx.XlaOp, at: sx.XlaOp, more: sx.XlaOp) -> sx.XlaOp:
    row = x.shape.dimensions[1:]
    return sx.scatter(x, at, more, sx.add, 1, tuple(range(1, 1 + len(row))), (0,), (0,))


def attention(b: sx.XlaBuilder, q: sx.XlaOp, k: sx.XlaOp, v: sx.XlaOp) -> sx.XlaOp:
    scores = sx.dot_general(q, k, sx.DotDimensionNumbers((2,), (2,), (0,), (0,)))
    return sx.dot_general(softmax(b, scores), v, sx.DotDimensionNumbers((2,), (1,), (0,), (0,)))


def repeated(turns: int, body: Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]) -> Callable[..., Any]:
    """A loop: `body(turn, state)`, so often."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        def step(state: sx.XlaOp) -> sx.XlaOp:
            i, v = state
            return sx.tuple([i + 1, body(i, v)])

        init = sx.tuple([b.constant(0, "s32"), x])
        return sx.get_tuple_element(sx.while_(lambda state: sx.get_tuple_element(state, 0) < turns, step, init), 1)

    return make


def layers(count: int) -> Callable[..., Any]:
    """Equal parts of a program, one after the other."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        for _ in range(count):
            x = sx.max(sx.dot(x, y), x - 1.0) * 0.25 + sx.tanh(x)
            x = sx.round_nearest_even(sx.clamp(-4.0, x, 4.0))
        return x

    return make


def chained(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    for _ in range(80):
        x = x + y
    return x


def rolled(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    n = x.shape.dimensions[0]
    return sx.concat_in_dim([sx.slice_in_dim(x, 1, n), sx.slice_in_dim(x, 0, 1)], 0) - x


def repeated_product(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
    """A recurrent network: a product of each of the given rows is needed in its turn."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        i, xs, v, h = state
        row = sx.reshape(sx.dynamic_slice(xs, [i, 0, 0], (1, 4, 16)), (4, 16))
        return sx.tuple([i + 1, xs, v, sx.tanh(sx.dot(row, v) + h)])

    init = sx.tuple([b.constant(0, "s32"), x, w, sx.broadcast(b.constant(0.0), (4, 16))])
    return sx.get_tuple_element(sx.while_(lambda state: sx.get_tuple_element(state, 0) < 12, step, init), 3)


def places_of_largest(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    """argmax, as JAX writes it."""

    def better(v: sx.XlaOp, i: sx.XlaOp, w: sx.XlaOp, j: sx.XlaOp) -> Any:
        above = sx.gt(v, w) | sx.ne(v, v)
        first = above | (sx.eq(v, w) & sx.lt(i, j))
        return sx.select(above, v, w), sx.select(first, i, j)

    arrays, starts = (x, b.iota(sx.Shape("s32", x.shape.dimensions), 1)), (b.constant(-np.inf), b.constant(0, "s32"))
    return list(sx.reduce(arrays, starts, better, (1,)))[1]


def swapped(b: sx.XlaBuilder, *xs: sx.XlaOp) -> list[sx.XlaOp]:
    """A loop whose arrays change places."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        i, first, *others = state
        return sx.tuple([i + 1, *others, first])

    init = sx.tuple([b.constant(0, "s32"), *xs])
    last = sx.while_(lambda state: sx.get_tuple_element(state, 0) < 9, step, init)
    return [sx.get_tuple_element(last, n + 1) for n in range(len(xs))]


def read_old(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """A loop that reads an array after it was updated, as it was before."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        i, old, y = state
        new = sx.dynamic_update_slice(old, y, [i])
        read = [sx.dynamic_slice(old, [i - n], (1,)) for n in (1, 2, 3)]
        return sx.tuple([i + 1, new, read[0] + read[1] - read[2] + y * 0.5])

    init = sx.tuple([b.constant(0, "s32"), x, sx.slice_in_dim(x, 0, 1)])
    last = sx.while_(lambda state: sx.get_tuple_element(state, 0) < 11, step, init)
    return [sx.get_tuple_element(last, n) for n in (1, 2)]


def eigenvalues(x: Any) -> Any:
    import jax

    return jax.numpy.linalg.eigvalsh(x)


def affine_scan(a: Any, x: Any) -> Any:
    """h = a h + x, by an associative scan."""
    import jax

    return jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, x))[1]


def weights(turned: bool, element: str = "f32") -> Callable[..., Any]:
    """A product with weights of bytes that have a scale for each column."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp, s: sx.XlaOp) -> sx.XlaOp:
        scale = sx.broadcast_in_dim(s, w.shape.dimensions, (0 if turned else 1,))
        numbers = sx.DotDimensionNumbers((1,), (1 if turned else 0,))
        scaled = sx.convert_element_type(w, element) * scale
        return sx.dot_general(x, scaled, numbers, preferred_element_type="f32")

    return make


def best(x: Array, k: int) -> list[Array]:
    """What top-k gives."""
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return [np.take_along_axis(x, order, -1), order.astype(np.int32)]


def bits(b: sx.XlaBuilder, state: sx.XlaOp) -> sx.XlaOp:
    return sx.get_tuple_element(sx.rng_bit_generator("rng_three_fry", state, sx.Shape("u32", (200,))), 1)


BF16 = element_type("bf16").dtype
S8, C64 = np.int8, np.complex64
STATE = np.array([3, 5], np.uint64)
POSITIVE = whole(5, 6, 6) @ np.swapaxes(whole(5, 6, 6), 1, 2) + 4 * np.eye(6, dtype=np.float32)

PROGRAMS: dict[str, Program] = {
    # elementwise and movement
    "sums": Program(lambda b, x, y: x + y, (whole(600), whole(600, seed=1))),
    "heavy": Program(lambda b, x: sx.tanh(sx.sin(x)) * sx.exp(x) + sx.cos(x), (whole(601),), 1e-6),
    "bf16-chain": Program(
        lambda b, x: sx.round_nearest_even(sx.clamp(-4.0, sx.tanh(x) * sx.exp(x) + x, 4.0)),
        (whole(256).astype(BF16),),
        0.02,
    ),
    "turned": Program(turned(1, 0), (whole(33, 50),)),
    "turned-tall": Program(turned(1, 0), (whole(300, 40),)),
    "turned-square": Program(turned(1, 0), (whole(64, 64),)),
    "turned-thin": Program(turned(1, 0), (whole(3, 500),)),
    "turned-blocks": Program(turned(0, 2, 1, 3), (whole(6, 20, 12, 8),)),
    "joined": Program(lambda b, x, y: sx.concat_in_dim([x, y], 1), (whole(40, 30), whole(40, 21))),
    "woven": Program(
        lambda b, x, y, z: sx.concat_in_dim([sx.reshape(v, (40, 1)) for v in (x, y, z)], 1),
        (whole(40), whole(40), whole(40)),
    ),
    "rolled": Program(rolled, (whole(200),)),
    # reductions
    "row-sums": Program(total(1), (whole(7, 300),)),
    "one-sum": Program(total(0), (whole(3000),)),
    "column-sums": Program(total(0), (whole(300, 40),)),
    "softmax": Program(softmax, (whole(20, 40),), 1e-6),
    # scans
    "scan": Program(scanned(0), (whole(700),), expected=lambda x: np.cumsum(x, 0)),
    "scan-lines": Program(scanned(1), (whole(5, 130),), expected=lambda x: np.cumsum(x, 1)),
    "scan-rows": Program(scanned(0), (whole(130, 40),), expected=lambda x: np.cumsum(x, 0)),
    "scan-wide": Program(scanned(0), (whole(40, 300),), expected=lambda x: np.cumsum(x, 0)),
    "scan-many-wide": Program(scanned(1), (whole(9, 12, 300),), expected=lambda x: np.cumsum(x, 1)),
    "scan-any": Program(scanned(0, larger, -9.0), (whole(600),), expected=np.maximum.accumulate),
    "scan-any-rows": Program(scanned(0, larger, -9.0), (whole(70, 200),), expected=np.maximum.accumulate),
    # products
    "product": Product(dotted(), (whole(40, 50), whole(50, 60))),
    "product-shifted": Product(
        lambda b, x, y, z: sx.max(sx.add(sx.dot(x, y), z), z), (whole(40, 50), whole(50, 60), whole(40, 60, seed=1))
    ),
    "product-of-integers": Product(dotted(), (whole(40, 50, dtype=np.int32), whole(50, 60, dtype=np.int32))),
    "product-broad": Product(dotted(), (whole(20, 160, dtype=np.float64), whole(160, 1400, dtype=np.float64))),
    "product-deep": Product(dotted(), (whole(8, 900), whole(900, 24))),
    "product-deep-wide": Product(dotted(), (whole(40, 900), whole(900, 48))),
    "product-wide": Product(dotted(), (whole(6, 60), whole(60, 700))),
    "product-tall": Product(dotted(), (whole(300, 20), whole(20, 40))),
    "product-turned": Product(dotted(1, 1), (whole(40, 50), whole(60, 50))),
    "product-left-turned": Product(dotted(0, 0), (whole(50, 40), whole(50, 60))),
    "few-rows": Product(dotted(), (whole(4, 200), whole(200, 300))),
    "bf16-few-wide": Product(dotted(1, 0, "f32"), (whole(4, 64).astype(BF16), whole(64, 1100).astype(BF16))),
    "bf16-deep": Product(dotted(1, 0, "f32"), (whole(40, 300).astype(BF16), whole(300, 40).astype(BF16))),
    "product-constant": Product(lambda b, x: sx.dot(x, b.constant(whole(50, 600))), (whole(40, 50),)),
    "product-streamed": Product(dotted(), (whole(20, 130), whole(130, 200))),
    "bytes-deep": Product(dotted(1, 0, "s32"), (whole(20, 1200, dtype=S8), whole(1200, 40, dtype=S8))),
    "bf16-product": Product(dotted(1, 0, "f32"), (whole(40, 80).astype(BF16), whole(80, 96).astype(BF16))),
    "complex-product": Program(
        lambda b, x, y: sx.real(sx.dot(sx.complex(x, y), sx.complex(y, x))), (whole(12, 12), whole(12, 12, seed=1))
    ),
    "scaled-weights": Program(weights(turned=False), (whole(5, 64), whole(64, 48, dtype=S8), whole(48))),
    "scaled-weights-turned": Program(weights(turned=True), (whole(5, 300), whole(48, 300, dtype=S8), whole(48))),
    "scaled-weights-bf16": Program(
        weights(turned=False, element="bf16"),
        (whole(10, 64).astype(BF16), whole(64, 48, dtype=S8), whole(48).astype(BF16)),
    ),
    "bf16-few": Product(dotted(1, 0, "f32"), (whole(4, 128).astype(BF16), whole(128, 160).astype(BF16))),
    "bf16-few-turned": Product(dotted(1, 1, "f32"), (whole(4, 300).astype(BF16), whole(96, 300).astype(BF16))),
    "attention-few": Program(attention, (whole(2, 3, 8), whole(2, 20, 8, seed=1), whole(2, 20, 8, seed=2)), 1e-5),
    "attention": Program(attention, (whole(2, 12, 8), whole(2, 20, 8, seed=1), whole(2, 20, 8, seed=2)), 1e-5),
    "hoisted": Program(repeated_product, (whole(12, 4, 16) * 0.0625, whole(16, 16)), 1e-5),
    # convolutions
    "convolution": Product(convolved(), (whole(2, 12, 12, 8), whole(3, 3, 8, 24))),
    "channels-first": Product(three_convolutions, (whole(1, 4, 8, 8), whole(4, 4, 3, 3))),
    "residual-bytes": Product(residual_bytes, (whole(12, 17), whole(17, 17))),
    "convolution-far": Product(convolved(12, rhs_dilation=12), (whole(1, 3, 3, 8), whole(3, 3, 8, 16))),
    "convolution-few": Product(convolved(), (whole(1, 12, 30, 4), whole(3, 3, 4, 3))),
    "convolution-one": Product(convolved(), (whole(1, 12, 30, 4), whole(3, 3, 4, 1))),
    "convolution-few-bytes": Product(
        convolved(sums="s32"), (whole(1, 9, 30, 4, dtype=S8), whole(3, 3, 4, 2, dtype=S8))
    ),
    "convolution-deep": Product(convolved(), (whole(1, 9, 9, 64), whole(3, 3, 64, 16))),
    "convolution-wide": Product(convolved(1), (whole(1, 3, 3, 8), whole(1, 1, 8, 300))),
    "convolution-dilated": Product(convolved(2, lhs_dilation=2), (whole(1, 8, 8, 8), whole(3, 3, 8, 16))),
    "convolution-of-bytes": Product(
        convolved(), (whole(2, 9, 12, 8).astype(np.int8), whole(3, 3, 8, 24).astype(np.int8))
    ),
    "pointwise-few": Product(convolved(0), (whole(2, 7, 7, 96), whole(1, 1, 96, 64))),
    "pointwise": Product(convolved(0), (whole(2, 6, 6, 16), whole(1, 1, 16, 16))),
    "depthwise": Product(convolved(groups=96), (whole(1, 10, 10, 96), whole(3, 3, 1, 96))),
    "depthwise-of-halves": Product(
        convolved(groups=96, sums="f32"), (whole(1, 10, 10, 96).astype(BF16), whole(3, 3, 1, 96).astype(BF16))
    ),
    "windows": Program(windows(1, 5), (whole(6, 40),)),
    "windows-long": Program(windows(1, 12, padding="VALID"), (whole(6, 60),)),
    "windows-large": Program(windows(1, 9, 9, padding="VALID"), (whole(2, 20, 20),)),
    "pooled": Program(windows(1, 3, 3, 1, operation=sx.max, start=-np.inf), (whole(1, 12, 12, 4),)),
    "argmax-places": Program(places_of_largest, (distinct(3, 900),)),
    "affine-scan-rows": Program(affine_scan, (np.sign(whole(70, 40) - 0.5), whole(70, 40)), is_jax=True),
    "affine-scan-wide": Program(affine_scan, (np.sign(whole(20, 300) - 0.5), whole(20, 300)), is_jax=True),
    "swapped": Program(swapped, tuple(whole(40, seed=n) for n in range(5))),
    "read-twice": Program(lambda b, x: [total(0)(b, x * 2.0), total(1)(b, x * 2.0)], (whole(20, 30),)),
    "table": Program(
        lambda b, x: x + sx.slice_in_dim(b.constant(np.arange(30, dtype=np.int32)), 3, 23), (places(9, 20),)
    ),
    "put-rows": Program(
        lambda b, x, u: sx.scatter(
            x, b.constant(np.array([3, 50, 7, 20], np.int32)), u, sx.add, 1, (1,), (0,), (0,), unique_indices=True
        ),
        (whole(60, 20), whole(4, 20)),
    ),
    # order, indices, linear algebra, transforms
    "sorted": Program(sorted_by(sx.lt), (distinct(5, 70),)),
    "sorted-row": Program(sorted_by(sx.lt), (distinct(2, 12),)),
    "sorted-short-pairs": Program(sorted_by(lambda a, b, i, j: sx.lt(a, b)), (distinct(5, 12), whole(5, 12))),
    "sorted-few": Program(sorted_by(sx.lt), (distinct(20, 12),)),
    "sorted-columns": Program(lambda b, x: sx.sort(x, sx.lt, 0), (distinct(20, 12),)),
    "sorted-long": Program(sorted_by(sx.lt), (distinct(3000),)),
    "sorted-integers": Program(sorted_by(sx.lt), (distinct(500, dtype=np.int32),)),
    "sorted-pairs": Program(sorted_by(lambda a, b, i, j: sx.lt(a, b)), (distinct(3, 150), whole(3, 150))),
    "sorted-merged": Program(sorted_by(lambda a, b: sx.lt(a * a, b * b)), (distinct(2, 100),)),
    "top-k": Program(lambda b, x: list(sx.top_k(x, 3)), (distinct(2, 200),), 0, lambda x: best(x, 3)),
    "top-k-many": Program(lambda b, x: list(sx.top_k(x, 20)), (distinct(2, 40),), 0, lambda x: best(x, 20)),
    "looked-up": Program(looked_up, (whole(12), places(12, 300))),
    "added-at": Program(added_at, (whole(60), places(60, 300), whole(300))),
    "added-rows": Program(added_at, (whole(60, 20), places(60, 50), whole(50, 20))),
    "bits": Program(bits, (STATE,), against="xla"),
    "cholesky": Program(lambda b, x: sx.cholesky(x, lower=True), (POSITIVE,), 1e-6, np.linalg.cholesky),
    # loops
    "loop": Program(repeated(5, lambda i, v: v * 0.5 + 1.0), (whole(64),)),
    "loop-of-scalars": Program(repeated(300, lambda i, v: v * 0.5 + 1.0), (np.float32(3),)),
    "read-old": Program(read_old, (whole(40),)),
    "eigenvalues": Program(eigenvalues, (POSITIVE[0],), 1e-5, np.linalg.eigvalsh, is_jax=True),
    "chained": Program(chained, (whole(30), whole(30, seed=1))),
    "layers": Program(layers(6), (whole(8, 8), whole(8, 8)), 1e-5),
}
for kind, make in (("FFT", np.fft.fft), ("RFFT", np.fft.rfft)):
    for shape in ((3, 48), (2, 240), (2, 37), (2, 67)):
        given = whole(*shape, dtype=C64 if kind == "FFT" else np.float32)
        PROGRAMS[f"{kind}-{shape[0]}x{shape[1]}"] = Program(transformed(kind, shape[1]), (given,), 1e-5, make)
