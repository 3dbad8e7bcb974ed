"""Products by tiles on the simulated GPU, which reads the PTX itself and watches for races, fences and waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.gpu.contraction.mma_plan import GROUPS, WARPS, BlockTiling
from stablexla.targets.runtime import _runtime
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.contraction.test_mma import factors, force, is_right, product


@pytest.fixture(scope="module", autouse=True)
def _simulated_gpu() -> Iterator[None]:
    _runtime.use_cuda_driver(str(simulator.library()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STABLEXLA_PTXAS", "none")
        yield
    _runtime.use_cuda_driver(None)


@pytest.mark.parametrize(
    ("kind", "shape", "turned", "tiling", "instruction"),
    [
        ("bf16", (40, 72, 72), (False, False), WARPS[-1], "m16n8k16"),
        ("bf16", (128, 128, 200), (True, True), WARPS[1], "m16n8k16"),
        ("bf16", (128, 256, 264), (False, False), GROUPS[0], "m64n256k16"),
        ("bf16", (128, 64, 72), (True, False), WARPS[2], "m16n8k16"),
        ("bf16", (128, 128, 328), (True, False), GROUPS[1], "m64n128k16"),
        ("f16", (128, 128, 520), (False, True), GROUPS[1], "m64n128k16"),
        ("s8", (72, 72, 272), (False, True), GROUPS[1], "m64n128k32"),
        ("f64", (64, 48, 42), (True, True), None, "m16n8k4"),
        ("f32", (40, 68, 36), (False, True), None, "fma.rn.f32"),
        ("f16", (40, 30, 1040), (False, True), None, "m16n8k16"),
        ("bf16", (33, 35, 71), (False, False), None, "m16n8k16"),
        ("bf16", (3, 520, 300), (False, False), None, "fma.rn.f32"),
        ("bf16", (130, 2, 300), (False, False), None, "fma.rn.f32"),
    ],
)
def test_products(
    kind: str,
    shape: tuple[int, int, int],
    turned: tuple[bool, bool],
    tiling: BlockTiling | None,
    instruction: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tiling is not None:
        force(monkeypatch, tiling)
    x, y = factors(kind, shape, turned)
    executable = sx.compile(product(kind, turned, x, y), target="gpu:sm_90a")
    assert instruction in executable.ir("ptx")
    (found,) = executable.execute([x, y])
    is_right(np.asarray(found), x, y, turned)
