"""Programs over MPI: the same results as in one process, to the bit, however the devices are spread over processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stablexla import distributed
from tests.distributed.mpi_launch import needs_mpi, start
from tests.distributed.mpi_programs import PROGRAMS, TYPES

FOUR = [f"every_{name}" for name in TYPES] + ["modes", "partitions", "pieces", "large", "loop", "messages"]
# fmt: off
PLACED = [
    "pair@13", "pair@31", "pair@20", "every_f32@3210", "every_f64@0013", "modes@2130", "partitions@1313", "pieces@2022",
    "large@0321", "large@3330", "loop@3131", "messages@1020", "messages@3210", "uneven@312012", "pair@13",
]
"""Programs, and the process of each of their devices: some processes, in any order, not equally often."""
# fmt: on
SPREAD = [(2, ["pair"]), (4, FOUR), (2, FOUR), (3, ["uneven"]), (4, PLACED)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results in one process, as a file; beside it the programs, but for one that everybody compiles again."""
    path = tmp_path_factory.mktemp("mpi") / "expected.npz"
    arrays = {}
    for program in PROGRAMS.values():
        executable = program.compile()
        if program.name != "modes":
            executable.save(path.with_name(program.name))
        for device, results in enumerate(executable.execute_replicated(program.arguments())):
            for number, result in enumerate(results):
                arrays[f"{program.name}/{device}/{number}"] = result.reshape(-1).view(np.uint8)
    np.savez(path, **arrays)
    return path


@needs_mpi
@pytest.mark.parametrize(("processes", "names"), SPREAD, ids=["2 of 2", "4 of 4", "2 of 4", "3 of 6", "placed"])
def test_results_are_those_of_one_process(processes: int, names: list[str], expected: Path) -> None:
    for rank in range(processes):
        expected.with_name(f"done_{processes}_{rank}").unlink(missing_ok=True)
    done = start(processes, "tests.distributed.mpi_child", str(expected), *names)
    assert done.returncode == 0, done.stderr
    for rank in range(processes):
        assert expected.with_name(f"done_{processes}_{rank}").read_text() == " ".join(names)


@needs_mpi
def test_the_launcher_is_that_of_this_environment() -> None:
    path = Path(distributed.launcher()[0])
    assert path.name == "mpiexec"
    assert path.parent == Path(sys.executable).parent


@needs_mpi
def test_without_mpiexec_a_process_is_alone_and_loads_no_mpi() -> None:
    code = (
        "import sys, stablexla as sx; w = sx.distributed.initialize(); "
        "print(w, sx.distributed.local_devices(4), sx.distributed.process_count(), 'mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "World(rank=0, size=1) range(0, 4) 1 False"


@needs_mpi
def test_without_mpi4py_the_way_out_is_named() -> None:
    code = "import sys; sys.modules['mpi4py'] = None\nimport stablexla as sx; sx.distributed.initialize()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env={"PMI_RANK": "0"}
    )
    assert 'pip install "stablexla[mpi]"' in done.stderr
