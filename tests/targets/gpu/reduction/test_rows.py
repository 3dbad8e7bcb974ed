"""Softmax and normalisations along the last dimension: one kernel each, simulated, against the CPU's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import numbers, program, softmax
from tests.targets.gpu.simulation import check_simulated

Array = np.ndarray[Any, Any]


def in_f32(function: Callable[..., sx.XlaOp]) -> Callable[..., sx.XlaOp]:
    """The same in 32 bits, of arrays that are narrower, and back."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, *rest: sx.XlaOp) -> sx.XlaOp:
        wide = [sx.convert_element_type(v, "f32") for v in (x, *rest)]
        return sx.convert_element_type(function(b, *wide), x.shape.element_type)

    return make


def layer_norm(b: sx.XlaBuilder, x: sx.XlaOp, scale: sx.XlaOp, shift: sx.XlaOp) -> sx.XlaOp:
    shape = x.shape.dimensions

    def mean(v: sx.XlaOp) -> sx.XlaOp:
        return sx.broadcast_in_dim(sx.reduce(v, b.constant(0.0), sx.add, (1,)) / float(shape[1]), shape, (0,))

    centred = x - mean(x)
    scaled = centred * sx.rsqrt(mean(centred * centred) + 1e-5)
    return scaled * sx.broadcast_in_dim(scale, shape, (1,)) + sx.broadcast_in_dim(shift, shape, (1,))


def narrow(*shape: int, seed: int = 0) -> Array:
    return numbers(*shape, seed=seed).astype(ml_dtypes.bfloat16)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "softmax-of-10": (softmax, (numbers(13, 10),)),
    "softmax-of-37": (softmax, (numbers(9, 37),)),
    "softmax-of-64": (softmax, (numbers(7, 64),)),
    "softmax-of-1000": (softmax, (numbers(3, 1000),)),
    "softmax-of-1500": (softmax, (numbers(2, 1500),)),
    "softmax-bf16": (in_f32(softmax), (narrow(3, 200),)),
    "layer-norm": (layer_norm, (numbers(5, 96), numbers(96, seed=1), numbers(96, seed=2))),
    "layer-norm-bf16": (in_f32(layer_norm), (narrow(5, 264), narrow(264, seed=1), narrow(264, seed=2))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel(name: str) -> None:
    make, arrays = PROGRAMS[name]
    executable = check_simulated(make, *arrays, ulp=8, scale=1e-6)
    assert [(k.kind, k.path) for k in executable.kernels] == [("row", "emitted")]


@pytest.mark.parametrize(("name", "loads", "stores"), [("softmax-of-64", 1, 1), ("softmax-bf16", 1, 1)])
def test_read_once_and_written_once(name: str, loads: int, stores: int) -> None:
    make, arrays = PROGRAMS[name]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).ir("ptx")
    assert ptx.count("ld.global") == ptx.count("ld.global.nc.v") == loads
    assert ptx.count("st.global") == ptx.count("st.global.v") == stores
