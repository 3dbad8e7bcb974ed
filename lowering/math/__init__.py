"""Elementary functions on f32 and f64, scalars and vectors, as vectorizable arithmetic.

`expand_math` is the pass `stablexla-expand-math`, run on a module before it is lowered to LLVM's dialect. The emitters
(`logistic`, `erf_inv`, `integer_power`) build functions that have no operation of their own while lowering.
"""

from __future__ import annotations

from stablexla.lowering.math import (
    error_function,
    exponential,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    remainder,
    rounding,
    trigonometric,
)
from stablexla.lowering.math.error_function import erf_inv, erf_inv_of_drawn
from stablexla.lowering.math.exponential import logistic
from stablexla.lowering.math.power import integer_power
from stablexla.lowering.math.registry import EXPANSIONS, PASS_NAME, expand_math

__all__ = [
    "EXPANSIONS",
    "PASS_NAME",
    "erf_inv",
    "erf_inv_of_drawn",
    "expand_math",
    "integer_power",
    "logistic",
    # the modules of functions, which register themselves when imported
    "error_function",
    "exponential",
    "hyperbolic",
    "inverse_trigonometric",
    "logarithm",
    "power",
    "remainder",
    "rounding",
    "trigonometric",
]
