"""Reshapes and broadcasts to sizes that are known when the program runs. Oracle: numpy, on the elements there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, refused
from tests.programs import run

Y = np.arange(24, dtype=np.float32)


@pytest.mark.parametrize("sizes", [(4, 3, 2), (2, 3, 2), (1, 1, 1), (4, 2, 1), (0, 3, 2), (9, 3, 2)], ids=str)
def test_dynamic_reshape_of_a_static_array(sizes: tuple[int, ...]) -> None:
    """The first elements; a size beyond its bound counts as the bound."""
    flags = (True, True, True)
    program = sx.compile(build(lambda x, *n: sx.dynamic_reshape(x, n, (4, 3, 2), flags), sx.f32[24], *[sx.s32[()]] * 3))
    held = np.minimum(sizes, (4, 3, 2))
    np.testing.assert_array_equal(program(Y, *map(np.int32, sizes)), Y[: held.prod()].reshape(held))


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
@pytest.mark.parametrize("columns", [1, 2, 6])
def test_dynamic_reshape_of_a_dynamic_array(rows: int, columns: int) -> None:
    """Elements are counted before the operand's own sizes."""
    program = sx.compile(
        build(
            lambda x, n: sx.dynamic_reshape(x, (6, n), (6, 4), (False, True)),
            sx.f32["<=4", "<=6"],
            sx.s32[()],
        )
    )
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    if x.size % 6 == 0:
        np.testing.assert_array_equal(program(x, np.int32(x.size // 6)), x.reshape(6, -1))


def test_dynamic_reshape_that_keeps_elements_in_place() -> None:
    """Where only the first dimension is dynamic it is a reshape."""
    made = build(lambda x, n: sx.dynamic_reshape(x, (n, 6), (4, 6), (True, False)), sx.f32[2, 12], sx.s32[()])
    assert "gather" not in str(made)
    result = sx.compile(made)(Y.reshape(2, 12), np.int32(3))
    np.testing.assert_array_equal(result, Y[:18].reshape(3, 6))


def test_what_dynamic_reshape_refuses() -> None:
    shapes = (sx.f32[6], sx.s32[()])
    refused("C1", lambda x, n: sx.dynamic_reshape(x, (n,), (3, 2), (True, True)), *shapes)
    refused("C1", lambda x, n: sx.dynamic_reshape(x, (n, 2), (3, 2), (True,)), *shapes)
    refused("C2", lambda x, n: sx.dynamic_reshape(x, (n, 2), (3, 2), (True, False)), sx.f32[6], sx.s64[()])
    refused("C2", lambda x, n: sx.dynamic_reshape(x, n, (6,), (True,)), sx.f32[6], sx.s32[1])
    refused("C2", lambda x, n: sx.dynamic_reshape(x, (2**40,), (6,), (True,)), *shapes)
    refused("C3", lambda x, n: sx.dynamic_reshape(x, (n, 2), (4, 2), (True, False)), *shapes)
    refused("", lambda x, n: sx.dynamic_reshape(x, (n, 2), (3, 2), (1, 0)), *shapes)


@pytest.mark.parametrize("columns", [0, 2, 3, 6])
def test_reshape_with_inferred_dimension(columns: int) -> None:
    x = np.arange(4 * columns, dtype=np.float32).reshape(4, columns)
    for sizes, place, wanted in (((2, 12), 1, (2, -1)), ((12, 2), 0, (-1, 2)), ((24,), 0, (-1,))):
        program = build(lambda v, s=sizes, p=place: sx.reshape_with_inferred_dimension(v, s, p), sx.f32[4, "<=6"])
        assert program.result_shape.dynamic_dimensions == tuple(d == place for d in range(len(sizes)))
        shape = tuple(x.size // np.prod([w for w in wanted if w > 0], dtype=int) if w < 0 else w for w in wanted)
        np.testing.assert_array_equal(sx.compile(program)(x), x.reshape(shape))


def test_reshape_with_inferred_dimension_of_a_static_array() -> None:
    run(lambda b, x: sx.reshape_with_inferred_dimension(x, (4, 6), 0), Y, expected=[Y.reshape(4, 6)])
    refused("C1", lambda x: sx.reshape_with_inferred_dimension(x, (4, 6), 2), sx.f32[24])
    refused("C2", lambda x: sx.reshape_with_inferred_dimension(x, (4, 5), 0), sx.f32[24])


def test_remove_dynamic_dimension() -> None:
    """The elements are there that were there before the size was set."""

    def program(x: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
        return sx.remove_dynamic_dimension(sx.set_dimension_size(x, n, 0), 0)

    made = build(program, sx.f32[4, 6], sx.s32[()])
    assert made.result_shape == sx.f32[4, 6]
    np.testing.assert_array_equal(sx.compile(made)(Y.reshape(4, 6), np.int32(1)), Y.reshape(4, 6))
    assert build(lambda x: sx.remove_dynamic_dimension(x, 1), sx.f32["<=2", 3]).result_shape == sx.f32["<=2", 3]
    refused("C1", lambda x: sx.remove_dynamic_dimension(x, 2), sx.f32["<=2", 3])


def test_mhlo_forms_of_static_shapes() -> None:
    """Oracles: numpy and the reference interpreter."""
    run(
        lambda b, x: [
            sx.mhlo_dynamic_reshape(x, b.constant(np.array([4, 6])), sx.f32[4, 6]),
            sx.mhlo_dynamic_broadcast_in_dim(x, b.constant(np.array([2, 24])), (1,), sx.f32[2, 24]),
        ],
        Y,
        against=["interpreter"],
        expected=[Y.reshape(4, 6), np.broadcast_to(Y, (2, 24))],
    )


@pytest.mark.parametrize("kind", ["s32", "s64", "u8"])
def test_mhlo_forms_of_bounded_shapes(kind: str) -> None:
    def program(x: sx.XlaOp, n: sx.XlaOp) -> list[sx.XlaOp]:
        return [
            sx.mhlo_dynamic_reshape(x, n, sx.f32["<=3", "<=8"]),
            sx.mhlo_dynamic_broadcast_in_dim(x, n, (1,), sx.f32["<=3", 24]),
        ]

    compiled = sx.compile(build(program, sx.f32[24], sx.Shape(kind, (2,))))
    reshaped, spread = compiled(Y, np.array([2, 5], sx.element_type(kind).dtype))
    np.testing.assert_array_equal(reshaped, Y[:10].reshape(2, 5))
    np.testing.assert_array_equal(spread, np.broadcast_to(Y, (2, 24)))


def test_what_the_mhlo_forms_refuse() -> None:
    x, n = sx.f32[6], sx.s32[2]
    cases: list[tuple[str, Any]] = [
        ("C1", lambda x, n: sx.mhlo_dynamic_reshape(x, n, sx.f64[3, 2])),
        ("C2", lambda x, n: sx.mhlo_dynamic_reshape(x, n, sx.f32[4, 2])),
        ("C4", lambda x, n: sx.mhlo_dynamic_reshape(x, n, sx.f32[6])),
        ("", lambda x, n: sx.mhlo_dynamic_reshape(x, n, (3, 2))),
        ("C4", lambda x, n: sx.mhlo_dynamic_reshape(x, x.builder.constant([3, 2]), sx.f32[2, 3])),
        ("C1", lambda x, n: sx.mhlo_dynamic_broadcast_in_dim(x, n, (1,), sx.f64[2, 6])),
        ("I2", lambda x, n: sx.mhlo_dynamic_broadcast_in_dim(x, n, (1,), sx.f32[2, 6, 1])),
        ("C3", lambda x, n: sx.mhlo_dynamic_broadcast_in_dim(x, n, (2,), sx.f32[2, 6])),
    ]
    for rule, make in cases:
        assert refused(rule, make, x, n).operation.startswith("mhlo_dynamic_")
