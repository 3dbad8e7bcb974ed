"""PTX is the same whatever machine compiles it: vectors, caches, threads and instructions of the host do not count."""

from __future__ import annotations

import sys

import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import FEATURES, CpuTarget, host_target
from tests.targets.gpu.programs import PROGRAMS, program

NAMES = ("bf16", "softmax", "dot-bf16", "dot-s8", "sort")
SMALL = CpuTarget(vector_bits=128, l1_bytes=16 << 10, l2_bytes=128 << 10, l3_bytes=1 << 20)
BIG = CpuTarget(512, 32, l3_bytes=1 << 30, num_threads=192, features=tuple(sorted(FEATURES)))


def ptx_of(name: str) -> str:
    make, arrays = PROGRAMS[name]
    return sx.compile(program(make, *arrays), target="gpu:sm_80").ir("ptx")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_everywhere(name: str) -> None:
    here = ptx_of(name)
    askers = [m for m in list(sys.modules.values()) if getattr(m, "host_target", None) is host_target]
    assert len(askers) > 2
    for machine in (SMALL, BIG):
        with pytest.MonkeyPatch.context() as patch:
            for module in askers:
                patch.setattr(module, "host_target", lambda machine=machine: machine)
            assert ptx_of(name) == here


def test_nothing_of_the_host_is_noted() -> None:
    make, arrays = PROGRAMS["elementwise"]
    assert "no_bf16" not in sx.compile(program(make, *arrays), target="gpu:sm_80").ir("nvvm")
