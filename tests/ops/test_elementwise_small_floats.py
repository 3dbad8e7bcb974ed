"""Element-wise operations on floats below 16 bits, over all codes, and every operation on every type that it takes.

Oracles: scipy in f64, rounded to f32 and from there to the type, as the operation is computed; ml_dtypes' nextafter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import stablexla as sx
import stablexla.api
from stablexla.builder.registry import REGISTRY
from stablexla.dialects.element_types import ELEMENT_TYPES
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.pipeline.driver import run_pipeline
from tests.ops import rounding
from tests.programs import run

SMALL = [t for t in ELEMENT_TYPES if t.is_float and t.bits < 16]


@pytest.mark.parametrize(
    ("name", "function"),
    [("erf", scipy.special.erf), ("erfc", scipy.special.erfc), ("bessel_i1e", scipy.special.i1e)],
)
def test_functions_of_every_code(name: str, function: Callable[[Any], Any]) -> None:
    codes = [rounding.codes(t.name) for t in SMALL]
    results = run(lambda b, *xs: [getattr(sx, name)(x) for x in xs], *codes, against=[])
    for t, x, actual in zip(SMALL, codes, results, strict=True):
        with np.errstate(all="ignore"):
            wanted = rounding.round_to(rounding.exactly(function(rounding.exactly(x)).astype(np.float32)), t.name)
        # Compared as numbers: scipy drops the sign of zero.
        np.testing.assert_array_equal(rounding.exactly(actual), rounding.exactly(wanted), err_msg=t.name)


def test_next_after_of_all_pairs() -> None:
    """Types without a negative zero, without a sign, without infinities or NaN; MLIR takes them for IEEE-754's."""
    codes = [rounding.codes(t.name) for t in SMALL]
    pairs = [[a.ravel() for a in np.meshgrid(x, x)] for x in codes]
    results = run(
        lambda b, *xs: [sx.next_after(x, y) for x, y in zip(xs[::2], xs[1::2], strict=True)],
        *(x for pair in pairs for x in pair),
        against=[],
    )
    for t, (x, y), actual in zip(SMALL, pairs, results, strict=True):
        wanted = np.nextafter(x, y)
        same = (rounding.bits(actual) == rounding.bits(wanted)) | (np.isnan(actual) & np.isnan(wanted))
        assert same.all(), (t, x[~same][:3], y[~same][:3], actual[~same][:3], wanted[~same][:3])


def test_next_after_of_a_scalar_and_of_short_rows() -> None:
    x, y = (np.array([v, 1.5, -0.0], "float32").astype(sx.f6e3m2fn.dtype) for v in (0.5, 2.0))
    run(lambda b, v, w: sx.next_after(v, w), x, y, against=[], expected=[np.nextafter(x, y)])
    run(lambda b, v, w: sx.next_after(v, w), x[0], y[0], against=[], expected=[np.nextafter(x[0], y[0])])


ELEMENTWISE = [n for n, o in REGISTRY.items() if o.family == "elementwise" and hasattr(stablexla.api, n)]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_type_that_is_taken_is_lowered(name: str) -> None:
    """Down to operations on tensors; later steps see types of the machine alone."""
    b = sx.XlaBuilder(name)
    types = [t[4] for t in REGISTRY[name].element_types]
    results = [_applied(name, b, number, shape) for number, shape in enumerate(types)]
    module = b.build(sx.tuple(results)).copy_of_module()
    run_pipeline(module, cpu_pipeline().up_to("tensor"))


def _applied(name: str, b: sx.XlaBuilder, number: int, shape: sx.Shape) -> sx.XlaOp:
    """The operation on parameters of this shape."""
    function = getattr(sx, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    first = 3 * number
    operands = [b.parameter(first + n, shape) for n in range(3)]
    if name == "select":
        return sx.select(sx.eq(operands[0], operands[1]), *operands[1:])
    direction = {"comparison_direction": "LT"} if name == "compare" else {}
    made: sx.XlaOp = function(*operands[: len(required)], **direction)
    return made
