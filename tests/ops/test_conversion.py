"""Conversions run: every pair of element types, bit patterns, reduced precision, complex numbers and their parts.

Oracles: tests/ops/rounding.py for values, numpy's views for bit patterns, and XLA:CPU and the reference interpreter.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops import rounding
from tests.ops.rounding import SMALL_FLOATS
from tests.ops.samples import EDGE_SHAPES, sample
from tests.programs import check, run

NAMES = [t.name for t in sx.ELEMENT_TYPES]


def values_of(name: str) -> np.ndarray:
    """Values at which conversions turn: powers of two and their neighbours, bounds of integers, ties."""
    type_ = element_type(name)
    if type_.is_complex:
        part = values_of(type_.part.name)
        return (part + np.array(1j, type_.dtype) * np.where(np.isfinite(part[::-1]), part[::-1], 1)).astype(type_.dtype)
    if type_.bits <= 8:
        return rounding.codes(name)
    if type_.is_integer:
        return _integers(type_)
    powers = np.ldexp(1.0, np.arange(-30, 66))[:, None] + np.array([-5, -4, -1, -0.25, 0, 0.25, 1, 4, 5]) / 4
    with np.errstate(all="ignore"):
        near = np.concatenate([powers.ravel(), -powers.ravel()]).astype(type_.dtype)
        below, above = (np.nextafter(near, type_.dtype.type(limit)) for limit in (-np.inf, np.inf))
        random = sample(name, 300)
    return np.concatenate([near, below, above, random])


def _integers(type_: sx.ElementType) -> np.ndarray:
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = low + (1 << type_.bits) - 1
    sums = {(1 << k) + (1 << j) + d for k in range(type_.bits) for j in range(k) for d in (-1, 0, 1)}
    numbers = {n for s in sums for n in (s, -s) if low <= n <= high}
    return np.array(sorted(numbers | {low, high, 0, 1, *sample(type_.name, 200).tolist()}), dtype=type_.dtype)


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("source", NAMES)
def test_convert_every_pair_of_types(source: str, part: int) -> None:
    x, targets = values_of(source), NAMES[part::5]
    results = run(lambda b, v: [sx.convert_element_type(v, t) for t in targets], x, against=[])
    for name, actual in zip(targets, results, strict=True):
        wanted = x if name == source else rounding.convert(x, element_type(source), element_type(name))
        assert actual.dtype == element_type(name).dtype
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(wanted), err_msg=f"{source} to {name}")


@pytest.mark.parametrize("source", ["f32", "f64", "s32", "u64", "pred", "c64"])
def test_convert_as_the_oracles_do(source: str) -> None:
    """Both oracles hold floats at the integer's bounds and make NaN 0; the specification leaves that open.

    Left out are values that XLA:CPU rounds twice on the way to bf16, and denormals, which it flushes.
    """
    x = sample(source, 300) if source != "c64" else sample("f32", 300).astype(np.complex64)
    targets = ["s4", "u8", "s16", "u32", "s64", "u64", "f32", "pred"] + ["bf16"] * (source in ("pred", "f32"))
    if source in ("f32", "f64"):
        x = x[~((np.abs(x) < 1e-37) & (x != 0))]
    make: Any = lambda b, v: [sx.convert_element_type(v, t) for t in targets]  # noqa: E731
    run(make, x, against=["interpreter", "xla"])


@pytest.mark.parametrize("source", ["s64", "u64", "f64"])
def test_convert_rounds_once(source: str) -> None:
    """XLA:CPU goes by f32 and gives 2^40 for the first."""
    x = np.array([2**40 + 2**32 + 1, 2**60 + 2**52 + 2**10, 2**11 + 1], element_type(source).dtype)
    (result,) = run(lambda b, v: sx.convert_element_type(v, "bf16"), x, against=[])
    assert result.astype(np.float64).tolist() == [2**40 + 2**33, 2**60 + 2**53, 2**11]


@pytest.mark.parametrize("shape", EDGE_SHAPES, ids=str)
def test_convert_of_every_shape(shape: tuple[int, ...]) -> None:
    x = sample("f32", int(np.prod(shape))).reshape(shape)
    for name in ("s8", "bf16", "f4e2m1fn", "u4", "pred", "c64"):
        wanted = rounding.convert(x.ravel(), element_type("f32"), element_type(name)).reshape(shape)
        (actual,) = run(lambda b, v, t=name: sx.convert_element_type(v, t), x, against=[])
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(wanted))


# ---- bit patterns ----------------------------------------------------------------------------------------------------


def raw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random codes of a type."""
    type_ = element_type(name)
    rng = np.random.default_rng([len(name), *shape])
    if type_.bits <= 8:
        return rng.choice(rounding.codes(name), shape)
    return rng.integers(0, 256, (*shape, type_.bytes), dtype=np.uint8).view(type_.dtype).reshape(shape)


def unpacked(x: np.ndarray, type_: sx.ElementType) -> np.ndarray:
    """The bits of all elements in order, the lowest of each first."""
    octets = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, type_.bytes)
    return np.unpackbits(octets, axis=1, bitorder="little")[:, : type_.bits].ravel()


WIDTHS = {
    bits: [t.name for t in sx.ELEMENT_TYPES if t.bits == bits and not t.is_complex and t.name != "pred"]
    for bits in (2, 4, 8, 16, 32, 64)
}
BITCASTS = [
    *[("pred", "u8"), ("u8", "pred"), ("pred", "u16"), ("u16", "pred"), ("c64", "c128"), ("c128", "c64")],
    *[(a, b) for names in WIDTHS.values() for a, b in zip(names, [*names[1:], names[0]], strict=True)],
    *[
        pair
        for low in WIDTHS
        for high in WIDTHS
        if low < high
        for a, b in [(WIDTHS[low][0], WIDTHS[high][-1]), (WIDTHS[low][-1], WIDTHS[high][0])]
        for pair in ((a, b), (b, a))
    ],
]


@pytest.mark.parametrize(("source", "target"), BITCASTS, ids=str)
def test_bitcast_convert(source: str, target: str) -> None:
    given, wanted = element_type(source), element_type(target)
    inner = (wanted.bits // given.bits,) if wanted.bits > given.bits else ()
    for outer in ((), (3, 5)):
        x = raw(source, (*outer, *inner))
        (actual,) = run(lambda b, v: sx.bitcast_convert_type(v, target), x, against=[])
        np.testing.assert_array_equal(unpacked(actual, wanted), unpacked(x, given))
        if wanted.is_integer and wanted.bits < 8:  # a small integer must also be one
            np.testing.assert_array_equal(actual.astype(np.int64) >> wanted.bits, -1 * (actual.astype(np.int64) < 0))


def test_bitcast_convert_to_another_shape_is_refused() -> None:
    """Upstream's verifier looks at the shapes only where the widths differ."""
    text = """func.func @main(%x: tensor<1x1xi16>) -> tensor<1x1x1xi16> {
      %r = stablehlo.bitcast_convert %x : (tensor<1x1xi16>) -> tensor<1x1x1xi16>
      return %r : tensor<1x1x1xi16>
    }"""
    with pytest.raises(sx.UnsupportedError, match=r"bitcast_convert: elements of one width keep their shape"):
        sx.compile(text)


@pytest.mark.parametrize(("source", "target"), [("f32", "u32"), ("f32", "s8"), ("u8", "f64"), ("bf16", "f32")])
def test_bitcast_convert_as_the_oracles_do(source: str, target: str) -> None:
    given, wanted = element_type(source), element_type(target)
    x = raw(source, (7, *((wanted.bits // given.bits,) if wanted.bits > given.bits else ())))
    run(lambda b, v: sx.bitcast_convert_type(v, target), x, against=["interpreter", "xla"])


# ---- reduced precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("exponent", [1, 2, 4, 5, 7, 8, 11])
def test_reduce_precision(name: str, exponent: int) -> None:
    """Oracle: XLA:CPU, which differs from the reference interpreter in one thing: NaN without mantissa bits. XLA's
    semantics say that NaN stays."""
    x = rounding.codes(name) if name in ("f16", "bf16") else values_of(name)
    if name in ("f32", "f64"):  # XLA:CPU flushes denormals
        x = x[(np.abs(x) >= np.finfo(x.dtype).tiny) | (x == 0) | np.isnan(x)]
    mantissas = (0, 1, 3, 7, 10, 23, 52)
    make: Any = lambda b, v: [sx.reduce_precision(v, exponent, m) for m in mantissas]  # noqa: E731
    results = run(make, x, against=["xla"])
    nan = np.isnan(rounding.exactly(x))
    for mantissa, result in zip(mantissas, results, strict=True):
        assert np.isnan(rounding.exactly(result)[nan]).all(), mantissa


@pytest.mark.parametrize("name", ["f8e5m2", "f8e4m3", "f8e3m4"])
def test_reduce_precision_of_eight_bits(name: str) -> None:
    """Oracle: the reference interpreter; XLA:CPU does these in f16, and so makes zeros of denormals."""
    x = rounding.codes(name)
    x = x[~np.isnan(rounding.exactly(x))]
    formats = [(e, m) for e in (2, 3, 4, 5, 8) for m in (0, 1, 2, 3, 4, 7)]
    make: Any = lambda b, v: [sx.reduce_precision(v, e, m) for e, m in formats]  # noqa: E731
    run(make, x, against=["interpreter"])


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("f8e4m3fn", [(2, 1), (3, 3), (5, 0), (5, 1), (8, 2)]),
        ("f8e4m3fnuz", [(2, 1), (3, 3), (5, 0), (5, 1), (8, 2)]),
        ("f8e4m3b11fnuz", [(2, 1), (3, 3), (5, 1), (8, 2)]),
        ("f4e2m1fn", [(3, 0), (5, 0)]),
    ],
)
def test_reduce_precision_of_formats_without_infinity(name: str, formats: list[tuple[int, int]]) -> None:
    """Oracle: XLA:CPU."""
    make: Any = lambda b, v: [sx.reduce_precision(v, e, m) for e, m in formats]  # noqa: E731
    run(make, rounding.codes(name), against=["xla"])


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_reduce_precision_to_more_bits_changes_nothing(name: str) -> None:
    x = rounding.codes(name)
    (same,) = run(lambda b, v: sx.reduce_precision(v, 8, 10), x, against=[])
    np.testing.assert_array_equal(rounding.bits(same), rounding.bits(x))


# ---- complex numbers and their parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_parts_of_complex_numbers(name: str) -> None:
    """Oracle: numpy."""
    x, y = sample(name, 60), sample(name, 60, 1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, w: sx.XlaOp) -> list[sx.XlaOp]:
        z = sx.complex(v, w)
        return [z, sx.real(z), sx.imag(z)]

    z = np.empty(60, {"f32": "c8", "f64": "c16"}[name])
    z.real, z.imag = x, y
    results = run(make, x, y, against=[])
    for actual, wanted in zip(results, [z, x, y], strict=True):
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(wanted))


def test_parts_of_real_numbers() -> None:
    """A real number is its own real part, and its imaginary part is 0. Oracle: the reference interpreter."""
    text = """func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
      %0 = stablehlo.real %x : tensor<3xf32>
      %1 = stablehlo.imag %x : tensor<3xf32>
      return %0, %1 : tensor<3xf32>, tensor<3xf32>
    }"""
    check(text, [np.array([1.5, -0.0, np.inf], np.float32)], against=["interpreter"])


LACKING = ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu"]


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.parametrize("source", ["f32", "f64", "bf16", "s32", "u8"])
def test_constants_are_converted_as_arguments_are(source: str, name: str) -> None:
    """MLIR's folding ends the process at what they lack, and has a number for 0 in f8e8m0fnu. Oracle: ml_dtypes."""
    numbers = [0, 1, 3, 100] if source[0] in "su" else [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 3.0, 1e38]
    values = np.array([*numbers, -5] if source == "s32" else numbers, element_type(source).dtype)
    b = sx.XlaBuilder("constants")
    converted = [sx.convert_element_type(b.constant(v), name) for v in values]
    folded = sx.compile(b.build(sx.tuple(converted))).execute([])
    (computed,) = run(lambda b, v: sx.convert_element_type(v, name), values, against=[])
    np.testing.assert_array_equal(np.stack(folded).view(np.uint8), computed.view(np.uint8))
    exact = values.astype(np.float64).astype(element_type(name).dtype)
    np.testing.assert_array_equal(computed.view(np.uint8), exact.view(np.uint8))


@pytest.mark.parametrize("name", LACKING[:3])
def test_quotients_of_constants_saturate(name: str) -> None:
    b = sx.XlaBuilder("quotients")
    one, zero = b.constant(1.0, name), b.constant(0.0, name)
    quotients = sx.compile(b.build((one / zero, -one / zero))).execute([])
    largest = float(ml_dtypes.finfo(element_type(name).dtype).max)
    assert [float(q) for q in quotients] == [largest, -largest]


@pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES if t.bits < 8])
def test_elements_below_a_byte_are_read_by_their_low_bits(name: str) -> None:
    """As the C header says; pred is true where its byte is not 0. Oracle: the same array without other bits."""
    type_ = element_type(name)
    given = np.arange(256, dtype=np.uint8).reshape(16, 16)
    clean = given != 0 if type_.is_pred else (given & ((1 << type_.bits) - 1)).view(type_.dtype)
    b = sx.XlaBuilder("read")
    x = b.parameter(0, type_[16, 16])
    read = sx.compile(b.build(sx.tuple((sx.convert_element_type(x, sx.f32), sx.eq(x, sx.transpose(x, (1, 0)))))))
    for got, expected in zip(read(given.view(type_.dtype)), read(clean), strict=True):
        np.testing.assert_array_equal(got, expected)
