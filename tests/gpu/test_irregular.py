"""Kernels whose threads are not all alike: run on the CPU against the CPU's own, and assembled by ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest

import stablexla as sx
from tests.gpu.emulation import check, program
from tests.gpu.irregular import IRREGULAR
from tests.gpu.ptxas import find_ptxas, knows, refused_by_ptxas

CHIPS = ("sm_80", "sm_90", "sm_100")


@pytest.mark.parametrize("name", IRREGULAR)
def test_emulated(name: str) -> None:
    make, arrays = IRREGULAR[name]
    emulated = check(make, *arrays, ulp=8, scale=1e-6)
    kind = name.split("-")[0]
    ours = [kernel for kernel in emulated.kernels if kernel.kind == kind]
    assert ours
    assert all(kernel.path == "emitted" for kernel in ours)


@pytest.mark.parametrize("name", IRREGULAR)
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install stablexla[gpu]")
def test_assembled(name: str, tmp_path: Path) -> None:
    make, arrays = IRREGULAR[name]
    computation = program(make, *arrays)
    for chip in filter(knows, CHIPS):
        ptx = sx.compile(computation, target=sx.targets.gpu(chip=chip)).ir("ptx")
        assert not refused_by_ptxas(ptx, chip, tmp_path)
