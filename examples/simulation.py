"""Lets brax's ants walk, many at once, as one program: stablexla compiles what `jax.jit` would.

Each ant moves its eight joints by sines of its own; the world is brax's, with its contacts. Needs `pip install
'stablexla[real]'`; the exit code is 1 when places differ from those that `jax.jit` computes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from beside import apart, are_there, fastest, say_speed, step

MOST_APART = 1e-2


def world_of(steps: int, name: str) -> Any:
    """A function from a key and the speeds and phases of the joints to where the ants are after each step."""
    import jax
    import jax.numpy as jnp
    from brax import envs

    world = envs.get_environment(name, backend="spring")

    def walk(key: Any, speeds: Any, phases: Any) -> Any:
        states = jax.vmap(world.reset)(jax.random.split(key, len(speeds)))

        def advance(state: Any, number: Any) -> Any:
            state = jax.vmap(world.step)(state, jnp.sin(speeds * number * world.dt + phases))
            return state, state.pipeline_state.x.pos[:, 0]

        return jax.lax.scan(advance, states, jnp.arange(steps, dtype=jnp.float32))[1]

    return walk, world.action_size


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(description=first, epilog=rest)
    made.add_argument("--ants", type=int, default=16, help="how many (default: %(default)s)")
    made.add_argument("--steps", type=int, default=20, help="of the world (default: %(default)s)")
    made.add_argument("--world", default="ant", help="another of brax's environments, as half_cheetah")
    return made


def main() -> int:
    options = parser().parse_args()
    if not are_there("jax", "brax"):
        return 2
    import jax

    from stablexla.interop.jax import jit

    with step("making the world"):
        walk, joints = world_of(options.steps, options.world)
    rng = np.random.default_rng(0)
    speeds, phases = (rng.uniform(2, 12, (options.ants, joints)).astype(np.float32) for _ in range(2))
    given = jax.random.PRNGKey(0), speeds, phases
    ours, theirs = jit(walk), jax.jit(walk)
    with step("compiling"):
        found = np.asarray(ours(*given))
    with step("compiling by XLA"):
        wanted = np.asarray(theirs(*given))
    far = np.linalg.norm(found[-1, :, :2] - found[0, :, :2], axis=1)
    print(f"after {options.steps} steps the bodies are up to {far.max():.2f} m away, {far.mean():.2f} m on average")
    print(f"{len(ours.executable(*given).kernels)} kernels")
    times = [fastest(lambda f=f: jax.block_until_ready(f(*given))) for f in (ours, theirs)]
    say_speed("the whole walk", *times, "jax.jit")
    difference = apart(found, wanted)
    print(f"places are {difference:.1e} apart from jax.jit's")
    return int(not difference <= MOST_APART)


if __name__ == "__main__":
    sys.exit(main())
