"""Programs on sharded arrays over MPI: every process gives and gets whole arrays."""

from __future__ import annotations

from tests.distributed.mpi_launch import needs_mpi, start


@needs_mpi
def test_two_partitions_in_each_process() -> None:
    done = start(2, "tests.distributed.mpi_sharded")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["devices (0, 1)", "devices (2, 3)"]
