"""Reductions of one array and of several at once."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Dims, Value, tensor
from tests.fuzz.writer import COARSE, Writer, family

reduction = family("reduction")

LOWEST = {
    "f32": "0xFF800000", "f64": "0xFFF0000000000000", "bf16": "0xFF80", "f16": "0xFC00", "f8E5M2": "0xFC",
    "f8E4M3FN": "-448.0",
}  # fmt: skip
HIGHEST = {
    "f32": "0x7F800000", "f64": "0x7FF0000000000000", "bf16": "0x7F80", "f16": "0x7C00", "f8E5M2": "0x7C",
    "f8E4M3FN": "448.0",
}  # fmt: skip


def folds(w: Writer, element: str) -> list[tuple[str, str]]:
    """Operations that reduce a type, with what they start from."""
    type_ = Value("", (), element).element_type
    if type_.is_pred:
        return [("or", "false"), ("and", "true")]
    if type_.is_complex:
        return [("add", "(0.0, 0.0)")]
    if type_.is_float:
        found = [("maximum", LOWEST[element]), ("minimum", HIGHEST[element])]
        return found if w.whole and element in COARSE else [("add", "0.0"), *found]
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = low + (1 << type_.bits) - 1
    # XLA:CPU forgets this one for reductions of one element, which is told apart at the top of a program only.
    other = [] if w.depth else [("add", "3")]
    return [("add", "0"), *other, ("maximum", str(low)), ("minimum", str(high)), ("or", "0"), ("multiply", "1")]


def left(x: Value, dimensions: list[int]) -> Dims:
    """The shape without these dimensions."""
    return tuple(d for i, d in enumerate(x.shape) if i not in dimensions)


@reduction.statement(3)
def reduce(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    name, start = w.random.choice(folds(w, x.element))
    if name == "add" and (x.is_float or x.is_complex):
        if w.depth and not w.whole:
            return None
        x = w.ready(x)
    dimensions = w.dimensions(x)
    made, scalar = left(x, dimensions), tensor((), x.element)
    init = w.emit(f"stablehlo.constant dense<{start}> : {scalar}", (), x.element)
    if w.chance(0.3):
        given = f"dimensions = array<i64: {', '.join(map(str, dimensions))}>"
        return w.apply_region("reduce", [x, init], w.scalar_region(name, x.element), made, x.element, given)
    text = f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{name} across dimensions = {dimensions}"
    return w.emit(f"{text} : ({x.type}, {scalar}) -> {tensor(made, x.element)}", made, x.element)


@reduction.statement(0.5)
def reduce_long(w: Writer) -> Value | None:
    """Sums that are too long for one running sum, beside elements or alone, along the first or the last dimension."""
    x = w.pick(lambda v: v.element in ("f16", "bf16", "f32", "f64") and 0 < prod(v.shape) <= 40)
    if x is None or w.depth or w.whole:
        return None
    x, rank, length = w.ready(x), len(x.shape), w.random.choice([300, 700, 1025])
    place = w.random.choice([0, rank])
    shape, kept = (*x.shape[:place], length, *x.shape[place:]), [d + (d >= place) for d in range(rank)]
    wide, scalar = tensor(shape, x.element), tensor((), x.element)
    spread = w.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = {kept} : ({x.type}) -> {wide}", shape, x.element)
    if w.chance(0.5):
        spread = w.emit(f"stablehlo.cosine {spread.name} : {wide}", shape, x.element)
    init = w.emit(f"stablehlo.constant dense<0.0> : {scalar}", (), x.element)
    text = f"stablehlo.reduce({spread.name} init: {init.name}) applies stablehlo.add across dimensions = [{place}]"
    return w.emit(f"{text} : ({wide}, {scalar}) -> {x.type}", x.shape, x.element)


@reduction.statement(1)
def reduce_several(w: Writer) -> list[Value] | None:
    """Two arrays at once: independent totals, or the place of the largest."""
    x = w.pick(lambda v: v.element in ("i32", "f32"), least_rank=1)
    if x is None or (x.element == "f32" and not w.whole):
        return None
    if w.chance(0.5):
        return _place_of_largest(w, x)
    if x.element != "i32":
        return None
    y, dimensions = w.same(x), w.dimensions(x)
    low, zero = w.splat(-1000000, (), "i32"), w.splat(0, (), "i32")
    a, b, c, d, q, r = (w.name() for _ in range(6))
    body = f"{q} = stablehlo.maximum {a}, {c} : tensor<i32>\n{r} = stablehlo.add {d}, {b} : tensor<i32>\n"
    return _pair(w, (x, y, low, zero), (a, b, c, d, q, r), body, dimensions)


def _place_of_largest(w: Writer, x: Value) -> list[Value]:
    # Only along one dimension do the indices tell the first of equal elements.
    dimensions = [w.random.randrange(len(x.shape))]
    places = tensor(x.shape, "i32")
    y = w.emit(f"stablehlo.iota dim = {dimensions[0]} : {places}", x.shape, "i32")
    low, zero = w.splat(-1000000, (), x.element), w.splat(0, (), "i32")
    a, b, c, d, p, q, r = (w.name() for _ in range(7))
    scalar = tensor((), x.element)
    word = w.random.choice(["GE", "GT"])
    body = (
        f"{p} = stablehlo.compare {word}, {a}, {c} : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"{q} = stablehlo.select {p}, {a}, {c} : tensor<i1>, {scalar}\n"
        f"{r} = stablehlo.select {p}, {b}, {d} : tensor<i1>, tensor<i32>\n"
    )
    return _pair(w, (x, y, low, zero), (a, b, c, d, q, r), body, dimensions)


def _pair(
    w: Writer, operands: tuple[Value, ...], names: tuple[str, ...], body: str, dimensions: list[int]
) -> list[Value]:
    x, y = operands[:2]
    first, second = tensor((), x.element), tensor((), y.element)
    made = left(x, dimensions)
    a, b, c, d, q, r = names
    dims = ", ".join(map(str, dimensions))
    return w.emit_several(
        f'"stablehlo.reduce"({", ".join(v.name for v in operands)}) ({{\n'
        f"^bb0({a}: {first}, {b}: {second}, {c}: {first}, {d}: {second}):\n{body}"
        f"stablehlo.return {q}, {r} : {first}, {second}\n}}) {{dimensions = array<i64: {dims}>}}"
        f" : ({', '.join(v.type for v in operands)}) -> ({tensor(made, x.element)}, {tensor(made, y.element)})",
        [(made, x.element), (made, y.element)],
    )
