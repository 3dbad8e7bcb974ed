"""Operations that make or move elements. Oracles: numpy, and the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import ELEMENT_TYPES, element_type
from tests.comparison import assert_same
from tests.ops.samples import sample
from tests.programs import run

ALL_TYPES = [t.name for t in ELEMENT_TYPES]
SOME_TYPES = ("pred", "s4", "u8", "bf16", "f32", "c64", "f8e5m2")


def arange(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def bits(array: np.ndarray) -> np.ndarray:
    """Elements as bytes, so that NaNs and small floats compare."""
    flat = np.ascontiguousarray(array)
    return flat.reshape(*flat.shape, 1).view(np.uint8)


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_element_type_is_moved_unchanged(name: str) -> None:
    x = sample(name, 24).reshape(2, 3, 4)
    filler = sample(name, 1, 9).reshape(())

    def make(b: sx.XlaBuilder, v: sx.XlaOp, f: sx.XlaOp) -> list[sx.XlaOp]:
        return [
            v,
            sx.transpose(v, (2, 0, 1)),
            sx.rev(v, (0, 2)),
            sx.slice(v, (0, 1, 0), (2, 3, 4), (1, 1, 2)),
            sx.pad(v, f, ((1, 0, 0), (0, 0, 1), (0, 0, 0))),
            sx.concatenate([v, v], 1),
            sx.reshape(v, (4, 6)),
            sx.broadcast(f, (2, 2)),
        ]

    padded = np.full((3, 5, 4), filler)
    padded[1:, ::2] = x
    expected = [
        x,
        x.transpose(2, 0, 1),
        x[::-1, :, ::-1],
        x[:, 1:, ::2],
        padded,
        np.concatenate([x, x], 1),
        x.reshape(4, 6),
        np.full((2, 2), filler),
    ]
    b = sx.XlaBuilder("moves")
    parameters = [b.parameter(i, sx.Shape(name, a.shape)) for i, a in enumerate((x, filler))]
    results = sx.compile(b.build(sx.tuple(make(b, *parameters)))).execute([x, filler])
    for actual, wanted in zip(results, expected, strict=True):
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(bits(actual), bits(wanted))


@pytest.mark.parametrize("name", ALL_TYPES)
def test_constants_of_every_element_type(name: str) -> None:
    values = sample(name, 13)
    b = sx.XlaBuilder("constants")
    several, one = b.constant(values), b.constant(values[5])
    results = sx.compile(b.build(sx.tuple([several, one, sx.broadcast(one, (2, 3))]))).execute([])
    for actual, wanted in zip(results, [values, values[5], np.full((2, 3), values[5])], strict=True):
        np.testing.assert_array_equal(bits(actual), bits(np.asarray(wanted)))


@pytest.mark.parametrize("name", ["c64", "bf16", "f8e5m2", "s4", "f32", "s64"])
def test_a_constant_with_other_attributes(name: str) -> None:
    """Conversions from HLO give layouts to constants, which are dense arrays of integers as well."""
    type_, values = f"tensor<1x2x{element_type(name).mlir}>", ["(5.0, 0.0)", "(6.0, 0.0)"]
    if not element_type(name).is_complex:
        values = ["5.0", "6.0"] if element_type(name).is_float else ["5", "6"]
    text = f"""func.func @main() -> {type_} {{
      %0 = "stablehlo.constant"() {{
        result_layout = dense<[0, 1]> : tensor<2xindex>, value = dense<[[{", ".join(values)}]]> : {type_}
      }} : () -> {type_}
      return %0 : {type_}
    }}"""
    assert sx.compile(text)().astype(np.complex64).tolist() == [[5, 6]]


def test_a_large_constant() -> None:
    values = np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32)
    run(lambda b, x: sx.add(b.constant(values), x), values, against=[], expected=[values + values])


@pytest.mark.parametrize("name", ["s8", "u16", "s64", "bf16", "f16", "f32", "f64", "c64", "u4", "f8e5m2"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_iota(name: str, dimension: int) -> None:
    b = sx.XlaBuilder("iota")
    (actual,) = sx.compile(b.build(b.iota(sx.Shape(name, (5, 7)), dimension))).execute([])
    wanted = np.broadcast_to(np.arange(5)[:, None] if dimension == 0 else np.arange(7), (5, 7))
    assert_same(actual, wanted.astype(element_type(name).dtype))


@pytest.mark.parametrize(
    ("shape", "out", "dimensions"),
    [((3,), (2, 3), (1,)), ((3,), (3, 2), (0,)), ((1, 3), (4, 3), (0, 1)), ((2, 1), (2, 5, 7), (0, 2)), ((), (2,), ())],
)
def test_broadcast_in_dim(shape: Any, out: Any, dimensions: Any) -> None:
    run(lambda b, x: sx.broadcast_in_dim(x, out, dimensions), arange(*shape), against=["interpreter", "xla"])


def test_broadcast_and_collapse_as_the_specification_prints_them() -> None:
    x = arange(2, 3)
    run(
        lambda b, v: [sx.broadcast(v, (4,)), sx.collapse(v, (0, 1))],
        x,
        against=["interpreter"],
        expected=[np.broadcast_to(x, (4, 2, 3)), x.reshape(6)],
    )


def test_the_specification_s_reshape_example() -> None:
    """A 4 x 2 x 3 array of numbers from 10 on: collapsed, and with its dimensions in another order first."""
    v = np.array([[[10 + 10 * i + 3 * j + k for k in range(3)] for j in range(2)] for i in range(4)], np.float32)
    run(
        lambda b, x: [
            sx.reshape(x, (0, 1, 2), (24,)),
            sx.reshape(x, (0, 1, 2), (8, 3)),
            sx.reshape(x, (1, 2, 0), (24,)),
            sx.reshape(x, (1, 2, 0), (8, 3)),
        ],
        v,
        against=["interpreter"],
        expected=[v.ravel(), v.reshape(8, 3), v.transpose(1, 2, 0).ravel(), v.transpose(1, 2, 0).reshape(8, 3)],
    )


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("shape", [(3, 5), (64, 48), (1, 9), (100, 33), (0, 4)])
def test_transpose(shape: tuple[int, int], order: tuple[int, int]) -> None:
    x = arange(*shape)
    run(lambda b, v: sx.transpose(v, order), x, against=["interpreter"], expected=[x.transpose(order)])


@pytest.mark.parametrize("name", SOME_TYPES)
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 3, 2)])
def test_transpose_of_rank_four(order: tuple[int, ...], name: str) -> None:
    x = sample(name, 4 * 9 * 5 * 17).reshape(4, 9, 5, 17)
    (actual,) = run(lambda b, v: sx.transpose(v, order), x, against=[])
    np.testing.assert_array_equal(bits(actual), bits(x.transpose(order)))


@pytest.mark.parametrize(
    "config",
    [
        ((1, 2, 0), (0, 0, 0)),
        ((0, 0, 2), (3, 1, 1)),
        ((-1, 0, 0), (0, -2, 0)),
        ((-2, 3, 1), (1, -4, 2)),
        ((0, 0, 0),) * 2,
    ],
)
def test_pad(config: Any) -> None:
    x = arange(4, 5)
    run(lambda b, v, p: sx.pad(v, p, config), x, np.float32(-7), against=["interpreter", "xla"])


def test_pad_to_nothing() -> None:
    run(lambda b, v, p: sx.pad(v, p, ((-2, -2, 0),)), arange(4), np.float32(1), against=["interpreter"])


@pytest.mark.parametrize("starts", [(0, 0), (1, 2), (-3, 9), (100, -100)])
@pytest.mark.parametrize("index_type", ["s32", "u8", "s64"])
def test_dynamic_slices_are_clamped(starts: tuple[int, int], index_type: str) -> None:
    if index_type == "u8":
        starts = (starts[0] & 255, starts[1] & 255)
    x, update = arange(4, 6), -arange(2, 3)
    dtype = element_type(index_type).dtype

    def make(b: sx.XlaBuilder, v: sx.XlaOp, u: sx.XlaOp, i: sx.XlaOp, j: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.dynamic_slice(v, [i, j], (2, 3)), sx.dynamic_update_slice(v, u, [i, j])]

    i, j = (np.array(s).astype(dtype) for s in starts)
    ci, cj = np.clip(int(i), 0, 2), np.clip(int(j), 0, 3)
    updated = x.copy()
    updated[ci : ci + 2, cj : cj + 3] = update
    # The interpreter takes an unsigned start above 127 for a negative one.
    trusted = ["xla"] if index_type == "u8" else ["interpreter", "xla"]
    run(make, x, update, i, j, against=trusted, expected=[x[ci : ci + 2, cj : cj + 3], updated])


def test_the_specification_s_dynamic_update_slice_examples() -> None:
    b = sx.XlaBuilder("spec")
    a = b.constant(np.array([0, 1, 2, 3, 4], np.float32))
    two = b.constant(np.int32(2))
    one_d = sx.dynamic_update_slice(a, b.constant(np.array([5, 6], np.float32)), [two])
    matrix = b.constant(arange(4, 3))
    block = b.constant(np.array([[12, 13], [14, 15], [16, 17]], np.float32))
    two_d = sx.dynamic_update_slice(matrix, block, [b.constant(np.int32(1)), b.constant(np.int32(1))])
    results = sx.compile(b.build(sx.tuple([one_d, two_d]))).execute([])
    np.testing.assert_array_equal(results[0], [0, 1, 5, 6, 4])
    np.testing.assert_array_equal(results[1], [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_concatenate(dimension: int) -> None:
    parts = [arange(*(k if d == dimension else n for d, n in enumerate((2, 3, 4)))) + k for k in (1, 5, 0, 2)]
    run(
        lambda b, *v: sx.concatenate(v, dimension),
        *parts,
        against=["interpreter"],
        expected=[np.concatenate(parts, dimension)],
    )


def test_rank_six() -> None:
    x = arange(2, 1, 3, 2, 2, 3)
    run(
        lambda b, v: sx.rev(sx.transpose(v, (5, 3, 1, 0, 2, 4)), (0, 3)),
        x,
        against=["interpreter"],
        expected=[x.transpose(5, 3, 1, 0, 2, 4)[::-1, :, :, ::-1]],
    )


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>", "f8E4M3FN", "i4", "i1", "f64"])
def test_constants_without_elements(element: str) -> None:
    """HLO's triangular solves of nothing come with such a constant."""
    text = f"""func.func @main() -> tensor<0x0x{element}> {{
      %r = stablehlo.constant dense<> : tensor<0x0x{element}>
      return %r : tensor<0x0x{element}>
    }}"""
    assert sx.compile(text).execute([])[0].shape == (0, 0)
