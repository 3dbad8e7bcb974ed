"""Products whose transposes are read are computed transposed: what is taken, what is left, and that values stay."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.pipeline.steps import PREPARE

PLAIN = ",".join([*PREPARE, "stablexla-group,stablexla-outline"])
TURNED = ",".join([*PREPARE, "stablexla-turn-products,stablexla-group,stablexla-outline"])


def compiled(text: sx.XlaComputation, passes: str) -> sx.Executable:
    return sx.compile(text, options=sx.CompileOptions(pipeline=sx.pipeline("cpu").with_step("kernels", passes)))


def kinds(executable: sx.Executable) -> list[str]:
    return [kernel.kind for kernel in executable.kernels]


def update(shape: tuple[int, int, int], element: str) -> sx.XlaComputation:
    """weights - 2 * (g^T x)^T, as JAX writes the gradient of a dense layer."""
    rows, inputs, outputs = shape
    b = sx.XlaBuilder("update")
    weights = b.parameter(0, sx.Shape(element, (inputs, outputs)))
    x = b.parameter(1, sx.Shape(element, (rows, inputs)))
    g = b.parameter(2, sx.Shape(element, (rows, outputs)))
    product = sx.dot_general(g, x, sx.DotDimensionNumbers((0,), (0,)))
    return b.build(weights - sx.transpose(product, (1, 0)) * 2)


def drawn(shape: tuple[int, int, int], element: str) -> list[Any]:
    rows, inputs, outputs = shape
    rng = np.random.default_rng(1)
    dtype = ml_dtypes.bfloat16 if element == "bf16" else np.dtype(sx.Shape(element, ()).element_type.dtype)
    return [rng.integers(-4, 5, s).astype(dtype) for s in ((inputs, outputs), (rows, inputs), (rows, outputs))]


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "s32"])
@pytest.mark.parametrize("shape", [(32, 48, 64), (7, 33, 5), (1, 17, 40), (65, 1, 9), (3, 20, 1)])
def test_values_are_those_of_a_product_and_a_transpose(shape: tuple[int, int, int], element: str):
    """Small whole numbers, so that every order of a sum gives the same."""
    weights, x, g = drawn(shape, element)
    wide = np.float64 if element != "s32" else np.int64
    wanted = weights.astype(wide) - 2 * (x.astype(wide).T @ g.astype(wide)).astype(weights.dtype).astype(wide)
    program = update(shape, element)
    found = compiled(program, TURNED)(weights, x, g)
    np.testing.assert_array_equal(found, wanted.astype(weights.dtype))
    np.testing.assert_array_equal(found, compiled(program, PLAIN)(weights, x, g))


NARROW = ",".join([*PREPARE, "stablexla-turn-narrow-products{vector-bits=256},stablexla-group,stablexla-outline"])


def narrow(k: int, rows: int, columns: int, element: str, contracted: tuple[int, int] = (0, 0)) -> sx.XlaComputation:
    b = sx.XlaBuilder("narrow")
    shapes = [(k, rows), (k, columns)]
    x, y = (b.parameter(i, sx.Shape(element, s[::-1] if c else s)) for i, (s, c) in enumerate(zip(shapes, contracted)))
    return b.build(sx.dot_general(x, y, sx.DotDimensionNumbers(*((c,) for c in contracted))))


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(40, 48, 2), (7, 33, 5), (300, 20, 8), (65, 9, 1)])
@pytest.mark.parametrize("contracted", [(0, 0), (0, 1)])
def test_narrow_products_are_computed_transposed(
    shape: tuple[int, int, int], element: str, contracted: tuple[int, int]
):
    """Whole numbers, so that every order of a sum gives the same."""
    k, rows, columns = shape
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-4, 5, s).astype(sx.Shape(element, ()).element_type.dtype) for s in ((k, rows), (k, columns)))
    executable = compiled(narrow(k, rows, columns, element, contracted), NARROW)
    np.testing.assert_array_equal(executable(x, y.T.copy() if contracted[1] else y), x.T @ y)
    assert kinds(executable) == (["contraction", "transpose"] if columns > 1 else ["contraction"])


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (narrow(40, 48, 17, "f32"), "more than two vectors of columns"),
        (narrow(40, 10, 8, "f32"), "hardly more rows than columns"),
        (narrow(40, 48, 2, "f32", (1, 0)), "the rows of the left operand do not lie side by side"),
        (narrow(40, 48, 2, "bf16"), "elements that are widened"),
    ],
)
def test_other_products_stay(program: sx.XlaComputation, why: str):
    assert "transpose" not in kinds(compiled(program, NARROW)), why


def test_nothing_is_left_of_a_transpose_but_the_product():
    program = update((32, 48, 64), "f32")
    assert kinds(compiled(program, PLAIN)) == ["contraction", "transpose", "loop"]
    assert kinds(compiled(program, TURNED)) == ["contraction"]
    assert kinds(sx.compile(program)) == ["contraction"]


def test_numbers_that_are_none_arrive():
    weights, x, g = drawn((8, 16, 24), "f32")
    x[3, 5], g[2, 7] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        wanted = weights - 2 * (x.T @ g)
    np.testing.assert_array_equal(sx.compile(update((8, 16, 24), "f32"))(weights, x, g), wanted)


def test_a_product_that_is_also_read_as_it_is_stays():
    b = sx.XlaBuilder("both")
    x, y = b.parameter(0, sx.f32[40, 24]), b.parameter(1, sx.f32[24, 56])
    product = x @ y
    program = b.build(sx.tuple((product, sx.transpose(product, (1, 0)))))
    executable = sx.compile(program)
    assert "transpose" in kinds(executable)
    left, right = (np.random.default_rng(2).standard_normal(s, np.float32) for s in ((40, 24), (24, 56)))
    straight, turned = executable(left, right)
    np.testing.assert_array_equal(straight.T, turned)


def test_a_gradient_that_a_loop_carries_is_added_to_by_the_product():
    """The sum over time of a recurrent layer's gradients."""
    b = sx.XlaBuilder("loop")
    x, g = b.parameter(0, sx.f32[16, 24]), b.parameter(1, sx.f32[16, 40])
    rounds, start = b.parameter(2, sx.s32[()]), b.parameter(3, sx.f32[24, 40])

    def step(state: sx.XlaOp) -> sx.XlaOp:
        product = sx.dot_general(state[3], state[2], sx.DotDimensionNumbers((0,), (0,)))
        return sx.tuple((state[0] - 1, state[1] + sx.transpose(product, (1, 0)), state[2] * 2, state[3]))

    program = b.build(sx.while_(lambda state: state[0] > 0, step, sx.tuple((rounds, start, x, g)))[1])
    executable = sx.compile(program)
    assert "transpose" not in kinds(executable)
    assert kinds(executable).count("contraction") == 1
    rng = np.random.default_rng(3)
    left, right, total = (rng.integers(-4, 5, s).astype(np.float32) for s in ((16, 24), (16, 40), (24, 40)))
    wanted = total + 7 * (left.T @ right)
    np.testing.assert_array_equal(executable(left, right, np.int32(3), total), wanted)


def test_other_orders_of_dimensions_stay():
    """A batch of products, turned around as a whole."""
    b = sx.XlaBuilder("batch")
    x, y = b.parameter(0, sx.f32[3, 16, 24]), b.parameter(1, sx.f32[3, 24, 32])
    product = sx.dot_general(x, y, sx.DotDimensionNumbers((2,), (1,), (0,), (0,)))
    executable = sx.compile(b.build(sx.transpose(product, (1, 0, 2))))
    left, right = (np.random.default_rng(4).standard_normal(s, np.float32) for s in ((3, 16, 24), (3, 24, 32)))
    np.testing.assert_allclose(executable(left, right), (left @ right).transpose(1, 0, 2), rtol=1e-4, atol=1e-5)
