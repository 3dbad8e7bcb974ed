"""Programs of JAX on a mesh: results are arrays on JAX's own devices, with the program's shardings.

Each device of the mesh is a partition; the arrays of all of them are in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stablexla.executable.executable import Executable
from stablexla.executable.sharded import joined, run_parts
from stablexla.interop.jax.arrays import Array, Maker, Returns, is_key_type, maker
from stablexla.interop.jax.required import internals, jax
from stablexla.targets.signature.array_sharding import ArraySharding

Parts = Sequence[Array]


def devices_of(shardings: Iterable[Any], count: int) -> list[Any]:
    """Return the devices in the order of their partitions, from JAX's shardings; none for abstract meshes."""
    for sharding in shardings:
        try:
            devices = list(sharding._device_assignment)
        except (AttributeError, ValueError):  # unspecified, or of an abstract mesh
            continue
        if len(devices) == count:
            return devices
    return []


class Mesh:
    """Runs a program on sharded arrays, and makes JAX's arrays of the partitions' results."""

    def __init__(self, executable: Executable, devices: Sequence[Any], declared: Sequence[Any]) -> None:
        """Store `declared`, JAX's shardings of the results, where it has any."""
        self._executable, self._devices = executable, list(devices)
        self._outputs: tuple[ArraySharding, ...] = executable.output_shardings or ()
        self._declared = list(declared)

    def run(self, arguments: Sequence[object]) -> Sequence[Parts]:
        """Return the shards of each result; the arguments are whole arrays."""
        return run_parts(self._executable, arguments)

    def maker(self, index: int, aval: Any, returns: Returns) -> Any:
        """Return the conversion of a result's shards to JAX's array on the devices of the mesh."""
        output = self._outputs[index]
        plain: Maker = maker(aval, returns)
        if returns == "numpy" or not self._devices or aval.dtype == jax().dtypes.float0 or is_key_type(aval.dtype):
            return lambda parts: plain(joined(parts, output))
        put, sharding = internals().put, self._sharding(index, output)
        devices = list(sharding._device_assignment)  # JAX wants the parts in its order
        order = [self._devices.index(device) for device in devices]
        type_ = internals().ShapedArray(aval.shape, aval.dtype, aval.weak_type)
        return lambda parts: put(type_, sharding, [parts[i] for i in order], devices, True)

    def _sharding(self, index: int, output: ArraySharding) -> Any:
        """Return JAX's sharding of a result: the declared one, where it has the same shards."""
        made = named_sharding(output, self._devices)
        declared = self._declared[index] if index < len(self._declared) else None
        if isinstance(declared, jax().sharding.Sharding) and declared.is_equivalent_to(made, len(output.shape)):
            return declared
        return made


def named_sharding(output: ArraySharding, devices: Sequence[Any]) -> Any:
    """Return a sharding on a mesh with an axis for each dimension of the array and one for equal shards."""
    sharding = jax().sharding
    starts = [sorted({part[d] for part in output.parts}) for d in range(len(output.shape))]
    counts = [len(each) for each in starts]
    order = sorted(range(len(devices)), key=lambda i: output.parts[i])
    grid = np.empty(len(devices), object)
    grid[:] = [devices[i] for i in order]
    names = [f"d{d}" for d in range(len(counts))]
    mesh = sharding.Mesh(grid.reshape(*counts, -1), (*names, "copies"))
    return sharding.NamedSharding(mesh, sharding.PartitionSpec(*names))
