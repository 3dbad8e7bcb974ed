"""One process of several that run JAX's programs on the platform stablexla; `test_pjrt.py` starts them by mpiexec.

mpiexec -n 2 python -m tests.interop.pjrt_processes PORT
"""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "stablexla"
os.environ["STABLEXLA_NUM_DEVICES"] = "2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def main(port: str) -> None:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    assert (jax.process_index(), jax.process_count()) == (rank, size)
    assert [d.process_index for d in jax.devices()] == [d // 2 for d in range(2 * size)]
    assert [d.id for d in jax.local_devices()] == [2 * rank, 2 * rank + 1]

    mesh = jax.make_mesh((2 * size,), ("a",))
    lie = NamedSharding(mesh, PartitionSpec("a"))
    numbers = np.arange(8 * size, dtype=np.float32)
    x = jax.make_array_from_callback(numbers.shape, lie, lambda index: numbers[index])
    doubled, total = jax.jit(lambda x: (x * 2, x.sum()))(x)
    assert total == numbers.sum()
    for shard in doubled.addressable_shards:
        np.testing.assert_array_equal(shard.data, numbers[shard.index] * 2)
    summed = jax.shard_map(
        lambda x: jax.lax.psum(x, "a"), mesh=mesh, in_specs=PartitionSpec("a"), out_specs=PartitionSpec()
    )
    np.testing.assert_array_equal(jax.jit(summed)(x), numbers.reshape(2 * size, -1).sum(0))
    gradient = jax.jit(jax.grad(lambda x: (jnp.sin(x) ** 2).sum()))(x)
    for shard in gradient.addressable_shards:
        np.testing.assert_allclose(shard.data, np.sin(2 * numbers[shard.index]), rtol=1e-5, atol=1e-5)

    own = np.array([rank, rank * rank])
    np.testing.assert_array_equal(multihost_utils.process_allgather(own), [[each, each * each] for each in range(size)])
    here = Mesh(np.array(jax.local_devices()), ("b",))
    mine = jax.device_put(np.arange(4.0) + rank, NamedSharding(here, PartitionSpec("b")))
    assert jax.jit(lambda x: x.sum())(mine) == 6 + 4 * rank

    multihost_utils.sync_global_devices("the end")
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
