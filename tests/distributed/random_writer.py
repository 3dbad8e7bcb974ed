"""Writes random programs of several devices, and evaluates them on the model: both from the same statements.

All numbers are whole and small, or wrap, so that every result is exact. Devices that take the same way through the
program's branches and loops are of one class; what is done together is done within classes, and so stays legal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tests.distributed.model import Grid

Dims = tuple[int, ...]
PerDevice = list[Any]
Environment = dict[str, PerDevice]
Step = Callable[[Environment, frozenset[int]], None]

DTYPES = {"i32": np.int32, "i64": np.int64, "ui8": np.uint8, "f32": np.float32, "f64": np.float64, "i1": np.bool_}
ELEMENTS = ("i32", "i32", "f32", "f32", "i64", "ui8", "f64")
GRIDS = (Grid(2), Grid(3), Grid(4), Grid(8), Grid(1, 2), Grid(1, 4), Grid(2, 2), Grid(2, 3), Grid(4, 2), Grid(2, 4))
SHAPES: tuple[Dims, ...] = ((), (1,), (4,), (8,), (3, 4), (2, 6), (4, 2, 3), (24,), (5,), (1, 8), (0, 2), (64, 9))
LARGEST = 16.0


@dataclass(frozen=True)
class Value:
    """A name of the program, with its type."""

    name: str
    shape: Dims
    element: str

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.element}>"

    @property
    def is_float(self) -> bool:
        return self.element.startswith("f")


@dataclass
class Program:
    """A module's text, its arguments for each device, and what the model gives.

    Attributes:
        grid: for which it is.
        expected: for each device, its results.
        xla: whether XLA:CPU means the same by it, and takes it.
    """

    text: str
    grid: Grid
    arguments: list[list[np.ndarray]]
    expected: list[list[np.ndarray]]
    xla: bool


@dataclass
class Writer:
    """Writes one program; equal seeds give equal programs."""

    seed: int
    size: int = 14
    grid: Grid = field(init=False)
    xla: bool = True
    depth: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.grid = self.random.choice(GRIDS)
        self._plain = self.random.random() < 0.5
        self.classes: list[int] = [0] * self.grid.size
        self.values: list[Value] = []
        self.channels = 0
        self._count = 0
        self._lines: list[str] = []
        self._steps: list[Step] = []

    def write(self, statements: Sequence[Callable[[Writer], Any]], weights: Sequence[float]) -> Program:
        """A program of such statements."""
        rng = np.random.default_rng(self.seed)
        kinds = [(self.random.choice(SHAPES), self.random.choice(ELEMENTS)) for _ in range(self.random.randint(1, 3))]
        self._rules, self._weights = statements, weights
        parameters = self.values = [Value(f"%p{i}", *kind) for i, kind in enumerate(kinds)]
        self.values = list(parameters)
        arguments = [[self._draw(rng, p) for p in parameters] for _ in range(self.grid.size)]
        self.statements(self.size)
        kept = self.values[-6:]
        chosen = self.random.sample(kept, min(len(kept), self.random.randint(1, 4)))
        environment: Environment = {p.name: [of_one[i] for of_one in arguments] for i, p in enumerate(parameters)}
        with np.errstate(all="ignore"):
            evaluate(self._steps, environment, frozenset(range(self.grid.size)))
        expected = [[np.asarray(environment[v.name][d]) for v in chosen] for d in range(self.grid.size)]
        return Program(self._text(parameters, chosen), self.grid, arguments, expected, self.xla)

    def _draw(self, rng: np.random.Generator, p: Value) -> np.ndarray:
        return np.asarray(rng.integers(0 if p.element == "ui8" else -5, 8, p.shape).astype(DTYPES[p.element]))

    def _text(self, parameters: Sequence[Value], returned: Sequence[Value]) -> str:
        types = ", ".join(v.type for v in returned)
        head = ", ".join(f"{p.name}: {p.type}" for p in parameters)
        body = "\n".join(self._lines)
        names = ", ".join(v.name for v in returned)
        return f"func.func @main({head}) -> ({types}) {{\n{body}\nfunc.return {names} : {types}\n}}\n"

    # ---- writing -------------------------------------------------------------------------------------------------

    def statements(self, count: int) -> None:
        """So many, which may read one another."""
        for rule in self.random.choices(self._rules, self._weights, k=count):
            rule(self)

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self._lines.append(text)

    def step(self, step: Step) -> None:
        self._steps.append(step)

    def local(
        self, text: str, operands: Sequence[Value], shape: Dims, element: str, function: Callable[..., Any]
    ) -> Value:
        """`%v = text`; on each device `function` of its operands."""

        def of_one(d: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
            return np.asarray(function(*arrays)).astype(DTYPES[element]).reshape(shape)

        return self._made(
            text,
            operands,
            shape,
            element,
            lambda given: [
                None if any(a is None for a in arrays) else of_one(d, arrays) for d, arrays in enumerate(given)
            ],
        )

    def joint(
        self, text: str, operands: Sequence[Value], shape: Dims, element: str, function: Callable[..., Any]
    ) -> Value:
        """`%v = text`; `function` of a list with every device's array, for each operand."""

        def on_all(given: Sequence[Sequence[Any]]) -> PerDevice:
            columns = [
                [np.zeros(o.shape, DTYPES[o.element]) if a is None else a for a in column]
                for o, column in zip(operands, zip(*given, strict=True), strict=True)
            ]
            return list(function(*columns))

        return self._made(text, operands, shape, element, on_all)

    def _made(
        self, text: str, operands: Sequence[Value], shape: Dims, element: str, function: Callable[[Any], PerDevice]
    ) -> Value:
        made = Value(self.name(), shape, element)
        self.line(f"{made.name} = {text}")

        def step(environment: Environment, active: frozenset[int]) -> None:
            count = self.grid.size
            given = [[environment[o.name][d] if d in active else None for o in operands] for d in range(count)]
            results = function(given) if operands else function([() for _ in range(count)])
            keep(environment, made.name, results, active)

        self.step(step)
        self.values.append(made)
        return made

    def number(self, kind: str) -> Value:
        """`replica` or `partition` of this device, as i32."""
        made = Value(self.name(), (), "i32")
        raw = self.name()
        self.line(f"{raw} = stablehlo.{kind}_id : tensor<ui32>")
        self.line(f"{made.name} = stablehlo.convert {raw} : (tensor<ui32>) -> tensor<i32>")
        place = ("replica", "partition").index(kind)
        numbers = [np.asarray(p[place], np.int32) for p in self.grid.processes]
        self.step(lambda environment, active: keep(environment, made.name, numbers, active))
        self.values.append(made)
        return made

    def inside(self, classes: list[int], write: Callable[[], Sequence[Value]]) -> tuple[str, list[Step], list[Value]]:
        """What `write` writes, apart from the others, and what it returns; its values end with it."""
        kept = self._lines, self._steps, self.values, self.classes
        self._lines, self._steps, self.values, self.classes = [], [], list(self.values), classes
        self.depth += 1
        returned = list(write())
        self.depth -= 1
        text, steps = "\n".join(self._lines), self._steps
        self._lines, self._steps, self.values, self.classes = kept
        return text, steps, returned

    # ---- choosing ------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value that fits; late ones more often, so that chains grow."""
        good = [v for v in self.values if fits(v)]
        return self.random.choice(good[-5:] if self.chance(0.6) else good) if good else None

    def any(self) -> Value:
        found = self.pick()
        assert found is not None
        return found

    def like(self, x: Value) -> Value:
        """Another value of its type, or itself."""
        return self.random.choice([v for v in self.values if v.type == x.type])

    def small(self, x: Value, largest: float = LARGEST) -> Value:
        """Floats between -largest and largest, so that what follows is exact; integers as they are."""
        if not x.is_float:
            return x
        low, high = (self.constant(v, (), x.element) for v in (-largest, largest))
        types = f"({low.type}, {x.type}, {high.type}) -> {x.type}"
        text = f"stablehlo.clamp {low.name}, {x.name}, {high.name} : {types}"
        return self.local(text, [x], x.shape, x.element, lambda a: np.clip(a, -largest, largest))

    def constant(self, number: float, shape: Dims, element: str) -> Value:
        made = Value("", shape, element)
        text = f"{float(number)}" if made.is_float else f"{int(number)}"
        return self.local(
            f"stablehlo.constant dense<{text}> : {made.type}", [], shape, element, lambda: np.full(shape, number)
        )

    def ours(self) -> bool:
        """Whether a statement may be one that XLA:CPU does not take, or means something else by."""
        if not self._plain:
            self.xla = False
        return not self._plain

    def together(self, groups: Iterable[Iterable[int]]) -> bool:
        """Whether the members of each group are of one class: they all come, or none."""
        return all(len({self.classes[d] for d in group}) <= 1 for group in groups)


def keep(environment: Environment, name: str, results: Sequence[Any], active: Iterable[int]) -> None:
    """Binds a name on the active devices."""
    bound = environment.setdefault(name, [None] * len(results))
    for d in active:
        bound[d] = results[d]


def evaluate(steps: Sequence[Step], environment: Environment, active: frozenset[int]) -> None:
    """Takes the steps on the active devices."""
    for step in steps if active else ():
        step(environment, active)


def tensor(shape: Dims, element: str) -> str:
    """The type's text."""
    return Value("", shape, element).type


def size_of(x: Value) -> int:
    return prod(x.shape)
