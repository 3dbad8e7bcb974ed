"""Profiles: which calls were seen, that results stay the same, and the file for Perfetto. No time is asserted."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest

import stablexla as sx
from stablexla.inspection.profiling import machine_limits
from stablexla.inspection.profiling import profile as profiling
from stablexla.inspection.profiling.bounds import bound_of
from stablexla.inspection.profiling.machine_limits import MachineLimits
from stablexla.inspection.profiling.profile import Profile, Slice
from stablexla.inspection.profiling.profile_summary import summary_of
from stablexla.lowering.math.registry import LEAST_CALLED
from stablexla.targets.pipeline.knobs import knobs
from tests.threads import in_threads

LOOP = """
func.func @main(%x: tensor<64x64xf32>, %n: tensor<i32>) -> tensor<64x64xf32> {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%k = %i, %v = %x) : tensor<i32>, tensor<64x64xf32>
    cond { %more = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %more : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
         %next = stablehlo.add %k, %one : tensor<i32>
         %u = stablehlo.tanh %v : tensor<64x64xf32>
         stablehlo.return %next, %u : tensor<i32>, tensor<64x64xf32> }
  return %r#1 : tensor<64x64xf32>
}
"""


@pytest.fixture(scope="module")
def loop() -> Profile:
    return sx.compile(LOOP).profile([np.ones((64, 64), np.float32), np.int32(7)], runs=3)


def test_calls_in_a_loop_are_counted(loop):
    (row,) = loop.kernels
    assert row.kernel is not None
    assert row.kernel.kind == "loop"
    assert row.calls == 3 * 7
    assert loop.runs == 3
    assert 0 < row.seconds <= loop.seconds


def test_slices_follow_each_other(loop):
    calls = [s for s in loop.slices if not s.is_share]
    assert len(calls) == 21
    assert loop.spans[0][0] == 0
    assert calls[0].start >= 0
    for earlier, later in pairwise(calls):
        assert earlier.end <= later.start
    assert {s.thread for s in calls} == {0}


def test_text(loop):
    text = str(loop)
    assert "3 runs" in text
    assert "loop_0" in text
    assert "outside" in text


def calls(profile: Profile) -> dict[str, tuple[float, int]]:
    """Calls of a run by the profile, and by the explanation."""
    return {k.name: (k.calls / profile.runs, len(k.kernel.calls)) for k in profile.kernels if k.kernel is not None}


SUMS = """
func.func @main(%x: tensor<1048576xf32>, %y: tensor<1048576xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  return %a, %b : tensor<f32>, tensor<f32>
}
"""


def test_in_a_prompt_they_are_a_line(loop):
    """Not all their fields, which hold the text of every stage."""
    assert re.fullmatch(r"Profile\('main': 3 runs in [\d.e-]+ s, \d+ kernels\)", repr(loop))
    assert re.fullmatch(r"Explanation\('main': \d+ operations, \d+ kernels\)", repr(loop.explanation))


def test_calls_are_counted_as_in_the_explanation():
    # Long sums have two phases, of parts and of their sum, which are one call.
    profile = sx.compile(SUMS).profile([np.ones(1 << 20, np.float32)] * 2, runs=3)
    (kernel,) = (k.kernel for k in profile.kernels)
    assert kernel is not None
    assert kernel.phases == 2
    assert calls(profile) == {kernel.name: (2, 2)}


def test_equal_kernels_are_one_of_several_calls():
    b = sx.XlaBuilder("twice")
    x, y = (b.parameter(i, sx.f32[8, 8]) for i in range(2))
    profile = sx.compile(b.build(sx.dot(sx.exp(x), sx.exp(y)))).profile([np.ones((8, 8), np.float32)] * 2, runs=2)
    assert sorted(calls(profile).values()) == [(1, 1), (2, 2)]


def test_phases_that_pack_constants_are_no_calls():
    b = sx.XlaBuilder("weights")
    x = b.parameter(0, sx.f32[256, 1024])
    w = b.constant(np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024))
    profile = sx.compile(b.build(sx.dot(x, w))).profile([np.ones((256, 1024), np.float32)], runs=2)
    assert list(calls(profile).values()) == [(1, 1)]


def test_kernels_have_shares_and_a_bound(loop):
    (row,) = loop.kernels
    assert loop.limits is not None
    assert all(share is None or 0 < share <= 1 for share in (row.bandwidth, row.peak))
    assert 0 < row.busy <= 1
    assert row.bound in ("latency", "threads", "memory", "compute")
    assert row.hint


@pytest.mark.parametrize(
    ("call", "busy", "bandwidth", "peak", "bound"),
    [
        (5e-6, 0.1, 0.9, 0.9, "latency"),
        (1e-3, 0.5, 0.9, 0.1, "threads"),
        (1e-3, 1.0, 0.6, 0.1, "memory"),
        (1e-3, 1.0, 0.6, None, "memory"),
        (1e-3, 1.0, 0.1, 0.0, "memory"),
        (1e-3, 1.0, 0.6, 0.8, "compute"),
        (1e-3, 1.0, 0.2, None, "compute"),
    ],
)
def test_the_rule_of_bounds(call, busy, bandwidth, peak, bound):
    assert bound_of(call, busy, bandwidth, peak) == bound


@pytest.mark.parametrize("again", [1e6, 1e15])
def test_no_share_is_above_one(again, monkeypatch):
    """A peak that a kernel exceeds is measured once more; what is exceeded all the same is not named."""
    measured = []

    def measure(threads):
        measured.append(threads)
        return MachineLimits("machine", threads, 1e3, again)

    monkeypatch.setattr(profiling, "machine_limits", lambda threads: MachineLimits("machine", 2, 1e3, 1e6))
    monkeypatch.setattr(machine_limits, "measure_limits", measure)
    with knobs.scoped(kernel_cache="off"):
        profile = sx.compile(SUMS).profile([np.ones(1 << 20, np.float32)] * 2)
    assert measured == [2]
    assert profile.limits.peak == again
    (row,) = (row for row in profile.kernels if row.kernel is not None)
    assert row.bandwidth is None
    assert (row.peak is None) == (again == 1e6)
    shares = [int(share) for share in re.findall(r"(\d+)% of", str(profile))]
    assert len(shares) == (1 if again == 1e6 else 2)
    assert max(shares) <= 100


def test_the_summary_has_twenty_lines_at_most():
    b = sx.XlaBuilder("many")
    arrays = [np.ones((4, 5 + n), np.complex64) for n in range(8)]
    out = [sx.reduce(b.parameter(n, sx.c64[array.shape]), 1.0, sx.mul, (1,)) for n, array in enumerate(arrays)]
    profile = sx.compile(b.build(sx.tuple(out))).profile(arrays, runs=1)
    lines = str(profile).splitlines()
    assert len(lines) <= 20
    assert sum("bound: " in line for line in lines) == 5
    assert any(" other kernels" in line for line in lines)
    # Which five are the slowest is the machine's affair; this is said of each.
    assert "no emitter took it: it holds arithmetic on complex numbers" in profile.text(all=True)


def test_the_whole_table_and_a_pattern(loop):
    assert loop.text(all=True).startswith(summary_of(loop))
    assert "kind" in loop.text(all=True)
    assert "kind" not in str(loop)
    assert loop.text(kernels="loop_*").count("loop_0") == 2
    assert loop.text(kernels="other*").endswith("no kernel fits 'other*'; there are loop_0")


def test_shares_of_threads():
    b = sx.XlaBuilder("wide")
    x = b.parameter(0, sx.f32[1024, 1024])
    profile = sx.compile(b.build(sx.exp(x))).profile([np.zeros((1024, 1024), np.float32)], runs=2)
    calls = [s for s in profile.slices if not s.is_share]
    shares = [s for s in profile.slices if s.is_share]
    assert len(calls) == 2
    assert len(shares) >= 2
    for share in shares:
        assert any(c.start <= share.start and share.end <= c.end for c in calls)


def test_trace_file(loop, tmp_path):
    path = tmp_path / "trace.json"
    loop.save_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X" and e["cat"] != "run"]
    assert len(slices) == len(loop.slices)
    runs = [e for e in events if e["ph"] == "X" and e["cat"] == "run"]
    assert [e["name"] for e in runs] == [f"run {number}" for number in range(1, loop.runs + 1)]
    for each in slices:  # of a run: from its start to its end
        assert any(r["ts"] <= each["ts"] and each["ts"] + each["dur"] <= r["ts"] + r["dur"] for r in runs)
    assert slices[0]["name"].startswith("loop_0")
    assert slices[0]["args"]["bytes read"] == 4 * 64 * 64
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [names[track] for track in sorted(order, key=lambda track: order[track])][:2] == ["runs", "caller"]


def test_calls_of_the_host_are_seen():
    sx.register_custom_call("profiled_twice", lambda x: 2 * x)
    b = sx.XlaBuilder("host")
    x = b.parameter(0, sx.f32[4])
    profile = sx.compile(b.build(sx.custom_call("profiled_twice", x, sx.f32[4]))).profile([np.ones(4, np.float32)])
    assert sum(row.calls for row in profile.kernels) == 10


def test_a_program_that_fails_leaves_no_profile_open():
    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    sx.register_custom_call("profiled_failure", fail)
    b = sx.XlaBuilder("host")
    program = sx.compile(b.build(sx.custom_call("profiled_failure", b.parameter(0, sx.f32[4]), sx.f32[4])))
    with pytest.raises(ValueError, match="no"):
        program.profile([np.ones(4, np.float32)])
    assert sx.compile(LOOP).profile([np.ones((64, 64), np.float32), np.int32(2)], runs=1).kernels[0].calls == 2


def test_profiles_from_several_threads_wait_for_each_other():
    program, found = sx.compile(LOOP), list[Profile]()

    def work(rounds: int) -> None:
        found.append(program.profile([np.ones((64, 64), np.float32), np.int32(rounds)], runs=1))

    in_threads(work, (2, 3, 4))
    assert sorted(p.kernels[0].calls for p in found) == [2, 3, 4]


def test_arguments_that_do_not_fit():
    with pytest.raises(sx.ExecutionError, match=r"float32\[64,64\]"):
        sx.compile(LOOP).profile([np.ones(3, np.float32), np.int32(1)])


def test_a_slice_is_a_plain_value():
    assert Slice("a", 0, 1, 2, False) == Slice("a", 0, 1, 2, False)


def test_a_number_of_runs_that_is_none() -> None:
    b = sx.XlaBuilder("one")
    with pytest.raises(sx.ExecutionError, match="one: runs is a number from 1 on, not 0"):
        sx.compile(b.build(sx.neg(b.parameter(0, sx.f32[4])))).profile([np.ones(4, np.float32)], runs=0)


SCALARS = """
func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%k = %i, %v = %x) : tensor<i32>, tensor<f32>
    cond { %more = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %more : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
         %next = stablehlo.add %k, %one : tensor<i32>
         LINES
         stablehlo.return %next, %LAST : tensor<i32>, tensor<f32> }
  return %r#1 : tensor<f32>
}
"""


def test_elementary_functions_are_no_kernels() -> None:
    """Of so many scalars in a loop each is a call."""
    names = ["v", *(f"t{k}" for k in range(LEAST_CALLED.usual))]
    lines = [f"%{new} = stablehlo.tanh %{old} : tensor<f32>" for old, new in pairwise(names)]
    made = sx.compile(SCALARS.replace("LINES", "\n".join(lines)).replace("LAST", names[-1]))
    assert "call @stablexla.math_tanh" in made.ir("llvm")
    assert [each for each in made.profile([np.float32(0.5), np.int32(3)], runs=2).slices if "tanh" in each.name] == []
