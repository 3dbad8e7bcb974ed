"""Operations that move elements and compute nothing."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import EMPTY_SHAPES, Writer, family

shape = family("shape")


@shape.statement(3)
def broadcast(w: Writer) -> Value | None:
    x = w.any()
    wider = [s for s in (*w.shapes, *EMPTY_SHAPES) if len(s) >= len(x.shape)]
    w.random.shuffle(wider)
    for made in wider:
        dimensions = w.random.sample(range(len(made)), len(x.shape))
        if all(d in (1, made[k]) for d, k in zip(x.shape, dimensions, strict=True)):
            types = f"({x.type}) -> {tensor(made, x.element)}"
            return w.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = {dimensions} : {types}", made, x.element)
    return None


@shape.statement(1)
def transpose(w: Writer) -> Value | None:
    x = w.pick(least_rank=2)
    if x is None:
        return None
    order = w.random.sample(range(len(x.shape)), len(x.shape))
    made = tuple(x.shape[i] for i in order)
    types = f"({x.type}) -> {tensor(made, x.element)}"
    return w.emit(f"stablehlo.transpose {x.name}, dims = {order} : {types}", made, x.element)


@shape.statement(1)
def reshape(w: Writer) -> Value | None:
    x = w.any()
    more = (
        *w.shapes,
        *EMPTY_SHAPES,
        (2, 12),
        (12,),
        (24,),
        (6, 4),
        (153,),
        (3, 51),
        (18, 17),
        (15,),
        (1, 1, 1),
        (2, 2, 1, 1, 3, 2),
    )
    shapes = [s for s in more if prod(s) == prod(x.shape) and s != x.shape]
    if not shapes:
        return None
    made = w.random.choice(shapes)
    return w.emit(f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(made, x.element)}", made, x.element)


@shape.statement(1)
def slice_(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    parts, made = [], []
    for extent in x.shape:
        start = w.random.randrange(extent) if extent else 0
        limit = w.random.randint(start + w.chance(0.95), extent) if extent else 0
        stride = w.random.randint(1, 2)
        parts.append(f"{start}:{limit}:{stride}")
        made.append((limit - start + stride - 1) // stride)
    types = f"({x.type}) -> {tensor(tuple(made), x.element)}"
    return w.emit(f"stablehlo.slice {x.name} [{', '.join(parts)}] : {types}", tuple(made), x.element)


@shape.statement(1)
def pad(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    low = [w.random.randint(-1, 2) for _ in x.shape]
    high = [w.random.randint(-1, 2) for _ in x.shape]
    interior = [w.random.randint(0, 1) for _ in x.shape]
    rows = zip(low, high, interior, x.shape, strict=True)
    made = tuple(before + after + d + max(d - 1, 0) * i for before, after, i, d in rows)
    if min(made) < 0:
        return None
    filler = w.splat(w.random.randint(0, 1 if x.element == "i1" else 3), (), x.element)
    types = f"({x.type}, {filler.type}) -> {tensor(made, x.element)}"
    text = f"stablehlo.pad {x.name}, {filler.name}, low = {low}, high = {high}, interior = {interior} : {types}"
    return w.emit(text, made, x.element)


@shape.statement(1)
def reverse(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    return w.emit(f"stablehlo.reverse {x.name}, dims = {w.dimensions(x)} : {x.type}", x.shape, x.element)


@shape.statement(1)
def concatenate(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    k = w.random.randrange(len(x.shape))
    fitting = [v for v in w.values if v.element == x.element and len(v.shape) == len(x.shape)]
    fitting = [v for v in fitting if v.shape[:k] + v.shape[k + 1 :] == x.shape[:k] + x.shape[k + 1 :]]
    parts = [x, *w.random.choices(fitting, k=w.random.randint(0, 2))]
    w.random.shuffle(parts)
    made = (*x.shape[:k], sum(v.shape[k] for v in parts), *x.shape[k + 1 :])
    names, types = ", ".join(v.name for v in parts), ", ".join(v.type for v in parts)
    text = f"stablehlo.concatenate {names}, dim = {k} : ({types}) -> {tensor(made, x.element)}"
    return w.emit(text, made, x.element)


def starts(w: Writer, rank: int) -> list[Value]:
    """Where a block starts, for each dimension; all of one type."""
    element = w.random.choice(["i32", "i32", "ui8", "i64"])
    scalars = [v for v in w.values if not v.shape and v.element == element]
    return [
        w.random.choice(scalars)
        if scalars and w.chance(0.5)
        else w.splat(w.random.randint(0 if element == "ui8" else -1, 4), (), element)
        for _ in range(rank)
    ]


@shape.statement(1)
def dynamic_slice(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    sizes = tuple(w.random.randint(min(1, d), d) for d in x.shape)
    places = starts(w, len(sizes))
    names, types = "".join(f", {s.name}" for s in places), ", ".join([x.type, *[s.type for s in places]])
    made = f"({types}) -> {tensor(sizes, x.element)}"
    return w.emit(f"stablehlo.dynamic_slice {x.name}{names}, sizes = {list(sizes)} : {made}", sizes, x.element)


@shape.statement(2)
def dynamic_update_slice(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    if x is None:
        return None
    fitting = [v for v in w.values if v.element == x.element and len(v.shape) == len(x.shape)]
    fitting = [v for v in fitting if all(a <= b for a, b in zip(v.shape, x.shape, strict=True))]
    update = w.random.choice(fitting)
    places = starts(w, len(x.shape))
    names = "".join(f", {s.name}" for s in (update, *places))
    types = ", ".join([x.type, update.type, *[s.type for s in places]])
    return w.emit(f"stablehlo.dynamic_update_slice {x.name}{names} : ({types}) -> {x.type}", x.shape, x.element)


@shape.statement(0.2)
def optimization_barrier(w: Writer) -> list[Value]:
    held = [w.any() for _ in range(w.random.randint(1, 3))]
    names, types = ", ".join(v.name for v in held), ", ".join(v.type for v in held)
    return w.emit_several(f"stablehlo.optimization_barrier {names} : {types}", [(v.shape, v.element) for v in held])
