"""One process of several whose JAX programs run on meshes of some of the devices, or of all in another order.

`test_pjrt.py` starts them by mpiexec, so that there are four devices:

mpiexec -n 2 python -m tests.interop.pjrt_meshes PORT
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

os.environ["JAX_PLATFORMS"] = "stablexla"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SOME = ([0, 1], [2, 3], [1, 3], [3, 1], [2, 0, 3])
ALL = ([3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2])


def mesh_of(ids: list[int], shape: tuple[int, ...] = (-1,)) -> Mesh:
    devices = np.array([jax.devices()[i] for i in ids]).reshape(shape)
    return Mesh(devices, ("x", "y")[: devices.ndim])


def is_here(ids: list[int]) -> bool:
    return any(device.process_index == jax.process_index() for device in mesh_of(ids).devices.flat)


def spread(whole: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), lambda index: whole[index])


def check(made: jax.Array, whole: np.ndarray, mesh: Mesh) -> None:
    """The shards of this process are the parts of the whole array."""
    assert made.shape == whole.shape
    assert {shard.device for shard in made.addressable_shards} == set(mesh.local_devices)
    for shard in made.addressable_shards:
        np.testing.assert_array_equal(shard.data, whole[shard.index])


def collectives(ids: list[int]) -> None:
    """All collectives of shard_map over the devices in this order."""
    mesh, n = mesh_of(ids), len(ids)
    numbers = np.arange(n * n * 4, dtype=np.float32).reshape(n * n, 4)
    rows = numbers.reshape(n, n, 4)  # by device
    x = spread(numbers, mesh, P("x"))

    def each(x: jax.Array) -> tuple[jax.Array, ...]:
        return (
            lax.psum(x, "x"),
            lax.all_gather(x, "x", tiled=True),
            lax.ppermute(x, "x", [(i, (i + 1) % n) for i in range(n)]),
            lax.all_to_all(x, "x", 0, 0, tiled=True),
            lax.psum_scatter(x, "x", tiled=True),
            x * 100 + lax.axis_index("x"),
        )

    parts = P("x")
    specs = P(), P(), parts, parts, parts, parts
    made = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=parts, out_specs=specs, check_vma=False))(x)
    wanted = (
        rows.sum(0),
        numbers,
        np.roll(rows, 1, axis=0),
        rows.transpose(1, 0, 2),
        rows.sum(0),
        rows * 100 + np.arange(n, dtype=np.float32)[:, None, None],
    )
    for one, other in zip(made, wanted, strict=True):
        check(one, other.reshape(-1, 4), mesh)


def sharded(ids: list[int]) -> None:
    """A function of sharded arrays, which is partitioned here, and its gradient."""
    mesh, n = mesh_of(ids), len(ids)
    numbers = np.arange(n * 2 * 6, dtype=np.float32).reshape(2 * n, 6)
    x = jax.device_put(numbers, NamedSharding(mesh, P("x")))
    product, total = jax.jit(lambda x: (x @ x.T, x.sum()), out_shardings=(NamedSharding(mesh, P(None, "x")), None))(x)
    check(product, numbers @ numbers.T, mesh)
    assert total == numbers.sum()
    check(jax.jit(jax.grad(lambda x: (x * x).sum() / 2))(x), numbers, mesh)
    turned = spread(numbers[:, :n], mesh, P("x"))
    check(jax.jit(jnp.transpose, out_shardings=x.sharding)(turned), numbers[:, :n].T, mesh)


def over_one_axis(ids: list[int]) -> None:
    """Groups within a mesh of two axes."""
    mesh = mesh_of(ids, (2, 2))
    numbers = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = spread(numbers, mesh, P("x", "y"))
    for axis, dimension, out in (("x", 0, P(None, "y")), ("y", 1, P("x"))):
        summed = jax.shard_map(lambda x, a=axis: lax.psum(x, a), mesh=mesh, in_specs=P("x", "y"), out_specs=out)
        check(jax.jit(summed)(x), np.add(*np.split(numbers, 2, dimension)), mesh)


def at_the_same_time() -> None:
    """Two meshes without a common device, in a thread each: one program on both, then another one on each.

    With several devices in a process, both meshes are of the same processes.
    """
    pairs = [[0, 2], [3, 1]] if jax.local_device_count() > 1 else [[0, 1], [3, 2]]

    def work(ids: list[int]) -> None:
        mesh, parts = mesh_of(ids), P("x")
        sum_of = jax.jit(jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=parts, out_specs=P()))
        pairs = [(0, 1), (1, 0)] if ids[0] == 0 else [(0, 1)]
        moved = jax.shard_map(lambda x: lax.ppermute(x, "x", pairs), mesh=mesh, in_specs=parts, out_specs=parts)
        move = jax.jit(moved)
        for i in range(30):
            numbers = np.arange(2 * 1000, dtype=np.float32).reshape(2, 1000) + i + 10000 * ids[0]
            x = spread(numbers, mesh, parts)
            check(sum_of(x), numbers.sum(0, keepdims=True), mesh)
            check(move(x), numbers[::-1] if ids[0] == 0 else np.stack([0 * numbers[0], numbers[0]]), mesh)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, ids) for ids in pairs if is_here(ids)]:
            done.result()


def elsewhere(ids: list[int]) -> None:
    """A process that has none of the devices is told so."""
    x = jax.device_put(np.arange(len(ids), dtype=np.float32), NamedSharding(mesh_of(ids), P("x")))
    told = f"process {jax.process_index()} has none of the devices {', '.join(map(str, ids))}; processes .* have them"
    with pytest.raises(jax.errors.JaxRuntimeError, match=told):
        jax.jit(lambda x: x + 1)(x)


def main(port: str) -> None:
    from mpi4py import MPI

    size = MPI.COMM_WORLD.Get_size()
    os.environ["STABLEXLA_NUM_DEVICES"] = str(4 // size)
    jax.distributed.initialize(f"127.0.0.1:{port}", size, MPI.COMM_WORLD.Get_rank())
    assert jax.device_count() == 4
    for ids in (*SOME, *ALL):
        if is_here(ids):
            collectives(ids)
            sharded(ids)
        else:
            elsewhere(ids)
    for ids in ALL:
        over_one_axis(ids)
    at_the_same_time()
    multihost_utils.sync_global_devices("the end")
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
