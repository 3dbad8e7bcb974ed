"""Running a program on sharded arrays: whole arrays are sliced for the devices, and results concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError
from stablexla.executable.on_devices import OnDevices
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.runtime.arguments import fit_at
from stablexla.targets.signature.array_sharding import ArraySharding

Array = npt.NDArray[Any]


def run_sharded(executable: OnDevices, arguments: Sequence[object]) -> list[Array]:
    """Run a partitioned program on whole arrays.

    Every replica gets the same arrays; results are those of the first one. All processes call it with the same
    arrays.

    Raises:
        ExecutionError: arguments that do not fit, or what `execute_replicated` raises.
    """
    results = run_parts(executable, arguments)
    outputs = executable._shardings[1] if executable._shardings is not None else ()
    return [joined(parts, sharding) for parts, sharding in zip(results, outputs, strict=True)]


def run_parts(executable: OnDevices, arguments: Sequence[object]) -> list[list[Array]]:
    """Run a partitioned program; return each result as the partitions' shards."""
    shardings = executable._shardings
    if shardings is None:
        raise ExecutionError(f"{executable.name}: nothing says how whole arrays lie on its devices")
    inputs, outputs = shardings
    specs = executable.parameters
    if len(arguments) != len(specs):
        raise ExecutionError(f"{executable.name}: takes {len(specs)} whole arrays, but {len(arguments)} came")
    arrays = [
        fit_at(value, ArraySpec(spec.dtype, sharding.shape, spec.name), f"{executable.name}: argument {index}")
        for index, (value, spec, sharding) in enumerate(zip(arguments, specs, inputs, strict=True))
    ]
    per_array = [parts_of(array, sharding) for array, sharding in zip(arrays, inputs, strict=True)]
    partitions = [[parts[p] for parts in per_array] for p in range(executable.num_partitions)]
    results = executable.execute_replicated(partitions * executable.num_replicas)
    return [[results[p][i] for p in range(executable.num_partitions)] for i in range(len(outputs))]


def parts_of(array: Array, sharding: ArraySharding) -> list[Array]:
    """Return each partition's shard of an array; equal shards are one array, the whole one where possible.

    Of summands, the first ones are the array.
    """
    made: dict[object, Array] = {}
    for partition, part in enumerate(sharding.parts):
        if part not in made:
            made[part] = np.ascontiguousarray(array[sharding.index(partition)]).reshape(
                [stop - start for start, stop in part]
            )
    shards = [made[part] for part in sharding.parts]
    summands = sharding.summands or [0] * len(shards)
    return [
        np.full_like(shard, _nothing(shard)) if number else shard
        for shard, number in zip(shards, summands, strict=True)
    ]


def _nothing(array: Array) -> complex:
    """Return what adds nothing to an array's elements: -0, which leaves a -0 as it is; 0 of integers."""
    return complex(-0.0, -0.0) if array.dtype.kind == "c" else -0.0


def joined(parts: Sequence[Array], sharding: ArraySharding) -> Array:
    """Return the array whose shards the partitions hold."""
    if sharding.is_replicated:
        return parts[0]
    array = np.empty(sharding.shape, parts[0].dtype)
    if sharding.summands:
        array[...] = _nothing(array)
    seen = set()
    for partition, key in enumerate(zip(sharding.parts, sharding.summands or [0] * len(parts), strict=True)):
        if key not in seen:
            seen.add(key)
            if sharding.summands:
                array[sharding.index(partition)] += parts[partition]
            else:
                array[sharding.index(partition)] = parts[partition]
    return array
