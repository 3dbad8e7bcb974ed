"""Functions that are known to differ from JAX's, or to be unsupported, each with the reason."""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "jax.lax.dot_general": "the algorithm BF16_BF16_F32 rounds the operands to bf16 here, as StableHLO says; XLA:CPU "
    "computes in f32",
    "jax.scipy.stats.betabinom.pmf": "digammas cancel in its gradient: it is 190 ULP from the exact one, "
    "JAX's is 62, a little less than a third; not found out why",
    "jax.nn.initializers.orthogonal": "one of its calls is 17 ULP from the exact one where JAX's is 4: another "
    "build of LAPACK's factorisation",
    "jax.scipy.signal.detrend": "its gradient is zero but for rounding: weights in a line have no trend to take away",
}
"""By path. An entry that is equal again has to go: `python docs/make_interop.py --check` says so."""
