"""Powers with integer exponents. Oracle: Python's integers, and numpy for bases that are floating-point."""

from __future__ import annotations

from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.math import expand_math, integer_power
from tests.numerics.harness import Kernel, operation


def exact(base: int, exponent: int, bits: int, signed: bool) -> int:
    """base**exponent modulo 2**bits; 0 for negative exponents unless the base is 1 or -1."""
    if exponent < 0:
        value = {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    else:
        value = pow(base, exponent, 1 << bits)
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def samples(dtype: Any) -> tuple[Any, Any]:
    info = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    edges = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], dtype)
    edges = np.concatenate([edges, np.array([-1, -2, -3], dtype)]) if info.min < 0 else edges
    x = np.concatenate([np.repeat(edges, edges.size), generator.integers(info.min, info.max, 200, dtype)])
    y = np.concatenate([np.tile(edges, edges.size), generator.integers(0, 40, 200, dtype)])
    return x, y


@pytest.mark.parametrize("shape", [None, (8,), (2, 4)], ids=["scalar", "vector", "matrix"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_signed(dtype: Any, shape: Any) -> None:
    x, y = samples(dtype)
    bits = 8 * np.dtype(dtype).itemsize
    expected = [exact(int(a), int(b), bits, True) for a, b in zip(x, y)]
    assert Kernel(operation("math.ipowi"), [dtype] * 2, shape)(x, y).tolist() == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned(dtype: Any) -> None:
    x, y = samples(dtype)
    bits = 8 * np.dtype(dtype).itemsize
    expected = [exact(int(a), int(b), bits, False) for a, b in zip(x, y)]
    kernel = Kernel(lambda a, b: integer_power(a, b, signed=False), [dtype] * 2)
    assert kernel(x, y).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_with_integer_exponents(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(0, 2, 500), [-0.0, 0.0, np.inf, -np.inf, np.nan, -1.0, 1.0]]).astype(dtype)
    y = np.concatenate([generator.integers(-40, 40, 500), [-3, -3, 2, -3, 0, 2**31 - 1, -(2**31)]]).astype(np.int32)
    kernel = Kernel(operation("math.fpowi"), [dtype, np.int32])
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(dtype)
    result = kernel(x, y)
    assert np.array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_allclose(result, expected, rtol=2 * np.finfo(dtype).eps)
    assert np.array_equal(np.signbit(result), np.signbit(expected))


def test_wide_exponents_of_floats_are_left_alone() -> None:
    with upstream_context():
        module = ir.Module.parse(
            "func.func @f(%x: f64, %n: i64) -> f64 { %y = math.fpowi %x, %n : f64, i64 return %y : f64 }"
        )
    expand_math(module)
    assert "math.fpowi" in str(module)
