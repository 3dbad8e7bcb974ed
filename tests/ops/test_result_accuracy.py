"""result_accuracy of elementary functions: carried in the program, and kept to or refused."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla import ResultAccuracy
from tests.ops.building import build, refused
from tests.programs import run

FUNCTIONS = ("cbrt", "cos", "erf", "exp", "expm1", "log", "log1p", "logistic", "rsqrt", "sin", "sqrt", "tan", "tanh")
X = np.float32([0.25, 0.5, 0.75])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_functions_have(name: str) -> None:
    """Oracle: the same function without the parameter."""
    function = getattr(sx, name)
    (wanted,) = run(lambda b, x: function(x), X, against=[])
    asked = ("DEFAULT", "HIGHEST", ResultAccuracy(ulps=3), ResultAccuracy(rtol=1e-6, atol=1e-30))
    run(lambda b, x: [function(x, a) for a in asked], X, against=[], expected=[wanted] * 4)


def test_the_attribute_is_written() -> None:
    text = str(build(lambda x: sx.exp(x, ResultAccuracy(atol=0.5, ulps=3)), sx.f32[3]))
    assert "#stablehlo.result_accuracy<atol = 5.000000e-01, ulps = 3, mode" in text
    assert "HIGHEST" in str(build(lambda x: sx.tan(x, "HIGHEST"), sx.c64[3]))


def test_what_no_function_keeps_to_is_refused() -> None:
    """Oracle: docs/numerics.md. sqrt is rounded correctly; sin is at most 1, so that atol bounds it."""
    for function, allowed, shape in (
        (sx.exp, ResultAccuracy(ulps=1), sx.f32[3]),
        (sx.erf, ResultAccuracy(rtol=1e-8), sx.f32[3]),
        (sx.log, ResultAccuracy(atol=1e-3), sx.f32[3]),
        (sx.exp, ResultAccuracy(ulps=2), sx.f64[3]),
        (sx.sin, ResultAccuracy(atol=1e-7), sx.f32[3]),
        (sx.sin, ResultAccuracy(atol=1e-5), sx.c128[3]),
    ):
        with pytest.raises(sx.UnsupportedError, match="asks for more than") as raised:
            sx.compile(build(lambda x, f=function, a=allowed: f(x, a), shape))
        assert "test_result_accuracy.py" in str(raised.value)
    for function, allowed, shape in (
        (sx.sqrt, ResultAccuracy(ulps=1), sx.f32[3]),
        (sx.sin, ResultAccuracy(atol=1e-6), sx.f32[3]),
        (sx.exp, ResultAccuracy(ulps=1), sx.bf16[3]),
    ):
        sx.compile(build(lambda x, f=function, a=allowed: f(x, a), shape))


def test_in_a_text() -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = stablehlo.tanh %x {result_accuracy = #stablehlo.result_accuracy<ulps = ULPS,
        mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    np.testing.assert_allclose(sx.compile(text.replace("ULPS", "2"))(X), np.tanh(X), rtol=1e-6)
    with pytest.raises(sx.UnsupportedError, match="ulps=1"):
        sx.compile(text.replace("ULPS", "1"))


def test_what_is_no_accuracy() -> None:
    for wrong in ("LOW", 3, ResultAccuracy(), ResultAccuracy(ulps=-1), ResultAccuracy(ulps=1, mode="HIGHEST")):
        refused("", lambda x, w=wrong: sx.exp(x, w), sx.f32[3])
    refused("", lambda x: sx.exp(x, ResultAccuracy(ulps=1.5)), sx.f32[3])
    refused("", lambda x: sx.exp(x, ResultAccuracy(atol=float("nan"))), sx.f32[3])
    refused("", lambda x: sx.exp(x, ResultAccuracy(ulps=1, mode="LOW")), sx.f32[3])
