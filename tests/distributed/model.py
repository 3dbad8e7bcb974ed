"""What collectives give, written down in numpy from the text of StableHLO's specification and from nothing else.

A value is a list with an array for each process of the grid, in the order of their flattened numbers. Section
"Collective ops" of the specification has the four ways to form groups; each function says which section it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

Groups = Sequence[Sequence[int]]
Process = tuple[int, int]
Values = Sequence[np.ndarray]
Computation = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Grid:
    """`replicas` by `partitions` processes; a process is (replica, partition).

    >>> Grid(2, 3).processes[4]
    (1, 1)
    """

    replicas: int
    partitions: int = 1

    @property
    def processes(self) -> list[Process]:
        """All of them; one's place here is its flattened number."""
        return [(r, p) for r in range(self.replicas) for p in range(self.partitions)]

    @property
    def size(self) -> int:
        return self.replicas * self.partitions

    def number(self, process: Process) -> int:
        """The flattened number: replica * partitions + partition."""
        return process[0] * self.partitions + process[1]


# ---- groups ----------------------------------------------------------------------------------------------------------


def cross_replica(grid: Grid, groups: Groups) -> list[list[Process]]:
    """A group of replicas, once for each partition.

    >>> cross_replica(Grid(2, 2), [[0, 1]])
    [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    """
    return [[(r, p) for r in group] for group in _or_all(groups, grid.replicas) for p in range(grid.partitions)]


def cross_partition(grid: Grid, groups: Groups) -> list[list[Process]]:
    """A group of partitions, once for each replica."""
    return [[(r, p) for p in group] for group in _or_all(groups, grid.partitions) for r in range(grid.replicas)]


def cross_replica_and_partition(grid: Grid, groups: Groups) -> list[list[Process]]:
    """All partitions of a group of replicas; the replicas of the first partition come first.

    >>> cross_replica_and_partition(Grid(2, 2), [[0, 1]])
    [[(0, 0), (1, 0), (0, 1), (1, 1)]]
    """
    return [[(r, p) for p in range(grid.partitions) for r in group] for group in _or_all(groups, grid.replicas)]


def flattened_ids(grid: Grid, groups: Groups) -> list[list[Process]]:
    """Groups of flattened numbers."""
    return [[divmod(n, grid.partitions) for n in group] for group in _or_all(groups, grid.size)]


def process_groups(
    grid: Grid, groups: Groups, channel_id: int = 0, use_global_device_ids: bool = False
) -> list[list[Process]]:
    """Those of all_gather, all_reduce and reduce_scatter."""
    if channel_id <= 0:
        assert not use_global_device_ids
        return cross_replica(grid, groups)
    return (flattened_ids if use_global_device_ids else cross_replica_and_partition)(grid, groups)


def exchange_groups(grid: Grid, groups: Groups, channel_id: int = 0) -> list[list[Process]]:
    """Those of all_to_all, collective_broadcast, collective_permute and collective_reduce."""
    return (cross_partition if channel_id > 0 else cross_replica)(grid, groups)


def _or_all(groups: Groups, count: int) -> list[list[int]]:
    """Without the -1 that fill rows up; one group of all where there is none."""
    return [[n for n in group if n >= 0] for group in groups] or [list(range(count))]


# ---- operations ------------------------------------------------------------------------------------------------------


def all_gather(
    grid: Grid, operand: Values, dimension: int, groups: Groups = (), channel_id: int = 0, use_global: bool = False
) -> list[np.ndarray]:
    """Section all_gather."""
    results = _nothing(grid)
    for group in process_groups(grid, groups, channel_id, use_global):
        joined = np.concatenate([operand[grid.number(p)] for p in group], dimension)
        for p in group:
            results[grid.number(p)] = joined
    return _complete(results)


def all_reduce(
    grid: Grid,
    operand: Values,
    computation: Computation,
    groups: Groups = (),
    channel_id: int = 0,
    use_global: bool = False,
    dtype: np.dtype | None = None,
) -> list[np.ndarray]:
    """Section all_reduce; of the binary trees that it allows, the one that folds from the left.

    Args:
        dtype: the type of the computation, which operands are converted to.
    """
    results = _nothing(grid)
    for group in process_groups(grid, groups, channel_id, use_global):
        given = [operand[grid.number(p)] for p in group]
        with np.errstate(all="ignore"):
            folded = reduce(computation, [x.astype(dtype or x.dtype) for x in given])
        for p in group:
            results[grid.number(p)] = np.asarray(folded, dtype or given[0].dtype)
    return _complete(results)


def reduce_scatter(
    grid: Grid,
    operand: Values,
    computation: Computation,
    dimension: int,
    groups: Groups = (),
    channel_id: int = 0,
    use_global: bool = False,
    dtype: np.dtype | None = None,
) -> list[np.ndarray]:
    """Section reduce_scatter."""
    reduced = all_reduce(grid, operand, computation, groups, channel_id, use_global, dtype)
    results = _nothing(grid)
    for group in process_groups(grid, groups, channel_id, use_global):
        parts = np.split(reduced[grid.number(group[0])], len(group), dimension)
        for p, part in zip(group, parts, strict=True):
            results[grid.number(p)] = part
    return _complete(results)


def all_to_all(
    grid: Grid, operand: Values, split: int, concat: int, count: int, groups: Groups = (), channel_id: int = 0
) -> list[np.ndarray]:
    """Section all_to_all."""
    results = _nothing(grid)
    for group in exchange_groups(grid, groups, channel_id):
        parts = [np.split(operand[grid.number(p)], count, split) for p in group]
        for place, receiver in enumerate(group):
            results[grid.number(receiver)] = np.concatenate([sent[place] for sent in parts], concat)
    return _complete(results)


def all_to_all_tuple(
    grid: Grid, operands: Sequence[Values], groups: Groups = (), channel_id: int = 0
) -> list[list[np.ndarray]]:
    """XLA's AllToAllTuple: operand i goes to the i-th of the group, where it is the result of the sender's place."""
    results = [_nothing(grid) for _ in operands]
    for group in exchange_groups(grid, groups, channel_id):
        for i, sender in enumerate(group):
            for j, receiver in enumerate(group):
                results[i][grid.number(receiver)] = operands[j][grid.number(sender)]
    return [_complete(r) for r in results]


def ragged_all_to_all(
    grid: Grid,
    operand: Values,
    output: Values,
    input_offsets: Values,
    send_sizes: Values,
    output_offsets: Values,
    groups: Groups = (),
    channel_id: int = 0,
) -> list[np.ndarray]:
    """As the documentation of jax.lax.ragged_all_to_all says it: pieces one after another, from each sender."""
    results = [x.copy() for x in output]
    for group in exchange_groups(grid, groups, channel_id):
        for sender in map(grid.number, group):
            each = len(send_sizes[sender]) // len(group)
            for i, size in enumerate(map(int, send_sizes[sender])):
                begin, place = int(input_offsets[sender][i]), int(output_offsets[sender][i])
                target = results[grid.number(group[i // each])]
                target[place : place + size] = operand[sender][begin : begin + size]
    return results


def collective_permute(grid: Grid, operand: Values, pairs: Groups, channel_id: int = 0) -> list[np.ndarray]:
    """Section collective_permute: zeros for who receives nothing."""
    results = [np.zeros_like(x) for x in operand]
    for source, target in exchange_groups(grid, pairs, channel_id) if len(pairs) else ():
        results[grid.number(target)] = operand[grid.number(source)]
    return results


def collective_broadcast(
    grid: Grid, operand: Values, groups: Groups, channel_id: int = 0, root: int = 0
) -> list[np.ndarray]:
    """Section collective_broadcast: the root of a group gives; zeros for who is in none."""
    results = [np.zeros_like(x) for x in operand]
    for group in exchange_groups(grid, groups, channel_id):
        for p in group:
            results[grid.number(p)] = operand[grid.number(group[root])]
    return results


def collective_reduce(
    grid: Grid,
    operand: Values,
    computation: Computation,
    groups: Groups = (),
    channel_id: int = 0,
    use_global: bool = False,
    *,
    root: int = 0,
    dtype: np.dtype | None = None,
) -> list[np.ndarray]:
    """Section collective_reduce: the folded arrays on the root of each group, zeros everywhere else.

    The section has no global numbers, which the operation itself has; they are those of all_reduce.
    """
    rows = flattened_ids(grid, groups) if use_global else exchange_groups(grid, groups, channel_id)
    results = [np.zeros(x.shape, dtype or x.dtype) for x in operand]
    for group in rows:
        given = [operand[grid.number(p)].astype(results[0].dtype) for p in group]
        with np.errstate(all="ignore"):
            results[grid.number(group[root])] = reduce(computation, given)
    return results


def send_and_recv(grid: Grid, operand: Values, pairs: Groups) -> list[np.ndarray | None]:
    """What each flattened number receives from its source; None where nobody sends.

    The sections send and recv leave open how channels connect processes; pairs are of flattened numbers.
    """
    received: list[np.ndarray | None] = [None] * grid.size
    for source, target in pairs:
        received[target] = operand[source]
    return received


def replica_id(grid: Grid) -> list[np.ndarray]:
    """Section replica_id."""
    return [np.asarray(r, np.uint32) for r, _ in grid.processes]


def partition_id(grid: Grid) -> list[np.ndarray]:
    """Section partition_id."""
    return [np.asarray(p, np.uint32) for _, p in grid.processes]


def _nothing(grid: Grid) -> list[np.ndarray | None]:
    return [None] * grid.size


def _complete(results: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    made = [r for r in results if r is not None]
    assert len(made) == len(results), "a process is in no group"
    return made
