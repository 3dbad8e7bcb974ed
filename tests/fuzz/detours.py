"""Detours over arrays that give a scalar back, for computations whose operation may apply them in any order.

All elements of every array on the way are the scalar itself, so that reversed, sorted or picked from they stay it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from tests.fuzz.program import Dims, Value, tensor

if TYPE_CHECKING:
    from tests.fuzz.writer import Writer

SHAPES: tuple[Dims, ...] = ((1,), (2,), (5,), (17,), (2, 3), (3, 1, 2))


def detour(w: Writer, x: Value) -> Value:
    """The scalar after a few operations on arrays of it."""
    shape = w.random.choice(SHAPES)
    type_ = tensor(shape, x.element)
    made = w.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = [] : ({x.type}) -> {type_}", shape, x.element)
    for step in w.random.choices(STEPS, k=w.random.randint(0, 2)):
        made = step(w, made) if made.shape else made
    return one_of(w, made) if made.shape else made


def one_of(w: Writer, x: Value) -> Value:
    """Any element of an array."""
    places = [w.random.randrange(n) for n in x.shape]
    ones = tensor((1,) * len(x.shape), x.element)
    if w.chance(0.5):
        ranges = ", ".join(f"{i}:{i + 1}" for i in places)
        part = w.emit(f"stablehlo.slice {x.name} [{ranges}] : ({x.type}) -> {ones}", (1,) * len(x.shape), x.element)
    else:
        starts = [w.splat(i, (), "i32") for i in places]
        names, types = ", ".join(v.name for v in (x, *starts)), ", ".join(v.type for v in (x, *starts))
        sizes = ", ".join("1" for _ in places)
        text = f"stablehlo.dynamic_slice {names}, sizes = [{sizes}] : ({types}) -> {ones}"
        part = w.emit(text, (1,) * len(x.shape), x.element)
    return reshaped(w, part, ())


def reshaped(w: Writer, x: Value, shape: Dims) -> Value:
    return w.emit(f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(shape, x.element)}", shape, x.element)


def _flat(w: Writer, x: Value) -> Value:
    return reshaped(w, x, (prod(x.shape),))


def _reversed(w: Writer, x: Value) -> Value:
    return w.emit(f"stablehlo.reverse {x.name}, dims = {w.dimensions(x)} : {x.type}", x.shape, x.element)


def _concatenated(w: Writer, x: Value) -> Value:
    shape = (2 * x.shape[0], *x.shape[1:])
    types = f"({x.type}, {x.type}) -> {tensor(shape, x.element)}"
    return w.emit(f"stablehlo.concatenate {x.name}, {x.name}, dim = 0 : {types}", shape, x.element)


def _gathered(w: Writer, x: Value) -> Value:
    flat, count = _flat(w, x), w.random.randint(1, 4)
    indices = w.splat(w.random.randrange(prod(x.shape)), (count, 1), "i32")
    numbers = "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
    return w.apply(
        "gather", [flat, indices], (count,), x.element,
        f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: 1>, indices_are_sorted = false",
    )  # fmt: skip


def _selected(w: Writer, x: Value) -> Value:
    flat = _flat(w, x)
    counted = w.emit(f"stablehlo.iota dim = 0 : {tensor(flat.shape, 'i32')}", flat.shape, "i32")
    limit = w.splat(w.random.randint(0, 3), flat.shape, "i32")
    flags = tensor(flat.shape, "i1")
    text = f"stablehlo.compare LT, {counted.name}, {limit.name} : ({counted.type}, {limit.type}) -> {flags}"
    low = w.emit(text, flat.shape, "i1")
    other = _reversed(w, flat)
    text = f"stablehlo.select {low.name}, {flat.name}, {other.name} : {flags}, {flat.type}"
    return w.emit(text, flat.shape, x.element)


def _folded(w: Writer, x: Value) -> Value:
    """By a computation that gives one of two equal elements, itself with arrays at times."""
    if x.is_float or x.is_complex:
        return x
    start, region = one_of(w, x), w.scalar_region("and" if x.element == "i1" else "maximum", x.element)
    return w.apply_region("reduce", [x, start], region, x.shape[1:], x.element, "dimensions = array<i64: 0>")


def _sorted(w: Writer, x: Value) -> Value:
    if x.is_float or x.is_complex:
        return x
    kind = "SIGNED" if x.element_type.is_signed else "UNSIGNED"
    a, b, c = (w.name() for _ in range(3))
    scalar = tensor((), x.element)
    region = (
        f"({{\n^bb0({a}: {scalar}, {b}: {scalar}):\n{c} = stablehlo.compare LT, {a}, {b}, {kind}"
        f" : ({scalar}, {scalar}) -> tensor<i1>\nstablehlo.return {c} : tensor<i1>\n}})"
    )
    return w.apply_region("sort", [x], region, x.shape, x.element, "dimension = 0 : i64, is_stable = true")


def _repeated(w: Writer, x: Value) -> Value:
    """A loop that reverses it."""
    start, limit, one = (w.splat(n, (), "i32") for n in (0, w.random.choice([0, 3, 11]), 1))
    name = w.name()
    i, y = Value(f"{name}_0", (), "i32"), Value(f"{name}_1", x.shape, x.element)
    types = f"tensor<i32>, {x.type}"
    go, after, turned = (w.name() for _ in range(3))
    text = (
        f"stablehlo.while({i.name} = {start.name}, {y.name} = {x.name}) : {types}\n"
        f"cond {{\n{go} = stablehlo.compare LT, {i.name}, {limit.name} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"stablehlo.return {go} : tensor<i1>\n}} do {{\n{after} = stablehlo.add {i.name}, {one.name} : tensor<i32>\n"
        f"{turned} = stablehlo.reverse {y.name}, dims = [0] : {x.type}\n"
        f"stablehlo.return {after}, {turned} : {types}\n}}"
    )
    return w.emit_several(text, [((), "i32"), (x.shape, x.element)], name)[1]


STEPS: tuple[Callable[[Writer, Value], Value], ...] = (
    *(_reversed, _concatenated, _gathered, _selected, _folded, _sorted, _repeated),
)
