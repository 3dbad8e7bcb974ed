"""One process of many: runs programs, and holds the results of all devices against what one process came to.

Most of them were compiled and saved by that one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from tests.distributed.mpi_programs import PROGRAMS, Array, Program


def run(program: Program, processes: list[int], folder: Path, expected: dict[str, Array]) -> None:
    """Runs it three times: with all results here, with the own ones, and with no arguments for the others.

    `processes` has the process of each device, as the executable takes it; none leaves equal shares.
    """
    file = folder / program.name
    executable = sx.load_executable(file) if file.exists() else program.compile()
    arguments = program.arguments()
    local: Sequence[int]
    if processes:
        executable.processes = processes
        local = [device for device, process in enumerate(processes) if process == sx.distributed.process_index()]
        assert executable.local_devices == tuple(local)
    else:
        local = sx.distributed.local_devices(len(arguments))
    if not local:
        others = ", ".join(map(str, sorted(set(processes))))
        with pytest.raises(sx.ExecutionError, match=f"has none of its devices; processes {others} have them"):
            executable.execute_replicated(arguments)
        return
    own = [row if device in local else None for device, row in enumerate(arguments)]
    everything = executable.execute_replicated(arguments)
    for given, gather in ((arguments, False), (own, True)):
        again = executable.execute_replicated(given, gather=gather)
        for device, results in enumerate(again):
            assert gather or (results is None) == (device not in local), "results of others"
            for one, other in zip(results or [], everything[device]):
                assert one.tobytes() == other.tobytes(), f"{program.name}: another result the second time"
    for device, results in enumerate(everything):
        for number, result in enumerate(results):
            wanted = expected[f"{program.name}/{device}/{number}"]
            assert result.tobytes() == wanted.tobytes(), f"{program.name}: result {number} of device {device}"
    if len(set(executable.processes)) == len(arguments):
        executable.execute(arguments[local[0]])


def main() -> None:
    world = sx.distributed.initialize()
    assert sx.distributed.initialize() is world
    assert (world.rank, world.size) == (sx.distributed.process_index(), sx.distributed.process_count())
    with np.load(sys.argv[1]) as file:
        expected = dict(file)
    for word in sys.argv[2:]:
        name, _, processes = word.partition("@")
        run(PROGRAMS[name], [int(process) for process in processes], Path(sys.argv[1]).parent, expected)
    Path(sys.argv[1]).with_name(f"done_{world.size}_{world.rank}").write_text(" ".join(sys.argv[2:]))


if __name__ == "__main__":
    main()
