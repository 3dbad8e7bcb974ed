"""Conversions from and to floats below 32 bits, over all codes and around every number where rounding turns.

Oracles: the types' own lists of values (tests/ops/rounding.py); ml_dtypes; XLA:CPU where it has the type.
"""

from __future__ import annotations

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.element_types import element_type
from stablexla.lowering.math.small_floats import FORMATS, expand_small_floats
from tests import oracles
from tests.ops import rounding
from tests.programs import run


def converted(x: np.ndarray, name: str) -> np.ndarray:
    return run(lambda b, v: sx.convert_element_type(v, name), x, against=[])[0]


def around(name: str) -> np.ndarray:
    """f64 numbers at a type's values and half way between them, and next to those."""
    middle = rounding.boundaries(name)[1]
    values = rounding.exactly(rounding.codes(name))
    values = values[np.isfinite(values)]
    near = np.concatenate([values, middle, -middle, middle * 2, middle * 1e30, middle * 1e-30])
    near = np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)])
    return np.concatenate([near, [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-300, -1e-300, 5e-324]])


@pytest.mark.parametrize("name", rounding.SMALL_FLOATS)
def test_every_code_as_f32(name: str) -> None:
    x = rounding.codes(name)
    wanted = rounding.convert(x, element_type(name), element_type("f32"))
    np.testing.assert_array_equal(rounding.bits(converted(x, "f32")), rounding.bits(wanted))


@pytest.mark.parametrize("name", rounding.SMALL_FLOATS)
def test_f32_rounded(name: str) -> None:
    random = np.random.default_rng(3).integers(0, 1 << 32, 5000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        near = around(name).astype(np.float32)
    x = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf)), random])
    actual = rounding.bits(converted(x, name))
    np.testing.assert_array_equal(actual, rounding.bits(rounding.round_to(rounding.exactly(x), name)))
    if name not in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu"):  # these differ, see below
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(actual, rounding.bits(x.astype(element_type(name).dtype)))


@pytest.mark.parametrize("name", rounding.SMALL_FLOATS)
def test_f64_rounded_once(name: str) -> None:
    """By way of f32 some of these would be rounded twice; ml_dtypes and XLA:CPU do that."""
    x = around(name)
    np.testing.assert_array_equal(rounding.bits(converted(x, name)), rounding.bits(rounding.round_to(x, name)))


@pytest.mark.parametrize("source", ["bf16", "f16"])
def test_every_code_of_16_bits_rounded(source: str) -> None:
    x = rounding.codes(source)
    targets = [t for t in rounding.SMALL_FLOATS if t != source]
    results = run(lambda b, v: [sx.convert_element_type(v, t) for t in targets], x, against=[])
    for name, actual in zip(targets, results, strict=True):
        wanted = rounding.round_to(rounding.exactly(x), name)
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(wanted), err_msg=name)


def test_too_large_and_not_a_number() -> None:
    """Infinity where the format has one, else NaN, else the largest number; NaN without a code for it is -0.

    Oracle: XLA:CPU (which lacks the two f6; they follow f4). StableHLO's specification says nothing, and its reference
    interpreter gives 0 for an infinity in f4e2m1fn.
    """
    x = np.array([np.inf, -np.inf, 1e6, -1e6, np.nan, 464, 465, 57344, 61440, 0, -0.0], np.float32)
    names = [n for n in rounding.SMALL_FLOATS if not n.startswith("f6")]
    results = run(lambda b, v: [sx.convert_element_type(v, n) for n in names], x, against=[])
    for name, actual in zip(names, results, strict=True):
        type_ = f"tensor<11x{element_type(name).mlir}>"
        text = f"""func.func @main(%x: tensor<11xf32>) -> {type_} {{
          %0 = stablehlo.convert %x : (tensor<11xf32>) -> {type_}
          return %0 : {type_}
        }}"""
        (wanted,) = oracles.xla(text, [x])
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(wanted), err_msg=name)
    assert converted(x, "f6e3m2fn").astype(np.float32)[:5].tolist() == [28, -28, 28, -28, 0]


def test_powers_of_two_round_to_the_nearest() -> None:
    """Between 2^-127 and 1.5 * 2^-127 ml_dtypes and XLA:CPU give 2^-126; the reference interpreter the nearest."""
    x = np.array([1.25, 1.49, 1.5, 0.01, 3, 5, 6], np.float32) * np.float32(2.0**-127)
    exponents = converted(x, "f8e8m0fnu").view(np.uint8)
    assert exponents.tolist() == [0, 0, 1, 0, 2, 2, 3]


@pytest.mark.parametrize("shape", ["", "8", "16", "2x4"])
@pytest.mark.parametrize("name", ["bf16", *FORMATS, "f8E8M0FNU"])
def test_no_conversion_of_a_small_float_is_left(name: str, shape: str) -> None:
    """LLVM's dialect has no instruction for any of them, on scalars or vectors of any shape."""
    elements = (name, "f32", "f64", "i32")
    small, single, double, integer = (f"vector<{shape}x{t}>" if shape else t for t in elements)
    results = f"{single}, {double}, {small}, {small}, {integer}"
    text = f"""func.func @f(%a: {small}, %b: {double}, %i: {integer}, %c: i1) -> ({results}) {{
      %0 = arith.extf %a : {small} to {single}
      %1 = arith.extf %a : {small} to {double}
      %2 = arith.truncf %0 : {single} to {small}
      %3 = arith.truncf %b : {double} to {small}
      %4 = arith.sitofp %i : {integer} to {small}
      %5 = arith.select %c, %3, %4 : {small}
      %6 = arith.fptosi %2 : {small} to {integer}
      return %0, %1, %2, %5, %6 : {results}
    }}"""
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        expand_small_floats(module)
        assert module.operation.verify()
        for op in module.body.operations[0].regions[0].blocks[0].operations:
            kinds = [str(v.type) for v in (*op.operands, *op.results)]
            if op.operation.name not in ("arith.bitcast", "arith.select", "func.return"):
                assert not any(name in kind for kind in kinds), op


def test_arithmetic_on_small_floats_is_that_of_f32_rounded() -> None:
    """Oracle: ml_dtypes, which computes the same way."""
    x = rounding.codes("f8e4m3fn")
    y = np.random.default_rng(0).permutation(x)
    with np.errstate(all="ignore"):
        wanted = [x + y, x * y]
    results = run(lambda b, v, w: [sx.add(v, w), sx.mul(v, w)], x, y, against=[])
    for actual, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(rounding.bits(actual), rounding.bits(expected))
