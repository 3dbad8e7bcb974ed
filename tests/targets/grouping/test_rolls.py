"""What is computed from rolled arrays: the same numbers, bit by bit, and no rolled array in memory.

Oracle: numpy, in the program's own order of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.samples import sample
from tests.programs import general_only

Build = Callable[..., Any]


def rolled(x: sx.XlaOp, by: int, axis: int) -> sx.XlaOp:
    """As numpy.roll, written as JAX does: the last elements, and the others behind them."""
    shape = list(x.shape.dimensions)
    size = shape[axis]
    cut = (size - by) % size
    ends, begins = shape[:], [0] * len(shape)
    ends[axis], begins[axis] = cut, cut
    ones = [1] * len(shape)
    return sx.concatenate([sx.slice(x, begins, shape, ones), sx.slice(x, [0] * len(shape), ends, ones)], axis)


def check(build: Build, expected: Build, *given: np.ndarray, kernels: int | None = None) -> sx.Executable:
    """`build` and `expected` take a function that rolls, and the arrays."""
    b = sx.XlaBuilder("test")
    root = build(rolled, *(b.parameter(i, sx.Shape("f32", a.shape)) for i, a in enumerate(given)))
    computation = b.build(root)
    wanted = expected(np.roll, *given)
    for options in (None, general_only()):
        executable = sx.compile(computation, options=options)
        result = executable(*given)
        for got, want in zip(*((v if isinstance(v, list | tuple) else [v]) for v in (result, wanted)), strict=True):
            np.testing.assert_array_equal(got, want)
        assert kernels is None or options is not None or len(executable.kernels) <= kernels
    return executable


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def heat(roll: Build, x: Any) -> Any:
    return x * np.float32(0.5) + (roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1)) * np.float32(0.125)


@pytest.mark.parametrize("shape", [(64, 64), (65, 131), (3, 2000), (2000, 3), (2, 4096), (4096, 2)])
def test_neighbours_in_both_dimensions(shape: tuple[int, ...]):
    check(heat, heat, drawn(*shape))


def test_in_a_loop():
    """The body's result lies beside what it is made of: two buffers that are swapped."""
    b = sx.XlaBuilder("test")
    x, count = b.parameter(0, sx.f32[64, 96]), b.parameter(1, sx.s32[()])
    first = sx.tuple([b.constant(np.int32(0)), count, x])
    root = sx.while_(lambda s: s[0] < s[1], lambda s: sx.tuple([s[0] + 1, s[1], heat(rolled, s[2])]), first)
    executable = sx.compile(b.build(root[2]))
    assert len(executable.kernels) <= 4  # of blocks that are too many for one kernel a few small ones are made before
    given = drawn(64, 96)
    for turns in (0, 1, 2, 5):
        expected = given
        for _ in range(turns):
            expected = heat(np.roll, expected)
        np.testing.assert_array_equal(executable(given, np.int32(turns)), expected)


@pytest.mark.parametrize("by", [1, 129, -5])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_distance_along_any_dimension(by: int, axis: int):
    def both(roll: Build, x: Any, y: Any) -> Any:
        return roll(x, by, axis) * y - x

    check(both, both, drawn(11, 13, 130), drawn(11, 13, 130, seed=1))


def test_a_line():
    def both(roll: Build, x: Any) -> Any:
        return roll(x, 1, 0) - roll(x, -1, 0)

    check(both, both, drawn(10_007), kernels=1)


def test_more_blocks_than_are_worth_it():
    """In three dimensions there are 27: some of the rolled arrays are made."""

    def both(roll: Build, x: Any) -> Any:
        total = x
        for axis in range(3):
            total = total + roll(x, 1, axis) + roll(x, -1, axis)
        return total

    check(both, both, drawn(17, 18, 19))


def test_what_others_read_too():
    """A rolled array that is a result as well, and a sum of two readers."""

    def both(roll: Build, x: Any) -> Any:
        turned, other = roll(x, 3, 0), roll(x, 5, 1)
        once = other + x
        return [turned + x, turned, once * once, once]

    def build(roll: Build, x: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple(both(roll, x))

    check(build, both, drawn(70, 71))


def test_rolls_of_several_arrays_and_of_what_is_computed():
    def both(roll: Build, x: Any, y: Any) -> Any:
        return roll(x * y, 2, 0) + roll(y, 3, 1) * roll(x, 4, 1)

    check(both, both, drawn(70, 71), drawn(70, 71, seed=1))


def test_a_roll_of_a_roll():
    def both(roll: Build, x: Any) -> Any:
        return roll(roll(x, 1, 0), 1, 1) + roll(roll(x, -1, 1), -1, 0) + x

    check(both, both, drawn(70, 71))


def test_concatenations_of_other_kinds():
    """Of two arrays, and of an array's parts in another order than that of a roll, with one twice."""
    x, y = drawn(80, 64), drawn(80, 64, seed=1)

    def build(roll: Build, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        def part(of: sx.XlaOp, low: int, high: int) -> sx.XlaOp:
            return sx.slice(of, (low, 0), (high, 64), (1, 1))

        mixed = sx.concatenate([part(x, 0, 30), part(y, 0, 50)], 0)
        twice = sx.concatenate([part(x, 40, 60), part(x, 10, 50), part(x, 40, 60)], 0)
        return mixed * y + twice

    def expected(roll: Build, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.concatenate([x[:30], y[:50]]) * y + np.concatenate([x[40:60], x[10:50], x[40:60]])

    check(build, expected, x, y)


def test_one_element_many_times():
    """It is no slice, though it is made of one."""

    def build(roll: Build, x: sx.XlaOp) -> sx.XlaOp:
        corner = sx.broadcast(sx.reshape(sx.slice(x, (79, 63), (80, 64), (1, 1)), ()), (1, 64))
        return sx.concatenate([corner, sx.slice(x, (0, 0), (79, 64), (1, 1))], 0) - x

    def expected(roll: Build, x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.full((1, 64), x[79, 63]), x[:79]]) - x

    check(build, expected, drawn(80, 64))


def bits(result: object) -> bytes:
    """The bytes of a result, each NaN the same: which of two NaNs a sum becomes is the processor's choice."""
    array = np.array(result)
    if (array != array).any():
        array[array != array] = np.nan
    return array.tobytes()


@pytest.mark.parametrize("name", ["pred", "s8", "u4", "s32", "u64", "bf16", "f16", "f64", "c64"])
def test_types_of_elements(name: str):
    x = sample(name, 70 * 71).reshape(70, 71)
    b = sx.XlaBuilder("test")
    v = b.parameter(0, sx.Shape(name, x.shape))
    combine = sx.ne if element_type(name).is_pred else sx.add
    root = combine(combine(rolled(v, 1, 0), rolled(v, -1, 1)), v)
    results = [sx.compile(b.build(root), options=options)(x) for options in (None, general_only())]
    assert bits(results[0]) == bits(results[1])
    with np.errstate(all="ignore"):
        parts = np.roll(x, 1, 0), np.roll(x, -1, 1)
        expected = parts[0] != parts[1] if name == "pred" else parts[0] + parts[1]
        expected = expected != x if name == "pred" else expected + x
    type_ = element_type(name)
    wide = np.complex128 if type_.is_complex else object if type_.is_integer else np.float64
    np.testing.assert_array_equal(np.asarray(results[0]).astype(wide), expected.astype(wide))
