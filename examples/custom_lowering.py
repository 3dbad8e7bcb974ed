"""Lowering rules of one's own: what an operation becomes, without a change to stablexla.

Run as `python examples/custom_lowering.py`. The first rule computes CHLO's `erf` by a short formula that is right to
seven digits; the second one is for a composite operation of the user's, which others run by its decomposition. Both are
compared with numpy and the standard library.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from mlir.dialects import arith
from mlir.dialects import math as mlir_math

import stablexla as sx

Array = npt.NDArray[Any]

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: at most 1.5e-7 off.
P, COEFFICIENTS = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


@sx.lowering_rule("chlo.erf")
def short_erf(ctx: Any, x: Any) -> Any:
    """1 - (a1 t + a2 t^2 + ... + a5 t^5) exp(-x^2) with t = 1 / (1 + p |x|), and the sign of x."""
    if ctx.result.element.name != "f32":
        return ctx.built_in(x)  # too coarse for f64: stablexla's own way

    def of_element(v: Any) -> Any:
        one, p = ctx.constant(1, v), ctx.constant(P, v)
        t = arith.divf(one, mlir_math.fma(p, mlir_math.absf(v), one))
        total = ctx.constant(0, v)
        for a in reversed(COEFFICIENTS):
            total = arith.mulf(t, arith.addf(total, ctx.constant(a, v)))
        tail = mlir_math.exp(arith.negf(arith.mulf(v, v)))
        return mlir_math.copysign(arith.subf(one, arith.mulf(total, tail)), v)

    return ctx.elementwise(of_element, x)


@sx.lowering_rule("example.softplus")
def softplus(ctx: Any, x: Any) -> Any:
    """max(x, 0) + log1p(exp(-|x|)), which does not overflow; `sharpness` is an attribute of the composite."""
    sharpness = float(ctx.plain_attributes["sharpness"])

    def of_element(v: Any) -> Any:
        zero, scale, inverse = (ctx.constant(n, v) for n in (0, sharpness, 1 / sharpness))
        scaled = arith.mulf(v, scale)
        tail = mlir_math.log1p(mlir_math.exp(arith.negf(mlir_math.absf(scaled))))
        return arith.mulf(arith.addf(arith.maximumf(scaled, zero), tail), inverse)

    return ctx.elementwise(of_element, x)


def program(count: int) -> sx.XlaComputation:
    """The error function and a softplus of each number."""
    x = sx.XlaBuilder("functions").parameter(0, sx.f32[count], name="x")
    attributes = {"sharpness": 2.0}
    plus = sx.composite_call(x, "example.softplus", attributes, lambda x: sx.log(1.0 + sx.exp(x * 2.0)) * 0.5)
    return x.builder.build(sx.tuple((sx.erf(x), plus)))


def wanted(x: Array) -> tuple[Array, Array]:
    """The same in f64."""
    wide = x.astype(np.float64)
    return np.vectorize(math.erf)(wide), np.logaddexp(0, 2 * wide) / 2


def differences(executable: sx.Executable, x: Array) -> list[float]:
    """The largest difference of each result."""
    return [float(np.abs(found - right).max()) for found, right in zip(executable(x), wanted(x), strict=True)]


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    x = np.linspace(-60, 60, 100_001).astype(np.float32)
    computation = program(len(x))
    own = sx.compile(computation, options=sx.CompileOptions(rules=[short_erf, softplus]))
    before = sx.compile(computation)  # the rules hold for `own` alone
    for name, executable in (("without rules", before), ("with rules", own)):
        erf, plus = differences(executable, x)
        print(f"{name}: erf is {erf:.1e} off, softplus {plus:.1e}; composites: {executable.composites}")
    print("\nwhat the rules made of the program:\n")
    print(own.ir("tensor"))
    erf, plus = differences(own, x)
    return int(erf > 5e-7 or plus > 5e-6)


if __name__ == "__main__":
    sys.exit(main())
