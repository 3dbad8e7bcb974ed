"""`stablexla_run_calls`, called as machine code calls it, with C callbacks as kernels."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from stablexla.targets.llvm.call_list import MOST_ARGUMENTS, MOST_FLOATS, RUN_CALLS
from stablexla.targets.runtime import find_symbol

run_calls = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 2)(
    find_symbol(RUN_CALLS)
)


def cells(buffers: list[np.ndarray]) -> tuple[Any, list[Any]]:
    """Return an array of the addresses of cells with the buffers' addresses, and what keeps it alive."""
    made = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
    return (ctypes.c_void_p * len(made))(*(ctypes.addressof(cell) for cell in made)), made


@pytest.mark.parametrize("count", [0, 1, 7, MOST_ARGUMENTS])
@pytest.mark.parametrize("grain", [0, 1, 3])
def test_what_a_kernel_is_called_with(threads, count, grain):
    threads(2)
    seen: list[tuple[int, ...]] = []
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * (count + 2))(lambda *given: seen.append(given))
    functions = (ctypes.c_void_p * 1)(ctypes.cast(function, ctypes.c_void_p).value)
    buffers = [np.zeros(4, np.uint8), np.zeros(400, np.uint8)]
    pairs = [[(1, 8 * i), (-1, -5 - i), (0, 0), (-2, i)][i % 4] for i in range(count)]
    computed = (ctypes.c_int64 * max(count, 1))(*(1000 + i for i in range(count)))
    numbers = [0, 7, grain, 99, count, *(number for pair in pairs for number in pair)]
    array, _kept = cells(buffers)
    run_calls(functions, (ctypes.c_int64 * len(numbers))(*numbers), len(numbers), array, computed)
    numbered = {-1: lambda number: number, -2: lambda place: computed[place]}
    numbered |= {i: lambda offset, at=buffer.ctypes.data: at + offset for i, buffer in enumerate(buffers)}
    wanted = tuple(numbered[kind](number) for kind, number in pairs)
    assert {given[:count] for given in seen} == {wanted}
    ranges = sorted(given[count:] for given in seen)
    assert ranges == ([(0, 7)] if not grain else [(low, min(low + grain, 7)) for low in range(0, 7, grain)])


@pytest.mark.parametrize("count", [0, 3, MOST_ARGUMENTS - MOST_FLOATS])
@pytest.mark.parametrize("grain", [0, 2])
def test_floats_among_the_arguments(threads, count, grain):
    """Wherever they stand, of both widths, constant and computed, those that are no numbers bit by bit."""
    threads(2)
    singles = np.array([0x80000000, 0x7FC12345], np.uint32)
    computed = np.array([np.float64(0.1).view(np.int64), singles.view(np.int32)[1]], np.int64)
    given = [
        (ctypes.c_double, -6, int(np.float64(-1.5).view(np.int64)), -1.5),
        (ctypes.c_uint32, -6, int(singles.view(np.int32)[0]), -0.0),
        (ctypes.c_double, -7, 0, 0.1),
        (ctypes.c_uint32, -7, 1, float(singles.view(np.float32)[1])),
    ]
    assert len(given) == MOST_FLOATS
    kinds, pairs, wanted = [], [], []
    for number in range(max(count, len(given))):
        if number < count:
            kinds.append(ctypes.c_int64)
            pairs.append((-1, -number))
            wanted.append(-number)
        if number < len(given):
            type_, kind, bits, value = given[number]
            kinds.append(ctypes.c_float if type_ is ctypes.c_uint32 else type_)
            pairs.append((kind, bits))
            wanted.append(value)
    seen: list[tuple[Any, ...]] = []
    function = ctypes.CFUNCTYPE(None, *kinds, ctypes.c_int64, ctypes.c_int64)(lambda *given: seen.append(given))
    functions = (ctypes.c_void_p * 1)(ctypes.cast(function, ctypes.c_void_p).value)
    numbers = [0, 5, grain, 99, len(pairs), *(number for pair in pairs for number in pair)]
    run_calls(functions, (ctypes.c_int64 * len(numbers))(*numbers), len(numbers), None, computed.ctypes.data)
    for call in seen:
        assert np.array(call[:-2], np.float64).tobytes() == np.array(wanted, np.float64).tobytes()
    ranges = sorted(call[-2:] for call in seen)
    assert ranges == ([(0, 5)] if not grain else [(0, 2), (2, 4), (4, 5)])


def test_calls_in_order(threads):
    threads(1)
    seen: list[str] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
    made = [kind(lambda low, high, name=name: seen.append(f"{name}{low}{high}")) for name in "ab"]
    functions = (ctypes.c_void_p * 2)(*(ctypes.cast(function, ctypes.c_void_p).value for function in made))
    numbers = [1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 1, 4, 1, 0, 0]
    run_calls(functions, (ctypes.c_int64 * len(numbers))(*numbers), len(numbers), None, None)
    assert seen == ["b02", "a03", "b04"]
