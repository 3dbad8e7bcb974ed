"""Computations that hold more than arithmetic on scalars, in every operation that applies one.

Each kind of work gives its operand back, by a detour over arrays and exactly for small whole numbers, so that the order
in which an operation applies its computation leaves no mark on the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from stablexla.targets.pipeline.steps import register_passes
from stablexla.targets.stablehlo.computations import scalars
from stablexla.targets.stablehlo.computations.expand import expand_computations
from tests.oracles import xla
from tests.programs import check

Work = Callable[[sx.XlaOp], sx.XlaOp]
WORKS: dict[str, Work] = {}


def work(function: Work) -> Work:
    WORKS[function.__name__] = function
    return function


@work
def broadcast_and_index(c: sx.XlaOp) -> sx.XlaOp:
    return sx.broadcast(c, (2,))[0]


@work
def iota(c: sx.XlaOp) -> sx.XlaOp:
    return c + c.builder.iota(sx.f32[3], 0)[2] - 2


@work
def constant(c: sx.XlaOp) -> sx.XlaOp:
    place = sx.convert_element_type(sx.clamp(0.0, c, 3.0), "s32")
    table = c.builder.constant(np.arange(4, dtype=np.float32))
    return c - sx.clamp(0.0, c, 3.0) + sx.dynamic_slice(table, [place], [1])[0]


@work
def reduce(c: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(sx.broadcast(c, (3, 2)), c * -5, sx.add, (0, 1))


@work
def dot(c: sx.XlaOp) -> sx.XlaOp:
    return sx.dot(sx.broadcast(c, (4,)), c.builder.constant(np.array([2, -2, 3, -2], np.float32)))


@work
def concatenate(c: sx.XlaOp) -> sx.XlaOp:
    both = sx.concatenate([sx.broadcast(c, (1,)), sx.broadcast(c + 3, (2,))], 0)
    return sx.rev(both, (0,))[2]


@work
def sort(c: sx.XlaOp) -> sx.XlaOp:
    three = sx.concatenate([sx.reshape(v, (1,)) for v in (c + 1, c - 1, c)], 0)
    return sx.sort(three, sx.lt, 0)[1]


@work
def gather(c: sx.XlaOp) -> sx.XlaOp:
    numbers = sx.GatherDimensionNumbers((), (0,), (0,), 1)
    indices = c.builder.constant(np.array([[1], [2]], np.int32))
    found = sx.gather(c.builder.iota(sx.f32[4], 0), indices, slice_sizes=(1,), dimension_numbers=numbers)
    return c + found[1] - found[0] * 2


@work
def loop_over_arrays(c: sx.XlaOp) -> sx.XlaOp:
    state = sx.tuple((c.builder.constant(0), sx.broadcast(c, (3,))))
    made = sx.while_(lambda s: s[0] < 3, lambda s: sx.tuple((s[0] + 1, s[1] + sx.rev(s[1], (0,)))), state)
    return made[1][1] / 8


@work
def conditional(c: sx.XlaOp) -> sx.XlaOp:
    return sx.conditional(c > 2, sx.broadcast(c, (3,)), lambda x: x[1], sx.broadcast(c, (2,)), lambda x: x[0])


@work
def call(c: sx.XlaOp) -> sx.XlaOp:
    return sx.call(lambda x: sx.broadcast(x, (2, 2))[1, 1], c)


@work
def composite(c: sx.XlaOp) -> sx.XlaOp:
    return sx.composite_call([c], "tests.third", None, lambda x: sx.broadcast(x, (3,))[2])


@work
def triangular_solve(c: sx.XlaOp) -> sx.XlaOp:
    a = c.builder.constant(np.array([[2, 0], [2, 1]], np.float32))
    b = sx.reshape(sx.concatenate([sx.broadcast(c * 2, (1,)), sx.broadcast(c * 3, (1,))], 0), (2, 1))
    return sx.triangular_solve(a, b, left_side=True, lower=True, unit_diagonal=False, transpose_a="NO_TRANSPOSE")[1, 0]


@work
def fourier_transform(c: sx.XlaOp) -> sx.XlaOp:
    return sx.real(sx.fft(sx.complex(sx.broadcast(c, (2,)), sx.broadcast(c, (2,))), "FFT", (2,)))[0] - c


@work
def nested(c: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(sx.broadcast(c, (3,)), c * -2, lambda a, v: a + sx.broadcast(v, (2,))[1], (0,))


def every_operation(function: Work) -> tuple[sx.XlaComputation, list[Any]]:
    """A program that applies the work in each operation on one device, and its arguments."""
    b = sx.XlaBuilder("computations")
    x, y = b.parameter(0, sx.f32[4, 3]), b.parameter(1, sx.f32[5])
    zero = b.constant(0.0)
    padding = ((1, 0), (0, 1))
    columns = sx.ScatterDimensionNumbers((0,), (1,), (1,), 1)
    indices = b.constant(np.array([[2], [7], [2]], np.int32))
    greater = lambda p, q: function(p) >= q  # noqa: E731
    results = [
        sx.map((x,), lambda a: function(a) * 2),
        sx.reduce(x, zero, lambda a, c: a + function(c), (0,)),
        *sx.reduce((x, x), (zero, zero), lambda a, c, p, q: (a + function(p), sx.max(c, q)), (0, 1)),
        sx.reduce_window(x, zero, lambda a, c: a + function(c), (2, 2), (2, 1), padding),
        sx.scatter(x, indices, b.iota(sx.f32[4, 3], 0), lambda a, c: a + function(c), dimension_numbers=columns),
        sx.select_and_scatter(x, greater, (2, 3), (2, 3), "VALID", b.iota(sx.f32[2, 1], 0), zero, lambda a, c: a + c),
        sx.select_and_scatter(
            x, sx.ge, (2, 3), (2, 3), "VALID", b.iota(sx.f32[2, 1], 0), zero, lambda a, c: a + function(c)
        ),
        *sx.sort((y, b.iota(sx.s32[5], 0)), lambda p, q, *_: function(p) < q, 0),
    ]
    rng = np.random.default_rng(0)
    return b.build(sx.tuple(results)), [rng.integers(-3, 9, s).astype(np.float32) for s in ((4, 3), (5,))]


@work
def moved(c: sx.XlaOp) -> sx.XlaOp:
    grid = sx.transpose(sx.reshape(sx.pad(sx.broadcast(c, (3,)), c * 2, ((1, 2, 1),)), (2, 4)), (1, 0))
    return sx.rev(grid - 1, (0, 1))[2, 1] + 1


@pytest.mark.parametrize(
    ("name", "scalars"),
    [("broadcast_and_index", True), ("iota", True), ("concatenate", True), ("moved", True), ("sort", False)],
)
def test_picked_elements_leave_scalars(name: str, scalars: bool) -> None:
    """A computation that does no more with arrays than to pick elements is one on scalars, and no loop."""
    register_passes("cpu")  # with the rules, which say what can be lowered
    b = sx.XlaBuilder("picked")
    program = b.build(sx.map((b.parameter(0, sx.f32[4]),), WORKS[name]))
    module = hlo_ir.Module.parse(str(program), stablehlo_context())
    with module.context:
        expand_computations(module)
    assert module.operation.verify()
    assert ("stablehlo.map" in str(module)) == scalars
    assert ("stablehlo.while" in str(module)) != scalars


# XLA:CPU ends the process on some of them: it runs the same program without the detour.
NOT_IN_THE_INTERPRETER = ("triangular_solve", "fourier_transform")


@pytest.mark.parametrize("name", WORKS)
def test_array_work(name: str) -> None:
    plain, args = every_operation(lambda c: c)
    against = [] if name in NOT_IN_THE_INTERPRETER else ["interpreter"]
    check(every_operation(WORKS[name])[0], args, against=against, expected=xla(str(plain), args))


def doubled(x: np.ndarray) -> np.ndarray:
    return x * 2


@pytest.fixture
def doubling() -> Iterator[None]:
    sx.register_custom_call("tests.double", doubled)
    yield
    sx.unregister_custom_call("tests.double")


@pytest.mark.usefixtures("doubling")
def test_custom_calls() -> None:
    plain, args = every_operation(lambda c: c)
    half = every_operation(lambda c: sx.custom_call("tests.double", [c * 0.5], sx.f32[()]))[0]
    check(half, args, against=[], expected=xla(str(plain), args))


def test_random_bits() -> None:
    """The state is made of the element, so that a result says which random number belongs to it."""

    def drawn(c: sx.XlaOp) -> sx.XlaOp:
        state = sx.broadcast(sx.convert_element_type(c + 9, "u64"), (2,))
        return sx.rng_bit_generator("rng_philox", state, sx.u32[3])[1][2]

    x = np.arange(5, dtype=np.float32)
    b = sx.XlaBuilder("random")
    (mapped,) = check(b.build(sx.map(b.parameter(0, sx.f32[5]), drawn)), [x], against=["xla"])
    b = sx.XlaBuilder("random")
    one = b.build(drawn(b.parameter(0, sx.f32[()])))
    np.testing.assert_array_equal(mapped, [sx.compile(one)(v) for v in x])


def test_a_program_of_jax() -> None:
    import jax
    import jax.numpy as jnp

    def program(x: Any) -> Any:
        total = jax.lax.reduce(x, np.float32(0), lambda a, c: a + jnp.broadcast_to(c, (2,))[0], (0,))
        middle = lambda a, c: a + jnp.sort(jnp.stack([c + 1, c, c - 1]))[1]  # noqa: E731
        return total, jax.lax.reduce_window(x, np.float32(0), middle, (2,), (1,), "VALID")

    x = np.arange(4, dtype=np.float32)
    total, pairs = sx.compile(jax.jit(program).lower(x).as_text())(x)
    assert total == 6
    np.testing.assert_array_equal(pairs, [1, 3, 5])


def edges(b: sx.XlaBuilder, c: Work) -> list[sx.XlaOp]:
    """Operations that apply their computation never, once, or in a wider type."""
    one, none = b.parameter(0, sx.f32[()]), b.parameter(1, sx.f32[0, 3])
    narrow = b.parameter(2, sx.bf16[6])
    wide = b.constant(1.0)
    return [
        sx.map((one,), lambda a: c(a)),
        sx.map((none,), lambda a: c(a)),
        sx.reduce(one, wide, lambda p, q: p + c(q), ()),
        sx.reduce(none, wide, lambda p, q: p + c(q), (0,)),
        sx.reduce(none, wide, lambda p, q: p + c(q), (1,)),
        sx.reduce_window(none, wide, lambda p, q: p + c(q), (1, 2), (1, 1), ((0, 0), (0, 0))),
        sx.sort(none, lambda p, q: c(p) < q, 0),
        sx.sort(sx.reshape(one, (1,)), lambda p, q: c(p) < q, 0),
        sx.sort(sx.convert_element_type(narrow, "f32"), lambda p, q: c(p) < q, 0),
    ]


def test_edges() -> None:
    args = [np.float32(3), np.zeros((0, 3), np.float32), np.array([3, -1, 2, 2, 0, -1], "bfloat16")]
    texts = []
    for function in (WORKS["sort"], lambda c: c):
        b = sx.XlaBuilder("edges")
        texts.append(str(b.build(sx.tuple(edges(b, function)))))
    check(texts[0], args, against=["interpreter"], expected=sx.compile(texts[1]).execute(args))


WIDER = """func.func @main(%x: tensor<6xbf16>, %start: tensor<bf16>) -> (tensor<2xf32>, tensor<5xf32>) {
  %rows = stablehlo.reshape %x : (tensor<6xbf16>) -> tensor<2x3xbf16>
  %0 = "stablehlo.reduce"(%rows, %start) ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %s = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %one = stablehlo.slice %s [1:2] : (tensor<2xf32>) -> tensor<1xf32>
    %d = stablehlo.reshape %one : (tensor<1xf32>) -> tensor<f32>
    %t = stablehlo.add %a, %d : tensor<f32>
    stablehlo.return %t : tensor<f32>
  }) {dimensions = array<i64: 1>} : (tensor<2x3xbf16>, tensor<bf16>) -> tensor<2xf32>
  %1 = "stablehlo.reduce_window"(%x, %start) ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %s = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %one = stablehlo.slice %s [1:2] : (tensor<2xf32>) -> tensor<1xf32>
    %d = stablehlo.reshape %one : (tensor<1xf32>) -> tensor<f32>
    %t = stablehlo.add %a, %d : tensor<f32>
    stablehlo.return %t : tensor<f32>
  }) {window_dimensions = array<i64: 2>} : (tensor<6xbf16>, tensor<bf16>) -> tensor<5xf32>
  return %0, %1 : tensor<2xf32>, tensor<5xf32>
}"""


def test_totals_in_a_wider_type() -> None:
    """256 and 1 are 257 in f32 alone."""
    x = np.array([256, 1, 1, 1, 256, 1], "bfloat16")
    totals, pairs = sx.compile(WIDER).execute([x, x.dtype.type(0)])
    np.testing.assert_array_equal(totals, np.float32([258, 258]))
    np.testing.assert_array_equal(pairs, np.float32([257, 2, 2, 257, 257]))


@pytest.mark.parametrize(("doublings", "both"), [(9, True), (600, False)])
def test_elements_are_picked_once(doublings: int, both: bool) -> None:
    """Also those that many paths lead to, and those at the end of a long one."""
    pair, scalar = "tensor<2xf32>", "tensor<f32>"
    lines = [
        f"%{i} = stablehlo.add %{i - 1}, {f'%{i - 1}' if both else '%0'} : {pair}" for i in range(1, doublings + 1)
    ]
    text = "\n".join([
        f'func.func @main(%x: {pair}) -> {pair} {{ %r = "stablehlo.map"(%x) ({{ ^bb0(%a: {scalar}):',
        f"%0 = stablehlo.broadcast_in_dim %a, dims = [] : ({scalar}) -> {pair}",
        *lines,
        f"%s = stablehlo.slice %{doublings} [1:2] : ({pair}) -> tensor<1xf32>",
        f"%e = stablehlo.reshape %s : (tensor<1xf32>) -> {scalar}",
        f"stablehlo.return %e : {scalar} }}) {{dimensions = array<i64: 0>}} : ({pair}) -> {pair}",
        f"return %r : {pair} }}",
    ])  # fmt: skip
    picked, emit = [], scalars.emit
    with pytest.MonkeyPatch.context() as patch, stablehlo_context():
        patch.setattr(scalars, "emit", lambda *given: picked.append(given[0]) or emit(*given))
        module = hlo_ir.Module.parse(text)
        expand_computations(module)
    assert picked == ["stablehlo.add"] * doublings
    assert "tensor<2xf32>" not in str(module).split("({")[1].split("})")[0]
