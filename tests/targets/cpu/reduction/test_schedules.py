"""The schedule that reductions get on both sides of each size that decides on it, and the schedules of users.

Oracle of results: numpy in f64.
"""

from __future__ import annotations

import numpy as np
import pytest

from stablexla.dialects.choices import chosen
from stablexla.dialects.errors import CompileError
from stablexla.dialects.rules import SCHEDULES, LoweringRule, active
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.schedule import Schedule
from stablexla.targets.cpu.reduction.rows import emit_rows
from tests.targets.cpu.harness import compile_kernel, emit
from tests.targets.cpu.kernel_text import KernelText
from tests.targets.cpu.reduction_bodies import IN_ORDER, NEG_INF, plain

TARGET = CpuTarget(vector_bits=256)
SUM, MAX = plain("arith.addf", "f32"), plain("arith.maximumf", "f32")
Axes = tuple[int, ...]
Shape = tuple[int, ...]


def total(shape: Shape, axes: Axes, body: str = SUM, start: str = "0.0", element: str = "f32") -> str:
    text = KernelText("reduce")
    x = text.input(element, shape)
    return text.text(*text.fold(shape, axes, [x], [(start, element)], body))


def softmax(shape: Shape, axes: Axes) -> str:
    text = KernelText("row")
    x, kept = text.input("f32", shape), ", ".join(f"d{d}" for d in range(len(shape)) if d not in axes)
    (most,) = text.fold(shape, axes, [x], [(NEG_INF, "f32")], MAX)
    off = text.map(shape, [x, (most, kept)], "%p = arith.subf %a, %b : f32\n%r = math.exp %p : f32")
    (whole,) = text.fold(shape, axes, [off], [("0.0", "f32")], SUM)
    return text.text(text.map(shape, [off, (whole, kept)], "%r = arith.divf %a, %b : f32"))


def exact(x: np.ndarray, axes: Axes, kind: str) -> np.ndarray:
    x = x.astype("f8")
    if kind == "softmax":
        powers = np.exp(x - x.max(axis=axes, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axes, keepdims=True))
    return np.asarray(x.sum(axis=axes))


def check(kind: str, shape: Shape, axes: Axes) -> Schedule:
    """The schedule of a kernel whose results are right however it is called."""
    text = (softmax if kind == "softmax" else total)(shape, axes)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (got,) = compile_kernel(text, TARGET, emit_rows).in_all_ways(x)
    np.testing.assert_allclose(got, exact(x, axes, kind), rtol=1e-4, atol=1e-3)
    schedule = emit(text, TARGET, emit_rows)[1].schedule
    assert schedule is not None
    return schedule


ALONG, SHORT = "thread d0; reduced d1; unrolled d1 x4; lane d1 x8", "thread d0; unrolled d1 x{}; lane d1 x8"
SHARED = "thread d0; thread d1 by 32768; reduced d1; unrolled d1 x4; lane d1 x8"
IN_L1 = "reduced d0; unrolled d0 x4; parallel d1; unrolled d1 x1; lane d1 x8"
FEW_ROWS = "unrolled d0 x{}; parallel d1; unrolled d1 x1; lane d1 x8"
IN_REGISTERS = "reduced d0; unrolled d0 x4; unrolled d1 x8; lane d1 x8"
ACROSS = "thread d1 by 8; unrolled d1 x1; lane d1 x8; reduced d0"
# Sizes one below, at and one above each that decides.
CHOSEN = [
    ("lanes", "total", 1, {(5, 7): SHORT.format(1), (5, 8): SHORT.format(1), (5, 9): SHORT.format(2)}),
    ("vectors of a short row", "total", 1, {(5, 31): SHORT.format(4), (5, 32): SHORT.format(4), (5, 33): ALONG}),
    ("two blocks", "total", 1, {(2, 65535): ALONG, (2, 65536): SHARED, (2, 65537): SHARED}),
    ("items for all threads", "total", 1, {(15, 65536): SHARED, (16, 65536): ALONG, (17, 65536): ALONG}),
    ("rows at a time", "total", 0, {(3, 999): FEW_ROWS.format(3), (4, 999): FEW_ROWS.format(4), (5, 999): IN_L1}),
    ("half of the registers", "total", 0, {(100, 63): IN_REGISTERS, (100, 64): IN_REGISTERS, (100, 65): IN_L1}),
    (
        "elements of two parts",
        "total",
        0,
        {(1023, 128): IN_L1, (1024, 128): f"thread d0 by 512; {IN_L1}", (1025, 128): f"thread d0 by 516; {IN_L1}"},
    ),
    (
        "columns of a panel",
        "total",
        0,
        {(5, 4095): IN_L1, (5, 4096): IN_L1, (5, 4097): f"thread d1 by 4096; {IN_L1}"},
    ),
    (
        "vectors of a short row, in passes",
        "softmax",
        1,
        {(5, 31): SHORT.format(4), (5, 32): SHORT.format(4), (5, 33): ALONG.replace("x4", "x4,1,4")},
    ),
    ("lanes across rows", "softmax", 0, {(10, 7): ACROSS, (10, 8): ACROSS, (10, 9): ACROSS, (10, 17): ACROSS}),
]


@pytest.mark.parametrize(("kind", "axis", "steps"), [row[1:] for row in CHOSEN], ids=[row[0] for row in CHOSEN])
def test_the_schedule_on_both_sides_of_a_size(kind: str, axis: int, steps: dict[Shape, str]) -> None:
    assert {shape: str(check(kind, shape, (axis,))) for shape in steps} == steps


def test_every_schedule_says_why() -> None:
    shapes = ((5, 9), 1), ((5, 33), 1), ((2, 65536), 1), ((3, 999), 0), ((100, 63), 0), ((100, 65), 0)
    schedules = [emit(total(shape, (axis,)), TARGET, emit_rows)[1].schedule for shape, axis in shapes]
    assert [schedule and schedule.why for schedule in schedules] == [
        "short rows: they stay in registers",
        "contiguous rows: lanes along them",
        "few long rows: threads share them",
        "few rows: one iteration adds all",
        "few columns: accumulators in registers",
        "many columns: accumulators in L1",
    ]


def test_bodies_that_keep_their_order_have_no_lanes_along_rows() -> None:
    schedule = emit(total((5, 40), (1,), IN_ORDER, "1.0"), TARGET, emit_rows)[1].schedule
    assert (str(schedule), schedule and schedule.why) == (
        "thread d0; reduced d1", "the combiner keeps its order: one index after the other"
    )  # fmt: skip


def test_cut_reductions_of_several_loops() -> None:
    with chosen("usual+reduction.part=8+reduction.long-block=1"):
        cut = check("total", (2, 80, 3, 9), (1, 3))
        columns = check("total", (80, 2, 5, 7), (0, 2))
    assert str(cut) == "thread d0; thread d2; thread d1 by 4; reduced d1; reduced d3; unrolled d3 x1; lane d3 x8"
    assert str(columns) == (
        "thread d1; thread d0 by 16; reduced d0; reduced d2; unrolled d2 x4; unrolled d3 x1; lane d3 x8"
    )


def test_a_schedule_does_not_change_what_any_cut_of_the_items_gives() -> None:
    """Every form of each kernel, in sizes that leave remainders on all axes."""
    given = {
        ("total", (3, 203), (1,)): [
            "thread d0; reduced d1; unrolled d1 x3; lane d1 x4",
            "thread d0; thread d1 by 48; reduced d1; unrolled d1 x3; lane d1 x8",
            "thread d0; unrolled d1 x13; lane d1 x16",
        ],
        ("total", (29, 83), (0,)): [
            "thread d1 by 24; unrolled d1 x3; lane d1 x8; reduced d0",
            "reduced d0; unrolled d0 x3; unrolled d1 x11; lane d1 x8",
            "thread d0 by 6; reduced d0; unrolled d0 x3; unrolled d1 x11; lane d1 x8",
            "reduced d0; unrolled d0 x2; parallel d1; unrolled d1 x3; lane d1 x4",
            "thread d1 by 16; reduced d0; unrolled d0 x5; parallel d1; unrolled d1 x2; lane d1 x8",
            "thread d1 by 32; thread d0 by 10; reduced d0; unrolled d0 x5; parallel d1; unrolled d1 x2; lane d1 x8",
        ],
        ("total", (11, 83), (0,)): ["thread d1 by 16; unrolled d0 x11; parallel d1; unrolled d1 x2; lane d1 x8"],
        ("softmax", (3, 75), (1,)): [
            "thread d0; reduced d1; unrolled d1 x3,2,5; lane d1 x4",
            "thread d0; unrolled d1 x10; lane d1 x8",
        ],
        ("softmax", (9, 75), (0,)): ["thread d1 by 24; unrolled d1 x3; lane d1 x8; reduced d0"],
    }  # fmt: skip
    for kernel, texts in given.items():
        for text in texts:
            rule = LoweringRule(SCHEDULES, lambda _, default, text=text: Schedule.parse(text))
            with active([rule]):
                assert str(check(*kernel)) == text


def test_orders_and_passes_forbid_parts() -> None:
    """A part's sums can be joined only where nothing else is done with a row, by a combiner that has no order."""
    for text in (softmax((5, 4096), (1,)), total((5, 4096), (1,), IN_ORDER, "1.0")):
        rule = LoweringRule(SCHEDULES, lambda _, default: Schedule.parse("thread d0; thread d1 by 1024; reduced d1"))
        with active([rule]), pytest.raises(CompileError, match="step 2: d1 cannot have the role 'thread' here"):
            emit(text, TARGET, emit_rows)
