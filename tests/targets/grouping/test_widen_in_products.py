"""Products of integers that the program extends are one kernel. Oracles: numpy in 64 bits, XLA:CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import host_target

BITS = tuple(bits for bits in (128, 256, 512) if bits <= host_target().vector_bits)
BYTES = ("int8", "uint8")
PAIRS = [*((x, w) for x in BYTES for w in BYTES), ("int16", "int16"), ("int8", "int32")]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("equation", ["mk,kn->mn", "mk,nk->mn", "mk,nk->nm"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_extended_operands(pair: tuple[str, str], equation: str, bits: int) -> None:
    extents, rng = {"k": 150, "n": 70}, np.random.default_rng(0)
    program = jax.jit(lambda x, w: jnp.einsum(equation, x.astype(jnp.int32), w.astype(jnp.int32)))
    axes = equation.split("->")[0].split(",")
    for m in (1, 5, 40):
        x, w = (drawn(rng, name, [{**extents, "m": m}[c] for c in side]) for name, side in zip(pair, axes, strict=True))
        executable = sx.compile(program.lower(x, w).as_text(), options=sx.CompileOptions(vector_bits=bits))
        assert [kernel.kind for kernel in executable.kernels] == ["contraction"]
        wanted = np.einsum(equation, x.astype(np.int64), w.astype(np.int64)).astype(np.int32)
        np.testing.assert_array_equal(executable(x, w), wanted)
        np.testing.assert_array_equal(program(x, w), wanted)


def drawn(rng: np.random.Generator, name: str, shape: list[int]) -> Any:
    info = np.iinfo(name)
    return rng.integers(info.min, info.max, shape, endpoint=True, dtype=name)


def test_an_extension_with_another_user() -> None:
    rng = np.random.default_rng(1)
    x, w = drawn(rng, "int8", [40, 64]), drawn(rng, "int8", [64, 96])

    def both(x: Any, w: Any) -> Any:
        wide = w.astype(jnp.int32)
        return x.astype(jnp.int32) @ wide, wide * 2

    product, double = sx.compile(jax.jit(both).lower(x, w).as_text())(x, w)
    np.testing.assert_array_equal(product, x.astype(np.int32) @ w.astype(np.int32))
    np.testing.assert_array_equal(double, w.astype(np.int32) * 2)
