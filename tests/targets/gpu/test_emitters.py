"""That programs get the kernels that were written for them; what these compute is in `test_programs.py`."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.targets.gpu.programs import PROGRAMS, program


@pytest.mark.parametrize(
    ("name", "instruction", "times"),
    [
        ("elementwise", "ld.global.nc.v4", 2),
        ("softmax", "shfl.sync.bfly", 10),
        ("softmax-blocks", "bar.sync", 2),
        ("transpose", "bar.sync", 1),
        ("dot-big", "ld.shared.v4", 4),
        ("dot-bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 8),
        ("dot-bf16-turned", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 8),
        ("dot-f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 32),
    ],
)
def test_instructions(name: str, instruction: str, times: int) -> None:
    make, arrays = PROGRAMS[name]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_80")).ir("ptx")
    assert ptx.count(instruction) >= times  # LLVM may unroll loops


def test_no_tensor_cores_before_sm_80() -> None:
    make, arrays = PROGRAMS["dot-bf16"]
    ptx = sx.compile(program(make, *arrays), target=sx.gpu.target(chip="sm_75")).ir("ptx")
    assert "mma.sync" not in ptx
    assert "fma.rn.f32" in ptx
