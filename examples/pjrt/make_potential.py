"""Write a Lennard-Jones potential of 64 particles, with its forces, as `jax.export` serializes it.

python examples/pjrt/make_potential.py potential.bin
"""

import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp

PARTICLES = 64


def energy(positions: jax.Array) -> jax.Array:
    """Sum 4 (r^-12 - r^-6) over all pairs."""
    apart = positions[:, None] - positions[None]
    squares = (apart**2).sum(-1) + jnp.eye(PARTICLES)
    sixth = squares**-3
    return 2 * ((sixth**2 - sixth) * (1 - jnp.eye(PARTICLES))).sum()


@jax.jit
def potential(positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the energy and the forces."""
    value, slope = jax.value_and_grad(energy)(positions)
    return value, -slope


if __name__ == "__main__":
    shape = jax.ShapeDtypeStruct((PARTICLES, 3), jnp.float32)
    Path(sys.argv[1]).write_bytes(jax.export.export(potential, platforms=["cpu"])(shape).serialize())
