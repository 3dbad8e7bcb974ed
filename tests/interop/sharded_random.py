"""Random programs with constraints on how their arrays lie, for abstract meshes."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

# Axes that the compiler may use as it likes; from JAX 0.11 on they are explicit if nothing is said.
MESHES = [
    AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(sizes))
    for sizes, names in [((2, 2), ("x", "y")), ((4,), ("x",)), ((2, 3), ("x", "y"))]
]


def random_spec(generator: np.random.Generator, mesh: AbstractMesh, shape: tuple[int, ...], evenly: bool) -> P:
    """How an array of that shape may lie on the mesh."""
    names = list(generator.permutation(mesh.axis_names))
    parts: list[Any] = [[] for _ in shape]
    for name in names:
        if not shape or generator.random() < 0.3:
            continue
        place = int(generator.integers(len(shape)))
        sizes = [mesh.shape[each] for each in (*parts[place], name)]
        if not evenly or shape[place] % int(np.prod(sizes)) == 0:
            parts[place].append(str(name))
    return P(*(tuple(each) if each else None for each in parts))


def random_program(seed: int) -> tuple[jax.export.Exported, list[Any]]:
    """A program and arguments for it."""
    generator = np.random.default_rng(seed)
    mesh = MESHES[seed % len(MESHES)]
    shapes = [(12, 24), (24, 12), (12, 24)]
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    plan = [int(n) for n in generator.integers(0, 2**31, 8)]

    def function(*arguments: Any) -> Any:
        values = list(arguments)
        for number in plan:
            inner = np.random.default_rng(number)
            value = _step(inner, values)
            if inner.random() < 0.6:
                spec = random_spec(inner, mesh, value.shape, inner.random() < 0.8)
                value = lax.with_sharding_constraint(value, NamedSharding(mesh, spec))
            values.append(value)
        return tuple(values[-3:])

    types = [
        jax.ShapeDtypeStruct(
            a.shape, a.dtype, sharding=NamedSharding(mesh, random_spec(generator, mesh, a.shape, True))
        )
        for a in arrays
    ]
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*types), arrays


def _step(generator: np.random.Generator, values: list[Any]) -> Any:
    """A new value from old ones, all of two dimensions and bounded."""
    a = values[int(generator.integers(len(values)))]
    b = values[int(generator.integers(len(values)))]
    rows, columns = a.shape
    axis = int(generator.integers(2))
    match int(generator.integers(14)):
        case 0:
            return jnp.tanh(a)
        case 1:
            return jnp.tanh(a @ b if columns == b.shape[0] else a @ a.T)
        case 2:
            return a.T
        case 3:
            return a - a.mean(axis, keepdims=True)
        case 4:
            return a + a.max(axis, keepdims=True)
        case 5:
            return a.reshape(columns, rows)
        case 6:
            return a.reshape(rows, columns // 2, 2).sum(2 if axis else 1) * jnp.ones((rows, 1))
        case 7:
            return jnp.concatenate([a, jnp.flip(a, axis)], axis)[:rows, :columns]
        case 8:
            return jnp.sort(a, axis)
        case 9:
            return jnp.roll(a, 1, axis) + jnp.arange(columns, dtype=np.float32)
        case 10:
            return a[jnp.arange(rows) // 2]
        case 11:
            return lax.fori_loop(0, 2, lambda i, c: jnp.sin(c) + i, a)
        case 12:
            return a.at[:2].add(1.0)
        case _:
            return jnp.where(a > 0, a, jnp.cumsum(a, axis) / 24)
