"""Assembly of the expansions on AVX2 and AVX-512: vector instructions, and no call but of functions that they share."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stablexla.lowering.math import EXPANSIONS
from tests.numerics.harness import assembly
from tests.numerics.references import FUNCTIONS, Function

# arithmetic on one float: what a function taken apart lane by lane would be full of
SCALAR_ARITHMETIC = re.compile(r"\tv(?:add|sub|mul|div|sqrt|round|cmp\w*|max|min|cvt\w*2|fn?m\w*\d+)s[sd]\b")
CALL = re.compile(r"\tcallq?\s+(?!stablexla\.)|\tjmp\w*\s+\w+@PLT")


def check(function: Function, dtype: Any, bits: int, cpu: str, register: str) -> None:
    lanes = bits // (8 * np.dtype(dtype).itemsize)
    text = assembly(function.emit, [dtype] * function.arity, (lanes,), cpu)
    assert register in text
    assert not CALL.findall(text)
    assert not SCALAR_ARITHMETIC.findall(text)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_256_bits(function: Function, dtype: Any) -> None:
    check(function, dtype, 256, "x86-64-v3", "%ymm")


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_512_bits(function: Function) -> None:
    for dtype in (np.float32, np.float64):
        check(function, dtype, 512, "sapphirerapids", "%zmm")


def test_every_expansion_of_real_functions_is_measured() -> None:
    """Those with integers, several results or truth values have tests of their own."""
    apart = {"fpowi", "ipowi", "sincos", "isnan", "isinf", "isfinite", "isnormal"}
    assert {name.split(".")[1] for name in EXPANSIONS} - apart <= set(FUNCTIONS)
