"""Profiles: which calls were seen, that results stay the same, and the file for Perfetto. No time is asserted."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import stablexla as sx
from stablexla.inspection.profiling.profile import Profile, Slice
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
    assert calls[0].start == 0
    for earlier, later in pairwise(calls):
        assert earlier.end <= later.start
    assert {s.thread for s in calls} == {0}


def test_text(loop):
    text = str(loop)
    assert "3 runs" in text
    assert "loop_0" in text
    assert "outside" in text


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
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(loop.slices)
    assert slices[0]["name"].startswith("loop_0")
    assert slices[0]["args"]["bytes read"] == 4 * 64 * 64
    assert {"name": "caller"} in [e["args"] for e in events if e["name"] == "thread_name"]


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
