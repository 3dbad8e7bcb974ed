"""Values that a kernel hands on unrounded. Oracle: NumPy in f32, rounded once, or after each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import stablexla as sx
from stablexla.tools.run import main

Array = npt.NDArray[Any]
EXCESS = sx.CompileOptions(excess_precision=True)
RNG = np.random.default_rng(9)
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}


def drawn(dtype: np.dtype[Any], *shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32).astype(dtype)


def program(make: Callable[..., Any], *arrays: Array) -> sx.XlaComputation:
    b = sx.XlaBuilder("chain")
    names = {dtype: name for name, dtype in DTYPES.items()}
    types = [sx.Shape(names.get(a.dtype, "f32"), a.shape) for a in arrays]
    return b.build(make(*(b.parameter(i, type_) for i, type_ in enumerate(types))))


def chain(x: Any, y: Any) -> Any:
    return (x * y + x) * y - x


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000])
def test_a_chain_is_rounded_once(name: str, size: int) -> None:
    dtype = DTYPES[name]
    x, y = drawn(dtype, size), drawn(dtype, size)
    once = chain(x.astype("f4"), y.astype("f4")).astype(dtype)
    made = program(chain, x, y)
    np.testing.assert_array_equal(sx.compile(made, options=EXCESS)(x, y), once)
    each = sx.compile(made)(x, y)
    np.testing.assert_array_equal(each, (((x * y).astype(dtype) + x).astype(dtype) * y).astype(dtype) - x)
    assert size < 100 or not np.array_equal(each, once), "otherwise each operation is rounded"


@pytest.mark.parametrize("name", DTYPES)
def test_what_is_stored_is_rounded(name: str) -> None:
    x, y = (drawn(DTYPES[name], 100) for _ in range(2))
    made = program(lambda x, y: sx.tuple([x * y, x * y - x]), x, y)
    product, rest = sx.compile(made, options=EXCESS)(x, y)
    np.testing.assert_array_equal(product, x * y)
    np.testing.assert_array_equal(rest, (x.astype("f4") * y.astype("f4") - x.astype("f4")).astype(x.dtype))


def test_conversions_to_eight_bits_stay() -> None:
    x = drawn(np.dtype(np.float32), 100)
    made = program(lambda x: sx.convert_element_type(sx.convert_element_type(x, "f8e4m3fn"), "f32") * 2.0, x)
    wanted = x.astype(ml_dtypes.float8_e4m3fn).astype("f4") * 2
    np.testing.assert_array_equal(sx.compile(made, options=EXCESS)(x), wanted)


@pytest.mark.parametrize("rows", [1, 3, 40, 70])
def test_a_product_with_its_epilogue_is_rounded_once(rows: int) -> None:
    dtype = DTYPES["bf16"]
    x, w, scale = drawn(dtype, rows, 64), drawn(dtype, 64, 48), drawn(dtype, 48)

    def make(x: Any, w: Any, scale: Any) -> Any:
        return sx.max((x @ w) * sx.broadcast_in_dim(scale, (rows, 48), [1]) + 0.25, 0.0)

    wide = np.maximum((x.astype("f8") @ w.astype("f8")) * scale.astype("f8") + 0.25, 0)
    once, each = (np.asarray(sx.compile(program(make, x, w, scale), options=o)(x, w, scale)) for o in (EXCESS, None))
    assert once.dtype == dtype
    errors = [np.abs(made.astype("f8") - wide) / np.maximum(np.abs(wide), 1) for made in (once, each)]
    assert errors[0].max() <= 2.0**-8, "half a unit in the last place"
    assert errors[0].mean() < errors[1].mean()


def test_a_convolution_with_its_epilogue_is_rounded_once() -> None:
    dtype = DTYPES["bf16"]
    x, w = drawn(dtype, 1, 32, 9, 9), drawn(dtype, 32, 32, 3, 3)

    def make(x: Any, w: Any) -> Any:
        return sx.conv(x, w, (1, 1), "VALID") * 0.3 + 0.7

    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (3, 3), (2, 3))
    wide = np.einsum("nchwij,ocij->nohw", windows, w.astype("f8")) * float(dtype.type(0.3)) + float(dtype.type(0.7))
    once, each = (np.asarray(sx.compile(program(make, x, w), options=o)(x, w)) for o in (EXCESS, None))
    errors = [np.abs(made.astype("f8") - wide) / np.maximum(np.abs(wide), 1) for made in (once, each)]
    assert errors[0].max() <= 2.0**-8
    assert errors[0].mean() < errors[1].mean()


def test_the_tools_have_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = drawn(DTYPES["bf16"], 100)
    file = tmp_path / "chain.mlir"
    file.write_text(str(program(chain, x, x)))
    sums = []
    for option in ([], ["--excess-precision"]):
        assert main([str(file), *option]) == 0
        sums.append(capsys.readouterr().out)
    assert sums[0] != sums[1]


def test_what_is_no_boolean() -> None:
    with pytest.raises(sx.CompileError, match="excess_precision must be True or False, not 1"):
        sx.CompileOptions(excess_precision=1)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000])
def test_a_product_and_a_sum_are_one_instruction(size: int) -> None:
    """The product of these has more digits than f32: what is left after the sum is what was rounded off."""
    x = (1 + RNG.integers(1, 1 << 20, size) * 2.0**-20).astype(np.float32)
    made = program(lambda x, y: x * x - y, x, x * x)
    wide = x.astype("f8") ** 2 - (x * x).astype("f8")
    fused, each = (np.asarray(sx.compile(made, options=o)(x, x * x)) for o in (EXCESS, None))
    np.testing.assert_array_equal(each, np.zeros(size))
    if size > 16:
        np.testing.assert_array_equal(fused[:16], wide[:16].astype(np.float32))
        assert np.abs(wide[:16]).max() > 0
