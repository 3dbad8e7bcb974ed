"""Writes a random program, statement by statement; what statements there are is left to the families.

A program is of one of two kinds. In *whole* ones floats hold small whole numbers only, so that every result is exact,
in whatever order sums are taken. In the others floats are anything: special values, all magnitudes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from stablexla.dialects.element_types import BY_MLIR
from tests.fuzz.detours import detour
from tests.fuzz.program import NAME, Arrays, Dims, Program, Value, module_text, tensor
from tests.ops.samples import sample

SMALL_SHAPES: tuple[Dims, ...] = ((), (1,), (4,), (7,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (3, 1))
# Whole vectors and some elements behind them.
WIDE_SHAPES: tuple[Dims, ...] = ((), (1,), (17,), (40,), (9, 17), (17, 9), (2, 9, 17), (1, 17), (9, 1))
DEEP_SHAPES: tuple[Dims, ...] = ((), (3,), (5,), (3, 5), (5, 3), (2, 3, 5), (2, 3, 5, 3), (2, 1, 3, 1, 5, 2), (1, 5))
EMPTY_SHAPES: tuple[Dims, ...] = ((0,), (0, 4), (3, 0))
C64, C128 = "complex<f32>", "complex<f64>"
# Most values have the first types, so that values find others of their type.
WEIGHTS = {
    "i32": 22, "f32": 14, "i1": 6, "ui8": 2, "i8": 2, "bf16": 2, "i4": 1, "f64": 3, C64: 2, C128: 1,
    "i16": 1, "i64": 2, "ui4": 1, "ui16": 1, "ui32": 2, "ui64": 1, "f16": 2, "f8E4M3FN": 1, "f8E5M2": 1,
}  # fmt: skip
# The largest number that arithmetic on whole numbers is done on, so that products and sums are exact.
LARGEST = {"i4": 7, "ui4": 7, "ui8": 100, "i8": 100, "f8E4M3FN": 4, "f8E5M2": 1}
# Types that hold few whole numbers.
COARSE = ("bf16", "f16", "f8E4M3FN", "f8E5M2")

Rule = Callable[["Writer"], Value | list[Value] | None]


class Family:
    """Statements of one family, each with how often it is drawn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: list[tuple[Rule, float]] = []
        self.nested: list[tuple[Rule, float]] = []

    def statement(self, weight: float = 1, *, regions: bool = False) -> Callable[[Rule], Rule]:
        """Registers a function that writes a statement, or returns None where nothing fits.

        Args:
            regions: it writes other statements inside; not drawn where regions are deep already.
        """

        def register(rule: Rule) -> Rule:
            (self.nested if regions else self.rules).append((rule, weight))
            return rule

        return register


FAMILIES: dict[str, Family] = {}


def family(name: str) -> Family:
    """A new family of that name."""
    assert name not in FAMILIES, name
    FAMILIES[name] = Family(name)
    return FAMILIES[name]


class Writer:
    """Writes one program; equal seeds and options give equal programs.

    Attributes:
        random: where all choices come from.
        whole: floats hold small whole numbers.
        values: what a statement may read here.
        depth: how many regions are around.
        shapes: the shapes that most values have.
        most: elements that a product has at most, and terms that its sums have together.
    """

    def __init__(
        self, seed: int, size: int, families: Sequence[str], whole: bool, shapes: Sequence[Dims] = (), most: int = 5000
    ) -> None:
        self.random = random.Random(seed)
        self.shapes = shapes or (SMALL_SHAPES, WIDE_SHAPES, SMALL_SHAPES, DEEP_SHAPES)[seed % 4]
        self.most = most
        self.whole = whole
        self.values: list[Value] = []
        self._read: set[str] = set()
        self.depth = 0
        self._size = size
        self._count = 0
        self._lines: list[str] = []
        chosen = [FAMILIES[name] for name in families]
        self._flat = [r for f in chosen for r in f.rules]
        self._nested = [r for f in chosen for r in f.nested]

    def write(self, more: Sequence[tuple[Dims, str]] = ()) -> Program:
        """The program.

        Args:
            more: further parameters; results are then values that nothing has read, where there are any.
        """
        kinds = [(self.shape(), self.element()) for _ in range(self.random.randint(1, 3))]
        parameters = tuple(Value(f"%p{i}", s, e) for i, (s, e) in enumerate([*kinds, *more]))
        self.values = list(parameters)
        self.statements(self._size)
        made = self.values[len(parameters) :] or self.values
        last = ([v for v in made if v.name not in self._read] or made) if more else self.values[-12:]
        chosen = [self.random.choice(last) for _ in range(self.random.randint(1, 8 if more else 5))]
        return self.returning(parameters, chosen)

    def returning(self, parameters: Sequence[Value], results: Sequence[Value]) -> Program:
        """The program of what was written, with these results."""
        return Program.parse(module_text(parameters, self._lines, results))

    def lines(self) -> list[str]:
        """What was written."""
        return list(self._lines)

    def include(self, program: Program, given: Sequence[Value]) -> list[Value]:
        """Writes a program's statements with these values in the place of its parameters; what it returns."""
        self._count += 1
        known = {p.name: g for p, g in zip(program.parameters, given, strict=True)}
        prefix = f"%m{self._count}_"

        def rename(found: re.Match[str]) -> str:
            return known[found[0]].name if found[0] in known else prefix + found[0][1:]

        self._lines += [NAME.sub(rename, s.text) for s in program.statements]
        for made in (r for s in program.statements for r in s.results):
            known[made.name] = Value(prefix + made.name[1:], made.shape, made.element)
            self.values.append(known[made.name])
        return [known[name] for name in program.returns]

    def statements(self, count: int) -> None:
        """Writes so many statements, which may read one another."""
        rules = self._flat + (self._nested if self.depth < 2 else [])
        for rule, _ in self.random.choices(rules, [weight for _, weight in rules], k=count):
            made = rule(self)
            self.values.extend(made if isinstance(made, list) else [made] if made is not None else [])

    # ---- choosing -----------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def shape(self) -> Dims:
        return self.random.choice(EMPTY_SHAPES if self.chance(0.06) else self.shapes)

    def element(self, among: Sequence[str] = tuple(WEIGHTS)) -> str:
        return self.random.choices(list(among), [WEIGHTS[e] for e in among])[0]

    def pick(self, fits: Callable[[Value], bool] = lambda v: True, least_rank: int = 0) -> Value | None:
        """A value that fits: one that was read before as often as any; late ones more often, so that chains grow."""
        good = [v for v in self.values if len(v.shape) >= least_rank and fits(v)]
        if self.chance(0.5):
            good = [v for v in good if v.name in self._read] or good
        return self.random.choice(good[-5:] if self.chance(0.6) else good) if good else None

    def any(self) -> Value:
        x = self.pick()
        assert x is not None
        return x

    def same(self, like: Value) -> Value:
        """Another value of that type, or itself."""
        if self.chance(0.2):
            return like
        return self.random.choice([v for v in self.values if v.type == like.type] or [like])

    def of_type(self, shape: Dims, element: str) -> Value:
        """A value of that type; where there is none, a small number everywhere."""
        found = self.pick(lambda v: v.shape == shape and v.element == element)
        return found or self.splat(self.random.randint(0, 1 if element == "i1" else 3), shape, element)

    def dimensions(self, x: Value) -> list[int]:
        """Some of its dimensions, one at least."""
        rank = len(x.shape)
        return sorted(self.random.sample(range(rank), self.random.randint(1, rank)))

    # ---- writing ------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def emit(self, text: str, shape: Dims, element: str) -> Value:
        """`%name = text`; the type of the result is the caller's to know."""
        made = Value(self.name(), tuple(shape), element)
        self._read.update(NAME.findall(text))
        self._lines.append(f"{made.name} = {text}")
        return made

    def emit_several(self, text: str, types: Sequence[tuple[Dims, str]], name: str = "") -> list[Value]:
        """`%name:n = text`, where one result has no number."""
        if len(types) == 1 and not name:
            return [self.emit(text, *types[0])]
        name = name or self.name()
        self._lines.append(f"{name}:{len(types)} = {text}" if len(types) > 1 else f"{name} = {text}")
        if len(types) == 1:
            return [Value(name, *types[0])]
        return [Value(f"{name}#{i}", *t) for i, t in enumerate(types)]

    def apply(
        self, operation: str, operands: Sequence[Value], shape: Dims, element: str, attributes: str = ""
    ) -> Value:
        """An operation in MLIR's generic form."""
        names, types = ", ".join(v.name for v in operands), ", ".join(v.type for v in operands)
        given = f" {{{attributes}}}" if attributes else ""
        return self.emit(
            f'"stablehlo.{operation}"({names}){given} : ({types}) -> {tensor(shape, element)}', shape, element
        )

    def splat(self, number: int, shape: Dims, element: str) -> Value:
        return self.emit(
            f"stablehlo.constant dense<{number_text(number, element)}> : {tensor(shape, element)}", shape, element
        )

    def inside(self, write: Callable[[], Sequence[Value]]) -> tuple[str, list[Value]]:
        """The lines that `write` writes, apart from the others, and what it returns; its values end with it."""
        lines, values = self._lines, self.values
        self._lines, self.values = [], list(values)
        self.depth += 1
        returned = list(write())
        self.depth -= 1
        text = "\n".join(self._lines)
        self._lines, self.values = lines, values
        return text, returned

    def small(self, x: Value, largest: int = 8) -> Value:
        """The value with its elements between -largest and largest, or 0 and largest."""
        if x.element == "i1":
            return x
        if x.is_complex:
            parts = [self.small(self.part(x, p), largest) for p in ("real", "imag")]
            return self.emit(f"stablehlo.complex {parts[0].name}, {parts[1].name} : {x.type}", x.shape, x.element)
        largest = min(largest, LARGEST.get(x.element, largest))
        low = self.splat(0 if x.element.startswith("u") else -largest, (), x.element)
        high = self.splat(largest, (), x.element)
        types = f"({low.type}, {x.type}, {high.type}) -> {x.type}"
        return self.emit(f"stablehlo.clamp {low.name}, {x.name}, {high.name} : {types}", x.shape, x.element)

    def ready(self, x: Value, largest: int = 8) -> Value:
        """The value, in whole programs with numbers that arithmetic is exact on."""
        return self.small(x, largest) if self.whole and (x.is_float or x.is_complex) else x

    def finite(self, x: Value) -> Value:
        """The value of floats or complex numbers with 1 in the place of NaN, and no part beyond 1000."""
        if x.is_complex:
            parts = [self.finite(self.part(x, p)) for p in ("real", "imag")]
            return self.emit(f"stablehlo.complex {parts[0].name}, {parts[1].name} : {x.type}", x.shape, x.element)
        flags = tensor(x.shape, "i1")
        p = self.emit(f"stablehlo.compare EQ, {x.name}, {x.name} : ({x.type}, {x.type}) -> {flags}", x.shape, "i1")
        one = self.splat(1, x.shape, x.element)
        x = self.emit(f"stablehlo.select {p.name}, {x.name}, {one.name} : {p.type}, {x.type}", x.shape, x.element)
        return self.small(x, 1000)

    def part(self, x: Value, name: str) -> Value:
        """`real` or `imag` of a complex value."""
        element = {C64: "f32", C128: "f64"}[x.element]
        return self.emit(f"stablehlo.{name} {x.name} : ({x.type}) -> {tensor(x.shape, element)}", x.shape, element)

    def scalar_region(self, operation: str, element: str, count: int = 2) -> str:
        """A region that applies one operation to its scalars, at times after a detour over arrays."""
        arguments = [Value(self.name(), (), element) for _ in range(count)]
        through = self.through_arrays()

        def write() -> list[Value]:
            self.values = list(arguments)
            used = [through(self, x) for x in arguments[:2]]
            names = ", ".join(x.name for x in used)
            return [self.emit(f"stablehlo.{operation} {names} : {tensor((), element)}", (), element)]

        return self.region(arguments, write)[0]

    def region(self, arguments: Sequence[Value], write: Callable[[], Sequence[Value]]) -> tuple[str, list[Value]]:
        """A region with these arguments that returns what `write` returns, and that."""
        text, returned = self.inside(write)
        given = ", ".join(f"{x.name}: {x.type}" for x in arguments)
        names, types = ", ".join(x.name for x in returned), ", ".join(x.type for x in returned)
        return f"({{\n^bb0({given}):\n{text}\nstablehlo.return {names} : {types}\n}})", returned

    def through_arrays(self) -> Callable[[Writer, Value], Value]:
        """What a computation does with each scalar before it is used: nothing, or at times a detour over arrays."""
        return detour if self.depth < 2 and self.chance(0.2) else lambda _, x: x

    def apply_region(
        self, operation: str, operands: Sequence[Value], region: str, shape: Dims, element: str, attributes: str
    ) -> Value:
        """An operation with a region, and one result."""
        names, types = ", ".join(v.name for v in operands), ", ".join(v.type for v in operands)
        head = f'"stablehlo.{operation}"({names}) {region} {{{attributes}}}'
        return self.emit(f"{head} : ({types}) -> {tensor(shape, element)}", shape, element)


def number_text(number: int, element: str) -> str:
    """A whole number, as MLIR writes an element of a type."""
    if element == "i1":
        return "true" if number else "false"
    if element in (C64, C128):
        return f"({number}.0, {number % 3}.0)"
    return f"{number}.0" if BY_MLIR[element].is_float else str(number)


def nested_text(numbers: Sequence[object], shape: Dims) -> str:
    """Nested brackets, as MLIR writes dense elements."""
    if not shape:
        return str(numbers[0])
    step = prod(shape[1:])
    parts = [nested_text(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
    return f"[{', '.join(parts)}]"


def arguments_for(program: Program, seed: int, whole: bool) -> Arrays:
    """Arguments: small whole numbers, or ordinary numbers, or those with special values among them."""
    rng = np.random.default_rng(seed)
    made: Arrays = []
    for i, p in enumerate(program.parameters):
        type_ = p.element_type
        array: np.ndarray
        if type_.is_pred:
            array = rng.integers(0, 2, p.shape)
        elif whole or rng.random() < 0.2:
            array = rng.integers(0 if type_.is_unsigned else -5, 8, p.shape)
        elif rng.random() < 0.5:
            with np.errstate(invalid="ignore"):
                array = sample(type_.name, prod(p.shape), seed + i)
        else:
            array = rng.normal(size=p.shape) * (3 if type_.is_float or type_.is_complex else 30)
            if type_.is_unsigned:
                array = np.abs(array)
            if type_.bits < 8:
                array = np.clip(array, -8 if type_.is_signed else 0, 7)
        made.append(np.asarray(array).astype(type_.dtype).reshape(p.shape))
    return made
