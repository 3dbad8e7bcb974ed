"""Collectives over all element types and any computation, against the model: the bits of every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import each, numbered, run
from tests.distributed.model import Grid, Values
from tests.ops.samples import INTEGERS, sample

ELEMENT_TYPES = [t.name for t in sx.ELEMENT_TYPES]
ORDER = (3, 0, 2, 1)

Add = Callable[[Any, Any], Any]


def draw(grid: Grid, name: str, shape: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Elements of every kind, other ones on each device."""
    size = int(np.prod(shape))
    with np.errstate(invalid="ignore"):
        return each(grid, lambda d: np.random.default_rng(d).permutation(sample(name, size, seed + d)).reshape(shape))


# ---- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_moving_every_element_type(name: str) -> None:
    """The bits arrive, those of a NaN too; a type without a zero has what zero is converted to."""
    grid, groups, pairs = Grid(4), ((3, 1), (0, 2)), ((0, 3), (3, 1), (1, 2))
    x = draw(grid, name, (4, 6))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 0, 2, groups), sx.all_gather(x, 1, 4), sx.all_to_all(x, 1, 0, 2, groups)]
        return [*made, sx.collective_permute(x, pairs), sx.collective_broadcast(x, ((2, 0),))]

    expected = [
        model.all_gather(grid, x, 0, groups),
        model.all_gather(grid, x, 1),
        model.all_to_all(grid, x, 1, 0, 2, groups),
        model.collective_permute(grid, x, pairs),
        model.collective_broadcast(grid, x, ((2, 0),)),
    ]
    results = run(program, grid, x, expected=expected, against=[])
    for d, of_one in enumerate(results):
        for made, wanted in zip(of_one, expected, strict=True):
            assert made.tobytes() == np.ascontiguousarray(wanted[d]).tobytes()


FLOATS = [t.name for t in sx.ELEMENT_TYPES if t.is_float]
NUMBERS = [t.name for t in sx.ELEMENT_TYPES if not t.is_pred]


@pytest.mark.parametrize("name", NUMBERS)
def test_sums_and_products_of_every_element_type(name: str) -> None:
    """Folded from the left, in the order of the group; each step is rounded to the type."""
    grid, groups = Grid(4), (ORDER,)
    x = _finite(draw(grid, name, (8, 5)))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        sums = [sx.all_reduce(x, sx.add, groups), sx.reduce_scatter(x, sx.add, 0, 4, groups)]
        return [*sums, sx.all_reduce(x, sx.mul, groups)] if not sx.element_type(name).is_complex else sums

    expected = [model.all_reduce(grid, x, np.add, groups), model.reduce_scatter(grid, x, np.add, 0, groups)]
    if not sx.element_type(name).is_complex:
        expected.append(model.all_reduce(grid, x, np.multiply, groups))
    run(program, grid, x, expected=expected, against=[])


@pytest.mark.parametrize("name", [n for n in NUMBERS if not sx.element_type(n).is_complex])
def test_the_largest_and_the_smallest_of_every_element_type(name: str) -> None:
    grid, groups = Grid(3), ((2, 0, 1),)
    x = [a + np.zeros(1, a.dtype) for a in _finite(draw(grid, name, (7,)))]  # there is no order between zeros
    run(
        lambda b, x: [sx.all_reduce(x, sx.max, groups), sx.all_reduce(x, sx.min, groups)],
        grid,
        x,
        expected=[model.all_reduce(grid, x, np.maximum, groups), model.all_reduce(grid, x, np.minimum, groups)],
        against=[],
    )


def test_largest_and_smallest_with_nan() -> None:
    """A NaN on any device is one on all; XLA:CPU's own reductions lose it."""
    x = [np.array(a, np.float32) for a in ([1, np.nan, 3, -np.inf], [5, 2, np.nan, np.inf], [4, 4, 4, 4])]
    groups = ((0, 1, 2),)
    run(
        lambda b, x: [sx.all_reduce(x, sx.max, groups), sx.all_reduce(x, sx.min, groups)],
        Grid(3),
        x,
        expected=[model.all_reduce(Grid(3), x, np.maximum), model.all_reduce(Grid(3), x, np.minimum)],
        against=["interpreter"],
    )


@pytest.mark.parametrize("name", ["pred", *INTEGERS])
def test_bits_of_every_integer_type(name: str) -> None:
    grid = Grid(3)
    x = draw(grid, name, (9,))
    made = [(sx.and_, np.bitwise_and), (sx.or_, np.bitwise_or), (sx.xor, np.bitwise_xor)]
    if sx.element_type(name).bits < 8 and name != "pred":
        wide = [a.astype(np.int32) for a in x]  # numpy has none of these for integers of four bits
        expected = [[r.astype(x[0].dtype) for r in model.all_reduce(grid, wide, f)] for _, f in made]
    else:
        expected = [model.all_reduce(grid, x, f) for _, f in made]
    run(lambda b, x: [sx.all_reduce(x, f) for f, _ in made], grid, x, expected=expected, against=[])


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_products_and_choices_of_complex_numbers(name: str) -> None:
    grid, groups = Grid(3), ((1, 2, 0),)
    rng = np.random.default_rng(3)
    x = each(grid, lambda d: rng.integers(-4, 5, (3, 7)) + 1j * rng.integers(-4, 5, (3, 7)))
    x = [a.astype(sx.element_type(name).dtype) for a in x]
    run(
        lambda b, x: [sx.all_reduce(x, sx.mul, groups), sx.reduce_scatter(x, lambda a, c: c, 0, 3, groups)],
        grid,
        x,
        expected=[
            model.all_reduce(grid, x, np.multiply, groups),
            model.reduce_scatter(grid, x, lambda a, c: c, 0, groups),
        ],
        against=[],
    )


@pytest.mark.parametrize(("name", "wide"), [("f32", "f64"), ("bf16", "f32"), ("s8", "s32"), ("f16", "f32")])
def test_sums_in_a_wider_type(name: str, wide: str) -> None:
    """The computation is of a wider type, and so are the results."""
    grid = Grid(3)
    x = _finite(draw(grid, name, (6, 2)))
    scalar = sx.Shape(wide, ())
    inner = sx.XlaBuilder("wide")
    adding = inner.build(inner.parameter(0, scalar) + inner.parameter(1, scalar))
    dtype = sx.element_type(wide).dtype
    run(
        lambda b, x: [sx.all_reduce(x, adding), sx.reduce_scatter(x, adding, 0, 3)],
        grid,
        x,
        expected=[
            model.all_reduce(grid, x, np.add, dtype=dtype),
            model.reduce_scatter(grid, x, np.add, 0, dtype=dtype),
        ],
        against=[],
    )


def _finite(x: Values) -> list[np.ndarray]:
    """Without NaN and infinities, and of moderate size, so that all is determined."""
    if x[0].dtype.kind in "biu" or "int" in x[0].dtype.name:
        return list(x)
    wide = np.complex128 if x[0].dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        return [np.where(np.abs(a.astype(wide)) < 100, a.astype(wide), 1).astype(a.dtype) for a in x]


# ---- computations ----------------------------------------------------------------------------------------------------

COMPUTATIONS: dict[str, tuple[Any, Add]] = {
    "the first": (lambda a, b: a, lambda a, b: a),
    "the last": (lambda a, b: b, lambda a, b: b),
    "difference": (lambda a, b: a - b, lambda a, b: a - b),
    "a polynomial": (lambda a, b: a * 2 + b * b - 1, lambda a, b: a * 2 + b * b - 1),
    "a selection": (
        lambda a, b: sx.select(a > b, a - b, b + 1),
        lambda a, b: np.where(a > b, a - b, b + 1),
    ),
    "a constant": (lambda a, b: a.builder.constant(np.float32(7)), lambda a, b: np.full_like(a, 7)),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_any_computation(name: str) -> None:
    """Also what is neither associative nor commutative: from the left, in the order of the group.

    The interpreter takes the members in the order of their numbers instead, whatever the group says. XLA:CPU takes
    sums, products, largest and smallest only.
    """
    grid, (ours, theirs) = Grid(4), COMPUTATIONS[name]
    x = [np.round(a * 3) for a in numbered(grid, (4, 33))]
    for order, against in (((0, 1, 2, 3), ["interpreter"]), (ORDER, [])):

        def program(b: sx.XlaBuilder, x: sx.XlaOp, group: tuple[int, ...] = order) -> list[sx.XlaOp]:
            return [sx.all_reduce(x, ours, (group,)), sx.reduce_scatter(x, ours, 0, 4, (group,))]

        expected = [
            model.all_reduce(grid, x, theirs, (order,)),
            model.reduce_scatter(grid, x, theirs, 0, (order,)),
        ]
        run(program, grid, x, expected=expected, against=against)


def test_a_computation_with_a_loop() -> None:
    """What has no vector form is computed element by element: the greatest common divisor."""

    def divisor(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
        return sx.while_(lambda s: s[1] != 0, lambda s: sx.tuple((s[1], sx.rem(s[0], s[1]))), sx.tuple((a, b)))[0]

    grid = Grid(3)
    x = each(grid, lambda d: (np.arange(1, 38, dtype=np.int32) * (d + 2) * 6) % 91 + 1)
    run(
        lambda b, x: sx.all_reduce(x, divisor),
        grid,
        x,
        expected=[model.all_reduce(grid, x, np.gcd)],
        against=[],
    )
