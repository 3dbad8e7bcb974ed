"""Chains of operations on bf16, each rounded: all 65536 numbers through each of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.lowering.math import short_nans, small_floats

EVERY = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
CHAINS: dict[str, Callable[[sx.XlaOp], sx.XlaOp]] = {
    "arithmetic": lambda x: sx.tanh(-x * x + x) / sx.abs(x) - x,
    "exponentials": lambda x: sx.exp(x) * sx.logistic(x) + sx.log(x),
    "choices": lambda x: sx.max(sx.sqrt(x), sx.min(x, x * x)) * sx.sign(x),
}


def result_of(chain: Callable[[sx.XlaOp], sx.XlaOp], x: np.ndarray) -> np.ndarray:
    b = sx.XlaBuilder("chain")
    built = b.build(chain(b.parameter(0, sx.bf16[x.shape[0]])))
    return np.asarray(sx.compile(built)(x))


@pytest.mark.parametrize("name", CHAINS)
def test_rounding_without_a_look_at_nans_changes_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = result_of(CHAINS[name], EVERY)
    monkeypatch.setattr(small_floats, "has_short_nans", lambda value: False)
    np.testing.assert_array_equal(result_of(CHAINS[name], EVERY).view(np.uint16), quick.view(np.uint16))


def test_values_with_many_paths_to_them_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, defining = 0, short_nans.defining

    def counted(value: object) -> object:
        nonlocal looked
        looked += 1
        return defining(value)

    monkeypatch.setattr(short_nans, "defining", counted)
    b = sx.XlaBuilder("doubled")
    x = sx.convert_element_type(b.parameter(0, sx.bf16[64]), sx.f32)
    for _ in range(12):
        x = x + x
    executable = sx.compile(b.build(sx.convert_element_type(x, sx.bf16)))
    given = np.arange(64).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(executable(given)), given * 4096)
    assert 12 < looked < 200


def test_nans_of_f32_stay_nans() -> None:
    """Those whose upper bits are all set would become -0 if they were rounded like numbers."""
    bits = np.concatenate([np.arange(0x7FFF0000, 0x80000000, 97), np.arange(0xFFFF0000, 0x100000000, 97)])
    x = bits.astype(np.uint32).view(np.float32)
    b = sx.XlaBuilder("convert")
    built = b.build(sx.convert_element_type(b.parameter(0, sx.f32[x.shape[0]]), sx.bf16))
    assert np.isnan(np.asarray(sx.compile(built)(x)).astype(np.float32)).all()


def test_erfc_of_bf16_is_rounded_right() -> None:
    with np.errstate(invalid="ignore"):
        expected = np.array([math.erfc(v) for v in EVERY.astype(np.float64)]).astype(ml_dtypes.bfloat16)
    made = result_of(sx.erfc, EVERY)
    numbers = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(made[numbers].view(np.uint16), expected[numbers].view(np.uint16))
    assert np.isnan(made[~numbers].astype(np.float32)).all()


def test_exp_of_bf16_is_off_by_half_a_unit_and_no_more() -> None:
    """All but 6.84375, whose exponential lies a fifth of an f32's unit beside the middle of two bf16."""
    with np.errstate(invalid="ignore", over="ignore"):
        exact = np.exp(EVERY.astype(np.float64))
        expected = exact.astype(ml_dtypes.bfloat16)
    made = result_of(sx.exp, EVERY)
    numbers = ~np.isnan(exact)
    wrong = numbers & (made.view(np.uint16) != expected.view(np.uint16))
    assert EVERY[wrong].astype(np.float64).tolist() in ([], [6.84375])
    assert np.isnan(made[~numbers].astype(np.float32)).all()
