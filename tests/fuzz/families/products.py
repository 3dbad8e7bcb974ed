"""Chains of products of matrices that are computed of smaller arrays and read several times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tests.fuzz.families.conversion import converted
from tests.fuzz.program import Dims, Value, tensor
from tests.fuzz.writer import C64, C128, Writer, family

products = family("products")

ELEMENTS = ("f32", "f32", "f64", "i32", C64, C64, C128)
NARROW = ("i8", "ui8", "i4", "bf16", "f16", "i1", "i16")
EXACT = 1 << 22
"""Numbers up to this one, and sums of two, are whole in every type."""


@products.statement(1.5)
def chain(w: Writer) -> list[Value] | None:
    """A computed matrix by itself, its transpose or another one, once to three times, with nothing between.

    At times nothing else reads the matrix, which need not be stored then.
    """
    shapes = _matrices(w.shapes)
    if not shapes or w.depth:
        return None
    shape, element = w.random.choice(shapes), w.random.choice(ELEMENTS)
    if w.chance(0.7):  # one that there are arrays for, where there are
        shape = w.random.choice(_matrices(v.shape for v in w.values) or shapes)
    if w.chance(0.8):
        vectors = [v.element for v in w.values if len(v.shape) == 1 and v.element in ELEMENTS]
        element = w.random.choice(vectors or ELEMENTS)
    made = [_computed(w, shape, element)]
    largest = {made[0].name: 2}
    for _ in range(w.random.choice((1, 1, 2, 3))):
        left = made[-1]
        other = _computed(w, left.shape[:: w.random.choice((1, -1))], element) if w.chance(0.4) else left
        largest.setdefault(other.name, 2)
        right = w.random.choice([left, other, other, *made])
        product = _dot(w, left, right, largest)
        if product is None:
            break
        made.append(product)
    return made[w.random.randrange(2) :]


def _matrices(shapes: Iterable[Dims]) -> list[Dims]:
    return [shape for shape in shapes if len(shape) == 2 and 0 not in shape]


def _computed(w: Writer, shape: Dims, element: str) -> Value:
    """A matrix of one or two terms, with numbers from -2 to 2."""
    d = w.random.randrange(2)
    x = _term(w, shape, element, d)
    if w.chance(0.2):
        return x
    y = _term(w, shape, element, 1 - d)
    name = w.random.choice(["add", "add", "subtract", "multiply", *(["maximum"] if x.is_float else [])])
    return w.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", shape, element)


def _term(w: Writer, shape: Dims, element: str, d: int) -> Value:
    """A vector along dimension `d`, counting, a matrix of another type, or one that is there; from -1 to 1."""
    way = w.random.choice(["vector", "vector", "vector", "iota", "converted", "any"])
    if way == "iota":
        text = f"stablehlo.iota dim = {d} : {tensor(shape, element)}"
        return w.small(w.emit(text, shape, element), 1)
    if way == "converted" and element not in (C64, C128):
        return converted(w, w.small(w.of_type(shape, w.random.choice(_narrow(w, shape))), 1), element)
    if way == "any":
        return w.small(w.of_type(shape, element), 1)
    return _spread(w, w.small(w.of_type((shape[d],), element), 1), shape, d)


def _narrow(w: Writer, shape: Dims) -> Sequence[str]:
    """Narrow types, those that there are matrices of the shape of where there are any."""
    return [e for e in NARROW if any((v.shape, v.element) == (shape, e) for v in w.values)] or NARROW


def _spread(w: Writer, x: Value, shape: Dims, d: int) -> Value:
    types = f"({x.type}) -> {tensor(shape, x.element)}"
    return w.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = [{d}] : {types}", shape, x.element)


def _turned(w: Writer, x: Value) -> Value:
    shape = x.shape[::-1]
    types = f"({x.type}) -> {tensor(shape, x.element)}"
    return w.emit(f"stablehlo.transpose {x.name}, dims = [1, 0] : {types}", shape, x.element)


def _dot(w: Writer, x: Value, y: Value, largest: dict[str, int]) -> Value | None:
    """The product along any dimensions of one extent, at times of transposes; None where it would be too much."""
    pairs = [(i, j) for i in range(2) for j in range(2) if x.shape[i] == y.shape[j]]
    if not pairs:
        return None
    i, j = w.random.choice(pairs)
    shape, count = (x.shape[1 - i], y.shape[1 - j]), x.shape[i]
    bound = largest[x.name] * largest[y.name] * count * (2 if x.is_complex else 1)
    if prod(shape) > w.most or prod(shape) * count > 1000 * w.most or (w.whole and bound > EXACT):
        return None
    if w.chance(0.3):
        x, i = _turned(w, x), 1 - i
    dims, types = f"contracting_dims = [{i}] x [{j}]", f"({x.type}, {y.type}) -> {tensor(shape, x.element)}"
    made = w.emit(f"stablehlo.dot_general {x.name}, {y.name}, {dims} : {types}", shape, x.element)
    largest[made.name] = bound
    return made
