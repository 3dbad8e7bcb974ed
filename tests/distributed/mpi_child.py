"""One process of many: runs programs, and holds the results of all devices against what one process came to.

Most of them were compiled and saved by that one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import stablexla as sx
from tests.distributed.mpi_programs import PROGRAMS, Array, Program


def run(program: Program, folder: Path, expected: dict[str, Array]) -> None:
    """Runs it three times: with all results here, with the own ones, and with no arguments for the others."""
    file = folder / program.name
    executable = sx.load_executable(file) if file.exists() else program.compile()
    arguments = program.arguments()
    local = sx.distributed.local_devices(len(arguments))
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
    if len(local) == 1:
        executable.execute(arguments[local.start])


def main() -> None:
    world = sx.distributed.initialize()
    assert sx.distributed.initialize() is world
    assert (world.rank, world.size) == (sx.distributed.process_index(), sx.distributed.process_count())
    with np.load(sys.argv[1]) as file:
        expected = dict(file)
    for name in sys.argv[2:]:
        run(PROGRAMS[name], Path(sys.argv[1]).parent, expected)
    Path(sys.argv[1]).with_name(f"done_{world.size}_{world.rank}").write_text(" ".join(sys.argv[2:]))


if __name__ == "__main__":
    main()
