"""Simulations: brax and MuJoCo's MJX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.real.registry import Made, of_jax


@of_jax("brax-ant-10", "10 steps of 8 ants, spring backend", "brax", tolerance=1e-2)
def ants() -> Made:
    from brax import envs

    world = envs.get_environment("ant", backend="spring")

    def roll(key: Any, actions: Any) -> Any:
        states = jax.vmap(world.reset)(jax.random.split(key, actions.shape[1]))

        def step(state: Any, action: Any) -> Any:
            state = jax.vmap(world.step)(state, action)
            return state, (state.pipeline_state.x.pos, state.reward)

        return jax.lax.scan(step, states, actions)[1]

    actions = np.random.default_rng(0).uniform(-1, 1, (10, 8, world.action_size)).astype(np.float32)
    return roll, (np.array([0, 1], np.uint32), actions)


PENDULUM = """
<mujoco>
  <option timestep="0.01" iterations="4" ls_iterations="8"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 1.2">
      <joint type="slide" axis="1 0 0"/>
      <geom type="box" size=".2 .1 .1" mass="1" contype="0" conaffinity="0"/>
      <body>
        <joint type="hinge" axis="0 1 0" damping=".01"/>
        <geom type="capsule" fromto="0 0 0 0 0 .6" size=".04" mass=".2" contype="0" conaffinity="0"/>
        <body pos="0 0 .6">
          <joint type="hinge" axis="0 1 0" damping=".01"/>
          <geom type="capsule" fromto="0 0 0 0 0 .5" size=".04" mass=".1"/>
        </body>
      </body>
    </body>
    <body pos="1 0 .3">
      <freejoint/>
      <geom type="sphere" size=".1" mass=".3"/>
    </body>
  </worldbody>
</mujoco>
"""


@of_jax("mjx-pendulums-10", "10 steps of 16 double pendulums on carts and a ball", "mujoco.mjx", tolerance=1e-2)
def pendulums() -> Made:
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(PENDULUM))
    start = mjx.make_data(model)

    def roll(positions: Any) -> Any:
        def one(position: Any) -> Any:
            def step(data: Any, _: None) -> Any:
                data = mjx.step(model, data)
                return data, data.qpos

            return jax.lax.scan(step, start.replace(qpos=start.qpos.at[:3].set(position)), None, 10)[1]

        return jax.vmap(one)(positions)

    return roll, (np.random.default_rng(0).uniform(-0.5, 0.5, (16, 3)).astype(np.float32),)
