"""dot and dot_general. Oracles: numpy in a wider type, the reference interpreter and XLA:CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.samples import sample
from tests.programs import check, general_only, run

BF16 = ml_dtypes.bfloat16
# Sums of k products: each rounding is at most half a unit of the largest partial sum.
SCALE = {"f32": 1e-6, "f64": 2e-15, "bf16": 8e-3, "f16": 1e-3}


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (2, 3, 4), (7, 33, 5), (64, 64, 64), (65, 127, 130), (1, 200, 300), (300, 200, 1), (3, 500, 700)],
)
def test_matrix_products(m: int, k: int, n: int) -> None:
    x, y = normal(m, k), normal(k, n, seed=1)
    wanted = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
    run(lambda b, v, w: sx.dot(v, w), x, y, against=["xla"], expected=[wanted], scale=SCALE["f32"])


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_products_of_nothing(m: int, k: int, n: int) -> None:
    """The interpreter aborts the process where there is nothing to add up; numpy knows."""
    x, y = normal(m, k), normal(k, n)
    run(lambda b, v, w: sx.dot(v, w), x, y, against=["xla"], expected=[x @ y])


def test_dot_of_vectors_and_matrices() -> None:
    u, v, m = normal(50), normal(50, seed=1), normal(50, 20, seed=2)
    run(
        lambda b, x, y, z: [sx.dot(x, y), sx.dot(x, z), sx.dot(sx.transpose(z, (1, 0)), y)],
        u,
        v,
        m,
        against=["interpreter", "xla"],
        scale=SCALE["f32"],
    )


NUMBERS = [
    ((4, 6, 8), (4, 8, 5), ((2,), (1,)), ((0,), (0,))),
    ((6, 4, 8), (8, 5, 4), ((2,), (0,)), ((1,), (2,))),
    ((3, 4, 5), (5, 4, 7), ((1, 2), (1, 0)), ((), ())),
    ((2, 3, 4, 5), (3, 2, 5, 6), ((3,), (2,)), ((0, 1), (1, 0))),
    ((8, 3), (8, 4), ((0,), (0,)), ((), ())),
    ((3, 8), (4, 8), ((1,), (1,)), ((), ())),
    ((2, 3), (4, 5), ((), ()), ((), ())),
    ((2, 3), (2, 3), ((), ()), ((0, 1), (0, 1))),
    # batches of dot products, whose contracted dimensions are first, between the others, and around them
    ((7, 33), (7, 33), ((0,), (0,)), ((1,), (1,))),
    ((3, 5, 20), (3, 5, 20), ((1,), (1,)), ((0, 2), (0, 2))),
    ((3, 5, 20), (3, 5, 20), ((1,), (1,)), ((2, 0), (2, 0))),
    ((3, 5, 20), (3, 5, 20), ((0, 2), (0, 2)), ((1,), (1,))),
    ((3, 5, 20), (20, 5, 3), ((1,), (1,)), ((0, 2), (2, 0))),
]


@pytest.mark.parametrize(("lhs", "rhs", "contracting", "batch"), NUMBERS, ids=str)
def test_dot_general(lhs: Any, rhs: Any, contracting: Any, batch: Any) -> None:
    numbers = sx.DotDimensionNumbers(
        lhs_contracting_dimensions=contracting[0],
        rhs_contracting_dimensions=contracting[1],
        lhs_batch_dimensions=batch[0],
        rhs_batch_dimensions=batch[1],
    )
    x, y = normal(*lhs), normal(*rhs, seed=1)
    run(lambda b, v, w: sx.dot_general(v, w, numbers), x, y, against=["interpreter", "xla"], scale=SCALE["f32"])


# Operands that are repeated to [4, 6] and [6, 5]: their own shapes, and the dimensions that they are.
REPEATED = [
    ((6,), (1,), (6, 5), (0, 1)),
    ((4,), (0,), (6, 5), (0, 1)),
    ((4,), (0,), (5,), (1,)),
    ((4,), (0,), (6,), (0,)),
    ((), (), (6, 5), (0, 1)),
    ((6,), (1,), (), ()),
    ((), (), (5,), (1,)),
    ((), (), (), ()),
]


@pytest.mark.parametrize("name", ["f32", "bf16", "s32", "s8", "pred", "c64"])
@pytest.mark.parametrize(("lhs", "places", "rhs", "others"), REPEATED, ids=str)
def test_repeated_operands(name: str, lhs: Any, places: Any, rhs: Any, others: Any) -> None:
    """The other operand is added up along what is repeated, and the result repeated."""
    type_ = sx.Shape(name, ()).element_type

    def some(shape: tuple[int, ...], seed: int) -> np.ndarray:
        values = normal(*shape, seed=seed) + (1j * normal(*shape, seed=seed + 2) if type_.is_complex else 0)
        return np.asarray(values * (5 if type_.is_integer else 1) > 0 if type_.is_pred else values).astype(type_.dtype)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.dot(sx.broadcast_in_dim(v, (4, 6), places), sx.broadcast_in_dim(w, (6, 5), others))

    x, y = some(lhs, 0), some(rhs, 1)
    a, b = (np.expand_dims(v, [d for d in (0, 1) if d not in at]) for v, at in ((x, places), (y, others)))
    wide = np.complex128 if type_.is_complex else np.float64
    wanted = np.broadcast_to(a, (4, 6)).astype(wide) @ np.broadcast_to(b, (6, 5)).astype(wide)
    wanted = (wanted > 0 if type_.is_pred else wanted).astype(type_.dtype)
    exact = type_.is_pred or type_.is_integer
    run(make, x, y, against=["xla"], expected=[wanted], scale=0 if exact else SCALE.get(name, SCALE["f32"]))


@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(("k", "n"), [(40, 1), (40, 40), (300, 300)])
def test_repeated_next_to_overflow(name: str, k: int, n: int) -> None:
    """The sum of what is scaled overflows, the sum of the products does not; 0 times it would be NaN."""
    dtype = sx.Shape(name, ()).element_type.dtype
    y = np.full((k, n), ml_dtypes.finfo(dtype).max, dtype)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, w: sx.XlaOp) -> list[sx.XlaOp]:
        row, columns = sx.broadcast_in_dim(v, (k,), ()), sx.broadcast_in_dim(v, (k, 3), ())
        turned = sx.transpose(w, (1, 0))
        return [sx.dot(row, w), sx.dot(turned, row), sx.dot(turned, columns)]

    for scale in (0.75 / k, 0.0):
        x = np.array(scale, dtype)
        wanted = (k * x.astype(np.longdouble) * y[0].astype(np.longdouble)).astype(dtype)
        expected = [wanted, wanted, np.repeat(wanted[:, None], 3, axis=1)]
        run(make, x, y, against=[], expected=expected, scale=SCALE[name])


@pytest.mark.parametrize("name", ["f64", "bf16", "f16"])
def test_other_floats(name: str) -> None:
    dtype = sx.Shape(name, ()).element_type.dtype
    x, y = normal(20, 40).astype(dtype), normal(40, 30, seed=1).astype(dtype)
    wanted = (x.astype(np.longdouble) @ y.astype(np.longdouble)).astype(np.float64).astype(dtype)
    run(lambda b, v, w: sx.dot(v, w), x, y, against=[], expected=[wanted], ulp=1, scale=SCALE[name])


@pytest.mark.parametrize("name", ["s8", "u8", "s32", "u64"])
def test_integers(name: str) -> None:
    x, y = sample(name, 6 * 20).reshape(6, 20), sample(name, 20 * 9, 2).reshape(20, 9)
    run(lambda b, v, w: sx.dot(v, w), x, y, against=[], expected=[x @ y])


def test_sums_of_products_of_bf16() -> None:
    """Within 16 u log2(k) of their magnitudes, twice the bound of f32: some instructions round to odd.

    Of numbers whose roundings all have one sign, too; with one step of k less and more than whole blocks.
    """
    for k in (63, 512, 513, 4096):
        b = sx.XlaBuilder("bf16")
        x, y = (b.parameter(i, sx.Shape("bf16", shape)) for i, shape in enumerate([(40, k), (k, 36)]))
        numbers = sx.DotDimensionNumbers((1,), (0,), (), ())
        compiled = sx.compile(b.build(sx.dot_general(x, y, numbers, preferred_element_type="f32")))
        drawn = normal(40, k), normal(k, 36, seed=1)
        for sides in (drawn, [abs(side) for side in drawn], [np.full(side.shape, 0.1) for side in drawn]):
            left, right = (side.astype(BF16) for side in sides)
            wide = [side.astype(np.float64) for side in (left, right)]
            error = abs(np.asarray(compiled(left, right)) - wide[0] @ wide[1])
            assert (error <= 16 * 2.0**-24 * np.log2(k) * (abs(wide[0]) @ abs(wide[1]))).all(), (k, error.max())


@pytest.mark.parametrize(("name", "wide"), [("s8", "s32"), ("u8", "u32"), ("bf16", "f32"), ("f16", "f32")])
def test_preferred_element_type(name: str, wide: str) -> None:
    if name in ("s8", "u8"):
        x, y = sample(name, 60).reshape(6, 10), sample(name, 90, 2).reshape(10, 9)
    else:
        dtype = sx.Shape(name, ()).element_type.dtype
        x, y = normal(6, 10).astype(dtype), normal(10, 9, seed=2).astype(dtype)
    to = sx.Shape(wide, ()).element_type
    wanted = (x.astype(np.float64) @ y.astype(np.float64)).astype(to.dtype)
    run(
        lambda b, v, w: sx.dot(v, w, preferred_element_type=wide),
        x,
        y,
        against=[],
        expected=[wanted],
        scale=0 if name in ("s8", "u8") else SCALE["f32"],
    )


def test_complex() -> None:
    x = (normal(5, 7) + 1j * normal(5, 7, seed=1)).astype(np.complex64)
    y = (normal(7, 4, seed=2) + 1j * normal(7, 4, seed=3)).astype(np.complex64)
    run(lambda b, v, w: sx.dot(v, w), x, y, against=["xla"], expected=[x @ y], scale=SCALE["f32"])


def test_a_layer_with_its_epilogue() -> None:
    x, w, bias = normal(33, 70), normal(70, 50, seed=1), normal(50, seed=2)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, m: sx.XlaOp, c: sx.XlaOp) -> sx.XlaOp:
        return sx.max(sx.add(sx.dot(v, m), c, broadcast_dimensions=(1,)), b.constant(np.float32(0)))

    run(make, x, w, bias, against=["interpreter", "xla"], scale=SCALE["f32"])


def _with_algorithm(precision: str, products: int) -> str:
    return f"""func.func public @main(%a: tensor<8x40xf32>, %b: tensor<40x8xf32>) -> tensor<8x8xf32> {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = {precision},
        rhs_precision_type = {precision}, accumulation_type = f32, lhs_component_count = 1,
        rhs_component_count = 1, num_primitive_operations = {products},
        allow_imprecise_accumulation = false> : (tensor<8x40xf32>, tensor<40x8xf32>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }}"""


@pytest.mark.parametrize(
    ("precision", "products", "bits"),
    [
        ("bf16", 1, 8),
        ("f16", 1, 11),
        ("tf32", 1, 11),
        ("bf16", 3, 16),
        ("tf32", 3, 22),
        ("bf16", 6, 23),
        ("bf16", 9, 23),
    ],
)
def test_algorithms(precision: str, products: int, bits: int) -> None:
    """The error of a sum of products of numbers that were rounded to so many bits; numpy in f64 is what is exact."""
    x, y = normal(8, 40), normal(40, 8, seed=1)
    (found,) = sx.compile(_with_algorithm(precision, products)).execute([x, y])
    exact = x.astype(np.float64) @ y.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(y)
    error = (np.abs(found - exact) / size).max()
    assert error < 2.0**-bits
    assert error > 2.0 ** -(bits + 6) or bits > 16


def test_an_algorithm_rounds_its_operands() -> None:
    x, y = normal(8, 40), normal(40, 8, seed=1)
    small = [v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (x, y)]
    check(_with_algorithm("bf16", 1), [x, y], against=[], expected=[small[0] @ small[1]], scale=SCALE["f32"])


@pytest.mark.parametrize(("precision", "products"), [("bf16", 3), ("bf16", 9), ("tf32", 3)])
def test_algorithms_next_to_infinity(precision: str, products: int) -> None:
    """Infinities, and numbers that the smaller type would round to them, times numbers that have components or none."""
    x, y = np.zeros((8, 40), np.float32), np.zeros((40, 8), np.float32)
    large = 3.4025e38  # more than bf16 and tf32 hold
    x[:, 0] = [np.inf, -np.inf, large, -large, np.nan, 1, 0, 1e-30]
    y[0] = [0.5, 1 / 3, -1 / 3, 2.0**-9 + 1, 0, -1.0, 0.75, 2.0**-100]
    with np.errstate(all="ignore"):
        wanted = x @ y
    check(_with_algorithm(precision, products), [x, y], against=[], expected=[wanted], scale=2e-5)


def test_an_algorithm_that_is_what_we_do_is_taken() -> None:
    text = """func.func public @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f32,
        rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
        num_primitive_operations = 1, allow_imprecise_accumulation = false>
        : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }"""
    x = np.array([[1, 2], [3, 4]], np.float32)
    check(text, [x], against=[], expected=[x @ x])


@pytest.mark.parametrize("name", ["s32", "f32"])
def test_products_over_no_loop_that_are_broadcast_on_the_general_path(name: str) -> None:
    """Of one row or of equal columns; fused with more loops they must not be added up again in each of them."""
    x, y = (np.arange(1, 4).astype(element_type(name).dtype).reshape(shape) for shape in ((3, 1), (1, 3)))
    number = np.array(60, x.dtype)

    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, number: sx.XlaOp) -> list[sx.XlaOp]:
        full = sx.broadcast_in_dim(number, (4, 4), ())
        outer = sx.broadcast_in_dim(sx.dot(x, y), (3, 3, 5), (0, 1))
        return [outer, sx.dot_general(full, full, sx.DotDimensionNumbers((1,), (1,)))]

    expected = [np.repeat((x * y)[..., None], 5, 2), np.full((4, 4), 14400, x.dtype)]
    run(make, x, y, number, against=["interpreter"], expected=expected, options=general_only())
