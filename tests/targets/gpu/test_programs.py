"""The mapped kernels of small programs: simulated, against the CPU's kernels, and assembled by ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest

import stablexla as sx
from tests.targets.gpu.programs import PROGRAMS, program
from tests.targets.gpu.ptxas import find_ptxas, knows, refused_by_ptxas
from tests.targets.gpu.simulation import check_simulated

CHIPS = ("sm_70", "sm_80", "sm_90a", "sm_100")


@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated(name: str) -> None:
    make, arrays = PROGRAMS[name]
    check_simulated(make, *arrays, ulp=8, scale=1e-6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install stablexla[gpu]")
def test_assembled(name: str, chip: str, tmp_path: Path) -> None:
    if not knows(chip):
        pytest.skip(f"ptxas dropped {chip}")
    ptx = sx.compile(program(PROGRAMS[name][0], *PROGRAMS[name][1]), target=sx.gpu.target(chip=chip)).ir("ptx")
    assert not refused_by_ptxas(ptx, chip, tmp_path)
