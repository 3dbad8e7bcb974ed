"""`stablexla_run_calls`, called as machine code calls it, with C callbacks as kernels."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from stablexla.targets.llvm.call_list import MOST_ARGUMENTS, RUN_CALLS
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


def test_calls_in_order(threads):
    threads(1)
    seen: list[str] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
    made = [kind(lambda low, high, name=name: seen.append(f"{name}{low}{high}")) for name in "ab"]
    functions = (ctypes.c_void_p * 2)(*(ctypes.cast(function, ctypes.c_void_p).value for function in made))
    numbers = [1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 1, 4, 1, 0, 0]
    run_calls(functions, (ctypes.c_int64 * len(numbers))(*numbers), len(numbers), None, None)
    assert seen == ["b02", "a03", "b04"]
