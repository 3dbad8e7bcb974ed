"""One rank of a measurement over MPI: started by mpiexec with one rank for each device, one line of JSON for each case.

stablexla and plain mpi4py take turns in the same processes. A round begins behind a barrier, and its time is that of
the rank that took longest. mpi4py's receive buffers are made once; stablexla makes new arrays, as it always does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.collectives.cases import ELEMENTS, OVER_MPI, TOLERANCE, Array, Case, difference
from benchmarks.collectives.figures import DIALECT, PEERS
from benchmarks.measuring import OURS, Effort, Measured, Row

PEER = PEERS[OVER_MPI]
WORLD = MPI.COMM_WORLD
Maker = Callable[[Case, Array], tuple[Callable[[], object], Array]]
"""Gives a call and its result."""


def plain(case: Case, operand: Array) -> tuple[Callable[[], object], Array]:
    """A call of mpi4py, and the buffer that it writes into."""
    result = np.empty(case.result_count, ELEMENTS[case.element])
    size, rank = WORLD.size, WORLD.rank
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: WORLD.Allreduce(operand, result),
        "all_gather": lambda: WORLD.Allgather(operand, result),
        "reduce_scatter": lambda: WORLD.Reduce_scatter_block(operand, result),
        "all_to_all": lambda: WORLD.Alltoall(operand, result),
        "collective_permute": lambda: WORLD.Sendrecv(
            operand, (rank + 1) % size, recvbuf=result, source=(rank - 1) % size
        ),
    }
    return calls[case.operation], result


def ours(case: Case, operand: Array, *, dialect: bool = False) -> tuple[Callable[[], object], Array]:
    """A call of the program's own device, and its result of a first call."""
    import stablexla as sx

    options = sx.CompileOptions(pipeline=_with_dialect()) if dialect else None
    executable = sx.compile(case.text(), options=options, num_replicas=case.devices)
    if dialect and "mpi." not in executable.ir("mpi"):
        raise SystemExit(f"MLIR's `mpi` dialect has no {case.operation} of {case.element}")
    arguments: list[Any] = [[operand] if device == WORLD.rank else None for device in range(case.devices)]

    def call() -> list[Any]:
        return executable.execute_replicated(arguments, gather=False)

    return call, call()[WORLD.rank][0]


def _with_dialect() -> Any:
    import stablexla as sx

    implementation = "OpenMPI" if MPI.get_vendor()[0] == "Open MPI" else "MPICH"
    step = sx.Step("mpi", f"stablexla-collectives-to-mpi{{implementation={implementation}}}")
    return sx.pipeline("cpu").inserting(step, after="buffers")


def measure_case(case: Case, names: list[str], effort: Effort) -> Row:
    """The same row in every rank."""
    row = Row(case.name, f"{case.operation} of {case.name}", OVER_MPI, case.family, TOLERANCE)
    operands = case.arguments()
    wanted = case.results(operands)[WORLD.rank]
    makers: dict[str, Maker] = {OURS: ours, DIALECT: partial(ours, dialect=True), PEER: plain}
    calls: dict[str, Callable[[], object]] = {}
    for name in names:
        start = perf_counter()
        call, result = makers[name](case, operands[WORLD.rank])
        if name == PEER:
            call()
        apart = WORLD.allreduce(difference([result], [wanted]), MPI.MAX)
        row.engines[name] = Measured(perf_counter() - start, difference=apart)
        calls[name] = call
    del operands, wanted
    counts = {name: calls_in(call, effort.seconds) for name, call in calls.items()}
    start = perf_counter()
    for number in range(effort.most):
        if number >= effort.least and WORLD.bcast(perf_counter() - start > effort.budget):
            break
        for name in names if number % 2 == 0 else reversed(names):
            row.engines[name].rounds.append(time(calls[name], counts[name]))
    return row


def time(call: Callable[[], object], count: int) -> float:
    """Seconds of a call, by the slowest rank."""
    WORLD.Barrier()
    start = perf_counter()
    for _ in range(count):
        call()
    return float(WORLD.allreduce((perf_counter() - start) / count, MPI.MAX))


def calls_in(call: Callable[[], object], seconds: float) -> int:
    """About how many calls take so long, the same number in every rank."""
    count = 1
    while (taken := time(call, count) * count) < seconds / 4:
        count *= 4
    return max(1, round(count * seconds / taken))


def main() -> None:
    task = json.loads(sys.argv[1])
    if {OURS, DIALECT} & set(task["engines"]):
        from stablexla import distributed

        distributed.initialize()
    for each in task["cases"]:
        row = measure_case(Case(**each), task["engines"], Effort(**task["effort"]))
        if WORLD.rank == 0:
            print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    main()
