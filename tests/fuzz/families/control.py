"""Loops and conditions, whose regions hold statements of all families."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.families.elementwise import compared
from tests.fuzz.program import Value
from tests.fuzz.writer import Writer, family

control = family("control")

Body = Callable[[list[Value]], Sequence[Value]]
"""What a region makes of its arguments."""


def statements_for(w: Writer, wanted: Sequence[Value], extra: Sequence[Value] = ()) -> list[Value]:
    """Statements of a region, which may read `extra` as well; values of the wanted types."""
    w.values.extend(extra)
    w.statements(w.random.randint(1, 5))
    returned = []
    for like in wanted:
        fitting = [v for v in w.values if v.type == like.type]
        returned.append(w.random.choice(fitting[-3:]) if fitting else w.splat(1, like.shape, like.element))
    return returned


def _branches(w: Writer, operation: str, chooser: Value, count: int) -> list[Value]:
    wanted = [w.any() for _ in range(w.random.randint(1, 3))]
    return branches(w, operation, chooser, wanted, [lambda _: statements_for(w, wanted)] * count)


def branches(w: Writer, operation: str, chooser: Value, wanted: Sequence[Value], bodies: Sequence[Body]) -> list[Value]:
    """An `if` or a `case` with a branch for each body, which gives values of the wanted types."""
    types = ", ".join(v.type for v in wanted)
    regions = []
    for body in bodies:
        text, returned = w.inside(lambda body=body: body([]))  # type: ignore[misc]
        names = ", ".join(v.name for v in returned)
        regions.append(f"{{\n{text}\nstablehlo.return {names} : {types}\n}}")
    text = f'"stablehlo.{operation}"({chooser.name}) ({", ".join(regions)}) : ({chooser.type}) -> ({types})'
    return w.emit_several(text, [(v.shape, v.element) for v in wanted])


@control.statement(1, regions=True)
def if_(w: Writer) -> list[Value] | None:
    flag = w.pick(lambda v: v.type == "tensor<i1>")
    scalar = w.pick(lambda v: v.type == "tensor<i32>")
    if scalar is not None and (flag is None or w.chance(0.5)):
        flag = compared(w, scalar, w.splat(1, (), "i32"))
    return None if flag is None else _branches(w, "if", flag, 2)


@control.statement(1, regions=True)
def case(w: Writer) -> list[Value] | None:
    chosen = w.pick(lambda v: v.type == "tensor<i32>")
    return None if chosen is None else _branches(w, "case", chosen, w.random.randint(1, 3))


@control.statement(1, regions=True)
def while_(w: Writer) -> list[Value]:
    carried = [w.any() for _ in range(w.random.randint(1, 4))]
    return loop(w, carried, w.random.randint(0, 3), lambda inner: statements_for(w, carried, inner))


def loop(w: Writer, carried: Sequence[Value], trips: int, body: Body) -> list[Value]:
    """A loop of so many trips at most: the counter and the carried values, which the body makes of those before."""
    start, limit, one = (w.splat(n, (), "i32") for n in (0, trips, 1))
    name = w.name()
    inner = [Value(f"{name}_{i}", v.shape, v.element) for i, v in enumerate([start, *carried])]
    condition = _text_of(w, lambda: [_goes_on(w, inner, limit)])
    text, returned = w.inside(lambda: body(inner))
    types = ", ".join(v.type for v in inner)
    binds = ", ".join(f"{n.name} = {v.name}" for n, v in zip(inner, [start, *carried], strict=True))
    following = f"{name}_next"
    names = ", ".join([following, *[v.name for v in returned]])
    return w.emit_several(
        f"stablehlo.while({binds}) : {types}\n"
        f"cond {{\n{condition}\n}} do {{\n{text}\n"
        f"{following} = stablehlo.add {inner[0].name}, {one.name} : tensor<i32>\n"
        f"stablehlo.return {names} : {types}\n}}",
        [(v.shape, v.element) for v in inner],
        name,
    )


def _text_of(w: Writer, write: Callable[[], Sequence[Value]]) -> str:
    text, (go,) = w.inside(write)
    return f"{text}\nstablehlo.return {go.name} : tensor<i1>"


def _goes_on(w: Writer, inner: Sequence[Value], limit: Value) -> Value:
    """Whether the counter is below its limit and, sometimes, whether a carried array has some property."""
    text = f"stablehlo.compare LT, {inner[0].name}, {limit.name} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    go = w.emit(text, (), "i1")
    if w.chance(0.5):
        return go
    w.values.extend(inner)
    depth, w.depth = w.depth, 2
    w.statements(w.random.randint(1, 3))
    w.depth = depth
    x = w.random.choice([v for v in w.values if not v.is_complex])
    flags = compared(w, x, w.splat(1 if x.element == "i1" else 2, x.shape, x.element))
    if flags.shape:
        false, dims = w.splat(0, (), "i1"), list(range(len(flags.shape)))
        flags = w.emit(
            f"stablehlo.reduce({flags.name} init: {false.name}) applies stablehlo.or across dimensions = {dims}"
            f" : ({flags.type}, tensor<i1>) -> tensor<i1>",
            (),
            "i1",
        )
    return w.emit(f"stablehlo.and {go.name}, {flags.name} : tensor<i1>", (), "i1")
