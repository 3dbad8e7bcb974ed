"""Programs made of two whole ones: results of one into arguments of the other, one inside the other's region.

What does not fit is converted, sliced, padded and reshaped until it does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from math import prod

from stablexla.inspection.judging.tolerances import ALGORITHMS, FUNCTIONS
from tests.campaign.pool import Unfit, any_program
from tests.fuzz.check import ORDERED
from tests.fuzz.families.control import branches, loop
from tests.fuzz.families.conversion import converted
from tests.fuzz.families.elementwise import compared
from tests.fuzz.program import Dims, Program, Value, tensor
from tests.fuzz.writer import FAMILIES, Writer

ROUNDING = frozenset({*ORDERED, *FUNCTIONS, *ALGORITHMS, "divide", "rsqrt", "reduce_precision"})
"""Operations whose results may differ in their last digits between implementations."""
_DIMENSIONS = re.compile(r"(?<=tensor<)(?:\d+x)+")


def stitched(seed: int) -> Program:
    """The program of that number, of two or three others.

    Raises:
        Unfit, MLIRError, LookupError: what was drawn makes no program.
    """
    rng = random.Random(seed)
    w = Writer(seed, 0, list(FAMILIES), whole=False)
    first = any_program(rng)
    parameters = tuple(Value(f"%p{i}", p.shape, p.element) for i, p in enumerate(first.parameters))
    w.values = list(parameters)
    made = w.include(first, parameters)
    for _ in range(rng.choice((1, 1, 2))):
        made += rng.choice(WAYS)(w, any_program(rng))
    results = [v for v in made if prod(v.shape) <= 4096]
    return w.returning(parameters, rng.sample(results, min(len(results), rng.randint(1, 5)))).pruned()


def fitted(w: Writer, x: Value, like: Value) -> Value:
    """The value as one of another's type: converted, some of its elements, or some more beside them."""
    if x.element != like.element:
        x = converted(w, x, like.element)
    return x if x.shape == like.shape else _reshaped(w, x, like.shape)


def _reshaped(w: Writer, x: Value, shape: Dims) -> Value:
    size, wanted = prod(x.shape), prod(shape)
    if not x.shape:
        return w.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = [] : ({x.type}) -> {tensor(shape, x.element)}",
                      shape, x.element)  # fmt: skip
    if not size or not wanted:
        return w.splat(1, shape, x.element)
    x = _flat(w, x, (size,))
    if size > wanted:
        start = w.random.randint(0, size - wanted)
        part = tensor((wanted,), x.element)
        x = w.emit(f"stablehlo.slice {x.name} [{start}:{start + wanted}] : ({x.type}) -> {part}", (wanted,), x.element)
    elif size < wanted:
        value, low = w.splat(1, (), x.element), w.random.randint(0, wanted - size)
        types = f"({x.type}, {value.type}) -> {tensor((wanted,), x.element)}"
        edges = f"low = [{low}], high = [{wanted - size - low}], interior = [0]"
        x = w.emit(f"stablehlo.pad {x.name}, {value.name}, {edges} : {types}", (wanted,), x.element)
    return _flat(w, x, shape)


def _flat(w: Writer, x: Value, shape: Dims) -> Value:
    if x.shape == shape:
        return x
    return w.emit(f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(shape, x.element)}", shape, x.element)


def _given(w: Writer, program: Program) -> list[Value]:
    """Values for a program's parameters, of those that are there."""
    return [fitted(w, w.pick() or w.splat(1, p.shape, p.element), p) for p in program.parameters]


# ---- ways ------------------------------------------------------------------------------------------------------------


def _after_another(w: Writer, program: Program) -> list[Value]:
    return w.include(program, _given(w, program))


def _in_a_loop(w: Writer, program: Program) -> list[Value]:
    """Its results, as far as there are some, are its arguments in the next iteration."""
    carried = _given(w, program)
    if not carried:
        raise Unfit("no parameters")

    def body(inner: list[Value]) -> list[Value]:
        returned = _inside(w, program, inner[1:])
        return [fitted(w, returned[i % len(returned)], like) for i, like in enumerate(carried)]

    return loop(w, carried, w.random.randint(0, 3), body)


def _in_a_branch(w: Writer, program: Program) -> list[Value]:
    """Beside branches that give other values."""
    given = _given(w, program)
    wanted = [program.values[name] for name in program.returns]
    others = [[fitted(w, w.any(), like) for like in wanted] for _ in range(w.random.randint(1, 2))]
    bodies: list[Callable[[list[Value]], Sequence[Value]]] = [lambda _: _inside(w, program, given)]
    bodies += [lambda _, other=other: other for other in others]  # type: ignore[misc]
    w.random.shuffle(bodies)
    if len(bodies) == 2:
        x = fitted(w, w.any(), Value("", (), "i32"))
        return branches(w, "if", compared(w, x, w.splat(1, (), "i32")), wanted, bodies)
    return branches(w, "case", fitted(w, w.any(), Value("", (), "i32")), wanted, bodies)


def _of_each_element(w: Writer, program: Program) -> list[Value]:
    """As the computation of a `map`, on scalars; the results that are no scalars then are left out."""
    scalar = scalars(program)
    shape = w.random.choice([v.shape for v in w.values if v.shape] or [(3,)])
    operands = [fitted(w, w.any(), Value("", shape, p.element)) for p in scalar.parameters]
    if not operands:
        raise Unfit("no parameters")
    arguments = [Value(w.name(), (), p.element) for p in scalar.parameters]
    region, (made,) = w.region(arguments, lambda: _inside(w, scalar, arguments)[:1])
    dimensions = ", ".join(map(str, range(len(shape))))
    return [w.apply_region("map", operands, region, shape, made.element, f"dimensions = array<i64: {dimensions}>")]


def _inside(w: Writer, program: Program, given: Sequence[Value]) -> list[Value]:
    """In a region, where names of values are its own."""
    return w.include(program, given)


def scalars(program: Program) -> Program:
    """The program on scalars in the place of arrays.

    Raises:
        MLIRError: it is none then.
    """
    return Program.parse(_DIMENSIONS.sub("", program.text))


WAYS = (_after_another, _after_another, _in_a_loop, _in_a_branch, _of_each_element)


def rounds(operations: frozenset[str]) -> bool:
    """Whether results of these operations may differ in their last digits."""
    return bool(operations & ROUNDING)
