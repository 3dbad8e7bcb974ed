"""Matrices that a loop does not change: packed once, before it; what a loop changes or may skip stays inside."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import stablexla as sx


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Small whole numbers: every order of a sum gives the same."""
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(dtype)


def powers(x: sx.XlaOp, w: sx.XlaOp, rounds: sx.XlaOp) -> sx.XlaOp:
    """Multiply x by w, and keep it small, so often."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        left, value, matrix = state
        return sx.tuple((left - 1, small(sx.dot(value, matrix)), matrix))

    return loop(step, rounds, x, w)[1]


def small(x: sx.XlaOp) -> sx.XlaOp:
    return sx.rem(x, x.builder.constant(np.array(7, x.shape.element_type.dtype)))


def loop(step: Callable[[sx.XlaOp], sx.XlaOp], *start: sx.XlaOp) -> sx.XlaOp:
    """A loop that counts the first of its values down."""
    return sx.while_(lambda state: state[0] > 0, step, sx.tuple(start))


def in_numpy(x: np.ndarray, w: np.ndarray, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        x = np.fmod(x @ w, 7).astype(x.dtype)
    return x


def places(executable: sx.Executable) -> tuple[int, int]:
    """Calls of packing phases before the first loop, and from there on."""
    before, _, after = executable.ir("buffers").partition("@main")[2].partition("scf.while")
    return before.count("_impl_pack("), after.count("_impl_pack(")


@pytest.mark.parametrize(("rows", "element"), [(5, "f32"), (16, "f32"), (16, "f64"), (9, "s32"), (40, "f32")])
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_fixed_matrix_is_packed_before_the_loop(rows: int, element: str, rounds: int):
    type_ = sx.element_type(element)
    b = sx.XlaBuilder("powers")
    x, w, n = b.parameter(0, type_[rows, 512]), b.parameter(1, type_[512, 512]), b.parameter(2, sx.s32[()])
    executable = sx.compile(b.build(powers(x, w, n)), options=sx.CompileOptions(vector_bits=256))
    assert places(executable) == (1, 0)
    left, right = drawn(rows, 512, dtype=type_.dtype), drawn(512, 512, dtype=type_.dtype)
    np.testing.assert_array_equal(executable(left, right, np.int32(rounds)), in_numpy(left, right, rounds))


def test_products_of_few_rows_read_the_matrix_in_place():
    b = sx.XlaBuilder("few")
    x, w, n = b.parameter(0, sx.f32[4, 512]), b.parameter(1, sx.f32[512, 512]), b.parameter(2, sx.s32[()])
    assert places(sx.compile(b.build(powers(x, w, n)))) == (0, 0)


def test_nested_loops_leave_it_to_the_outermost():
    b = sx.XlaBuilder("nested")
    x, w, n = b.parameter(0, sx.f32[16, 512]), b.parameter(1, sx.f32[512, 512]), b.parameter(2, sx.s32[()])

    def outer(state: sx.XlaOp) -> sx.XlaOp:
        rounds, value, matrix, turns = state
        return sx.tuple((rounds - 1, powers(value, matrix, turns), matrix, turns))

    executable = sx.compile(b.build(loop(outer, n, x, w, n)[1]))
    assert places(executable) == (1, 0)
    left, right = drawn(16, 512), drawn(512, 512)
    np.testing.assert_array_equal(executable(left, right, np.int32(3)), in_numpy(left, right, 9))


def test_a_matrix_of_the_outer_loop_is_packed_in_each_of_its_iterations():
    b = sx.XlaBuilder("turned")
    x, w, n = b.parameter(0, sx.f32[16, 512]), b.parameter(1, sx.f32[512, 512]), b.parameter(2, sx.s32[()])

    def outer(state: sx.XlaOp) -> sx.XlaOp:
        rounds, value, matrix, turns = state
        return sx.tuple((rounds - 1, powers(value, matrix, turns), sx.rev(matrix, (0,)), turns))

    executable = sx.compile(b.build(loop(outer, n, x, w, n)[1]))
    assert places(executable) == (0, 1)
    main = executable.ir("buffers").partition("@main")[2]
    assert main.index("scf.while") < main.index("_impl_pack(") < main.rindex("scf.while")
    left, right = drawn(16, 512), drawn(512, 512)
    wanted, matrix = left, right
    for _ in range(3):
        wanted, matrix = in_numpy(wanted, matrix, 3), matrix[::-1]
    np.testing.assert_array_equal(executable(left, right, np.int32(3)), wanted)


def test_a_matrix_that_the_loop_changes_is_read_as_it_is():
    b = sx.XlaBuilder("changed")
    x, w, n = b.parameter(0, sx.f32[16, 512]), b.parameter(1, sx.f32[512, 512]), b.parameter(2, sx.s32[()])

    def step(state: sx.XlaOp) -> sx.XlaOp:
        rounds, value, matrix = state
        return sx.tuple((rounds - 1, small(sx.dot(value, matrix)), sx.rev(matrix, (1,))))

    executable = sx.compile(b.build(loop(step, n, x, w)[1]))
    assert places(executable) == (0, 0)
    left, right = drawn(16, 512), drawn(512, 512)
    wanted, matrix = left, right
    for _ in range(4):
        wanted, matrix = in_numpy(wanted, matrix, 1), matrix[:, ::-1]
    np.testing.assert_array_equal(executable(left, right, np.int32(4)), wanted)


def test_a_branch_that_may_not_run_packs_when_it_does():
    b = sx.XlaBuilder("branch")
    x, w, n = b.parameter(0, sx.f32[40, 512]), b.parameter(1, sx.f32[512, 1024]), b.parameter(2, sx.s32[()])

    def step(state: sx.XlaOp) -> sx.XlaOp:
        rounds, value, matrix, total = state
        pair = sx.tuple((value, matrix))
        sums = sx.conditional(sx.eq(rounds, 2), pair, lambda both: sx.dot(*both), total, lambda total: total)
        return sx.tuple((rounds - 1, value, matrix, sums))

    start = sx.broadcast(b.constant(np.float32(0)), (40, 1024))
    executable = sx.compile(b.build(loop(step, n, x, w, start)[3]))
    assert places(executable)[0] == 0
    left, right = drawn(40, 512), drawn(512, 1024)
    np.testing.assert_array_equal(executable(left, right, np.int32(3)), left @ right)


def test_two_products_share_what_is_packed():
    """Two calls of one kernel on one matrix; a third matrix has panels of its own."""
    b = sx.XlaBuilder("shared")
    x, y = b.parameter(0, sx.f32[16, 512]), b.parameter(1, sx.f32[16, 512])
    w, v, n = b.parameter(2, sx.f32[512, 512]), b.parameter(3, sx.f32[512, 512]), b.parameter(4, sx.s32[()])

    def step(state: sx.XlaOp) -> sx.XlaOp:
        rounds, *values, first, second = state
        made = [small(sx.dot(value, matrix)) for value, matrix in zip(values, (first, first, second), strict=True)]
        return sx.tuple((rounds - 1, *made, first, second))

    turns = loop(step, n, x, y, x, w, v)
    executable = sx.compile(b.build(sx.tuple((turns[1], turns[2], turns[3]))))
    assert places(executable) == (2, 0)
    a, c, d, e = drawn(16, 512), -drawn(16, 512), drawn(512, 512), drawn(512, 512)[::-1].copy()
    found = executable(a, c, d, e, np.int32(3))
    for one, (start, matrix) in zip(found, ((a, d), (c, d), (a, e)), strict=True):
        np.testing.assert_array_equal(one, in_numpy(start, matrix, 3))


def test_calls_at_once_have_panels_of_their_own():
    b = sx.XlaBuilder("at once")
    x, w, n = b.parameter(0, sx.f32[16, 512]), b.parameter(1, sx.f32[512, 512]), b.parameter(2, sx.s32[()])
    executable = sx.compile(b.build(powers(x, w, n)))
    matrices = [np.roll(drawn(512, 512), i, 1) for i in range(4)]
    left = drawn(16, 512)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda matrix: executable(left, matrix, np.int32(6)), matrices))
    for one, matrix in zip(found, matrices, strict=True):
        np.testing.assert_array_equal(one, in_numpy(left, matrix, 6))
