"""Blocks of large contractions: where they end, and the functions that products of all shapes share."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.cpu.contraction import strategy as contraction
from stablexla.targets.cpu.contraction.packed import PackedPlan
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from tests.targets.cpu.contraction.test_strategy import ORDERS, check_dot

# Small blocks, so that small products have several each way: rhs packed before all items, and by each. A group of
# columns is a multiple of a tile's width, which is two vectors of f32.
TILE = RegisterTile(6, 2)
WIDTH = TILE.vectors * host_target().vector_bits // 32
BEFORE = PackedPlan(TILE, depth=16, rows=12, columns=max(32, WIDTH), panels=1)
ALONE = replace(BEFORE, group=WIDTH)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sends products of all sizes to the packed kernel."""
    for name in ("_is_short", "_is_rows"):
        monkeypatch.setattr(contraction, name, lambda _: False)
    monkeypatch.setattr(contraction, "_oriented_for_lines", lambda _: None)
    return monkeypatch


@pytest.mark.parametrize("equation", ORDERS)
@pytest.mark.parametrize("plan", [BEFORE, ALONE], ids=["before", "alone"])
# The last block of k has fewer steps than a square of registers, as many, and more; tiles fit and do not.
@pytest.mark.parametrize("shape", [(24, 32, 33), (25, 33, 40), (31, 47, 46), (5, 3, 16), (13, 70, 3)], ids=str)
def test_ends_of_blocks(
    packed: pytest.MonkeyPatch, shape: tuple[int, int, int], plan: PackedPlan, equation: str
) -> None:
    m, n, k = shape
    packed.setattr(contraction, "_plan_packed", lambda _: plan)
    check_dot(equation, m=m, n=n, k=k)


@pytest.mark.parametrize("equation", ORDERS)
@pytest.mark.parametrize(("element", "bits"), [("f64", 256), ("f32", 128), ("f64", 128), ("f32", 512)])
def test_ends_of_blocks_in_other_vectors(packed: pytest.MonkeyPatch, element: str, bits: int, equation: str) -> None:
    """A tile's rows are packed by squares of two, four and eight."""
    packed.setattr(contraction, "_plan_packed", lambda _: BEFORE)
    check_dot(equation, element, target=host_target().with_vectors(bits), m=25, n=70, k=41)


def test_blocks_of_equal_size(packed: pytest.MonkeyPatch) -> None:
    """Nine tiles of rows in four blocks are 2, 2, 2 and 3: every row is written, and none twice."""
    packed.setattr(contraction, "_plan_packed", lambda _: replace(BEFORE, rows=18, columns=48))
    kernel = check_dot("mk,kn->mn", m=52, n=100, k=20)
    assert kernel.emitted.items == 3 * 3


def test_what_is_no_number_stays_where_it_is(packed: pytest.MonkeyPatch) -> None:
    """What packing leaves beyond an edge reaches no sum."""
    builder = sx.XlaBuilder("product")
    x, y = builder.parameter(0, sx.f32[25, 600], "x"), builder.parameter(1, sx.f32[600, 33], "y")
    program = sx.compile(builder.build(sx.dot(x, y)))
    a, b = np.ones((25, 600), np.float32), np.ones((600, 33), np.float32)
    a[24, 599], b[0, 32], b[3, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(program(a, b), a @ b)


def test_products_share_their_code() -> None:
    """Three shapes and two orders of rhs have one register tile, and packing for each order."""
    builder = sx.XlaBuilder("products")
    made = builder.parameter(0, sx.f32[100, 700], "x")
    for number, shape in enumerate([(700, 650), (600, 650), (600, 620)]):
        weights = builder.parameter(number + 1, sx.f32[shape], f"w{number}")
        made = sx.dot(made, weights if number != 1 else sx.transpose(weights, (1, 0)))
        made = sx.max(made, builder.constant(np.float32(0)))
    program = sx.compile(builder.build(made))
    functions = re.findall(r"func\.func private @(stablexla_\w+)", program.ir("buffers"))
    assert len(functions) == len(set(functions))
    assert len([name for name in functions if name.startswith("stablexla_sum_tile")]) == 1
    lanes = host_target().vector_bits // 32
    packed = [int(match[1]) for name in functions if (match := re.match(r"stablexla_pack_(\d+)_", name))]
    assert len([width for width in packed if width % lanes == 0]) == 2  # lhs is packed by a tile's rows
