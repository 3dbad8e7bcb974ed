"""Donated arguments: whose memory a result takes, who owns it then, and when it gets memory of its own after all."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction

SPEC = ArraySpec("float32", (16,))


def aligned(values: object, shift: int = 0) -> np.ndarray:
    """16 floats at a multiple of 64 bytes, or `shift` bytes behind one."""
    room = np.zeros(256, np.uint8)
    start = -room.ctypes.data % 64 + shift
    array = room[start : start + 64].view(np.float32)
    array[...] = values
    return array


@pytest.fixture
def increase(make_program) -> CompiledFunction:
    def body(given: np.ndarray, result: np.ndarray, _arena: np.ndarray) -> None:
        result[...] = given + 1

    return make_program([SPEC], [SPEC], body, aliases={0: 0})


@pytest.fixture
def no_leak() -> Iterator[None]:
    """Freezes older objects: in a long run collecting them takes seconds, and frees memory of other tests."""
    gc.freeze()
    before = runtime.pool_stats()["in_use_blocks"]
    yield
    gc.collect()
    gc.unfreeze()
    assert runtime.pool_stats()["in_use_blocks"] == before


def test_a_result_takes_the_arguments_memory(increase):
    given = aligned(range(16))
    (result,) = increase.execute([given], donate=True)
    assert result.ctypes.data == given.ctypes.data
    assert result.flags.writeable
    np.testing.assert_array_equal(result, np.arange(1, 17))
    address = given.ctypes.data
    del given  # the result keeps the memory
    assert result.ctypes.data == address
    np.testing.assert_array_equal(result, np.arange(1, 17))


def test_who_does_not_donate_keeps_the_argument(increase):
    given = aligned(range(16))
    (result,) = increase.execute([given])
    assert not np.shares_memory(result, given)
    np.testing.assert_array_equal(given, np.arange(16))


@pytest.mark.usefixtures("no_leak")
def test_a_thousand_steps_in_one_block(increase):
    (state,) = increase.execute([np.zeros(16, np.float32)])
    address = state.ctypes.data
    for _ in range(1000):
        (state,) = increase.execute([state], donate=True)
        assert state.ctypes.data == address
    np.testing.assert_array_equal(state, np.full(16, 1001))
    assert not isinstance(state.base, np.ndarray)  # no chain of those that lay there before
    del state


@pytest.mark.usefixtures("no_leak")
def test_a_block_lives_as_long_as_any_of_its_arrays(increase):
    (first,) = increase.execute([np.zeros(16, np.float32)])
    (second,) = increase.execute([first], donate=True)
    address = first.ctypes.data
    del first
    gc.collect()
    others = [increase.execute([np.zeros(16, np.float32)])[0] for _ in range(8)]
    assert address not in [other.ctypes.data for other in others]
    np.testing.assert_array_equal(second, np.full(16, 2))
    del second, others


@pytest.mark.usefixtures("no_leak")
def test_memory_that_is_not_the_callers_to_give(increase):
    read_only = aligned(1)
    read_only.flags.writeable = False
    (result,) = increase.execute([read_only], donate=True)
    assert not np.shares_memory(result, read_only)
    np.testing.assert_array_equal(read_only, np.ones(16))
    np.testing.assert_array_equal(result, np.full(16, 2))
    del result


def test_memory_that_is_not_aligned_as_results_are(increase):
    given = aligned(1, shift=4)
    (result,) = increase.execute([given], donate=True)
    assert not np.shares_memory(result, given)
    assert result.ctypes.data % 64 == 0


def test_what_had_to_be_converted_is_left_alone(increase):
    given = aligned(range(16))
    (result,) = increase.execute([given[::-1]], donate=True)
    np.testing.assert_array_equal(given, np.arange(16))
    np.testing.assert_array_equal(result, np.arange(16, 0, -1))


@pytest.mark.parametrize("shift", [0, 8])
def test_another_argument_in_the_same_memory(make_program, shift):
    half = ArraySpec("float32", (8,))

    def body(given: np.ndarray, other: np.ndarray, result: np.ndarray, _arena: np.ndarray) -> None:
        result[...] = given + 1
        result[:8] += other

    program = make_program([SPEC, half], [SPEC], body, aliases={0: 0})
    given = aligned(range(16))
    (result,) = program.execute([given, given[shift : shift + 8]], donate=True)
    assert not np.shares_memory(result, given)
    expected = np.arange(1.0, 17)
    expected[:8] += np.arange(shift, shift + 8)
    np.testing.assert_array_equal(result, expected)


def test_results_that_have_no_argument_are_new(make_program):
    def body(given: np.ndarray, twice: np.ndarray, more: np.ndarray, _arena: np.ndarray) -> None:
        twice[...] = 2 * given
        more[...] = given + 1

    program = make_program([SPEC], [SPEC, SPEC], body, aliases={1: 0})
    given = aligned(range(16))
    twice, more = program.execute([given], donate=True)
    assert more.ctypes.data == given.ctypes.data
    np.testing.assert_array_equal(twice, 2 * np.arange(16))
    np.testing.assert_array_equal(more, np.arange(1, 17))


def test_empty_arrays(make_program):
    empty = ArraySpec("float32", (0, 3))
    program = make_program([empty], [empty], lambda *arrays: None, aliases={0: 0})
    assert program.execute([np.zeros((0, 3), np.float32)], donate=True)[0].shape == (0, 3)


def test_pairs_that_cannot_be():
    entry = 1
    with pytest.raises(ValueError, match="different sizes"):
        CompiledFunction("f", entry, [SPEC], [ArraySpec("float32", (17,))], aliases={0: 0})
    with pytest.raises(ValueError, match="with two results"):
        CompiledFunction("f", entry, [SPEC], [SPEC, SPEC], aliases={0: 0, 1: 0})
