"""stochastic_convert_type. Oracles: numpy, by its definition; the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.building import refused
from tests.ops.samples import sample
from tests.programs import run


def by_definition(x: np.ndarray, bits: np.ndarray, low: int, high: int) -> np.ndarray:
    """Away from zero where the random bits, as a number from 0 to 1, are below the fraction."""
    wide = np.nan_to_num(x.astype(np.float64), nan=0, posinf=1e30, neginf=-1e30)
    whole = np.floor(np.abs(wide))
    width = bits.dtype.itemsize * 8
    below = [int(b) < int((abs(v) - w) * 2.0**width) for b, v, w in zip(bits, wide, whole, strict=True)]
    rounded = np.sign(wide) * (whole + below)
    return np.clip(rounded, low, high)


@pytest.mark.parametrize(
    ("name", "to"), [("f32", "s8"), ("f32", "s32"), ("f64", "s16"), ("f16", "s8"), ("bf16", "s4"), ("f8e4m3fn", "s8")]
)
def test_stochastic_convert_type(name: str, to: str) -> None:
    target, given = element_type(to), element_type(name)
    low, high = -(1 << (target.bits - 1)), (1 << (target.bits - 1)) - 1
    near = np.array([low, low - 0.5, low + 0.75, high, high - 0.25, high + 1.0]).astype(given.dtype)
    x = np.concatenate([sample(name, 300), near, (np.random.default_rng(1).normal(size=300) * 4).astype(given.dtype)])
    bits = sample(f"u{given.bits}", x.size)
    wanted = by_definition(x, bits, low, high).astype(np.int64).astype(target.dtype)
    against = ["interpreter"] if name in ("f32", "f64") else []
    run(lambda b, v, r: sx.stochastic_convert_type(v, r, to), x, bits, against=against, expected=[wanted])


def test_the_mean_is_the_number() -> None:
    bits = np.arange(0, 1 << 16, dtype=np.uint16)
    x = np.full(bits.shape, -2.8125, np.float16)
    (result,) = run(lambda b, v, r: sx.stochastic_convert_type(v, r, "s8"), x, bits, against=[])
    assert result.astype(np.float64).mean() == -2.8125


def test_what_is_refused() -> None:
    refused("I1", lambda x, r: sx.stochastic_convert_type(x, r, "s8"), sx.s32[3], sx.u32[3])
    refused("I2", lambda x, r: sx.stochastic_convert_type(x, r, "s8"), sx.f32[3], sx.u16[3])
    refused("I2", lambda x, r: sx.stochastic_convert_type(x, r, "s8"), sx.f32[3], sx.s32[3])
    refused("I2", lambda x, r: sx.stochastic_convert_type(x, r, "s8"), sx.f32[3], sx.u32[2])
    refused("", lambda x, r: sx.stochastic_convert_type(x, r, "u8"), sx.f32[3], sx.u32[3])
    refused("", lambda x, r: sx.stochastic_convert_type(x, r, "bf16"), sx.f32[3], sx.u32[3])
