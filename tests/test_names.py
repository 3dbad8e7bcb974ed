"""Names of other libraries: what is suggested for each is run, and compared with what numpy makes of the name.

Oracles: numpy, and JAX for names that numpy lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import stablexla as sx
from stablexla.builder.names import hint_for_op, hint_for_package
from stablexla.builder.other_names import ATTRIBUTES, OTHER_NAMES, ROWS, TYPES, WAYS
from tests.comparison import assert_same
from tests.loading import load_file

ROOT = Path(__file__).parents[1]

X = np.float32([[0.5, -0.25, 0.75], [-0.5, 0.125, 0.25]])
Y = np.float32([[2, -3, 0.5], [1.5, 2, -4]])
V = np.float32([2, -1, 0.5])
W = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
M = np.bool_([[True, False, True], [False, True, True]])
I = np.int32([[1, 2, 3], [-4, 100, 6]])  # noqa: E741
J = np.int32([[1, 0, 3], [2, 4, 3]])
P, K = np.bool_(True), np.int32(1)
VALUES = {"x": X, "y": Y, "v": V, "w": W, "m": M, "i": I, "j": J, "p": P, "k": K}
EIGHT = 8
"""ulp that an expression of several elementary functions may differ by."""


def meaning(name: str) -> Any:
    """Return the result of the name elsewhere, of the values above."""
    with np.errstate(invalid="ignore"):
        return MEANINGS[name]()


def _numpy(name: str, *args: Any, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(np, name)(*args, **options)


MEANINGS: dict[str, Callable[[], Any]] = {
    **{name: _numpy(name, X, axis=0) for name in ("sum", "prod", "amax", "amin", "mean", "cumsum", "cumprod")},
    **{name: _numpy(name, X, axis=0) for name in ("var", "std")},
    **{name: _numpy(name, M, axis=0) for name in ("any", "all")},
    **{name: _numpy(name, X, axis=1) for name in ("argmax", "argmin", "argsort")},
    "median": _numpy("median", X, axis=1),
    "logsumexp": lambda: special.logsumexp(X, axis=1),
    "norm": lambda: np.linalg.norm(X),
    "count_nonzero": _numpy("count_nonzero", X, axis=0),
    **{name: _numpy(name, X, Y) for name in ("subtract", "multiply", "divide", "floor_divide", "mod", "arctan2")},
    **{name: _numpy(name, X, Y) for name in ("maximum", "minimum", "nextafter", "equal", "not_equal")},
    **{name: _numpy(name, X, Y) for name in ("greater", "greater_equal", "less", "less_equal", "power")},
    "remainder": _numpy("fmod", X, Y),
    **{name: _numpy(name, X) for name in ("negative", "absolute", "exp2", "log2", "log10", "arcsin", "arccos")},
    **{name: _numpy(name, X) for name in ("arctan", "arcsinh", "arccosh", "arctanh", "rint", "trunc", "isfinite")},
    **{name: _numpy(name, X) for name in ("isnan", "isinf")},
    "exponential": _numpy("exp", X),
    "exponential_minus_one": _numpy("expm1", X),
    "log_plus_one": _numpy("log1p", X),
    "sine": _numpy("sin", X),
    "cosine": _numpy("cos", X),
    "sigmoid": lambda: special.expit(X),
    "relu": lambda: np.maximum(X, 0),
    "leaky_relu": lambda: np.where(X > 0, X, X * np.float32(0.01)),
    "elu": lambda: np.where(X > 0, X, np.expm1(X)),
    "log_softmax": lambda: special.log_softmax(X, axis=1),
    "batch_norm": lambda: (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5) * V + V,
    "layer_norm": lambda: (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5),
    "sinc": _numpy("sinc", X),
    "hypot": _numpy("hypot", X, Y),
    "silu": lambda: X * special.expit(X),
    "gelu": lambda: X * special.ndtr(X),
    "softplus": lambda: np.logaddexp(X, 0),
    "softmax": lambda: special.softmax(X, axis=1),
    "round_nearest_afz": lambda: np.float32([[1, 0, 1], [-1, 0, 0]]),
    "clip": lambda: np.clip(X, -1, 1),
    "gammaln": lambda: special.gammaln(X),
    "logical_and": lambda: M & P,
    "logical_or": lambda: M | P,
    "logical_xor": lambda: M ^ P,
    "logical_not": lambda: ~M,
    **{name: _numpy(name, I, J) for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")},
    "bitwise_not": lambda: ~I,
    "popcnt": lambda: np.vectorize(lambda n: (int(n) & 0xFFFFFFFF).bit_count())(I),
    "count_leading_zeros": lambda: np.vectorize(lambda n: 32 - (int(n) & 0xFFFFFFFF).bit_length())(I),
    "where": lambda: np.where(M, X, Y),
    "conjugate": lambda: X - 1j * Y,
    "zeros": lambda: np.zeros((2, 3)),
    "ones": lambda: np.ones((2, 3)),
    "full": lambda: np.full((2, 3), 7),
    "arange": lambda: np.arange(6),
    "linspace": lambda: np.linspace(0, 1, 5),
    "eye": lambda: np.eye(3),
    "one_hot": lambda: np.eye(4)[I[0]],
    "tril": lambda: np.tril(X),
    "triu": lambda: np.triu(X),
    "array": lambda: np.float32([[1, 2], [3, 4]]),
    "astype": lambda: X.astype(np.int32),
    "bitcast_convert": lambda: X.view(np.uint32),
    "ravel": lambda: X.ravel(),
    "squeeze": lambda: np.squeeze(X[:1]),
    "expand_dims": lambda: np.expand_dims(X, 1),
    "swapaxes": lambda: np.swapaxes(X, 0, 1),
    "broadcast_to": lambda: np.broadcast_to(V, (2, 3)),
    "concat": lambda: np.concatenate((X, Y)),
    "hstack": _numpy("hstack", (X, Y)),
    "stack": lambda: np.stack((X, Y)),
    "split": lambda: np.split(X, [1], axis=1),
    "tile": lambda: np.tile(X, (2, 1)),
    "repeat": lambda: np.repeat(X, 2, axis=0),
    "flip": lambda: np.flip(X, 0),
    "roll": lambda: np.roll(X, -1, axis=0),
    "take": lambda: np.take(V, K),
    "slice_update": lambda: np.concatenate((X[:, :2], Y[:, :1]), axis=1),
    "matmul": lambda: X @ W,
    "einsum": lambda: np.einsum("ij,jk->ik", X, W),
    "bmm": lambda: (X @ W)[None],
    "outer": lambda: np.outer(V, V),
    "cond": lambda: np.sin(X),
    "switch": lambda: np.cos(X),
    "fori_loop": lambda: sum((Y for _ in range(10)), X),
    # On one device, which is all of them.
    **dict.fromkeys(("psum", "pmean", "pmax", "pmin", "ppermute", "psum_scatter"), lambda: X),
    "axis_index": lambda: np.uint32(0),
    "while_loop": lambda: X + math.ceil((9 - X.sum()) / X.size),
}


def value_of(text: str) -> list[np.ndarray]:
    """What the expression computes of the values above."""
    b = sx.XlaBuilder("suggested")
    ops = {name: b.parameter(n, sx.Shape(a.dtype, a.shape)) for n, (name, a) in enumerate(VALUES.items())}
    made = eval(text, {"np": np, "sx": sx, "b": b, **ops})
    return sx.compile(b.build(made)).execute(list(VALUES.values()))


@pytest.mark.parametrize(("names", "text"), ROWS, ids=[names.split()[0] for names, _ in ROWS])
def test_what_is_suggested_is_what_is_meant(names: str, text: str) -> None:
    name = names.split()[0]
    results = value_of(text)
    if name in ("normal", "uniform", "dropout"):
        assert results[0].shape == (2, 3)
        return
    expected = meaning(name)
    expected = expected if isinstance(expected, list) else [expected]
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected):
        assert_same(result, np.asarray(wanted).astype(result.dtype), ulp=EIGHT, scale=1)


@pytest.mark.parametrize("name", [name for name in OTHER_NAMES if not hasattr(sx, name)])
def test_names_looked_for_in_the_package(name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(sx, name)
    assert str(raised.value).endswith(f": try {OTHER_NAMES[name]}")


def test_no_name_hides_an_operation() -> None:
    assert not [name for name in OTHER_NAMES if name in sx.__all__]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sum", "sx.reduce(x, 0.0, sx.add, (0,))"),
        ("relu", "sx.max(x, 0.0)"),
        ("Sum", "sx.reduce(x, 0.0, sx.add, (0,))"),
        ("float32", "sx.f32"),
        ("transpse", "sx.transpose(operand, permutation)"),
        ("softmaxx", None),
        ("group_norm", ""),
        ("optimizer", ""),
        ("train", ""),
    ],
)
def test_the_table_comes_first_and_likeness_after(name: str, meant: str | None) -> None:
    hint = hint_for_package(name)
    assert hint == (OTHER_NAMES["softmax"] if meant is None else meant)


def test_element_types() -> None:
    for name, text in TYPES.items():
        assert isinstance(eval(text, {"sx": sx}), sx.ElementType), name


class TestAttributes:
    def test_each_is_run(self) -> None:
        b = sx.XlaBuilder("attributes")
        x, y = b.parameter(0, sx.f32[2, 3]), b.parameter(1, sx.f32[2, 3])
        for name, text in ATTRIBUTES.items():
            with pytest.raises(AttributeError) as raised:
                getattr(x, name)
            assert str(raised.value) == f"XlaOp has no attribute {name!r}: try {text}"
            eval(text.partition(", which")[0], {"np": np, "sx": sx, "b": b, "x": x, "y": y})

    @pytest.mark.parametrize("name", ["sum", "astype", "mean", "reshape", "flatten", "argmax"])
    def test_methods(self, name: str) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        with pytest.raises(AttributeError, match=rf"XlaOp has no attribute '{name}': try sx\."):
            getattr(x, name)

    def test_transposes_have_the_rank_of_the_op(self) -> None:
        assert hint_for_op("T", 3) == "sx.transpose(x, (2, 1, 0))"
        assert hint_for_op("mT", 3) == "sx.transpose(x, (0, 2, 1))"
        assert hint_for_op("T", 1) == "x"
        for name, value in (("T", X.T), ("mT", X.T)):
            assert_same(value_of(hint_for_op(name, 2))[0], value)

    def test_names_with_underscores(self) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        for name in ("_sum", "__array_interface__", "__cuda_array_interface__", "__dlpack__"):
            assert not hasattr(x, name)


class TestProtocols:
    @pytest.mark.parametrize(
        ("use", "hint"),
        [
            (np.exp, "sx.exp(operand)"),
            (np.sum, "sx.reduce(x, 0.0, sx.add, (0,))"),
            (np.max, "sx.reduce(x, -np.inf, sx.max, (0,))"),
            (lambda x: np.maximum(x, 0), "sx.max(x, y)"),
            (lambda x: np.where(x, 1, 2), "sx.select(m, x, y)"),
            (lambda x: np.concatenate([x, x]), "sx.concatenate(operands, dimension)"),
            (np.asarray, "sx.compile(b.build(x)) runs the program for its value"),
            (float, 'sx.convert_element_type(x, "f32")'),
            (int, 'sx.convert_element_type(x, "s32")'),
            (complex, 'sx.convert_element_type(x, "c64")'),
            (range, "sx.while_"),
            (math.exp, "functions of math are in sx"),
            (bool, "sx.select"),
        ],
    )
    def test_its_value_is_known_when_the_program_runs(self, use: Callable[..., Any], hint: str) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError, match="its value is known when the program runs") as raised:
            use(x)
        assert hint in raised.value.hint
        assert raised.value.source is not None
        assert raised.value.source.file == __file__

    def test_length_and_iteration(self) -> None:
        b = sx.XlaBuilder("b")
        x = b.parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError, match="no length") as raised:
            len(x)
        assert eval(raised.value.hint) == 2
        with pytest.raises(sx.ShapeError, match="unpacked") as raised:
            list(x)
        rows = eval(raised.value.hint.partition(", or")[0])
        np.testing.assert_array_equal(sx.compile(b.build(sx.tuple(rows)))(X), X)
        with pytest.raises(sx.ShapeError) as raised:
            list(b.constant(1.0))
        assert raised.value.hint == ""

    @pytest.mark.parametrize("name", ["float32", "int32", "uint8"])
    def test_floor_division(self, name: str) -> None:
        left, right = np.array([7, 9, 8]).astype(name), np.array([2, 4, 3]).astype(name)
        if name != "uint8":
            left, right = np.concatenate((left, -left, left, -left)), np.concatenate((right, right, -right, -right))
        b = sx.XlaBuilder("b")
        lhs, rhs = (b.parameter(n, sx.Shape(a.dtype, a.shape)) for n, a in enumerate((left, right)))
        for use in (lambda: lhs // rhs, lambda: 2 // rhs):
            with pytest.raises(sx.ShapeError, match="//") as raised:
                use()
        text = raised.value.hint.partition(";")[0].partition(", which")[0]
        made = eval(text, {"sx": sx, "lhs": lhs, "rhs": rhs})
        np.testing.assert_array_equal(sx.compile(b.build(made))(left, right), left // right)

    def test_items_of_a_shape(self) -> None:
        shape = sx.f32[2, 3]
        with pytest.raises(sx.ShapeError, match="no items") as raised:
            shape[1]
        assert eval(raised.value.hint) == 3

    def test_operators_beside_numpys_scalars(self) -> None:
        """They are the op's own, on either side."""
        two = np.float32(2)

        def make(x: sx.XlaOp) -> list[sx.XlaOp]:
            return [two + x, two - x, two * x, two / x, two**x, two < x, two >= x, two == x, np.fmod(X, Y)[0, 0] % x]

        b = sx.XlaBuilder("b")
        x = b.parameter(0, sx.f32[2, 3])
        results = sx.compile(b.build(sx.tuple(make(x)))).execute([Y])
        wanted = [two + Y, two - Y, two * Y, two / Y, two**Y, two < Y, two >= Y, two == Y, np.fmod(X[0, 0], Y)]
        for result, each in zip(results, wanted, strict=True):
            assert_same(result, each, ulp=1)


def test_what_is_no_program() -> None:
    b = sx.XlaBuilder("b")
    for program, hint in ((b.parameter(0, sx.f32[2]), "b.build(op)"), (b, "b.build(root)")):
        with pytest.raises(sx.ParseError, match="is no program") as raised:
            sx.compile(program)  # type: ignore[arg-type]
        assert hint in str(raised.value)


def test_ways_name_what_there_is() -> None:
    from stablexla.interop import jax

    assert all("stablexla.interop.jax.jit" in text for text in WAYS.values())
    assert callable(jax.jit)


def test_the_page_has_the_table() -> None:
    """`python docs/make_names.py` writes it anew."""
    made = load_file(ROOT / "docs/make_names.py")
    page = made.PAGE.read_text(encoding="utf-8")
    assert made.with_table(page) == page
