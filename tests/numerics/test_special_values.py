"""Special arguments of annex F of the C standard that the samples of test_accuracy lack."""

from __future__ import annotations

import ctypes
import math
import platform
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

from tests.numerics.harness import Kernel, operation
from tests.numerics.references import FUNCTIONS, special_values

DTYPES = [np.float32, np.float64]
INF, NAN = math.inf, math.nan

#: functions that are x or nearly so for small x
ODD = [
    "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "log1p", "expm1", "erf_inv", "round",
]  # fmt: skip

#: x, y, x**y
POWERS = [
    (NAN, 0.0, 1.0), (1.0, NAN, 1.0), (-1.0, INF, 1.0), (-1.0, -INF, 1.0), (-1.0, NAN, NAN), (0.0, -1.0, INF),
    (-0.0, -1.0, -INF), (-0.0, -2.0, INF), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0), (-8.0, 1 / 3, NAN),
    (-2.0, 3.0, -8.0), (-2.0, 4.0, 16.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF), (-INF, -3.0, -0.0),
    (-INF, -2.0, 0.0), (INF, -1.0, 0.0), (INF, 0.5, INF), (0.5, INF, 0.0), (0.5, -INF, INF), (-0.5, INF, 0.0),
    (2.0, INF, INF), (2.0, -INF, 0.0), (NAN, 1.0, NAN), (2.0, NAN, NAN), (10.0, 400.0, INF), (10.0, -400.0, 0.0),
]  # fmt: skip

#: y, x, remainder of y by x
REMAINDERS = [
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (5.0, INF, 5.0), (INF, 3.0, NAN), (3.0, 0.0, NAN), (NAN, 1.0, NAN),
    (1.0, NAN, NAN), (-6.0, 3.0, -0.0), (6.0, -4.0, 2.0), (-5.5, 2.0, -1.5), (2.0**100, 3.0, 1.0),
]  # fmt: skip


def same(result: Any, expected: Any) -> bool:
    """Equal with NaN equal to itself and -0 different from 0."""
    return bool(np.array_equal(result, expected, equal_nan=True) and np.array_equal(signs(result), signs(expected)))


def signs(values: Any) -> Any:
    return np.signbit(values) & ~np.isnan(values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: Any) -> None:
    x, y, expected = np.array(POWERS, dtype).T
    assert same(Kernel(operation("math.powf"), [dtype] * 2)(x, y), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_remainders(dtype: Any) -> None:
    x, y, expected = np.array(REMAINDERS, np.float32).astype(dtype).T
    assert same(Kernel(operation("arith.remf"), [dtype] * 2)(x, y), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_remainder_of_any_exponents(dtype: Any) -> None:
    # oracle: fmod of the C library, which is exact
    generator = np.random.default_rng(5)
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    x, y = (generator.integers(0, np.iinfo(unsigned).max, 4096, unsigned).view(dtype) for _ in range(2))
    y[:1024] = np.finfo(dtype).smallest_subnormal * generator.integers(1, 1000, 1024).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    assert same(Kernel(operation("arith.remf"), [dtype] * 2)(x, y), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ODD)
def test_odd_functions_keep_denormals_and_the_sign_of_zero(name: str, dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, tiny, -tiny, 3 * tiny, -7 * tiny], dtype)
    expected = x * 0 if name == "round" else x
    if name in ("erf", "erf_inv"):  # slopes 1.13 and 0.89
        expected = x * dtype(2 / math.sqrt(math.pi) if name == "erf" else math.sqrt(math.pi) / 2)
    assert same(Kernel(FUNCTIONS[name].emit, [dtype])(x), expected.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_that_are_denormal(dtype: Any) -> None:
    # oracle: numpy in the longer format of the two
    exp = Kernel(FUNCTIONS["exp"].emit, [dtype])
    info = np.finfo(dtype)
    x = np.linspace(math.log(float(info.smallest_subnormal)) - 1, math.log(float(info.tiny)), 5000).astype(dtype)
    expected = np.exp(x.astype(np.longdouble))
    distance = np.abs(exp(x).astype(np.longdouble) - expected) / info.smallest_subnormal
    assert distance.max() < 1.5
    assert np.abs(Kernel(FUNCTIONS["logistic"].emit, [dtype])(x) - exp(x)).max() <= info.smallest_subnormal


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag's number is that of x86")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "exp2", "logistic"])
def test_results_far_below_denormals_do_not_underflow(name: str, dtype: Any) -> None:
    """The zeros are exact: x86 takes a hundred cycles for a product that underflows."""
    libm, underflow = ctypes.CDLL("libm.so.6"), 16
    kernel = Kernel(FUNCTIONS[name].emit, [dtype])
    least = -110.0 if dtype is np.float32 else -750.0
    x = np.repeat(np.array([least, 1.5 * least, -1e9, -np.inf], dtype), 64) * dtype(1.5 if name == "exp2" else 1.0)
    kernel(x)
    libm.feclearexcept(underflow)
    results = kernel(x)
    assert not libm.fetestexcept(underflow)
    assert same(results, np.zeros_like(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_classes(dtype: Any) -> None:
    def emit(name: str) -> Any:
        def as_number(x: ir.Value) -> ir.Value:
            flag = ir.IntegerType.get_signless(1)
            mask = ir.Operation.create(name, results=[ir.VectorType.get(x.type.shape, flag)], operands=[x]).result
            return ir.Operation.create("arith.uitofp", results=[x.type], operands=[mask]).result

        return as_number

    x = special_values(dtype)
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(dtype).tiny)
    for name, expected in [
        ("isnan", np.isnan(x)), ("isinf", np.isinf(x)), ("isfinite", np.isfinite(x)), ("isnormal", normal),
    ]:  # fmt: skip
        assert np.array_equal(Kernel(emit(f"math.{name}"), [dtype])(x) != 0, expected), name
