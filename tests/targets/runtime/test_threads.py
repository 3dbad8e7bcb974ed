"""`stablexla_parallel_for`, called as machine code calls it: by its C address, with C callbacks."""

from __future__ import annotations

import collections
import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
parallel_for = ctypes.CFUNCTYPE(None, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
    runtime.parallel_for_address()
)


def ranges_of(n: int, grain: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    parallel_for(BODY(lambda _ctx, lo, hi: ranges.append((lo, hi))), None, n, grain)
    return sorted(ranges)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1000])
@pytest.mark.parametrize("grain", [-1, 0, 1, 3, 64, 5000])
def test_every_index_once_in_chunks_of_the_grain(threads, count, n, grain):
    threads(count)
    ranges = ranges_of(n, grain)
    assert [i for lo, hi in ranges for i in range(lo, hi)] == list(range(n))
    step = max(grain, 1)
    assert all(lo % step == 0 and lo < hi for lo, hi in ranges)
    if count == 1 or n <= grain:
        assert ranges == ([(0, n)] if n else [])


def test_context_is_passed_on(threads):
    threads(2)
    seen = set()
    parallel_for(BODY(lambda ctx, _lo, _hi: seen.add(ctx)), 4711, 10, 1)
    assert seen == {4711}


@pytest.mark.parametrize("count", [2, 4])
def test_threads_run_at_the_same_time(threads, count):
    """Each chunk waits until all are being worked at: with a thread too few the barrier breaks."""
    threads(count)
    barrier = threading.Barrier(count, timeout=30)
    names = set()

    def body(_ctx, _lo, _hi):
        barrier.wait()
        names.add(threading.get_ident())

    for _ in range(3):
        names.clear()
        parallel_for(BODY(body), None, count, 1)
        assert len(names) == count
        assert threading.get_ident() in names


@pytest.mark.parametrize(("count", "n"), [(2, 8), (3, 9), (4, 4)])
def test_each_thread_has_the_same_chunks_in_every_region(threads, count, n):
    """In step, by barriers: a thread does its share from the first chunk to the last, the caller the first share."""
    threads(count)
    barrier = threading.Barrier(count, timeout=30)

    def body(_ctx, lo, _hi):
        done[threading.get_ident()].append(lo)
        barrier.wait()

    seen = []
    for _ in range(3):
        done = collections.defaultdict(list)
        parallel_for(BODY(body), None, n, 1)
        seen.append(dict(done))
    assert sorted(map(tuple, seen[0].values())) == [
        tuple(range(k * n // count, (k + 1) * n // count)) for k in range(count)
    ]
    assert seen[0][threading.get_ident()][0] == 0
    assert seen[0] == seen[1] == seen[2]


def test_the_last_chunks_of_another_thread_are_taken(threads):
    threads(2)
    both, done, order = threading.Barrier(2, timeout=30), threading.Event(), []

    def body(_ctx, lo, _hi):
        if lo in (0, 4):
            both.wait()
        if lo == 4:
            done.wait(30)
        else:
            order.append(lo)
        if len(order) == 7:
            done.set()

    parallel_for(BODY(body), None, 8, 1)
    assert order == [0, 1, 2, 3, 7, 6, 5]


def test_inner_regions_run_where_they_are_met(threads):
    threads(2)
    pairs = []

    def outer(_ctx, lo, hi):
        me = threading.get_ident()
        for i in range(lo, hi):
            inner = BODY(lambda _ctx, a, b, i=i: pairs.extend((i, j, threading.get_ident() == me) for j in range(a, b)))
            parallel_for(inner, None, 5, 1)

    parallel_for(BODY(outer), None, 8, 1)
    assert sorted(pairs) == [(i, j, True) for i in range(8) for j in range(5)]


def test_several_callers_at_once(threads):
    threads(3)
    counts = np.zeros((6, 500), np.int64)

    def caller(k):
        def body(_ctx, lo, hi):
            counts[k, lo:hi] += 1

        for _ in range(20):
            parallel_for(BODY(body), None, 500, 50)

    callers = [threading.Thread(target=caller, args=(k,)) for k in range(6)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert (counts == 20).all()


def test_two_regions_have_workers_at_once(threads):
    """Of four threads two stay in one region; the chunks of the other one, which wait for each other, have two."""
    threads(4)
    inside, done = threading.Barrier(3, timeout=30), threading.Event()
    met = threading.Barrier(2, timeout=30)
    names = set()

    def stay(_ctx, _lo, _hi):
        inside.wait()
        done.wait(30)

    def meet(_ctx, _lo, _hi):
        met.wait()
        names.add(threading.get_ident())

    other = threading.Thread(target=lambda: parallel_for(BODY(stay), None, 2, 1))
    other.start()
    inside.wait()
    parallel_for(BODY(meet), None, 2, 1)
    done.set()
    other.join()
    assert len(names) == 2


def test_a_worker_leaves_when_another_caller_comes(threads):
    """Two threads, and two callers: from then on each does its own chunks."""
    threads(2)
    both, begun, came, done = threading.Barrier(2, timeout=30), threading.Event(), threading.Event(), threading.Event()
    names = {}

    def first(_ctx, lo, _hi):
        names[lo] = threading.get_ident()
        if lo in (0, 4):  # the first chunks of the two shares
            both.wait()
            begun.set()
            came.wait(30)

    def second(_ctx, _lo, _hi):
        came.set()
        done.wait(30)

    def come():
        begun.wait(30)
        parallel_for(BODY(second), None, 2, 1)

    other = threading.Thread(target=come)
    other.start()
    parallel_for(BODY(first), None, 9, 1)
    done.set()
    other.join()
    assert names[4] != threading.get_ident()
    assert {names[i] for i in range(9) if i != 4} == {threading.get_ident()}


def test_neither_of_two_callers_starves(threads):
    """One with many chunks in a region, one with two: each goes on until both have done some regions."""
    threads(2)
    regions, enough = [0, 0], 50

    def caller(k, n):
        body = BODY(lambda *_: None)
        while min(regions) < enough:
            parallel_for(body, None, n, 1)
            regions[k] += 1

    callers = [threading.Thread(target=caller, args=args, daemon=True) for args in ((0, 2000), (1, 2))]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    assert min(regions) >= enough


def test_number_of_threads_changes_between_the_regions_of_others(threads):
    threads(3)
    counts, stop = np.zeros(64, np.int64), threading.Event()
    calls = 0

    def caller():
        nonlocal calls

        def body(_ctx, lo, hi):
            counts[lo:hi] += 1

        while not stop.is_set():
            parallel_for(BODY(body), None, 64, 4)
            calls += 1

    other = threading.Thread(target=caller)
    other.start()
    for count in (1, 4, 2, 3) * 5:
        runtime.set_num_threads(count)
    stop.set()
    other.join()
    assert (counts == calls).all()


def test_number_of_threads(threads):
    assert 1 <= runtime.default_num_threads() <= len(os.sched_getaffinity(0))
    threads(3)
    assert runtime.get_num_threads() == 3
    for wrong in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="between 1 and"):
            runtime.set_num_threads(wrong)
    assert runtime.get_num_threads() == 3


def test_number_of_threads_cannot_change_inside_a_region(threads):
    threads(2)
    messages = []

    def body(_ctx, _lo, _hi):
        try:
            runtime.set_num_threads(1)
        except RuntimeError as error:
            messages.append(str(error))

    parallel_for(BODY(body), None, 2, 1)
    assert len(messages) == 2
    assert "inside a parallel region" in messages[0]


FORK = """
import ctypes, os, sys, threading
from stablexla.targets import runtime
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
parallel_for = ctypes.CFUNCTYPE(None, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
    runtime.parallel_for_address())
def use():
    barrier = threading.Barrier(3, timeout=30)
    parallel_for(BODY(lambda *_: barrier.wait()), None, 3, 1)
runtime.set_num_threads(3)
use()
child = os.fork()
if child == 0:
    use()
    os._exit(0 if runtime.get_num_threads() == 3 else 1)
use()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_has_threads_of_its_own():
    # Python 3.12 and later warn of every fork of a process with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


EXIT = """
import ctypes, threading
from stablexla.targets import runtime
runtime.set_num_threads(4)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ctypes.CFUNCTYPE(None, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(runtime.parallel_for_address())(
    BODY(lambda *_: None), None, 100, 1)
function = runtime.CompiledFunction("f", 1, [], [])
print("done")
"""


def test_process_ends_quietly():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# A parallel loop as the CPU target writes it: the data pointers are the context, the body is a function of its own.
PARALLEL_HALF = """
func.func private @stablexla_parallel_for(!llvm.ptr, !llvm.ptr, i64, i64)
llvm.func @body(%ctx: !llvm.ptr, %lo: i64, %hi: i64) {
  %one = llvm.mlir.constant(1 : i64) : i64
  %half = llvm.mlir.constant(5.000000e-01 : f32) : f32
  %from = llvm.load %ctx : !llvm.ptr -> !llvm.ptr
  %slot = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %to = llvm.load %slot : !llvm.ptr -> !llvm.ptr
  llvm.br ^head(%lo : i64)
^head(%i: i64):
  %more = llvm.icmp "slt" %i, %hi : i64
  llvm.cond_br %more, ^loop, ^end
^loop:
  %p = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %x = llvm.load %p : !llvm.ptr -> f32
  %y = llvm.fmul %x, %half : f32
  %q = llvm.getelementptr %to[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  llvm.store %y, %q : f32, !llvm.ptr
  %next = llvm.add %i, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}
llvm.func @main(%a: !llvm.ptr, %r: !llvm.ptr, %arena: !llvm.ptr) {
  %one = llvm.mlir.constant(1 : i64) : i64
  %two = llvm.mlir.constant(2 : i64) : i64
  %n = llvm.mlir.constant(4096 : i64) : i64
  %grain = llvm.mlir.constant(64 : i64) : i64
  %ctx = llvm.alloca %two x !llvm.ptr : (i64) -> !llvm.ptr
  %slot = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  llvm.store %a, %ctx : !llvm.ptr, !llvm.ptr
  llvm.store %r, %slot : !llvm.ptr, !llvm.ptr
  %body = llvm.mlir.addressof @body : !llvm.ptr
  func.call @stablexla_parallel_for(%body, %ctx, %n, %grain) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
  llvm.return
}
"""
SPEC = ArraySpec("float32", (4096,))


def test_jitted_code_finds_it_and_denormals_stay(make_jit, threads):
    threads(2)
    half = make_jit(PARALLEL_HALF, [SPEC], [SPEC])
    tiny = np.full(4096, np.finfo(np.float32).tiny, np.float32)
    for _ in range(20):
        np.testing.assert_array_equal(half(tiny), tiny / np.float32(2))
    assert half(tiny).min() > 0


def test_denormals_are_flushed_when_asked_on_every_thread(make_jit, threads):
    threads(2)
    keep, flush = (make_jit(PARALLEL_HALF, [SPEC], [SPEC], flush_denormals=f) for f in (False, True))
    tiny = np.full(4096, np.finfo(np.float32).tiny, np.float32)
    for _ in range(20):  # in turns, so that a mode left behind in a worker would show
        assert (flush(tiny) == 0).all()
        assert (keep(tiny) > 0).all()
    assert (flush(flush(tiny) + tiny / np.float32(2)) == 0).all()  # a denormal argument reads as zero
    assert tiny[0] / np.float32(2) > 0  # and the caller's mode is as before


def test_denormals_stay_under_a_caller_that_flushes(make_jit, threads):
    """jitted code inside jitted code: a program that keeps denormals is called from one that flushes them."""
    threads(2)
    keep = make_jit(PARALLEL_HALF, [SPEC], [SPEC])
    tiny = np.full(4096, np.finfo(np.float32).tiny, np.float32)
    seen = []

    def inner(packed):
        seen.append(keep(tiny))

    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(inner)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    runtime.CompiledFunction("outer", address, [], [], flush_denormals=True)()
    assert (seen[0] > 0).all()


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({}, "0::/\n", 0),
        ({"cpu.max": "max 100000"}, "0::/\n", 0),
        ({"cpu.max": "150000 100000"}, "0::/\n", 2),
        ({"cpu.max": "1000 100000"}, "0::/\n", 1),
        ({"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b\n", 2),
        ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "300000 100000"}, "0::/a/b\n", 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/\n", 0),
        ({"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"}, "7:pids:/\n4:cpu:/a\n0::/\n", 3),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/\n", 1),
        ({"cpuset/cpu.cfs_quota_us": "50000", "cpuset/cpu.cfs_period_us": "100000"}, "4:cpuset:/\n", 0),
        ({"cpu.max": "what is this"}, "no groups\n:\n0:\n0::x\n0::/\n", 0),
    ],
)
def test_limits_of_control_groups(files, groups, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert runtime.cpu_limit(groups, str(tmp_path)) == expected
