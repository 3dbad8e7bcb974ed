"""The arrays that a compiled program returns, and the pool that their memory comes from. Oracle: numpy."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction
from tests.threads import in_threads

pytestmark = pytest.mark.usefixtures("nothing_leaks")

F32 = ArraySpec("float32", (2, 2))


@pytest.fixture(autouse=True)
def _pool_limit():
    limit = runtime.pool_stats()["limit_bytes"]
    yield
    runtime.set_pool_limit(limit)


def double(given, result, _arena):
    result[...] = 2 * given


def test_one_result_several_and_none(make_program):
    one = np.ones((2, 2), np.float32)
    assert make_program([F32], [F32], double)(one).tolist() == [[2, 2], [2, 2]]
    assert make_program([], [], lambda _arena: None)() == ()
    assert make_program([], [], lambda _arena: None).execute([]) == []

    def both(given, first, second, _arena):
        first[...], second[...] = given, -given

    two = make_program([F32], [F32, F32], both)
    assert isinstance(two(one), tuple)
    assert isinstance(two.execute([one]), list)
    np.testing.assert_array_equal(two(one)[1], -one)


@pytest.mark.parametrize("size", [0, 1, 7, 64, 1000, 1 << 16, (1 << 20) + 3, 5_000_000])
def test_results_are_aligned_and_writable(make_echo, size):
    given = np.arange(size, dtype=np.uint8)
    result = make_echo(ArraySpec("uint8", (size,)))(given)
    assert result.ctypes.data % 64 == 0
    assert result.flags.c_contiguous
    assert result.flags.writeable
    np.testing.assert_array_equal(result, given)


def test_results_share_no_memory(make_echo):
    given = np.ones((2, 2), np.float32)
    echo = make_echo(F32)
    results = [given, *(echo(given) for _ in range(5))]
    assert len({a.ctypes.data for a in results}) == 6


def test_memory_is_used_again_when_the_last_view_dies(make_echo):
    runtime.trim_pool()
    given = np.ones(1000, np.float64)
    echo = make_echo(ArraySpec("float64", (1000,)))
    first = echo(given)
    address, part = first.ctypes.data, first[10:20]
    del first
    assert echo(given).ctypes.data != address
    del part
    addresses = {echo(given).ctypes.data for _ in range(3)}
    assert address in addresses


def test_statistics_count(make_echo):
    runtime.trim_pool()
    start = runtime.pool_stats()
    assert start["cached_bytes"] == start["cached_blocks"] == 0
    given = np.ones(1 << 18, np.float64)  # 2 MiB: a size class of its own
    echo = make_echo(ArraySpec("float64", given.shape))
    result = echo(given)
    assert runtime.pool_stats()["in_use_bytes"] - start["in_use_bytes"] == given.nbytes
    del result
    assert runtime.pool_stats()["cached_bytes"] == given.nbytes
    echo(given)
    assert runtime.pool_stats()["reused"] == start["reused"] + 1
    runtime.trim_pool()
    assert runtime.pool_stats()["cached_bytes"] == 0


def test_cache_is_bounded(make_echo):
    runtime.trim_pool()
    runtime.set_pool_limit(3 << 20)
    given = np.ones(1 << 20, np.uint8)
    echo = make_echo(ArraySpec("uint8", given.shape))
    results = [echo(given) for _ in range(6)]
    del results
    assert runtime.pool_stats()["cached_bytes"] == 3 << 20
    small = make_echo(ArraySpec("uint8", (100,)))
    small(np.ones(100, np.uint8))  # room is made for what was used last
    assert runtime.pool_stats()["cached_bytes"] == (2 << 20) + 128
    runtime.set_pool_limit(0)
    echo(given)
    assert runtime.pool_stats()["cached_bytes"] == 0


def test_big_result_is_usable_to_its_end(make_program):
    spec = ArraySpec("uint8", ((64 << 20) + 12345,))

    def fill(result, _arena):
        result[...] = 3

    assert int(make_program([], [spec], fill)().sum(dtype=np.int64)) == 3 * spec.nbytes


def test_result_dies_in_another_thread(make_echo):
    results = [make_echo(F32)(np.ones((2, 2), np.float32))]
    thread = threading.Thread(target=results.clear)
    thread.start()
    thread.join()
    assert not results


def test_arena_is_aligned_and_its_own(make_program):
    """Two calls at once have two arenas: each writes its own, waits for the other, and reads what it wrote."""
    both_inside = threading.Barrier(2, timeout=30)

    def mark(given, result, arena):
        assert arena.ctypes.data % 64 == 0
        arena[...] = given
        both_inside.wait()
        result[...] = arena.sum(dtype=np.int64)

    number = ArraySpec("int64", ())
    function = make_program([number], [number], mark, arena_bytes=1000)
    results = {}
    in_threads(lambda i: results.update({i: int(function(i))}), (1, 2))
    assert results == {1: 1000, 2: 2000}


def test_constants_are_copies(make_program):
    constant = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    seen = []

    def keep(constant, empty, _arena):
        seen.append((constant.copy(), constant.ctypes.data % 64))
        assert empty.shape == (0,)

    function = make_program([], [], keep, constants=[constant, np.empty(0, np.int8)])
    constant[...] = -1
    function()
    assert seen[0][1] == 0
    np.testing.assert_array_equal(seen[0][0], np.arange(6).reshape(2, 3))


def test_nothing_is_lost_on_errors(make_echo):
    echo = make_echo(ArraySpec("float32", (1000,)))
    for wrong in (np.zeros(1000), np.zeros(3, np.float32), "x", None):
        with pytest.raises(Exception, match="echo"):
            echo(wrong)
    impossible = CompiledFunction("huge", echo.entry, [], [ArraySpec("uint8", (1 << 60,))])
    with pytest.raises(Exception, match=r"huge: a call needs 1\.0 EiB"):
        impossible()
    too_big = CompiledFunction("huge", echo.entry, [], [F32, ArraySpec("uint8", (1 << 46,))], arena_bytes=1 << 46)
    with pytest.raises(Exception, match=r"huge: a call needs 128\.0 TiB"):
        too_big()


def test_called_from_many_threads(make_jit):
    text = """func.func @main(%a: memref<1000xf32>, %r: memref<1000xf32>, %arena: memref<1xi8>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant 1000 : index
      scf.for %i = %c0 to %n step %c1 {
        %x = memref.load %a[%i] : memref<1000xf32>
        %y = arith.addf %x, %x : f32
        memref.store %y, %r[%i] : memref<1000xf32>
      }
      return
    }"""
    spec = ArraySpec("float32", (1000,))
    function = make_jit(text, [spec], [spec])

    def work(seed):
        given = np.full(1000, seed, np.float32)
        for _ in range(200):
            assert (function(given) == 2 * given).all()

    in_threads(work, range(8))


def test_circles_are_collected(make_program):
    class Executable:
        pass

    owner = Executable()
    owner.function = CompiledFunction("f", make_program([], [], print).entry, [], [], keep_alive=owner)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_prints_and_remembers(make_program):
    function = make_program([ArraySpec("int8", (3,), "x"), F32], [F32], print, name="f", aliases={0: 1}, arena_bytes=5)
    assert repr(function) == "<CompiledFunction f(x: int8[3], float32[2,2]) -> (float32[2,2])>"
    assert (function.name, function.aliases, function.arena_bytes) == ("f", {0: 1}, 5)
    assert function.parameters[1] == F32
    assert not function.flush_denormals


def test_what_cannot_be_a_program():
    with pytest.raises(ValueError, match="entry address is 0"):
        CompiledFunction("f", 0, [], [])
    with pytest.raises(ValueError, match="alias"):
        CompiledFunction("f", 1, [F32], [F32], aliases={0: 1})
    with pytest.raises(RuntimeError, match="never initialised"):
        CompiledFunction.__new__(CompiledFunction)()
