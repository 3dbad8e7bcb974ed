"""Schedules as values and as text, and the functions of users that choose them. Oracle of results: numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.schedule import Schedule, ScheduledKernel, Step
from stablexla.targets.registry import find_target, pipeline_of

ROWS, COLUMNS = ((64, 700), 1), ((700, 200), 0)
Rule = Callable[[ScheduledKernel, Schedule], Schedule | None]


def total(of: tuple[tuple[int, int], int]) -> sx.XlaComputation:
    shape, axis = of
    b = sx.XlaBuilder("total")
    return b.build(sx.reduce(b.parameter(0, sx.f32[shape]), b.constant(0.0), sx.add, (axis,)))


def compiled(of: tuple[tuple[int, int], int], rule: Rule) -> sx.Executable:
    options = sx.CompileOptions(schedules=rule, vector_bits=256, num_threads=1)
    return sx.compile(total(of), options=options)


def giving(text: str) -> Rule:
    return lambda kernel, schedule: Schedule.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "thread d0; reduced d1; unrolled d1 x4; lane d1 x8",
        "thread d0; thread d1 by 32768; reduced d1; unrolled d1 x1,4,2; lane d1 x16",
        "thread d1 by 2048; reduced d0; unrolled d0 x4; parallel d1; unrolled d1 x1; lane d1 x8",
    ],
)
def test_text_there_and_back(text: str) -> None:
    schedule = Schedule.parse(text)
    assert str(schedule) == text
    assert Schedule.parse(str(schedule)) == schedule


def test_sizes_by_role_axis_and_pass() -> None:
    schedule = Schedule.parse("thread d0; thread d1 by 64; reduced d1; unrolled d1 x1,4,2; lane d1 x16")
    assert [schedule.size("unrolled", 1, number=n) for n in range(3)] == [1, 4, 2]
    assert (schedule.size("thread", 1), schedule.size("thread", 2, 7), schedule.lanes) == (64, 7, 16)
    assert schedule.resized("unrolled", 1, 2).steps[3] == Step("unrolled", 1, (2,))
    assert Schedule.parse("thread d0; reduced d1").lanes == 0


@pytest.mark.parametrize("text", ["", "lanes d1 x8", "lane d1 by", "lane 1 x8", "thread d0;; lane d1", "lane d1 x-8"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(sx.CompileError, match="is no step of a schedule"):
        Schedule.parse(text)


def test_only_a_step_that_there_is_can_be_resized() -> None:
    with pytest.raises(sx.CompileError, match=re.escape("has no step `parallel d1`")):
        Schedule.parse("thread d0; reduced d1").resized("parallel", 1, 4)


# --- rules of users ---------------------------------------------------------------------------------------------------


def test_a_rule_sees_the_kernel_and_the_default() -> None:
    seen: list[tuple[ScheduledKernel, Schedule]] = []
    compiled(ROWS, lambda kernel, schedule: seen.append((kernel, schedule)))
    ((kernel, schedule),) = seen
    assert (kernel.kind, kernel.extents, kernel.reduced, kernel.vector_bits) == ("row", (64, 700), (1,), 256)
    assert len(kernel.cost) == 1
    assert str(schedule) == "thread d0; reduced d1; unrolled d1 x4; lane d1 x8"
    assert schedule.why == "contiguous rows: lanes along them"


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (ROWS, "thread d0; reduced d1; unrolled d1 x2; lane d1 x8"),
        (ROWS, "thread d0; reduced d1; unrolled d1 x16; lane d1 x16"),
        (ROWS, "thread d0; reduced d1; unrolled d1 x3; lane d1 x2"),
        (ROWS, "thread d0; thread d1 by 128; reduced d1; unrolled d1 x4; lane d1 x8"),
        (COLUMNS, "thread d1 by 32; unrolled d1 x4; lane d1 x8; reduced d0"),
        (COLUMNS, "reduced d0; unrolled d0 x2; unrolled d1 x13; lane d1 x16"),
        (COLUMNS, "thread d0 by 96; reduced d0; unrolled d0 x3; unrolled d1 x13; lane d1 x16"),
        (
            COLUMNS,
            "thread d1 by 64; thread d0 by 100; reduced d0; unrolled d0 x4; parallel d1; unrolled d1 x2; lane d1 x8",
        ),
    ],
)  # fmt: skip
def test_a_user_chooses_the_schedule(of: tuple[tuple[int, int], int], text: str) -> None:
    x = np.random.default_rng(0).standard_normal(of[0]).astype(np.float32)
    executable = compiled(of, giving(text))
    np.testing.assert_allclose(executable(x), x.sum(axis=of[1], dtype="f8"), rtol=1e-4, atol=1e-4)
    (kernel,) = executable.explain().kernels
    assert kernel.schedule is not None
    assert kernel.schedule.steps == text
    assert kernel.schedule.why.startswith("the rule ")
    assert f'stablexla.schedule = "{text}"' in executable.ir("buffers")


def test_another_unrolling_is_other_code() -> None:
    def halved(kernel: ScheduledKernel, schedule: Schedule) -> Schedule:
        return schedule.resized("unrolled", 1, schedule.size("unrolled", 1) // 2)

    usual, changed = compiled(ROWS, lambda kernel, schedule: None), compiled(ROWS, halved)
    assert [e.ir("buffers").count("iter_args") for e in (usual, changed)] == [1, 1]
    assert [e.ir("buffers").count("vector<8xf32>)") for e in (usual, changed)] == [1, 1]
    assert [len(re.findall(r"vector.load", e.ir("buffers"))) for e in (usual, changed)] == [4 + 3, 2 + 1]


@pytest.mark.parametrize(
    ("of", "text", "why", "way_out"),
    [
        (ROWS, "thread d0; lane d0 x8; reduced d1", "step 2: d0 cannot have the role 'lane' here", "`reduced d1`"),
        (ROWS, "thread d0; parallel d1", "step 2: d1 cannot have the role 'parallel' here", "`reduced d1`"),
        (ROWS, "thread d0; reduced d2", "step 2: d2 cannot have the role 'reduced' here", "`reduced d1`"),
        (ROWS, "thread d0; reduced d1", "step 3: it is missing", "`unrolled d1`"),
        (ROWS, "thread d0; reduced d1; unrolled d1 x1; lane d1 x8; lane d1 x8", "step 5: d1 cannot", "no step more"),
        (
            ROWS,
            "thread d0; reduced d1; unrolled d1 x1; lane d1 x6",
            "`lane d1 x6`: lanes are a power of two",
            "`lane d1 x4`",
        ),
        (
            ROWS,
            "thread d0; reduced d1; unrolled d1 x17; lane d1 x8",
            "`unrolled d1 x17`: sizes are 1 to 16",
            "`unrolled d1 x16`",
        ),
        (
            ROWS,
            "thread d0; reduced d1; unrolled d1 x0; lane d1 x8",
            "`unrolled d1 x0`: sizes are 1 to 16",
            "`unrolled d1 x1`",
        ),
        (ROWS, "thread d0; reduced d1; unrolled d1 x1; lane d1 x0", "`lane d1 x0`: sizes are 1 to 128", "`lane d1 x1`"),
        (
            ROWS,
            "thread d0; reduced d1; unrolled d1 x1,2; lane d1 x8",
            "it has one size, or one for each of 1 passes",
            "x1`",
        ),
        (
            ROWS,
            "thread d0 by 2; reduced d1; unrolled d1 x1; lane d1 x8",
            "`thread d0 by 2`: an item has 1 of",
            "`thread d0`",
        ),
        (
            ROWS,
            "thread d0; thread d1 by 100; reduced d1; unrolled d1 x4; lane d1 x8",
            "`thread d1 by 100`: an item has a multiple of 32 of the indices",
            "`thread d1 by 128`",
        ),
        (
            COLUMNS,
            "reduced d0; unrolled d0 x2; unrolled d1 x12; lane d1 x16",
            "`unrolled d1 x12`: no loop has the rest of the 200 indices",
            "`unrolled d1 x13`",
        ),
        (COLUMNS, "thread d1 by 16; unrolled d1 x4; lane d1 x8; reduced d0", "an item has 32 of", "`thread d1 by 32`"),
        (COLUMNS, "thread d0; reduced d0", "step 3: it is missing", "`unrolled d0`"),
        (
            ROWS,
            "thread d0; unrolled d1 x4; lane d1 x8",
            "no loop has the rest of the 700 indices",
            "`reduced d1` before it",
        ),
    ],
)  # fmt: skip
def test_schedules_that_there_are_not(of: tuple[tuple[int, int], int], text: str, why: str, way_out: str) -> None:
    with pytest.raises(sx.CompileError, match=re.escape(why)) as told:
        compiled(of, giving(text))
    message = str(told.value)
    shape, axis = of
    loops = ", ".join(f"d{d} of {n}" + " reduced" * (d == axis) for d, n in enumerate(shape))
    assert f"({loops}) the schedule `{text}`" in message
    assert "test_schedule.py:" in message
    assert way_out in message.split("try: ")[-1]


def test_what_is_no_schedule() -> None:
    with pytest.raises(sx.CompileError, match="schedules must be a function, not 4"):
        sx.CompileOptions(schedules=4)  # type: ignore[arg-type]
    with pytest.raises(sx.CompileError, match="gave a str for row_0"):
        compiled(ROWS, lambda kernel, schedule: "thread d0")  # type: ignore[arg-type,return-value]


def test_a_rule_that_nothing_asks_is_told() -> None:
    b = sx.XlaBuilder("sine")
    computation = b.build(sx.sin(b.parameter(0, sx.f32[8])))
    with pytest.warns(UserWarning, match="has no effect: the program has no kernel whose schedule can be chosen"):
        sx.compile(computation, options=sx.CompileOptions(schedules=lambda kernel, schedule: None))


def test_a_rule_belongs_to_the_pass_that_emits() -> None:
    """So that reproducers of that step load its file, and those of others do not."""
    pipeline = pipeline_of(find_target("cpu"), sx.CompileOptions(schedules=lambda kernel, schedule: None))
    assert [step.name for step in pipeline if pipeline.rules_of(step)] == ["buffers"]
    assert "// rule stablexla.schedules: " in str(pipeline)


def test_programs_with_a_rule_are_not_kept(tmp_path: object) -> None:
    """The function may be another one the next time."""
    options = sx.CompileOptions(cache=str(tmp_path), vector_bits=256)
    sx.compile(total(ROWS), options=options)
    rule = giving("thread d0; reduced d1; unrolled d1 x1; lane d1 x8")
    executable = sx.compile(total(ROWS), options=replace(options, schedules=rule))
    assert executable.explain().kernels[0].schedule.steps == str(rule(None, None))  # type: ignore[arg-type,union-attr]
