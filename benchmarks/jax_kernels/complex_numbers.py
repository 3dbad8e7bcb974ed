"""Complex numbers in JAX: a state-space model by an associative scan, a rotary embedding, a filter of spectra."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.traced import trace


def state_space(decay: Any, entered: Any, out: Any) -> Any:
    """h = decay * h + entered at each place, and the real part of its product with `out`."""

    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    _, states = jax.lax.associative_scan(combine, (decay, entered))
    return (states @ out).real


def rotary(x: Any, turns: Any) -> Any:
    """Pairs of a head's numbers turned by an angle for each place, as Llama has it."""
    pairs = jax.lax.complex(x[..., ::2], x[..., 1::2]) * turns[:, None, :]
    return jnp.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def filtered(x: Any, spectrum: Any) -> Any:
    """Sequences by the spectrum of a filter, as long convolutions have it."""
    return jnp.fft.irfft(jnp.fft.rfft(x) * spectrum, x.shape[-1])


trace(
    "complex-state-space",
    "2048 places, 64 states, 64 results",
    state_space,
    lambda draw: [draw.turns(2048, 64, radius=0.9), draw.turns(2048, 64), draw.turns(64, 64)],
    tolerance=1e-4,
)
trace(
    "complex-rotary",
    "1024 places, 16 heads of 64",
    rotary,
    lambda draw: [draw.normal(1024, 16, 64), draw.turns(1024, 32)],
)
trace(
    "complex-filter",
    "64 sequences of 4096",
    filtered,
    lambda draw: [draw.normal(64, 4096), draw.turns(2049)],
    tolerance=1e-4,
)
