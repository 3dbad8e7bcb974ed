"""Programs of nested regions and calls, as text, and what they compute: loops, branches, reductions, maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

S32, F32, PRED, VECTOR = "tensor<i32>", "tensor<f32>", "tensor<i1>", "tensor<8xf32>"
BOUND, FACTOR = 1.0, 1.25
"""Numbers above the bound take the second side of a branch, where they are multiplied first."""

Array = NDArray[np.float64]
Written = tuple[str, str]
"""Operations, and the name of their result."""


class Writer:
    """Writes regions on values of a type around others; `trips` is how often loops run, and functions are called."""

    def __init__(self, type_: str, trips: int) -> None:
        self.type, self._trips = type_, trips
        self._numbers: Iterator[int] = itertools.count()
        self.functions: list[str] = []

    def names(self, count: int) -> list[str]:
        return [f"%v{next(self._numbers)}" for _ in range(count)]

    def returned(self, *values: str) -> str:
        types = ", ".join([S32, self.type][-len(values) :])
        return f"stablehlo.return {', '.join(values)} : {types}\n}}"

    def leaf(self, x: str) -> Written:
        sine, one, made = self.names(3)
        one_is = f"{one} = stablehlo.constant dense<1.0> : {self.type}"
        lines = (
            f"{sine} = stablehlo.sine {x} : {self.type}\n{one_is}\n{made} = stablehlo.add {sine}, {one} : {self.type}"
        )
        return lines, made

    def loop(self, x: str, inside: Callable[[str], Written]) -> Written:
        start, end, one, count, carried, goes_on, following, made = self.names(8)
        body, result = inside(carried)
        constants = "\n".join(
            f"{name} = stablehlo.constant dense<{value}> : {S32}"
            for name, value in ((start, 0), (end, self._trips), (one, 1))
        )
        return (
            f"{constants}\n{made}:2 = stablehlo.while({count} = {start}, {carried} = {x}) : {S32}, {self.type}\n"
            "cond {\n"
            f"{goes_on} = stablehlo.compare LT, {count}, {end} : ({S32}, {S32}) -> {PRED}\n"
            f"stablehlo.return {goes_on} : {PRED}\n}} do {{\n{body}\n"
            f"{following} = stablehlo.add {count}, {one} : {S32}\n{self.returned(following, result)}",
            f"{made}#1",
        )

    def call(self, x: str, inside: Callable[[str], Written]) -> Written:
        body, result = inside("%a")
        name = f"@f{len(self.functions)}"
        type_, made = self.type, [x, *self.names(self._trips)]
        head = f"func.func private {name}(%a: {type_}) -> {type_}"
        self.functions.append(f"{head} {{\n{body}\nreturn {result} : {type_}\n}}")
        calls = [f"{b} = call {name}({a}) : ({type_}) -> {type_}" for a, b in itertools.pairwise(made)]
        return "\n".join(calls), made[-1]

    def branch(self, x: str, inside: Callable[[str], Written]) -> Written:
        factor, scaled, bound, taken, other, made = self.names(6)
        body, result = inside(scaled)
        lines, number = self._first(x)
        return (
            f"{lines}{bound} = stablehlo.constant dense<{BOUND}> : {F32}\n"
            f"{taken} = stablehlo.compare LE, {number}, {bound} : ({F32}, {F32}) -> {PRED}\n"
            f"{factor} = stablehlo.constant dense<{FACTOR}> : {self.type}\n"
            f"{scaled} = stablehlo.multiply {x}, {factor} : {self.type}\n"
            f'{made} = "stablehlo.if"({taken}) ({{\n{other} = stablehlo.cosine {x} : {self.type}\n'
            f"{self.returned(other)}, {{\n{body}\n{self.returned(result)}) : ({PRED}) -> {self.type}",
            made,
        )

    def _first(self, x: str) -> Written:
        if self.type == F32:
            return "", x
        one, number = self.names(2)
        return (
            f"{one} = stablehlo.slice {x} [0:1] : ({VECTOR}) -> tensor<1xf32>\n"
            f"{number} = stablehlo.reshape {one} : (tensor<1xf32>) -> {F32}\n",
            number,
        )

    def reduction(self, x: str, inside: Callable[[str], Written]) -> Written:
        start, total, a, b, sine, larger, spread, made = self.names(8)
        body, result = inside(x)
        return (
            f"{body}\n{start} = stablehlo.constant dense<0.0> : {F32}\n"
            f'{total} = "stablehlo.reduce"({result}, {start}) ({{\n'
            f"^bb0({a}: {F32}, {b}: {F32}):\n{sine} = stablehlo.sine {b} : {F32}\n"
            f"{larger} = stablehlo.maximum {a}, {sine} : {F32}\nstablehlo.return {larger} : {F32}\n}}) "
            f"{{dimensions = array<i64: 0>}} : ({VECTOR}, {F32}) -> {F32}\n"
            f"{spread} = stablehlo.broadcast_in_dim {total}, dims = [] : ({F32}) -> {VECTOR}\n"
            f"{made} = stablehlo.subtract {result}, {spread} : {VECTOR}",
            made,
        )


KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "loops": (VECTOR, ("loop",)),
    "branches in loops": (VECTOR, ("loop", "branch")),
    "loops in branches": (VECTOR, ("branch", "loop")),
    "reductions in loops": (VECTOR, ("loop", "reduction")),
    "calls": (VECTOR, ("call",)),
    "branches in a map": (F32, ("branch",)),
    "loops in a map": (F32, ("loop",)),
}
"""Kinds of programs: the type of the values, and what is around the values of each level, outermost first."""


def program(kind: str, depth: int, trips: int) -> str:
    """Return a program of so many nested levels of a kind around sin(x) + 1."""
    type_, level = KINDS[kind]
    writer = Writer(type_, trips)

    def write(levels: tuple[str, ...], x: str) -> Written:
        if not levels:
            return writer.leaf(x)
        wrap: Callable[[str, Callable[[str], Written]], Written] = getattr(writer, levels[0])
        return wrap(x, lambda inner: write(levels[1:], inner))

    body, made = write(level * depth, "%x" if type_ == VECTOR else "%a")
    if type_ == F32:
        made, body = (
            "%r",
            f'%r = "stablehlo.map"(%x) ({{\n^bb0(%a: {F32}):\n{body}\nstablehlo.return {made} : {F32}\n}}) '
            f"{{dimensions = array<i64: 0>}} : ({VECTOR}) -> {VECTOR}",
        )
    main = f"func.func @main(%x: {VECTOR}) -> {VECTOR} {{\n{body}\nreturn {made} : {VECTOR}\n}}"
    return "\n".join([main, *writer.functions])


def expected(kind: str, depth: int, trips: int, x: Array) -> Array:
    """Compute what a program does."""
    type_, level = KINDS[kind]

    def run(levels: tuple[str, ...], x: Array) -> Array:
        if not levels:
            return np.asarray(np.sin(x) + 1)
        if levels[0] in ("loop", "call"):
            for _ in range(trips):
                x = run(levels[1:], x)
            return x
        if levels[0] == "reduction":
            made = run(levels[1:], x)
            return np.asarray(made - max(0.0, np.sin(made).max()))
        made = run(levels[1:], x * FACTOR)
        return np.where((x if type_ == F32 else x[0]) > BOUND, made, np.cos(x))

    return run(level * depth, x)


def source_size(text: str) -> int:
    """Count a program's operations and calls, without constants and the ends of regions."""
    others = text.count("stablehlo.constant") + text.count("stablehlo.return")
    return text.count(" call ") + text.count("stablehlo.") - others
