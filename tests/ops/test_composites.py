"""Composites: by a kernel where there is one, else by their decomposition, and the two ways agree.

Oracles: scipy in double precision, and the decomposition itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import stablexla as sx
from stablexla.targets.cpu.pipeline import cpu_pipeline
from tests.comparison import assert_same
from tests.ops.samples import sample

REFERENCES: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cosh": np.cosh,
    "sinh": np.sinh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erf_inv": scipy.special.erfinv,
}


def decomposing() -> sx.CompileOptions:
    """Options that decompose every composite."""
    pipeline = cpu_pipeline(sx.CompileOptions(choices="usual"))
    passes = next(step.passes for step in pipeline if step.name == "stablehlo")
    name = "stablexla-decompose-composites"
    return sx.CompileOptions(pipeline=pipeline.with_step("stablehlo", passes.replace(name, name + "{all=true}")))


def program(operation: str, name: str, size: int) -> sx.XlaComputation:
    b = sx.XlaBuilder(operation)
    return b.build(getattr(sx, operation)(b.parameter(0, sx.Shape(name, (size,)))))


@pytest.mark.parametrize("operation", REFERENCES)
@pytest.mark.parametrize("name", ["bf16", "f32"])
def test_kernels_against_scipy(operation: str, name: str) -> None:
    x = sample(name, 1000)
    x[500:] = (np.random.default_rng(0).uniform(-1, 1, 500)).astype(x.dtype)
    executable = sx.compile(program(operation, name, x.size))
    with np.errstate(all="ignore"):
        wanted = REFERENCES[operation](x.astype(np.float64)).astype(x.dtype)
    assert_same(executable(x), wanted, ulp=2 if name == "f32" else 1)
    assert executable.composites == {f"chlo.{operation} v0": "kernel"}


@pytest.mark.parametrize("operation", REFERENCES)
def test_the_two_ways_agree(operation: str) -> None:
    x = np.random.default_rng(1).uniform(-0.99, 0.99, 300).astype(np.float32)
    computation = program(operation, "f32", x.size)
    executable = sx.compile(computation, options=decomposing())
    assert executable.composites == {f"chlo.{operation} v0": "decomposition"}
    assert_same(executable(x), sx.compile(computation)(x), scale=1e-5)


def test_a_composite_without_a_kernel_is_decomposed() -> None:
    b = sx.XlaBuilder("swish")
    x = b.parameter(0, sx.f32[3])
    y = sx.composite_call(x, "my.swish", {"beta": 1}, lambda v: v * sx.logistic(v), version=1)
    executable = sx.compile(b.build(y))
    values = np.array([-1, 0, 2], np.float32)
    assert executable.composites == {"my.swish v1": "decomposition"}
    assert_same(executable(values), (values / (1 + np.exp(-values))).astype(np.float32), ulp=3)
