"""Products whose operands are computed, shared, transposed or converted, on both sides of where rewrites of them begin.

Catches matches that are held while another product is rewritten, and arrays that one operand computes in place though
the other reads them too. The oracle is numpy in double precision; runs are guarded against reads outside of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.programs import run

Operand = Any
"""An array, or the operation that makes it."""


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABLEXLA_GUARD", "1")


def turned(x: sx.XlaOp) -> sx.XlaOp:
    return sx.transpose(x, (1, 0))


def rows(x: sx.XlaOp, columns: int) -> sx.XlaOp:
    return sx.broadcast_in_dim(x, (*x.shape.dimensions, columns), (0,))


def columns(x: sx.XlaOp, rows: int) -> sx.XlaOp:
    return sx.broadcast_in_dim(x, (rows, *x.shape.dimensions), (1,))


def drawn(name: str, *shape: int) -> np.ndarray:
    """Small integers, whose products and sums are exact in every type of 16 bits or more."""
    low, high = (0, 2) if name == "pred" else (0, 4) if name.startswith("u") else (-2, 3)
    return np.random.default_rng(len(name)).integers(low, high, shape).astype(element_type(name).dtype)


def grams(turned: Callable[[Operand], Operand], dot: Callable[[Operand, Operand], Operand], x: Operand) -> Operand:
    return {"x @ x": lambda: dot(x, x), "x.T @ x": lambda: dot(turned(x), x), "x @ x.T": lambda: dot(x, turned(x))}


FORMS = ["x @ x", "x.T @ x", "x @ x.T"]
# One less than, exactly, and one more than a weight that joins its product; tall and wide ones.
SQUARES = [(127, 127), (128, 128), (129, 129)]
OTHERS = [(4096, 4), (500, 60), (60, 500)]


def run_form(form: str, make: Callable[..., sx.XlaOp], arguments: list[np.ndarray], x: np.ndarray, to: str) -> None:
    """A product of what `make` computes with itself; it is `x`, whose numbers are small integers."""
    right = grams(np.transpose, np.dot, x.astype(np.float64))[form]().astype(element_type(to).dtype)
    run(lambda b, *v: grams(turned, sx.dot, make(*v))[form](), *arguments, against=[], expected=[right])


COMPUTED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda p, q: sx.add(p, q), np.add),
    "product": (lambda p, q: sx.mul(p, q), np.multiply),
    "choice": (lambda p, q: sx.select(sx.lt(p, q), p, q + q), lambda p, q: np.where(p < q, p, q + q)),
}


@pytest.mark.parametrize("computed", COMPUTED)
@pytest.mark.parametrize("shape", [*SQUARES, *OTHERS], ids=str)
def test_products_with_itself(shape: tuple[int, int], computed: str) -> None:
    m, n = shape
    ours, numpys = COMPUTED[computed]
    for name, form in zip(("f32", "f64", "s32"), FORMS if m == n else [*FORMS[1:], "x.T @ x"], strict=True):
        p, q = drawn(name, m), drawn(name, n)
        make = lambda p, q: ours(rows(p, n), columns(q, m))  # noqa: E731
        run_form(form, make, [p, q], numpys(p[:, None], q[None, :]), name)


CONVERTED = [
    *[(name, "f32") for name in ("bf16", "f16", "s8", "u8", "s4", "u4", "pred", "f8e4m3fn", "s32")],
    *[(name, "s32") for name in ("s4", "u4", "s8", "u8", "s16", "pred")],
    *[("s4", "s64"), ("u8", "s64"), ("s8", "f64"), ("f32", "f64"), ("f16", "bf16")],
]


@pytest.mark.parametrize("number", range(len(CONVERTED)), ids=["-".join(pair) for pair in CONVERTED])
def test_products_with_itself_converted(number: int) -> None:
    name, to = CONVERTED[number]
    for shape in [(128, 128), [(127, 127), (700, 40), (129, 129)][number % 3]]:
        # numbers that have 8 bits when they are summed
        x = drawn("pred", *shape).astype(element_type(name).dtype) if to == "bf16" else drawn(name, *shape)
        form = FORMS[number % 3] if shape[0] == shape[1] else FORMS[1 + number % 2]
        run_form(form, lambda v: sx.convert_element_type(v, to), [x], x, to)


def test_an_operand_that_the_other_is_computed_from() -> None:
    """As stored weights: s8 with a scale for each column, x and x + 1 as the operands, and x in the epilogue."""
    q, scale = drawn("s8", 256, 128), drawn("f32", 128)

    def make(b: sx.XlaBuilder, q: sx.XlaOp, scale: sx.XlaOp) -> list[sx.XlaOp]:
        x = sx.convert_element_type(q, "f32") * columns(scale, 256)
        return [sx.dot(turned(x), x + 1.0), sx.dot(x + 1.0, turned(x)), sx.dot(x, sx.dot(turned(x), x)) + x]

    x = q.astype(np.float64) * scale
    right = [x.T @ (x + 1), (x + 1) @ x.T, x @ (x.T @ x) + x]
    run(make, q, scale, against=[], expected=[r.astype(np.float32) for r in right])


@pytest.mark.parametrize("choices", ["usual", "eager"])
def test_an_operand_that_is_computed_of_one_number(choices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which lies in an array of one element, that the operand reads without any of its own coordinates."""
    monkeypatch.delenv("STABLEXLA_GUARD")  # it keeps small arrays unaligned, which "eager" stores past the caches
    one, q = drawn("f32", 1), drawn("s16", 1, 17)

    def make(b: sx.XlaBuilder, one: sx.XlaOp, q: sx.XlaOp) -> sx.XlaOp:
        x = sx.broadcast_in_dim(one, (1, 17), (0,)) + 1.0
        return sx.dot(turned(x), sx.convert_element_type(q, "f32"))

    right = np.full((17, 1), one[0] + 1, np.float32) @ q.astype(np.float32)
    run(make, one, q, against=[], expected=[right], options=sx.CompileOptions(choices=choices))


@pytest.mark.parametrize("n", [15, 16, 17])
@pytest.mark.parametrize("element", [np.complex64, np.complex128])
def test_complex_products_of_products(n: int, element: type) -> None:
    """From 16 x 16 x 16 multiplications on, a complex product is one of real numbers."""
    parts = np.random.default_rng(n).integers(-3, 4, (3, 2, n, n))
    x, y, z = ((re + 1j * im).astype(element) for re, im in parts)

    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, z: sx.XlaOp) -> list[sx.XlaOp]:
        square = sx.dot(z, x)
        flat = sx.reshape(sx.dot(y, x), (n * n,))
        return [
            sx.dot(sx.dot(x, y), z),
            sx.dot(turned(sx.dot(x, z)), y),
            sx.dot(sx.reshape(flat, (n, n)), z),
            sx.dot(square, square),
        ]

    run(make, x, y, z, against=[], expected=[x @ y @ z, (x @ z).T @ y, y @ x @ z, z @ x @ z @ x])
