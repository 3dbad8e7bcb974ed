"""Reductions over windows, and what scatters back to the elements that they selected."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tests.fuzz.families.reduction import folds
from tests.fuzz.program import Dims, Value, tensor
from tests.fuzz.writer import Writer, family

window = family("window")


@dataclass(frozen=True)
class Window:
    """A window over an array, and the shape of its places."""

    sizes: list[int]
    strides: list[int]
    padding: list[list[int]]
    base: list[int]
    dilation: list[int]
    shape: Dims

    @property
    def attributes(self) -> str:
        rows = {
            "window_dimensions": self.sizes,
            "window_strides": self.strides,
            "base_dilations": self.base,
            "window_dilations": self.dilation,
        }
        lists = ", ".join(f"{name} = array<i64: {', '.join(map(str, row))}>" for name, row in rows.items())
        return f"{lists}, padding = dense<{self.padding}> : tensor<{len(self.padding)}x2xi64>"


def draw_window(w: Writer, shape: Dims, *, plain: bool = False) -> Window | None:
    """A window for arrays of that shape; a plain one has neither dilations nor negative padding."""
    rank = len(shape)
    sizes = [w.random.randint(1, 3) for _ in range(rank)]
    strides = [w.random.randint(1, 2) for _ in range(rank)]
    low = 0 if plain else -1
    padding = [[w.random.randint(low, 1), w.random.randint(low, 1)] for _ in range(rank)]
    base, dilation = ([1] * rank if plain or w.chance(0.5) else [w.random.randint(1, 2) for _ in shape] for _ in "ab")
    if not plain and w.chance(0.15) and rank:  # as sums of everything before are written
        place = w.random.randrange(rank)
        sizes, strides, base, dilation = [1] * rank, [1] * rank, [1] * rank, [1] * rank
        padding = [[0, 0] for _ in range(rank)]
        sizes[place], padding[place] = max(shape[place], 1), [max(shape[place], 1) - 1, 0]
    made = []
    for n, k, s, (before, after), a, b in zip(shape, sizes, strides, padding, base, dilation, strict=True):
        padded, width = before + after + ((n - 1) * a + 1 if n else 0), (k - 1) * b + 1
        if padded < 0:
            return None
        made.append((padded - width) // s + 1 if padded >= width else 0)
    return Window(sizes, strides, padding, base, dilation, tuple(made)) if prod(made) < 4000 else None


@window.statement(1)
def reduce_window(w: Writer) -> Value | None:
    x = w.pick(least_rank=1)
    drawn = draw_window(w, x.shape) if x is not None else None
    if x is None or drawn is None:
        return None
    name, start = w.random.choice(folds(w, x.element))
    if name == "add" and (x.is_float or x.is_complex):
        if w.depth and not w.whole:
            return None
        x = w.ready(x)
    scalar = tensor((), x.element)
    init = w.emit(f"stablehlo.constant dense<{start}> : {scalar}", (), x.element)
    region = w.scalar_region(name, x.element)
    return w.emit(
        f'"stablehlo.reduce_window"({x.name}, {init.name}) {region} {{{drawn.attributes}}}'
        f" : ({x.type}, {scalar}) -> {tensor(drawn.shape, x.element)}",
        drawn.shape,
        x.element,
    )


@window.statement(0.4)
def reduce_windows(w: Writer) -> list[Value] | None:
    """Two arrays at once."""
    x = w.pick(lambda v: v.element == "i32", least_rank=1)
    drawn = draw_window(w, x.shape) if x is not None else None
    if x is None or drawn is None:
        return None
    y, (a, b, c, d, q, r) = w.same(x), (w.name() for _ in range(6))
    low, zero = w.splat(-100000, (), "i32"), w.splat(0, (), "i32")
    arguments = ", ".join(f"{n}: tensor<i32>" for n in (a, b, c, d))
    made = tensor(drawn.shape, "i32")
    return w.emit_several(
        f'"stablehlo.reduce_window"({x.name}, {y.name}, {low.name}, {zero.name}) ({{\n^bb0({arguments}):\n'
        f"{q} = stablehlo.maximum {a}, {c} : tensor<i32>\n{r} = stablehlo.add {b}, {d} : tensor<i32>\n"
        f"stablehlo.return {q}, {r} : tensor<i32>, tensor<i32>\n}}) {{{drawn.attributes}}}"
        f" : ({x.type}, {y.type}, tensor<i32>, tensor<i32>) -> ({made}, {made})",
        [(drawn.shape, "i32")] * 2,
    )


@window.statement(0.6)
def select_and_scatter(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.element in ("i32", "f32", "i8", "f64") and 0 not in v.shape, least_rank=1)
    if x is None or (x.is_float and not w.whole):
        return None
    drawn = draw_window(w, x.shape, plain=True)
    if drawn is None or any(min(p) < 0 or max(p) >= k for p, k in zip(drawn.padding, drawn.sizes, strict=True)):
        return None
    source = w.ready(w.of_type(drawn.shape, x.element))
    x, zero = w.ready(x), w.splat(0, (), x.element)
    scalar = tensor((), x.element)
    arguments, through = [Value(w.name(), (), x.element) for _ in "ab"], w.through_arrays()
    word = w.random.choice(["GE", "LE"])

    def compare() -> list[Value]:
        w.values = list(arguments)
        a, b = (through(w, v).name for v in arguments)
        return [w.emit(f"stablehlo.compare {word}, {a}, {b} : ({scalar}, {scalar}) -> tensor<i1>", (), "i1")]

    select = w.region(arguments, compare)[0][:-1]
    scatter = w.scalar_region("add", x.element)[1:]
    rank = len(x.shape)
    sizes, strides = (", ".join(map(str, row)) for row in (drawn.sizes, drawn.strides))
    return w.emit(
        f'"stablehlo.select_and_scatter"({x.name}, {source.name}, {zero.name}) {select}, {scatter}'
        f" {{window_dimensions = array<i64: {sizes}>, window_strides = array<i64: {strides}>,"
        f" padding = dense<{drawn.padding}> : tensor<{rank}x2xi64>}}"
        f" : ({x.type}, {source.type}, {scalar}) -> {x.type}",
        x.shape,
        x.element,
    )
