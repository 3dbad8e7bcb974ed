"""Random StableHLO programs on small s32 arrays, whose results are exact, so that a difference is a mistake.

They are made to be hard on grouping and buffer assignment: values with several readers, reductions between element-wise
operations, loops that permute, update and ignore what they carry, branches that return what they were given.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod

Dims = tuple[int, ...]
SHAPES: tuple[Dims, ...] = ((), (1,), (4,), (7,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (3, 1))


@dataclass(frozen=True)
class Value:
    """A value of the program: its name and its shape."""

    name: str
    shape: Dims

    @property
    def type(self) -> str:
        return tensor(self.shape)


def tensor(shape: Dims, element: str = "i32") -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


class ProgramText:
    """Writes one program; equal seeds give equal programs."""

    def __init__(self, seed: int, size: int = 14) -> None:
        self._random = random.Random(seed)
        self._size = size
        self._count = 0
        self._lines: list[str] = []

    def write(self) -> tuple[str, list[Dims]]:
        """The module's text and the shapes of its parameters."""
        shapes = [self._random.choice(SHAPES) for _ in range(self._random.randint(1, 3))]
        parameters = [Value(f"%p{i}", s) for i, s in enumerate(shapes)]
        values = self._statements(list(parameters), self._size, depth=0)
        chosen = self._random.sample(values, min(len(values), self._random.randint(1, 4)))
        inputs = ", ".join(f"{v.name}: {v.type}" for v in parameters)
        types = ", ".join(v.type for v in chosen)
        names = ", ".join(v.name for v in chosen)
        body = "\n".join(self._lines)
        return f"func.func public @main({inputs}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n", shapes

    def _new(self, shape: Dims) -> Value:
        self._count += 1
        return Value(f"%v{self._count}", shape)

    def _emit(self, shape: Dims, text: str) -> Value:
        made = self._new(shape)
        self._lines.append(f"{made.name} = {text}")
        return made

    def _statements(self, values: list[Value], count: int, depth: int) -> list[Value]:
        simple = [self._binary] * 6 + [self._unary] * 2 + [self._reduce] * 3 + [self._broadcast] * 3
        moving = [self._transpose, self._reshape, self._slice, self._pad, self._reverse, self._concatenate]
        other = [self._iota, self._constant, self._dot, self._select, self._dynamic_slice, self._update, self._update]
        nested = [self._while, self._if] if depth < 2 else []
        for _ in range(count):
            rule = self._random.choice([*simple, *moving, *other, *nested])
            made = rule(values, depth) if rule in nested else rule(values)  # type: ignore[operator]
            values.extend(made if isinstance(made, list) else [made] if made is not None else [])
        return values

    def _pick(self, values: list[Value], least_rank: int = 0) -> Value | None:
        # Late values more often, so that chains grow.
        good = [v for v in values if len(v.shape) >= least_rank]
        return self._random.choice(good[-5:] if self._random.random() < 0.6 else good) if good else None

    def _same(self, values: list[Value], shape: Dims) -> Value:
        return self._random.choice([v for v in values if v.shape == shape])

    def _constant(self, values: list[Value]) -> Value:
        shape = self._random.choice(SHAPES)
        numbers = [self._random.randint(-4, 9) for _ in range(prod(shape))]
        if self._random.random() < 0.5 or not shape:
            return self._emit(shape, f"stablehlo.constant dense<{numbers[0]}> : {tensor(shape)}")
        return self._emit(shape, f"stablehlo.constant dense<{_nested(numbers, shape)}> : {tensor(shape)}")

    def _binary(self, values: list[Value]) -> Value:
        x = self._pick(values)
        assert x is not None
        y = self._same(values, x.shape)
        name = self._random.choice(["add", "subtract", "multiply", "maximum", "minimum", "xor"])
        return self._emit(x.shape, f"stablehlo.{name} {x.name}, {y.name} : {x.type}")

    def _unary(self, values: list[Value]) -> Value:
        x = self._pick(values)
        assert x is not None
        return self._emit(x.shape, f"stablehlo.{self._random.choice(['abs', 'negate', 'not'])} {x.name} : {x.type}")

    def _select(self, values: list[Value]) -> Value:
        x = self._pick(values)
        assert x is not None
        y = self._same(values, x.shape)
        flags = tensor(x.shape, "i1")
        p = self._emit(x.shape, f"stablehlo.compare LT, {x.name}, {y.name} : ({x.type}, {y.type}) -> {flags}")
        return self._emit(x.shape, f"stablehlo.select {p.name}, {x.name}, {y.name} : {flags}, {x.type}")

    def _iota(self, values: list[Value]) -> Value:
        shape = self._random.choice([s for s in SHAPES if s])
        dimension = self._random.randrange(len(shape))
        return self._emit(shape, f"stablehlo.iota dim = {dimension} : {tensor(shape)}")

    def _reduce(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        rank = len(x.shape)
        dimensions = sorted(self._random.sample(range(rank), self._random.randint(1, rank)))
        shape = tuple(d for i, d in enumerate(x.shape) if i not in dimensions)
        name, start = self._random.choice([("add", 0), ("maximum", -2147483648), ("minimum", 2147483647)])
        init = self._emit((), f"stablehlo.constant dense<{start}> : tensor<i32>")
        return self._emit(
            shape,
            f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{name} across dimensions = {dimensions}"
            f" : ({x.type}, tensor<i32>) -> {tensor(shape)}",
        )

    def _broadcast(self, values: list[Value]) -> Value:
        x = self._pick(values)
        assert x is not None
        wider = [s for s in SHAPES if len(s) >= len(x.shape)]
        self._random.shuffle(wider)
        for shape in wider:
            dimensions = sorted(self._random.sample(range(len(shape)), len(x.shape)))
            if all(d in (1, shape[k]) for d, k in zip(x.shape, dimensions, strict=True)):
                return self._emit(
                    shape, f"stablehlo.broadcast_in_dim {x.name}, dims = {dimensions} : ({x.type}) -> {tensor(shape)}"
                )
        return x

    def _transpose(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 2)
        if x is None:
            return None
        order = self._random.sample(range(len(x.shape)), len(x.shape))
        shape = tuple(x.shape[i] for i in order)
        return self._emit(shape, f"stablehlo.transpose {x.name}, dims = {order} : ({x.type}) -> {tensor(shape)}")

    def _reshape(self, values: list[Value]) -> Value | None:
        x = self._pick(values)
        assert x is not None
        shapes = [s for s in (*SHAPES, (2, 12), (12,), (24,), (6, 4)) if prod(s) == prod(x.shape) and s != x.shape]
        if not shapes:
            return None
        shape = self._random.choice(shapes)
        return self._emit(shape, f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(shape)}")

    def _slice(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        parts, shape = [], []
        for extent in x.shape:
            start = self._random.randrange(extent)
            limit = self._random.randint(start + 1, extent)
            stride = self._random.randint(1, 2)
            parts.append(f"{start}:{limit}:{stride}")
            shape.append((limit - start + stride - 1) // stride)
        made = tuple(shape)
        return self._emit(made, f"stablehlo.slice {x.name} [{', '.join(parts)}] : ({x.type}) -> {tensor(made)}")

    def _pad(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        low = [self._random.randint(-1, 2) for _ in x.shape]
        high = [self._random.randint(-1, 2) for _ in x.shape]
        interior = [self._random.randint(0, 1) for _ in x.shape]
        shape = tuple(
            below + above + d + max(d - 1, 0) * i
            for below, above, i, d in zip(low, high, interior, x.shape, strict=True)
        )
        if min(shape) < 1:
            return None
        filler = self._emit((), f"stablehlo.constant dense<{self._random.randint(-3, 3)}> : tensor<i32>")
        return self._emit(
            shape,
            f"stablehlo.pad {x.name}, {filler.name}, low = {low}, high = {high}, interior = {interior}"
            f" : ({x.type}, tensor<i32>) -> {tensor(shape)}",
        )

    def _reverse(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        dimensions = sorted(self._random.sample(range(len(x.shape)), self._random.randint(1, len(x.shape))))
        return self._emit(x.shape, f"stablehlo.reverse {x.name}, dims = {dimensions} : {x.type}")

    def _concatenate(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        dimension = self._random.randrange(len(x.shape))
        y = self._same(values, x.shape)
        shape = tuple(2 * d if i == dimension else d for i, d in enumerate(x.shape))
        return self._emit(
            shape,
            f"stablehlo.concatenate {x.name}, {y.name}, dim = {dimension} : ({x.type}, {y.type}) -> {tensor(shape)}",
        )

    def _dot(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        k = x.shape[-1]
        fitting = [v for v in values if v.shape and v.shape[0] == k]
        if not fitting:
            return None
        y = self._random.choice(fitting)
        shape = x.shape[:-1] + y.shape[1:]
        return self._emit(
            shape,
            f"stablehlo.dot_general {x.name}, {y.name}, contracting_dims = [{len(x.shape) - 1}] x [0]"
            f" : ({x.type}, {y.type}) -> {tensor(shape)}",
        )

    def _starts(self, values: list[Value], rank: int) -> list[Value]:
        scalars = [v for v in values if not v.shape]
        return [
            self._random.choice(scalars)
            if scalars and self._random.random() < 0.5
            else self._emit((), f"stablehlo.constant dense<{self._random.randint(-1, 4)}> : tensor<i32>")
            for _ in range(rank)
        ]

    def _dynamic_slice(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        sizes = tuple(self._random.randint(1, d) for d in x.shape)
        starts = self._starts(values, len(sizes))
        names = "".join(f", {s.name}" for s in starts)
        types = ", ".join([x.type, *["tensor<i32>"] * len(starts)])
        return self._emit(
            sizes, f"stablehlo.dynamic_slice {x.name}{names}, sizes = {list(sizes)} : ({types}) -> {tensor(sizes)}"
        )

    def _update(self, values: list[Value]) -> Value | None:
        x = self._pick(values, 1)
        if x is None:
            return None
        fitting = [
            v
            for v in values
            if len(v.shape) == len(x.shape) and all(a <= b for a, b in zip(v.shape, x.shape, strict=True))
        ]
        update = self._random.choice(fitting)
        starts = self._starts(values, len(x.shape))
        names = "".join(f", {s.name}" for s in (update, *starts))
        types = ", ".join([x.type, update.type, *["tensor<i32>"] * len(starts)])
        return self._emit(x.shape, f"stablehlo.dynamic_update_slice {x.name}{names} : ({types}) -> {x.type}")

    def _region(self, values: list[Value], wanted: list[Dims], depth: int) -> tuple[str, list[Value]]:
        """Statements of a region that ends with values of the wanted shapes."""
        outer, self._lines = self._lines, []
        inside = self._statements(list(values), self._random.randint(1, 5), depth + 1)
        returned = []
        for shape in wanted:
            fitting = [v for v in inside if v.shape == shape]
            returned.append(
                self._random.choice(fitting[-3:])
                if fitting
                else self._emit(shape, f"stablehlo.constant dense<1> : {tensor(shape)}")
            )
        text, self._lines = "\n".join(self._lines), outer
        return text, returned

    def _if(self, values: list[Value], depth: int) -> list[Value] | None:
        scalars = [v for v in values if not v.shape]
        if not scalars:
            return None
        x = self._random.choice(scalars)
        zero = self._emit((), "stablehlo.constant dense<1> : tensor<i32>")
        p = self._emit((), f"stablehlo.compare GT, {x.name}, {zero.name} : (tensor<i32>, tensor<i32>) -> tensor<i1>")
        shapes = [self._random.choice(values).shape for _ in range(self._random.randint(1, 3))]
        types = ", ".join(map(tensor, shapes))
        branches = []
        for _ in range(2):
            text, returned = self._region(values, shapes, depth)
            names = ", ".join(v.name for v in returned)
            branches.append(f"{{\n{text}\nstablehlo.return {names} : {types}\n}}")
        made = self._new(())
        self._lines.append(
            f'{made.name}:{len(shapes)} = "stablehlo.if"({p.name}) ({branches[0]}, {branches[1]})'
            f" : (tensor<i1>) -> ({types})"
        )
        return [Value(f"{made.name}#{i}", s) for i, s in enumerate(shapes)]

    def _while(self, values: list[Value], depth: int) -> list[Value]:
        carried = [self._random.choice(values) for _ in range(self._random.randint(1, 4))]
        shapes: list[Dims] = [(), *[v.shape for v in carried]]
        start = self._emit((), "stablehlo.constant dense<0> : tensor<i32>")
        limit = self._emit((), f"stablehlo.constant dense<{self._random.randint(0, 3)}> : tensor<i32>")
        one = self._emit((), "stablehlo.constant dense<1> : tensor<i32>")
        made = self._new(())
        inner = [Value(f"{made.name}_{i}", s) for i, s in enumerate(shapes)]
        text, returned = self._region([*values, *inner], shapes[1:], depth)
        types = ", ".join(map(tensor, shapes))
        binds = ", ".join(f"{n.name} = {v.name}" for n, v in zip(inner, [start, *carried], strict=True))
        following = f"{made.name}_next"
        names = ", ".join([following, *[v.name for v in returned]])
        self._lines.append(
            f"{made.name}:{len(shapes)} = stablehlo.while({binds}) : {types}\n"
            f"cond {{\n{made.name}_go = stablehlo.compare LT, {inner[0].name}, {limit.name}"
            f" : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return {made.name}_go : tensor<i1>\n}}"
            f" do {{\n{text}\n{following} = stablehlo.add {inner[0].name}, {one.name} : tensor<i32>\n"
            f"stablehlo.return {names} : {types}\n}}"
        )
        return [Value(f"{made.name}#{i}", s) for i, s in enumerate(shapes)]


def _nested(numbers: list[int], shape: Dims) -> str:
    """Nested brackets, as MLIR writes dense elements."""
    if not shape:
        return str(numbers[0])
    step = prod(shape[1:])
    parts = [_nested(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
    return f"[{', '.join(parts)}]"
