"""Functions that are known to differ from JAX's, or to be unsupported, each with the reason."""

from __future__ import annotations

_CONTRACTED = (
    "numbers cancel that were rounded, product by product; XLA:CPU makes one operation of a product and a sum. "
    "StableHLO's reference interpreter has the bits of here"
)
KNOWN: dict[str, str] = {
    "jax.lax.dot_general": "the algorithm BF16_BF16_F32 rounds the operands to bf16 here, as StableHLO says; XLA:CPU "
    "computes in f32",
    "jax.scipy.linalg.fiedler_companion": "0 / 0 of a pred converted to f32 is NaN here, as in numpy; XLA:CPU has -0",
    "jax.scipy.signal.detrend": "its gradient is zero but for rounding: weights in a line have no trend to take away",
    "jax.scipy.special.gammaincc": f"{_CONTRACTED} but for 1 ULP",
    "jax.scipy.special.hyp1f1": _CONTRACTED,
    "jax.scipy.special.kl_div": _CONTRACTED,
    "jax.scipy.special.rel_entr": _CONTRACTED,
}
"""By path. An entry that is equal again has to go: `python docs/make_interop.py --check` says so."""
