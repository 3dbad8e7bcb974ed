"""Factors of positive definite matrices, and systems with triangular ones; both well conditioned."""

from __future__ import annotations

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import C64, C128, Writer, family

linear_algebra = family("linear_algebra")
TYPES = ("f32", "f64", C64, C128)


def _diagonal(w: Writer, like: Value, number: int) -> Value:
    """So much on the diagonal of a matrix (or of each of a batch)."""
    rank, shape = len(like.shape), like.shape
    wide = tensor(shape, "i32")
    rows, columns = (w.emit(f"stablehlo.iota dim = {d} : {wide}", shape, "i32") for d in (rank - 2, rank - 1))
    flags = w.emit(
        f"stablehlo.compare EQ, {rows.name}, {columns.name} : ({wide}, {wide}) -> {tensor(shape, 'i1')}", shape, "i1"
    )
    some, none = (
        w.emit(f"stablehlo.constant dense<{_real(n, like)}> : {like.type}", shape, like.element) for n in (number, 0)
    )
    return w.emit(
        f"stablehlo.select {flags.name}, {some.name}, {none.name} : {flags.type}, {like.type}", shape, like.element
    )


def _real(number: int, like: Value) -> str:
    return f"({number}.0, 0.0)" if like.is_complex else f"{number}.0"


def _square(w: Writer) -> Value | None:
    """A square matrix of moderate numbers."""
    x = w.pick(lambda v: v.element in TYPES and 0 not in v.shape, least_rank=2)
    if x is None:
        return None
    n = min(x.shape[-2:])
    if x.shape[-2:] != (n, n):
        made = (*x.shape[:-2], n, n)
        parts = ", ".join(f"0:{d}:1" for d in made)
        x = w.emit(f"stablehlo.slice {x.name} [{parts}] : ({x.type}) -> {tensor(made, x.element)}", made, x.element)
    return w.small(w.finite(x), 1)


@linear_algebra.statement(0.7)
def cholesky(w: Writer) -> Value | None:
    """Of a symmetric matrix with a large diagonal."""
    x = None if w.whole or w.depth else _square(w)
    if x is None:
        return None
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    other = w.emit(f"stablehlo.transpose {x.name}, dims = {order} : ({x.type}) -> {x.type}", x.shape, x.element)
    if x.is_complex:
        re, im = w.part(other, "real"), w.part(other, "imag")
        im = w.emit(f"stablehlo.negate {im.name} : {im.type}", im.shape, im.element)
        other = w.emit(f"stablehlo.complex {re.name}, {im.name} : {x.type}", x.shape, x.element)
    both = w.emit(f"stablehlo.add {x.name}, {other.name} : {x.type}", x.shape, x.element)
    large = _diagonal(w, x, 4 * x.shape[-1])
    made = w.emit(f"stablehlo.add {both.name}, {large.name} : {x.type}", x.shape, x.element)
    lower = str(w.chance(0.5)).lower()
    return w.emit(f"stablehlo.cholesky {made.name}, lower = {lower} : {x.type}", x.shape, x.element)


@linear_algebra.statement(0.7)
def triangular_solve(w: Writer) -> Value | None:
    a = None if w.whole or w.depth else _square(w)
    if a is None:
        return None
    large = _diagonal(w, a, 2 * a.shape[-1])
    a = w.emit(f"stablehlo.add {a.name}, {large.name} : {a.type}", a.shape, a.element)
    left, n, k = w.chance(0.5), a.shape[-1], w.random.randint(1, 4)
    shape = (*a.shape[:-2], n, k) if left else (*a.shape[:-2], k, n)
    b = w.pick(lambda v: v.shape == shape and v.element == a.element)
    b = w.small(w.finite(b)) if b is not None else w.splat(3, shape, a.element)
    transpose = w.random.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    flags = {"left_side": left, "lower": w.chance(0.5), "unit_diagonal": False}
    attributes = ", ".join(f"{name} = {str(flag).lower()}" for name, flag in flags.items())
    attributes += f", transpose_a = #stablehlo<transpose {transpose}>"
    return w.emit(
        f'"stablehlo.triangular_solve"({a.name}, {b.name}) {{{attributes}}} : ({a.type}, {b.type}) -> {b.type}',
        b.shape,
        b.element,
    )
