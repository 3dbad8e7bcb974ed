"""Random StableHLO programs on small arrays whose results are exact, so that any difference is a mistake.

They are made to be hard on grouping and buffer assignment: values with several readers, reductions between element-wise
operations, loops that permute, update and ignore what they carry, conditions that look at arrays, branches that return
what they were given, arrays without elements. Floats hold small integers only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

Dims = tuple[int, ...]
SMALL_SHAPES: tuple[Dims, ...] = ((), (1,), (4,), (7,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (3, 1))
# Whole vectors and some elements behind them.
WIDE_SHAPES: tuple[Dims, ...] = ((), (1,), (17,), (40,), (9, 17), (17, 9), (2, 9, 17), (1, 17), (9, 1))
EMPTY_SHAPES: tuple[Dims, ...] = ((0,), (0, 4), (3, 0))
# The first is the one that most values have, so that values find others of their type.
COMPLEX = "complex<f32>"
ELEMENTS = ("i32", "f32", "i1", "ui8", "i8", "bf16", "i4", "f64", COMPLEX)
ELEMENT_WEIGHTS = (24, 6, 6, 2, 2, 2, 1, 1, 2)
DTYPES = {
    "i32": np.int32,
    "f32": np.float32,
    "f64": np.float64,
    "i1": np.bool_,
    "ui8": np.uint8,
    "i8": np.int8,
    "i4": ml_dtypes.int4,
    "bf16": ml_dtypes.bfloat16,
    COMPLEX: np.complex64,
}
FLOATS = ("f32", "f64", "bf16")
# The largest number that arithmetic is done on, so that products and sums are exact.
LARGEST = {"i4": 7, "ui8": 100, "i8": 100}
BINARY = {
    "i32": ("add", "subtract", "multiply", "maximum", "minimum", "xor"),
    "i8": ("add", "subtract", "multiply", "maximum", "minimum", "and"),
    "ui8": ("add", "subtract", "multiply", "maximum", "minimum", "or"),
    "i1": ("and", "or", "xor", "maximum", "minimum"),
    "i4": ("add", "subtract", "multiply", "maximum", "minimum", "xor"),
    "f32": ("add", "subtract", "multiply", "maximum", "minimum"),
    "f64": ("add", "subtract", "multiply", "maximum", "minimum"),
    "bf16": ("add", "subtract", "maximum", "minimum"),
    COMPLEX: ("add", "subtract", "multiply"),
}
UNARY = {
    "i32": ("abs", "negate", "not", "sign"),
    "i8": ("negate", "not"),
    "ui8": ("not", "popcnt"),
    "i1": ("not",),
    "i4": ("negate", "not"),
    "f32": ("abs", "negate", "floor", "sign"),
    "f64": ("abs", "negate"),
    "bf16": ("abs", "negate"),
    COMPLEX: ("negate",),
}
# Reductions by one operation, with what they start from.
REDUCTIONS = {
    "i32": (("add", "0"), ("maximum", "-2147483648"), ("minimum", "2147483647"), ("add", "3")),
    "i8": (("add", "0"), ("maximum", "-128")),
    "ui8": (("add", "0"), ("minimum", "255")),
    "i1": (("or", "false"), ("and", "true")),
    "f32": (("add", "0.0"), ("maximum", "0xFF800000"), ("minimum", "0x7F800000")),
    "i4": (("add", "0"), ("maximum", "-8")),
    "f64": (("add", "0.0"), ("maximum", "0xFFF0000000000000")),
    "bf16": (("maximum", "0xFF80"), ("minimum", "0x7F80")),
    COMPLEX: (("add", "(0.0, 0.0)"),),
}


@dataclass(frozen=True)
class Value:
    """A value of the program: its name, shape and element type."""

    name: str
    shape: Dims
    element: str = "i32"

    @property
    def type(self) -> str:
        return tensor(self.shape, self.element)


@dataclass(frozen=True)
class Program:
    """A module's text and its parameters."""

    text: str
    parameters: tuple[Value, ...]

    def arguments(self, seed: int) -> list[np.ndarray]:
        """Small whole numbers for every parameter."""
        rng = np.random.default_rng(seed)
        lowest = {"i1": 0, "ui8": 0}
        highest = {"i1": 2}
        return [
            np.asarray(rng.integers(lowest.get(p.element, -5), highest.get(p.element, 8), p.shape)).astype(
                DTYPES[p.element]
            )
            for p in self.parameters
        ]


def tensor(shape: Dims, element: str = "i32") -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


class ProgramText:
    """Writes one program; equal seeds give equal programs."""

    def __init__(self, seed: int, size: int = 14) -> None:
        self._random = random.Random(seed)
        self._shapes = WIDE_SHAPES if seed % 3 == 0 else SMALL_SHAPES
        self._size = size
        self._count = 0
        self._lines: list[str] = []

    def write(self) -> Program:
        """The program."""
        kinds = [(self._shape(), self._element()) for _ in range(self._random.randint(1, 3))]
        parameters = tuple(Value(f"%p{i}", s, e) for i, (s, e) in enumerate(kinds))
        values = self._statements(list(parameters), self._size, depth=0)
        chosen = [self._real(self._random.choice(values[-12:])) for _ in range(self._random.randint(1, 5))]
        inputs = ", ".join(f"{v.name}: {v.type}" for v in parameters)
        types = ", ".join(v.type for v in chosen)
        names = ", ".join(v.name for v in chosen)
        body = "\n".join(self._lines)
        text = f"func.func public @main({inputs}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n"
        return Program(text, parameters)

    # ---- statements -----------------------------------------------------------------------------------------------

    def _statements(self, values: list[Value], count: int, depth: int) -> list[Value]:
        simple = [self._binary] * 6 + [self._unary] * 2 + [self._reduce] * 3 + [self._broadcast] * 3
        moving = [self._transpose, self._reshape, self._slice, self._pad, self._reverse, self._concatenate]
        typed = [self._convert, self._convert, self._compare, self._select, self._clamp, self._map, self._complex]
        other = [self._iota, self._constant, self._dot, self._several, self._dynamic_slice, self._update, self._update]
        nested = [self._while, self._if, self._case] if depth < 2 else []
        for _ in range(count):
            rule = self._random.choice([*simple, *moving, *typed, *other, *nested])
            made = rule(values, depth) if rule in nested else rule(values)  # type: ignore[operator]
            values.extend(made if isinstance(made, list) else [made] if made is not None else [])
        return values

    def _new(self, shape: Dims, element: str = "i32") -> Value:
        self._count += 1
        return Value(f"%v{self._count}", shape, element)

    def _emit(self, shape: Dims, text: str, element: str = "i32") -> Value:
        made = self._new(shape, element)
        self._lines.append(f"{made.name} = {text}")
        return made

    def _shape(self) -> Dims:
        return self._random.choice(EMPTY_SHAPES if self._random.random() < 0.06 else self._shapes)

    def _element(self) -> str:
        return self._random.choices(ELEMENTS, ELEMENT_WEIGHTS)[0]

    def _pick(self, values: list[Value], least_rank: int = 0) -> Value | None:
        # Late values more often, so that chains grow.
        good = [v for v in values if len(v.shape) >= least_rank]
        return self._random.choice(good[-5:] if self._random.random() < 0.6 else good) if good else None

    def _any(self, values: list[Value]) -> Value:
        x = self._pick(values)
        assert x is not None
        return x

    def _same(self, values: list[Value], like: Value) -> Value:
        return self._random.choice([v for v in values if v.type == like.type])

    def _real(self, x: Value) -> Value:
        """Sums of the parts of complex numbers, which the reference interpreter cannot return; others as they are."""
        if x.element != COMPLEX:
            return x
        part = tensor(x.shape, "f32")
        re, im = (
            self._emit(x.shape, f"stablehlo.{name} {x.name} : ({x.type}) -> {part}", "f32") for name in ("real", "imag")
        )
        return self._emit(x.shape, f"stablehlo.add {re.name}, {im.name} : {part}", "f32")

    def _complex(self, values: list[Value]) -> Value | None:
        fitting = [v for v in values if v.element == "f32"]
        if not fitting:
            return None
        x = self._random.choice(fitting)
        y, made = self._same(values, x), tensor(x.shape, COMPLEX)
        return self._emit(x.shape, f"stablehlo.complex {x.name}, {y.name} : {made}", COMPLEX)

    def _splat(self, number: int, shape: Dims, element: str) -> Value:
        text = _number(number, element)
        return self._emit(shape, f"stablehlo.constant dense<{text}> : {tensor(shape, element)}", element)

    def _small(self, x: Value, largest: int = 8) -> Value:
        """The value with its elements between -largest and largest, or 0 and largest."""
        if x.element == "i1":
            return x
        if x.element == COMPLEX:
            part = tensor(x.shape, "f32")
            parts = [
                self._small(self._emit(x.shape, f"stablehlo.{p} {x.name} : ({x.type}) -> {part}", "f32"), largest)
                for p in ("real", "imag")
            ]
            return self._emit(x.shape, f"stablehlo.complex {parts[0].name}, {parts[1].name} : {x.type}", COMPLEX)
        largest = min(largest, LARGEST.get(x.element, largest))
        low = self._splat(0 if x.element == "ui8" else -largest, (), x.element)
        high = self._splat(largest, (), x.element)
        return self._emit(
            x.shape,
            f"stablehlo.clamp {low.name}, {x.name}, {high.name} : ({low.type}, {x.type}, {high.type}) -> {x.type}",
            x.element,
        )

    # ---- element by element -----------------------------------------------------------------------------------------

    def _binary(self, values: list[Value]) -> Value:
        x = self._any(values)
        y = self._same(values, x)
        name = self._random.choice(BINARY[x.element])
        if x.element in (*FLOATS, COMPLEX) and name not in ("maximum", "minimum"):
            x, y = self._small(x), self._small(y)
        if x.element == "i32" and self._random.random() < 0.1:
            name, y = self._random.choice(["divide", "remainder"]), self._splat(3, x.shape, "i32")
        return self._emit(x.shape, f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.element)

    def _unary(self, values: list[Value]) -> Value:
        x = self._any(values)
        name = self._random.choice(UNARY[x.element])
        return self._emit(x.shape, f"stablehlo.{name} {x.name} : {x.type}", x.element)

    def _compare(self, values: list[Value]) -> Value:
        x = self._any(values)
        y = self._same(values, x)
        word = self._random.choice(["EQ", "NE"] if x.element == COMPLEX else ["LT", "GE", "EQ", "NE"])
        flags = tensor(x.shape, "i1")
        return self._emit(
            x.shape, f"stablehlo.compare {word}, {x.name}, {y.name} : ({x.type}, {y.type}) -> {flags}", "i1"
        )

    def _select(self, values: list[Value]) -> Value:
        x = self._any(values)
        y = self._same(values, x)
        fitting = [v for v in values if v.element == "i1" and v.shape in (x.shape, ())]
        p = self._random.choice(fitting) if fitting else self._compare([x, y])
        return self._emit(x.shape, f"stablehlo.select {p.name}, {x.name}, {y.name} : {p.type}, {x.type}", x.element)

    def _clamp(self, values: list[Value]) -> Value:
        return self._small(self._any(values), self._random.randint(1, 6))

    def _convert(self, values: list[Value]) -> Value:
        x, element = self._real(self._any(values)), self._element()
        if element == COMPLEX:
            return self._complex([self._small(x)]) or x
        if "i1" not in (x.element, element):
            x = self._small(x, LARGEST.get(element, 100))
        if element == "ui8" and x.element != "i1":
            x = self._emit(x.shape, f"stablehlo.abs {x.name} : {x.type}", x.element) if x.element != "ui8" else x
        made = tensor(x.shape, element)
        return self._emit(x.shape, f"stablehlo.convert {x.name} : ({x.type}) -> {made}", element)

    def _map(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None or x.element in (*FLOATS, COMPLEX):
            return None
        y = self._same(values, x)
        scalar = tensor((), x.element)
        name = self._random.choice(BINARY[x.element])
        a, b, c, d = (self._new(()).name for _ in range(4))
        dimensions = ", ".join(map(str, range(len(x.shape))))
        return self._emit(
            x.shape,
            f'"stablehlo.map"({x.name}, {y.name}) ({{\n^bb0({a}: {scalar}, {b}: {scalar}):\n'
            f"{c} = stablehlo.not {a} : {scalar}\n{d} = stablehlo.{name} {c}, {b} : {scalar}\n"
            f"stablehlo.return {d} : {scalar}\n}}) {{dimensions = array<i64: {dimensions}>}}"
            f" : ({x.type}, {y.type}) -> {x.type}",
            x.element,
        )

    # ---- made of nothing --------------------------------------------------------------------------------------------

    def _constant(self, values: list[Value]) -> Value:
        shape, element = self._shape(), self._element()
        if self._random.random() < 0.5 or not prod(shape) or not shape:
            return self._splat(self._random.randint(0, 7), shape, element)
        lowest = 0 if element in ("i1", "ui8") else -4
        highest = 1 if element == "i1" else 7
        numbers = [_number(self._random.randint(lowest, highest), element) for _ in range(prod(shape))]
        made = tensor(shape, element)
        return self._emit(shape, f"stablehlo.constant dense<{_nested(numbers, shape)}> : {made}", element)

    def _iota(self, values: list[Value]) -> Value:
        shape = self._random.choice([s for s in (*self._shapes, *EMPTY_SHAPES[:1]) if s])
        element = self._random.choice(["i32", "i32", "f32", "i8", "bf16", COMPLEX])
        dimension = self._random.randrange(len(shape))
        return self._emit(shape, f"stablehlo.iota dim = {dimension} : {tensor(shape, element)}", element)

    # ---- reductions and products ------------------------------------------------------------------------------------

    def _reduce(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        name, start = self._random.choice(REDUCTIONS[x.element])
        if x.element in ("f32", "f64", COMPLEX) and name == "add":
            x = self._small(x)
        dimensions, shape = self._dimensions(x)
        scalar = tensor((), x.element)
        init = self._emit((), f"stablehlo.constant dense<{start}> : {scalar}", x.element)
        return self._emit(
            shape,
            f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{name} across dimensions = {dimensions}"
            f" : ({x.type}, {scalar}) -> {tensor(shape, x.element)}",
            x.element,
        )

    def _dimensions(self, x: Value) -> tuple[list[int], Dims]:
        """Some dimensions to reduce, and the shape that is left."""
        rank = len(x.shape)
        dimensions = sorted(self._random.sample(range(rank), self._random.randint(1, rank)))
        return dimensions, tuple(d for i, d in enumerate(x.shape) if i not in dimensions)

    def _several(self, values: list[Value]) -> list[Value] | None:
        """A reduction of two arrays at once: independent totals, or the place of the largest."""
        x = self._pick([v for v in values if v.element == "i32"], 1)
        if x is None:
            return None
        y = self._same(values, x)
        dimensions, shape = self._dimensions(x)
        scalar, made = "tensor<i32>", self._new(())
        low, zero = self._splat(-1000000, (), "i32"), self._splat(0, (), "i32")
        a, b, c, d, p, q, r = (self._new(()).name for _ in range(7))
        flag = "tensor<i1>"
        if self._random.random() < 0.5:
            y = self._emit(x.shape, f"stablehlo.iota dim = {dimensions[-1]} : {x.type}")
            body = (
                f"{p} = stablehlo.compare GE, {a}, {c} : ({scalar}, {scalar}) -> {flag}\n"
                f"{q} = stablehlo.select {p}, {a}, {c} : {flag}, {scalar}\n"
                f"{r} = stablehlo.select {p}, {b}, {d} : {flag}, {scalar}\n"
            )
            # Only along one dimension do the indices tell the first of equal elements.
            dimensions = dimensions[-1:]
            shape = tuple(e for i, e in enumerate(x.shape) if i not in dimensions)
        else:
            body = f"{q} = stablehlo.maximum {a}, {c} : {scalar}\n{r} = stablehlo.add {d}, {b} : {scalar}\n"
        types = f"{tensor(shape)}, {tensor(shape)}"
        dims = ", ".join(map(str, dimensions))
        self._lines.append(
            f'{made.name}:2 = "stablehlo.reduce"({x.name}, {y.name}, {low.name}, {zero.name}) ({{\n'
            f"^bb0({a}: {scalar}, {b}: {scalar}, {c}: {scalar}, {d}: {scalar}):\n{body}"
            f"stablehlo.return {q}, {r} : {scalar}, {scalar}\n}}) {{dimensions = array<i64: {dims}>}}"
            f" : ({x.type}, {y.type}, {scalar}, {scalar}) -> ({types})"
        )
        return [Value(f"{made.name}#{i}", shape) for i in range(2)]

    def _dot(self, values: list[Value]) -> Value | None:
        x = self._pick([v for v in values if v.element in ("i32", "f32", "f64", COMPLEX) and prod(v.shape)], 1)
        if x is None:
            return None
        choices = [
            (v, k, batch)
            for v in values
            for k in range(len(v.shape))
            for batch in (0, 1)
            if v.element == x.element
            and prod(v.shape)
            and v.shape[k] == x.shape[-1]
            and (not batch or (k and len(x.shape) > 1 and v.shape[0] == x.shape[0]))
        ]
        if not choices:
            return None
        y, k, batch = self._random.choice(choices)
        if x.element != "i32":
            x, y = self._small(x), self._small(y)
        rest = tuple(d for i, d in enumerate(y.shape) if i != k and i >= batch)
        shape = x.shape[:-1] + rest
        batching = "batching_dims = [0] x [0], " if batch else ""
        return self._emit(
            shape,
            f"stablehlo.dot_general {x.name}, {y.name}, {batching}contracting_dims = [{len(x.shape) - 1}] x [{k}]"
            f" : ({x.type}, {y.type}) -> {tensor(shape, x.element)}",
            x.element,
        )

    # ---- moving elements --------------------------------------------------------------------------------------------

    def _broadcast(self, values: list[Value]) -> Value:
        x = self._any(values)
        wider = [s for s in (*self._shapes, *EMPTY_SHAPES) if len(s) >= len(x.shape)]
        self._random.shuffle(wider)
        for shape in wider:
            dimensions = self._random.sample(range(len(shape)), len(x.shape))
            if all(d in (1, shape[k]) for d, k in zip(x.shape, dimensions, strict=True)):
                made = tensor(shape, x.element)
                text = f"stablehlo.broadcast_in_dim {x.name}, dims = {dimensions} : ({x.type}) -> {made}"
                return self._emit(shape, text, x.element)
        return x

    def _transpose(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 2)
        if x is None:
            return None
        order = self._random.sample(range(len(x.shape)), len(x.shape))
        shape = tuple(x.shape[i] for i in order)
        made = tensor(shape, x.element)
        return self._emit(shape, f"stablehlo.transpose {x.name}, dims = {order} : ({x.type}) -> {made}", x.element)

    def _reshape(self, values: list[Value]) -> Value | None:
        x = self._any(values)
        more = (*self._shapes, *EMPTY_SHAPES, (2, 12), (12,), (24,), (6, 4), (153,), (3, 51), (18, 17))
        shapes = [s for s in more if prod(s) == prod(x.shape) and s != x.shape]
        if not shapes:
            return None
        shape = self._random.choice(shapes)
        made = tensor(shape, x.element)
        return self._emit(shape, f"stablehlo.reshape {x.name} : ({x.type}) -> {made}", x.element)

    def _slice(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        parts, shape = [], []
        for extent in x.shape:
            start = self._random.randrange(extent) if extent else 0
            limit = self._random.randint(start + (self._random.random() < 0.95), extent) if extent else 0
            stride = self._random.randint(1, 2)
            parts.append(f"{start}:{limit}:{stride}")
            shape.append((limit - start + stride - 1) // stride)
        made = tensor(tuple(shape), x.element)
        return self._emit(
            tuple(shape), f"stablehlo.slice {x.name} [{', '.join(parts)}] : ({x.type}) -> {made}", x.element
        )

    def _pad(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        low = [self._random.randint(-1, 2) for _ in x.shape]
        high = [self._random.randint(-1, 2) for _ in x.shape]
        interior = [self._random.randint(0, 1) for _ in x.shape]
        shape = tuple(
            before + after + d + max(d - 1, 0) * i
            for before, after, i, d in zip(low, high, interior, x.shape, strict=True)
        )
        if min(shape) < 0:
            return None
        filler = self._splat(self._random.randint(0, 3), (), x.element)
        return self._emit(
            shape,
            f"stablehlo.pad {x.name}, {filler.name}, low = {low}, high = {high}, interior = {interior}"
            f" : ({x.type}, {filler.type}) -> {tensor(shape, x.element)}",
            x.element,
        )

    def _reverse(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        dimensions = sorted(self._random.sample(range(len(x.shape)), self._random.randint(1, len(x.shape))))
        return self._emit(x.shape, f"stablehlo.reverse {x.name}, dims = {dimensions} : {x.type}", x.element)

    def _concatenate(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        dimension = self._random.randrange(len(x.shape))

        def others(shape: Dims) -> Dims:
            return shape[:dimension] + shape[dimension + 1 :]

        fitting = [
            v
            for v in values
            if v.element == x.element and len(v.shape) == len(x.shape) and others(v.shape) == others(x.shape)
        ]
        parts = [x, *self._random.choices(fitting, k=self._random.randint(0, 2))]
        self._random.shuffle(parts)
        total = sum(v.shape[dimension] for v in parts)
        shape = (*x.shape[:dimension], total, *x.shape[dimension + 1 :])
        names, types = ", ".join(v.name for v in parts), ", ".join(v.type for v in parts)
        made = tensor(shape, x.element)
        return self._emit(shape, f"stablehlo.concatenate {names}, dim = {dimension} : ({types}) -> {made}", x.element)

    def _starts(self, values: list[Value], rank: int) -> list[Value]:
        """Where a block starts, for each dimension; all of one type."""
        element = self._random.choice(["i32", "i32", "ui8"])
        scalars = [v for v in values if not v.shape and v.element == element]
        return [
            self._random.choice(scalars)
            if scalars and self._random.random() < 0.5
            else self._splat(self._random.randint(0 if element == "ui8" else -1, 4), (), element)
            for _ in range(rank)
        ]

    def _dynamic_slice(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        sizes = tuple(self._random.randint(min(1, d), d) for d in x.shape)
        starts = self._starts(values, len(sizes))
        names = "".join(f", {s.name}" for s in starts)
        types = ", ".join([x.type, *[s.type for s in starts]])
        made = tensor(sizes, x.element)
        return self._emit(
            sizes, f"stablehlo.dynamic_slice {x.name}{names}, sizes = {list(sizes)} : ({types}) -> {made}", x.element
        )

    def _update(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        fitting = [
            v
            for v in values
            if v.element == x.element
            and len(v.shape) == len(x.shape)
            and all(a <= b for a, b in zip(v.shape, x.shape, strict=True))
        ]
        update = self._random.choice(fitting)
        starts = self._starts(values, len(x.shape))
        names = "".join(f", {s.name}" for s in (update, *starts))
        types = ", ".join([x.type, update.type, *[s.type for s in starts]])
        return self._emit(x.shape, f"stablehlo.dynamic_update_slice {x.name}{names} : ({types}) -> {x.type}", x.element)

    # ---- control flow -----------------------------------------------------------------------------------------------

    def _region(self, values: list[Value], wanted: Sequence[Value], depth: int) -> tuple[str, list[Value]]:
        """Statements of a region that ends with values of the wanted types."""
        outer, self._lines = self._lines, []
        inside = self._statements(list(values), self._random.randint(1, 5), depth + 1)
        returned = []
        for like in wanted:
            fitting = [v for v in inside if v.type == like.type]
            returned.append(self._random.choice(fitting[-3:]) if fitting else self._splat(1, like.shape, like.element))
        text, self._lines = "\n".join(self._lines), outer
        return text, returned

    def _branches(
        self, values: list[Value], depth: int, count: int, head: Callable[[], tuple[str, Value]]
    ) -> list[Value]:
        """An operation that runs one of its regions; `head` makes its name and what chooses."""
        name, chooser = head()
        wanted = [self._random.choice(values) for _ in range(self._random.randint(1, 3))]
        types = ", ".join(v.type for v in wanted)
        regions = []
        for _ in range(count):
            text, returned = self._region(values, wanted, depth)
            names = ", ".join(v.name for v in returned)
            regions.append(f"{{\n{text}\nstablehlo.return {names} : {types}\n}}")
        made = self._new(())
        self._lines.append(
            f'{made.name}:{len(wanted)} = "{name}"({chooser.name}) ({", ".join(regions)})'
            f" : ({chooser.type}) -> ({types})"
        )
        return [Value(f"{made.name}#{i}", v.shape, v.element) for i, v in enumerate(wanted)]

    def _if(self, values: list[Value], depth: int) -> list[Value] | None:
        flags = [v for v in values if not v.shape and v.element == "i1"]
        scalars = [v for v in values if not v.shape and v.element == "i32"]
        if not flags and not scalars:
            return None

        def head() -> tuple[str, Value]:
            if flags and (not scalars or self._random.random() < 0.5):
                return "stablehlo.if", self._random.choice(flags)
            one = self._splat(1, (), "i32")
            return "stablehlo.if", self._emit(
                (),
                f"stablehlo.compare GT, {self._random.choice(scalars).name}, {one.name}"
                " : (tensor<i32>, tensor<i32>) -> tensor<i1>",
                "i1",
            )

        return self._branches(values, depth, 2, head)

    def _case(self, values: list[Value], depth: int) -> list[Value] | None:
        scalars = [v for v in values if not v.shape and v.element == "i32"]
        if not scalars:
            return None
        chosen = self._random.choice(scalars)
        return self._branches(values, depth, self._random.randint(1, 3), lambda: ("stablehlo.case", chosen))

    def _while(self, values: list[Value], depth: int) -> list[Value]:
        carried = [self._random.choice(values) for _ in range(self._random.randint(1, 4))]
        start = self._splat(0, (), "i32")
        limit, one = self._splat(self._random.randint(0, 3), (), "i32"), self._splat(1, (), "i32")
        made = self._new(())
        inner = [Value(f"{made.name}_{i}", v.shape, v.element) for i, v in enumerate([start, *carried])]
        condition = self._condition(values, inner, limit)
        text, returned = self._region([*values, *inner], carried, depth)
        types = ", ".join(v.type for v in inner)
        binds = ", ".join(f"{n.name} = {v.name}" for n, v in zip(inner, [start, *carried], strict=True))
        following = f"{made.name}_next"
        names = ", ".join([following, *[v.name for v in returned]])
        self._lines.append(
            f"{made.name}:{len(inner)} = stablehlo.while({binds}) : {types}\n"
            f"cond {{\n{condition}\n}} do {{\n{text}\n"
            f"{following} = stablehlo.add {inner[0].name}, {one.name} : tensor<i32>\n"
            f"stablehlo.return {names} : {types}\n}}"
        )
        return [Value(f"{made.name}#{i}", v.shape, v.element) for i, v in enumerate(inner)]

    def _condition(self, values: list[Value], inner: list[Value], limit: Value) -> str:
        """Whether the counter is below its limit and, sometimes, whether a carried array has some property."""
        outer, self._lines = self._lines, []
        go = self._emit(
            (),
            f"stablehlo.compare LT, {inner[0].name}, {limit.name} : (tensor<i32>, tensor<i32>) -> tensor<i1>",
            "i1",
        )
        if self._random.random() < 0.5:
            held = self._statements([*values, *inner], self._random.randint(1, 3), depth=2)
            x = self._random.choice(held)
            x = self._real(x)
            flags = self._compare([x, self._splat(2, x.shape, x.element)])
            if flags.shape:
                false = self._splat(0, (), "i1")
                flags = self._emit(
                    (),
                    f"stablehlo.reduce({flags.name} init: {false.name}) applies stablehlo.or across dimensions ="
                    f" {list(range(len(flags.shape)))} : ({flags.type}, tensor<i1>) -> tensor<i1>",
                    "i1",
                )
            go = self._emit((), f"stablehlo.and {go.name}, {flags.name} : tensor<i1>", "i1")
        text, self._lines = "\n".join(self._lines), outer
        return f"{text}\nstablehlo.return {go.name} : tensor<i1>"


def _number(number: int, element: str) -> str:
    """A whole number, as MLIR writes an element of a type."""
    if element == "i1":
        return "true" if number else "false"
    if element == COMPLEX:
        return f"({number}.0, {number % 3}.0)"
    return f"{number}.0" if element in FLOATS else str(number)


def _nested(numbers: Sequence[object], shape: Dims) -> str:
    """Nested brackets, as MLIR writes dense elements."""
    if not shape:
        return str(numbers[0])
    step = prod(shape[1:])
    parts = [_nested(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
    return f"[{', '.join(parts)}]"
