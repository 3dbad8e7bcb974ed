"""Every way to the same result: emitted kernels at each vector width, and the general path through linalg's loops.

The oracle is the general path, which knows nothing of vectors; the ways may differ by rounding where sums are split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import host_target
from tests.comparison import assert_same
from tests.programs import general_only


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def whole(*shape: int) -> np.ndarray:
    """Whole numbers, whose sums are exact in any order."""
    return np.round(normal(*shape) * 4)


def total(x: sx.XlaOp, dimensions: Sequence[int]) -> sx.XlaOp:
    return sx.reduce(x, x.builder.constant(np.float32(0)), sx.add, dimensions)


def softmax(x: sx.XlaOp) -> sx.XlaOp:
    top = sx.reduce(x, x.builder.constant(np.float32(-np.inf)), sx.max, (1,))
    e = sx.exp(sx.sub(x, top, broadcast_dimensions=(0,)))
    return sx.div(e, total(e, (1,)), broadcast_dimensions=(0,))


def layer_norm(x: sx.XlaOp, scale: sx.XlaOp) -> sx.XlaOp:
    n = np.float32(x.shape.dimensions[1])
    mean = total(x, (1,)) / n
    centred = sx.sub(x, mean, broadcast_dimensions=(0,))
    spread = sx.rsqrt(total(centred * centred, (1,)) / n + 1e-5)
    return sx.mul(sx.mul(centred, spread, broadcast_dimensions=(0,)), scale, broadcast_dimensions=(1,))


def gelu_layer(x: sx.XlaOp, w: sx.XlaOp, bias: sx.XlaOp) -> sx.XlaOp:
    h = sx.add(sx.dot(x, w), bias, broadcast_dimensions=(1,))
    return h * 0.5 * (sx.tanh((h + h * h * h * 0.044715) * 0.7978846) + 1.0)


def narrow(x: sx.XlaOp) -> sx.XlaOp:
    h = sx.convert_element_type(x, "bf16")
    return sx.convert_element_type(sx.select(sx.gt(h, h.builder.constant(0.0, "bf16")), h + h, sx.neg(h)), "s8")


PROGRAMS: dict[str, tuple[Callable[..., sx.XlaOp], list[np.ndarray]]] = {
    "chain": (lambda x, y: sx.tanh(sx.exp(x * y) - sx.abs(y)), [normal(1003), normal(1003, seed=1)]),
    "mixed widths": (narrow, [normal(5, 77)]),
    "broadcast": (lambda x, v: sx.add(x, v, broadcast_dimensions=(0,)) * 2.0, [normal(7, 3, 29), normal(7)]),
    "softmax": (softmax, [normal(37, 101)]),
    "short rows": (softmax, [normal(129, 5)]),
    "layer norm": (layer_norm, [normal(33, 65), normal(65)]),
    "columns": (lambda x: total(x * x, (0,)), [whole(203, 71)]),
    "middle": (lambda x: total(x, (1,)), [whole(5, 37, 19)]),
    "all": (lambda x: total(x, (0, 1)), [whole(301, 203)]),
    "layer": (gelu_layer, [normal(45, 70), normal(70, 51, seed=1), normal(51)]),
    "transposed product": (lambda x, y: sx.dot(sx.transpose(x, (1, 0)), y), [normal(64, 33), normal(64, 40)]),
    "skinny product": (lambda x, y: sx.dot(x, y), [normal(3, 200), normal(200, 333)]),
    "transpose": (lambda x: sx.transpose(x, (2, 0, 1)), [normal(9, 33, 70)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_agree(name: str) -> None:
    make, args = PROGRAMS[name]
    b = sx.XlaBuilder("ways")
    computation = b.build(make(*(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(args))))
    wanted = sx.compile(computation, options=general_only())(*args)
    for bits in (128, 256, 512):
        executable = sx.compile(computation, options=sx.CompileOptions(vector_bits=bits))
        assert any(k.path == "emitted" for k in executable.kernels), "the general path stood in for the emitters"
        assert_same(executable(*args), wanted, ulp=4, scale=2e-6)


def test_denormals_are_flushed_when_asked() -> None:
    tiny = np.array([1e-40, 1.0, -2e-41], np.float32)
    b = sx.XlaBuilder("flush")
    x = b.parameter(0, sx.f32[3])
    computation = b.build(x * np.float32(1.5))
    kept: Any = sx.compile(computation)(tiny)
    flushed: Any = sx.compile(computation, options=sx.CompileOptions(flush_denormals=True))(tiny)
    assert (kept != 0).all()
    np.testing.assert_array_equal(flushed, np.array([0, 1.5, 0], np.float32))
    np.testing.assert_array_equal(sx.compile(computation)(tiny), kept)


def test_denormal_halves_are_flushed_where_arithmetic_is_on_halves() -> None:
    """Which is on AArch64; elsewhere they are numbers like others in f32."""
    tiny = np.array([3, 0x3FF, 0x3C00, 0x8003] * 10, np.uint16).view(np.float16)
    b = sx.XlaBuilder("flush")
    x = b.parameter(0, sx.Shape("f16", tiny.shape))
    computation = b.build(x + x)
    kept: Any = sx.compile(computation)(tiny)
    flushed: Any = sx.compile(computation, options=sx.CompileOptions(flush_denormals=True))(tiny)
    np.testing.assert_array_equal(kept, tiny + tiny)
    smallest = 2.0**-14 if "asimdhp" in host_target().features else 0
    np.testing.assert_array_equal(flushed, np.where(abs(tiny) < smallest, 0, tiny + tiny))


@pytest.mark.parametrize(("rows", "loops"), [(1, 0), (2, 1)])
def test_a_kernel_of_one_work_item_has_no_loop_over_them(rows: int, loops: int) -> None:
    b = sx.XlaBuilder("rows")
    x = normal(rows, 16)
    executable = sx.compile(b.build(total(sx.exp(b.parameter(0, sx.f32[x.shape], name="x")), (1,))))
    assert executable.ir("buffers").count("scf.for") == loops
    np.testing.assert_allclose(executable(x), np.exp(x).sum(1), rtol=1e-6)
