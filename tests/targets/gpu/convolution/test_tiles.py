"""Convolutions: simulated, against the CPU's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers
from tests.targets.gpu.simulation import check_simulated

LAST = ("NHWC", "HWIO", "NHWC")
FIRST = ("NCHW", "OIHW", "NCHW")


def convolved(
    order: tuple[str, str, str] = LAST,
    strides: tuple[int, int] = (1, 1),
    padding: Any = ((1, 1), (1, 1)),
    dilations: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1)),
    groups: int = 1,
    element: str = "f32",
    then: Callable[..., Any] = lambda x: x,
) -> Callable[..., Any]:
    """A convolution over dimensions in that order, and what follows it."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        x, w = (v if element == "f32" else sx.convert_element_type(v, element) for v in (x, w))
        lhs, rhs = dilations
        dimensions = sx.ConvDimensionNumbers.of(*order)
        made = sx.conv_general_dilated(
            x, w, strides, padding, lhs, rhs, dimensions, groups, preferred_element_type="f32"
        )
        return then(made)

    return make


def relu(x: sx.XlaOp) -> sx.XlaOp:
    return sx.clamp(x.builder.constant(0.0), x + 0.5, x.builder.constant(6.0))


ON_TENSOR_CORES = ("bf16", "f16-groups")
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "3x3": (convolved(then=relu), (numbers(2, 6, 7, 5), numbers(3, 3, 5, 12, seed=1))),
    "3x3-first": (convolved(FIRST), (numbers(2, 5, 6, 7), numbers(9, 5, 3, 3, seed=1))),
    "strided": (convolved(strides=(2, 2)), (numbers(1, 9, 8, 16), numbers(3, 3, 16, 8, seed=1))),
    "1x1": (convolved(padding=((0, 0), (0, 0))), (numbers(1, 8, 9, 20), numbers(1, 1, 20, 16, seed=1))),
    "dilated": (
        convolved(dilations=((1, 1), (2, 2)), padding=((2, 2), (1, 0))),
        (numbers(1, 8, 9, 4), numbers(3, 3, 4, 8, seed=1)),
    ),
    "transposed": (
        convolved(dilations=((2, 2), (1, 1)), padding=((2, 2), (2, 1))),
        (numbers(1, 4, 5, 4), numbers(3, 3, 4, 8, seed=1)),
    ),
    "bf16": (
        convolved(element="bf16", then=relu),
        (numbers(2, 6, 7, 16), numbers(3, 3, 16, 24, seed=1)),
    ),
    "f16-groups": (
        convolved(("NHWC", "OHWI", "NHWC"), element="f16", groups=2, strides=(2, 1), padding=((0, 1), (1, 1))),
        (numbers(1, 7, 5, 32), numbers(32, 3, 2, 16, seed=1)),
    ),
    "channels": (convolved(groups=12, strides=(2, 1)), (numbers(2, 7, 6, 12), numbers(3, 3, 1, 12, seed=1))),
    "channels-bf16": (convolved(groups=16, element="bf16"), (numbers(1, 5, 6, 16), numbers(3, 3, 1, 16, seed=1))),
    "channels-first": (convolved(FIRST, groups=3), (numbers(2, 3, 6, 7), numbers(6, 1, 3, 3, seed=1))),
    "channels-transposed": (
        convolved(groups=4, dilations=((2, 2), (1, 1)), padding=((2, 2), (2, 1))),
        (numbers(1, 4, 5, 4), numbers(3, 3, 1, 4, seed=1)),
    ),
    "groups": (convolved(groups=2), (numbers(1, 5, 6, 8), numbers(3, 3, 4, 16, seed=1))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated(name: str) -> None:
    make, arrays = PROGRAMS[name]
    executable = check_simulated(make, *arrays, ulp=8, scale=1e-6)
    assert [k.path for k in executable.kernels if k.kind == "convolution"] == ["emitted"]
    if name in ON_TENSOR_CORES:
        assert "mma.sync.aligned.m16n8k16" in executable.ir("ptx")
