"""Products on tensor cores: every tiling, layout and type, emulated, against numpy in f64."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.gpu import mma_plan, tensor_cores
from stablexla.targets.gpu.mma_plan import GROUPS, WARPS, Tiling
from tests.gpu.emulation import load_threads, program
from tests.gpu.ptxas import find_ptxas, knows

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64, "s8": np.int8, "u8": np.uint8}
SUMS = {"bf16": "f32", "f16": "f32", "f64": "f64", "s8": "s32", "u8": "u32"}
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
SMALL = WARPS[-1]


def numbers(kind: str, *shape: int, seed: int) -> Array:
    """Random ones, exact in the type."""
    generator = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return generator.integers(np.iinfo(TYPES[kind]).min, np.iinfo(TYPES[kind]).max, shape).astype(TYPES[kind])
    return generator.standard_normal(shape).astype(TYPES[kind])


def factors(kind: str, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> tuple[Array, Array]:
    """Both factors of a product of m x n with k terms; `turned`: the left one lies along m, the right one along k."""
    m, n, k = shape
    left = numbers(kind, *((k, m) if turned[0] else (m, k)), seed=1)
    return left, numbers(kind, *((n, k) if turned[1] else (k, n)), seed=2)


def product(kind: str, turned: tuple[bool, bool], x: Array, y: Array) -> sx.XlaComputation:
    dimensions = sx.DotDimensionNumbers((0 if turned[0] else 1,), (1 if turned[1] else 0,))
    return program(lambda b, v, w: sx.dot_general(v, w, dimensions, preferred_element_type=SUMS[kind]), x, y)


def is_right(actual: Array, x: Array, y: Array, turned: tuple[bool, bool]) -> None:
    """Within what sums of products in the result's type allow."""
    left, right = (v.astype(np.float64) for v in (x, y))
    left, right = left.T if turned[0] else left, right.T if turned[1] else right
    terms = left.shape[1]
    bound = np.abs(left) @ np.abs(right) * terms * (2.0**-53 if actual.dtype == np.float64 else 2.0**-24)
    if actual.dtype.kind in "iu":
        bound = bound * 0
    assert (np.abs(actual - left @ right) <= bound).all()


def run(computation: sx.XlaComputation, chip: str, *arrays: Array) -> Array:
    load_threads()
    executable = sx.compile(computation, target=sx.targets.gpu(chip=chip, emulated=True))
    assert {k.path for k in executable.kernels} == {"emitted"}
    (result,) = executable.execute(list(arrays))
    return np.asarray(result)


def force(monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    """Has every product on tensor cores use one tiling."""
    monkeypatch.setattr(
        tensor_cores, "plan_of", lambda c, f, chip: mma_plan.plan_of(c, f, chip, tiling), raising=True
    )


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("kind", ["bf16", "f64"])
def test_layouts(kind: str, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, SMALL)
    x, y = factors(kind, (72, 40, 80 if kind == "bf16" else 18), turned)
    is_right(run(product(kind, turned, x, y), "sm_80", x, y), x, y, turned)


@pytest.mark.parametrize("kind", ["f16", "s8", "u8"])
def test_types(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, SMALL)
    x, y = factors(kind, (20, 67, 144), (False, True))
    is_right(run(product(kind, (False, True), x, y), "sm_80", x, y), x, y, (False, True))


@pytest.mark.parametrize("tiling", WARPS[:-1], ids=lambda t: f"{t.rows}x{t.columns}")
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_tilings(tiling: Tiling, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, tiling)
    x, y = factors("bf16", (tiling.rows + 8, tiling.columns, 64), turned)
    is_right(run(product("bf16", turned, x, y), "sm_80", x, y), x, y, turned)


@pytest.mark.parametrize("turned", LAYOUTS)
def test_groups_of_warps(turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = GROUPS[turned[0]]
    force(monkeypatch, tiling)
    x, y = factors("bf16", (128, tiling.columns, 72), turned)
    is_right(run(product("bf16", turned, x, y), "sm_90a", x, y), x, y, turned)


def test_stages_come_round(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = factors("bf16", (32, 32, 64 * 6), (False, True))
    for tiling in (SMALL, GROUPS[1]):
        force(monkeypatch, tiling)
        monkeypatch.setattr(mma_plan, "MOST_PARTS", 1)
        is_right(run(product("bf16", (False, True), x, y), "sm_90a", x, y), x, y, (False, True))
