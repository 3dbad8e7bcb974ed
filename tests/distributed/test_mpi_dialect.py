"""Reductions by MLIR's `mpi` dialect, which a user may choose: what runs, and what is said where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.distributed import launcher
from tests.distributed.mpi_dialect import options
from tests.distributed.mpi_launch import needs_mpi, start


@needs_mpi
def test_results_are_the_defaults() -> None:
    names = ["MPICH", "OpenMPI"]
    done = start(2, "tests.distributed.mpi_dialect", *(reversed(names) if "--oversubscribe" in launcher() else names))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["as the default"] * 2


def total(fold: Any = sx.add) -> sx.XlaComputation:
    b = sx.XlaBuilder("total")
    return b.build(sx.all_reduce(b.parameter(0, sx.f32[2]), fold))


def test_a_process_that_is_alone_is_told() -> None:
    with pytest.raises(sx.LoadError, match=r"calls of MPI \(MPICH\), .* this process is alone") as caught:
        sx.compile(total(), num_replicas=2, options=options("MPICH"))
    assert caught.value.hint.startswith("mpiexec -n 2, with sx.distributed.initialize() before")


def test_an_implementation_that_is_not_known() -> None:
    with pytest.raises(sx.CompileError, match="there is no implementation 'LAM'"):
        sx.compile(total(), num_replicas=2, options=options("LAM"))


def test_a_program_without_what_mpi_has_runs_anywhere() -> None:
    executable = sx.compile(total(sx.max), num_replicas=2, options=options("MPICH"))
    assert "mpi." not in executable.ir("mpi")
    values = np.array([[np.nan, 1], [2, 3]], np.float32)
    for results in executable.execute_replicated([[row] for row in values]):
        np.testing.assert_array_equal(results[0], [np.nan, 3])
