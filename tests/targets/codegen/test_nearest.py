"""Floats that are rounded, held between integers and converted: one instruction. Oracle: numpy.

Catches another order of rounding and bounds, ties that are not even, and NaN.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx

TIES = np.float32(np.arange(-300, 300) + 0.5)
ODD = np.float32([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.0**31, -(2.0**31), 0.49999997, -0.0, 254.49998, 255.5, 127.5])


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dtype", ["u8", "s8", "s16", "u16"])
@pytest.mark.parametrize("bounds", [None, (-3.0, 11.0), (-3.25, 11.75)])
def test_rounded_and_held(dtype: str, bounds: tuple[float, float] | None, bits: int) -> None:
    values = np.concatenate([TIES, ODD, np.linspace(-400, 400, 999, dtype=np.float32), TIES * 200])
    b = sx.XlaBuilder("rounded")
    x = sx.round_nearest_even(b.parameter(0, sx.f32[len(values)]))
    with np.errstate(invalid="ignore"):
        wanted = np.round(values)
        if bounds is not None:
            low, high = bounds
            x = sx.clamp(b.constant(np.float32(low)), x, b.constant(np.float32(high)))
            wanted = np.clip(wanted, low, high)
    compiled = sx.compile(b.build(sx.convert_element_type(x, dtype)), options=sx.CompileOptions(vector_bits=bits))
    info = np.iinfo(sx.element_type(dtype).dtype)
    wanted = np.trunc(np.clip(np.where(np.isnan(wanted), 0, wanted), info.min, info.max))
    np.testing.assert_array_equal(compiled(values), wanted)


@pytest.mark.parametrize("size", [1, 15, 16, 17])
def test_lengths(size: int) -> None:
    """Scalars at the end round as vectors do; the rounded numbers are read by another operation as well."""
    values = TIES[290 : 290 + size]
    b = sx.XlaBuilder("rounded")
    x = sx.round_nearest_even(b.parameter(0, sx.f32[size]))
    q, y = sx.compile(b.build(sx.tuple([sx.convert_element_type(x, "u8"), x])))(values)
    np.testing.assert_array_equal(y, np.round(values))
    np.testing.assert_array_equal(q, np.clip(np.round(values), 0, 255))


def test_it_is_one_instruction() -> None:
    b = sx.XlaBuilder("rounded")
    x = sx.convert_element_type(sx.round_nearest_even(b.parameter(0, sx.f32[1000]) * 3.0), "u8")
    assert "llvm.intr.lrint" in sx.compile(b.build(x)).ir("buffers")
