"""gather, scatter and dynamic slices at their edges: nothing, scalars, many; in loops; in other operations' words.

Oracles: numpy, the definitions in `index_definitions`, the reference interpreter, and XLA:CPU.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.index_definitions import RNG, Gather, Scatter, counted, gathered, scattered
from tests.programs import check, run

# ---- edges ----------------------------------------------------------------------------------------------------------


def test_slices_without_elements_in_a_dimension_that_is_left_out() -> None:
    """The element at the start index, as StableHLO's formula has it; XLA:CPU gives 0."""
    text = """func.func @main(%x: tensor<2x3xf32>, %i: tensor<1x2xi32>) -> tensor<2xf32> {
      %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1],
        operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [1], index_vector_dim = 0>,
        slice_sizes = array<i64: 0, 1>} : (tensor<2x3xf32>, tensor<1x2xi32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check(text, [x, np.array([[2, 1]], np.int32)], against=["interpreter"], expected=[np.array([2, 4], np.float32)])


def test_no_indices() -> None:
    x, none = counted(4, 3), np.zeros((0, 1), np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 3)),
        sx.scatter(v, i, u, sx.add, dimension_numbers=Scatter((1,), (0,), (0,), 1)),
    ]
    run(make, x, none, np.zeros((0, 3), np.int32), expected=[np.zeros((0, 3), np.int32), x])


def test_index_vectors_of_no_numbers() -> None:
    """Every slice starts at 0, and every update too."""
    x, none, updates = counted(3), np.zeros((2, 0), np.int32), np.array([[10, 20], [30, 40]], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=Gather((1,), (), (), 1), slice_sizes=(2,)),
        sx.scatter(v, i, u, sx.add, dimension_numbers=Scatter((1,), (), (), 1)),
    ]
    run(make, x, none, updates, against=["interpreter"], expected=[np.int32([[1, 2], [1, 2]]), np.int32([41, 62, 3])])


def test_slices_of_nothing() -> None:
    x, places = counted(4, 3), np.array([1, 9], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 0)),
        sx.gather(v, i, dimension_numbers=Gather((1, 2), (), (0,), 1), slice_sizes=(0, 3)),
        sx.scatter(v, i, u, sx.add, dimension_numbers=Scatter((1,), (0,), (0,), 1)),
    ]
    expected = [np.zeros((2, 0), np.int32), np.zeros((2, 0, 3), np.int32), x]
    run(make, x, places, np.zeros((2, 0), np.int32), against=["interpreter"], expected=expected)


def test_operands_of_nothing() -> None:
    x, places = np.zeros((0, 3), np.int32), np.array([[0], [1]], np.int32)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=Gather((1, 2), (), (0,), 1), slice_sizes=(0, 3)),
        sx.scatter(v, i, u, sx.add, dimension_numbers=Scatter((1,), (0,), (0,), 1)),
    ]
    run(make, x, places, counted(2, 3), against=[], expected=[np.zeros((2, 0, 3), np.int32), x])


def test_scalars() -> None:
    """A scalar as the operand, the index, the result, the update."""
    x, place, update = counted(4), np.int32(2), np.int32(50)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> list[sx.XlaOp]:
        none = b.constant(np.zeros((3, 0), np.int32))
        return [
            sx.gather(v, i, dimension_numbers=Gather((), (0,), (0,), 0), slice_sizes=(1,)),
            sx.gather(v, i, dimension_numbers=Gather((0,), (), (0,), 0), slice_sizes=(2,)),
            sx.gather(u, none, dimension_numbers=Gather((), (), (), 1), slice_sizes=()),
            sx.scatter(v, i, u, sx.add, dimension_numbers=Scatter((), (0,), (0,), 0)),
            sx.scatter(u, none, sx.broadcast(i, (3,)), sx.add, dimension_numbers=Scatter((), (), (), 1)),
        ]

    expected = [np.int32(3), np.int32([3, 4]), np.int32([50] * 3), np.int32([1, 2, 53, 4]), np.int32(56)]
    run(make, x, place, update, against=["interpreter"], expected=expected)


def test_rank_six() -> None:
    x, indices = counted(2, 1, 3, 2, 2, 3), RNG(0).integers(-1, 4, (2, 2, 3))
    gather_numbers = Gather((1, 2, 4, 5), (1, 3), (0, 2, 4), 2)
    sizes = (1, 1, 2, 1, 2, 3)
    scatter_numbers = Scatter((1, 2, 4, 5), (1, 3), (0, 2, 4), 2)
    updates = counted(2, 2, 2, 2, 1, 3)
    expected = [
        gathered(x, indices, gather_numbers, sizes),
        scattered(x, indices, updates, np.add, scatter_numbers),
    ]
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=gather_numbers, slice_sizes=sizes),
        sx.scatter(v, i, u, sx.add, dimension_numbers=scatter_numbers),
    ]
    run(make, x, indices, updates, against=["interpreter"], expected=expected)


def test_dynamic_slices_of_rank_six() -> None:
    x, update = counted(2, 3, 1, 4, 2, 3), -counted(1, 2, 1, 3, 2, 1)
    starts = np.array([5, 1, -3, 1, 0, 2], np.int64)
    inside = np.ix_(*(np.arange(i, i + n) for i, n in zip((1, 1, 0, 1, 0, 2), update.shape, strict=True)))
    changed = x.copy()
    changed[inside] = update
    run(
        lambda b, v, u, i: [sx.dynamic_slice(v, i, u.shape.dimensions), sx.dynamic_update_slice(v, u, i)],
        *(x, update, starts),
        expected=[x[inside], changed],
    )


def test_repeated_scalars_as_operands() -> None:
    """A splat of indices, of updates and of what is changed."""

    def make(b: sx.XlaBuilder, s: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        places, zeros = sx.broadcast(i, (5, 1)), sx.broadcast(b.constant(0), (4, 2))
        rows = sx.gather(zeros + 3, places, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 2))
        return [
            rows,
            sx.scatter(zeros, places, sx.broadcast(s, (5, 2)), sx.add, dimension_numbers=Scatter((1,), (0,), (0,), 1)),
        ]

    expected = np.zeros((4, 2), np.int32)
    expected[1] = 35
    run(make, np.int32(7), np.int32(1), expected=[np.full((5, 2), 3, np.int32), expected])


def test_two_operands() -> None:
    """The largest value that met each place, and who brought it."""

    def larger(best: sx.XlaOp, who: sx.XlaOp, value: sx.XlaOp, number: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
        better = value > best
        return sx.select(better, value, best), sx.select(better, number, who)

    rng = RNG(1)
    values, places = rng.normal(size=40).astype(np.float32), rng.integers(-1, 6, 40).astype(np.int64)
    numbers = Scatter((), (0,), (0,), 1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        start = sx.broadcast(b.constant(-np.inf, "f32"), (5,)), sx.broadcast(b.constant(-1), (5,))
        best, who = sx.scatter(start, i, (v, b.iota(sx.s32[40], 0)), larger, dimension_numbers=numbers)
        return [best, who]

    who = [max((k for k in range(40) if places[k] == p), key=lambda k: values[k]) for p in range(5)]
    run(make, values, places, expected=[values[who], np.int32(who)])


def test_computations_that_look_at_one_argument() -> None:
    x, places, updates = counted(5), np.array([3, 3, 0, 9], np.int32), np.array([10, 20, 30, 40], np.int32)
    numbers = Scatter((), (0,), (0,), 1)
    results = [lambda a, u: u, lambda a, u: a, lambda a, u: a.builder.constant(7)]
    make = lambda b, v, i, u: [sx.scatter(v, i, u, f, dimension_numbers=numbers) for f in results]  # noqa: E731
    # The last of several updates stays: XLA:CPU and the interpreter take them in their order, too.
    expected = [[30, 2, 3, 20, 5], [1, 2, 3, 4, 5], [7, 2, 3, 7, 5]]
    run(make, x, places, updates, against=["xla"], expected=np.int32(expected))
    run(
        lambda b, v, i, u: sx.scatter(v, i, u, results[0], dimension_numbers=numbers),
        x,
        places,
        updates,
        expected=np.int32(expected[:1]),
    )


def test_a_window_that_lies_partly_outside() -> None:
    """The elements that lie inside are combined, as the specifications say of each single element; XLA:CPU leaves the
    whole window out."""
    x, updates = counted(4, 4), counted(3, 2, 2) * 100
    places = np.array([[-1, 3], [2, 1], [4, 0]], np.int32)
    numbers = Scatter((1, 2), (), (0, 1), 1)
    expected = x.copy()
    expected[0, 3] += 300
    expected[2:4, 1:3] += updates[1]
    make = lambda b, v, i, u: sx.scatter(v, i, u, sx.add, dimension_numbers=numbers)  # noqa: E731
    run(make, x, places, updates, against=["interpreter"], expected=[expected])


def test_an_operand_that_is_used_again_keeps_its_elements() -> None:
    x, places = counted(5), np.array([1, 1], np.int32)
    numbers = Scatter((), (0,), (0,), 1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> list[sx.XlaOp]:
        y = v * 2
        changed = sx.scatter(y, i, y[0:2], sx.add, dimension_numbers=numbers)
        return [changed, y, sx.gather(changed, i, dimension_numbers=Gather((), (0,), (0,), 1), slice_sizes=(1,))]

    expected = [[2, 10, 6, 8, 10], [2, 4, 6, 8, 10], [10, 10]]
    run(make, x, places, against=["xla"], expected=[np.int32(e) for e in expected])


def test_the_flags_change_nothing_that_holds_to_them() -> None:
    x, places, updates = counted(6, 2), np.array([0, 2, 5], np.int32), counted(3, 2) * 10
    g, s = Gather((1,), (0,), (0,), 1), Scatter((1,), (0,), (0,), 1)
    make = lambda b, v, i, u: [  # noqa: E731
        sx.gather(v, i, dimension_numbers=g, slice_sizes=(1, 2), indices_are_sorted=True),
        sx.scatter(v, i, u, sx.add, dimension_numbers=s, indices_are_sorted=True, unique_indices=True),
    ]
    run(make, x, places, updates, expected=[x[places], scattered(x, places, updates, np.add, s)])


# ---- large ones, which several threads share ------------------------------------------------------------------------


def test_many_rows() -> None:
    rng = RNG(2)
    x, places = rng.normal(size=(500, 33)).astype(np.float32), rng.integers(-5, 505, 20_000).astype(np.int32)
    rows = np.clip(places, 0, 499)
    run(
        lambda b, v, i: [
            sx.gather(v, i, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 33)),
            sx.gather(v, i, dimension_numbers=Gather((0,), (0,), (0,), 1), slice_sizes=(1, 33)),
        ],
        *(x, places),
        against=["xla"],
        expected=[x[rows], x[rows].T],
    )


def test_many_updates() -> None:
    """Batched and unique ones are shared between threads; others are not, and come in their order."""
    rng = RNG(4)
    x = rng.normal(size=(8, 4000)).astype(np.float32)
    updates = rng.normal(size=(8, 5000)).astype(np.float32)
    places = rng.integers(0, 4000, (8, 5000)).astype(np.int32)
    line, order = rng.normal(size=20_000).astype(np.float32), rng.permutation(20_000).astype(np.int32)
    batched, single = Scatter((), (1,), (1,), 2, (0,), (0,)), Scatter((), (0,), (0,), 1)
    expected = x.copy()
    for row, i, u in zip(expected, places, updates, strict=True):
        np.add.at(row, i, u)
    run(
        lambda b, v, i, u, x, o: [
            sx.scatter(v, i, u, sx.add, dimension_numbers=batched),
            sx.scatter(x, o, -x, lambda a, n: n, dimension_numbers=single, unique_indices=True),
            sx.scatter(v[0], i[0], u[0], sx.add, dimension_numbers=single),
        ],
        *(x, places, updates, line, order),
        against=["xla"],
        expected=[expected, -line[np.argsort(order)], expected[0]],
    )


def test_a_loop_changes_what_it_carries_in_place() -> None:
    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, x, rows = state
        place = sx.reshape(number, (1, 1))
        x = sx.scatter(x, place, rows, sx.add, dimension_numbers=Scatter((1,), (0,), (0,), 1))
        x = sx.dynamic_update_slice(x, rows * 2.0, (number + 1, 0))
        return sx.tuple((number + 1, x, rows))

    b = sx.XlaBuilder("test")
    x, rows = b.parameter(0, sx.f32[64, 8]), b.parameter(1, sx.f32[1, 8])
    loop = sx.while_(lambda s: s[0] < 63, step, sx.tuple((b.constant(0), x, rows)))
    executable = sx.compile(b.build(loop[1]))
    text = executable.ir("buffers")
    main = text[text.index("func.func public @main") :]
    assert "memref.copy" not in main[main.index("scf.while") :]
    given, row = counted(64, 8, dtype=np.float32), counted(1, 8, dtype=np.float32)
    np.testing.assert_array_equal(executable(given, row), np.concatenate([given[:1] + row, *[row * 3] * 62, row * 2]))


# ---- other ways to say it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "index", "result", "dim", "batch"),
    [
        *[("f32", "i32", "f32", 1, 0), ("1x1x1xf32", "1x1xi32", "1x1x1x1xf32", -1, 1)],
        *[("2x3xf32", "2xi32", "2xf32", 0, 1), ("2x3xf32", "i32", "2x3xf32", 1, 1)],
        ("2x3xf32", "4xi32", "2x9xf32", 1, 0),
    ],
)
def test_torch_index_select_that_upstream_lets_pass(source: str, index: str, result: str, dim: int, batch: int) -> None:
    """Its verifier does not look at the dimensions; such programs are refused by name."""
    types = f"(tensor<{source}>, tensor<{index}>) -> tensor<{result}>"
    text = f"""func.func @main(%x: tensor<{source}>, %i: tensor<{index}>) -> tensor<{result}> {{
      %r = "stablehlo.torch_index_select"(%x, %i) {{dim = {dim} : i64, batch_dims = {batch} : i64}} : {types}
      return %r : tensor<{result}>
    }}"""
    with pytest.raises(sx.StablexlaError, match="torch_index_select") as error:
        sx.compile(text)
    assert not isinstance(error.value, sx.CompileError)


SCATTER = """func.func @main(%x: tensor<10xi32>, %i: tensor<100xi1>) -> tensor<10xi32> {
  %u = stablehlo.constant dense<1> : tensor<100xi32>
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<10xi32>, tensor<100xi1>, tensor<100xi32>) -> tensor<10xi32>
  return %r : tensor<10xi32>
}"""
SELECT = """func.func @main(%x: tensor<4x2xf32>, %i: tensor<3xf32>) -> tensor<3x2xf32> {
  %r = "stablehlo.torch_index_select"(%x, %i) {dim = 0 : i64, batch_dims = 0 : i64}
    : (tensor<4x2xf32>, tensor<3xf32>) -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}"""


@pytest.mark.parametrize(
    "text", [SCATTER, SELECT, SELECT.replace("3xf32>)", "3xi1>)").replace("i: tensor<3xf32>", "i: tensor<3xi1>")]
)
def test_indices_that_are_no_integers_are_refused(text: str) -> None:
    """Upstream's verifier lets them pass; a truth value, read as -1, had been written before the array."""
    with pytest.raises(sx.UnsupportedError, match="indices must be integers"):
        sx.compile(text)


@pytest.mark.parametrize(("dim", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
def test_torch_index_select(dim: int, batch: int) -> None:
    x = counted(2, 3, 4, dtype=np.float32)
    places = RNG(0).integers(0, x.shape[dim], (*x.shape[:batch], 5)).astype(np.int32)
    expected = (
        np.take(x, places, dim)
        if not batch
        else np.stack([np.take(x[at], places[at], dim - batch) for at in np.ndindex(*x.shape[:batch])])
    )
    expected = expected.reshape(*x.shape[:dim], 5, *x.shape[dim + 1 :])
    run(lambda b, v, i: sx.torch_index_select(v, i, dim, batch), x, places, against=[], expected=[expected])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_torch_gather(dim: int) -> None:
    x = counted(3, 4, 5, dtype=np.float32)
    places = RNG(0).integers(0, x.shape[dim], (2, 3, 4))
    small = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(places.shape))]
    expected = np.take_along_axis(small, places, dim)
    run(lambda b, v, i: sx.torch_gather(v, i, dim), x, places, expected=[expected])


def test_a_dynamic_gather_of_known_sizes() -> None:
    text = """
    func.func public @main(%x: tensor<4x6xf32>, %i: tensor<3x1xi32>) -> tensor<3x2x6xf32> {
      %sizes = stablehlo.constant dense<[2, 6]> : tensor<2xi32>
      %0 = "stablehlo.dynamic_gather"(%x, %i, %sizes) {
        dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1>
      } : (tensor<4x6xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x2x6xf32>
      return %0 : tensor<3x2x6xf32>
    }
    """
    x, places = counted(4, 6, dtype=np.float32), np.array([[1], [9], [-1]], np.int32)
    expected = np.stack([x[i : i + 2] for i in (1, 2, 0)])
    check(text, [x, places], against=["interpreter"], expected=[expected])


def test_gathers_in_reductions_of_their_results() -> None:
    """What reads a gather, and what makes its operand, are kernels of their own."""
    x, places = RNG(0).normal(size=(9, 5)).astype(np.float32), np.array([8, 0, 3, 3], np.int32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        rows = sx.gather(sx.exp(v), i + 1, dimension_numbers=Gather((1,), (0,), (0,), 1), slice_sizes=(1, 5))
        return sx.reduce(rows * 2.0, b.constant(0.0), sx.add, (1,))

    expected = (np.exp(x.astype(np.float64))[[8, 1, 4, 4]] * 2).sum(1).astype(np.float32)
    run(make, x, places, against=[], expected=[expected], ulp=4)


def test_a_single_element_is_read_without_a_kernel() -> None:
    x, place = counted(5, 4), np.array([3, 9], np.int32)

    def make(v: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        return sx.reshape(sx.dynamic_slice(v, i, (1, 1)), ())

    b = sx.XlaBuilder("test")
    executable = sx.compile(b.build(make(b.parameter(0, sx.s32[5, 4]), b.parameter(1, sx.s32[2]))))
    assert executable(x, place) == 16
    assert executable.kernels == ()
