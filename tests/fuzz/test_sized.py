"""Programs of everyday sizes hold what they are drawn for: products of computed matrices with themselves.

Catches a drawing in which these have become rare, so that the campaign no longer sees faults of rewrites of products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import prod

import pytest

from tests.campaign.draws import SIZED, draw
from tests.fuzz.program import Program, Statement

PROGRAMS = 100
LARGE = 1 << 14
"""Elements from which on a matrix joins its product with the usual gates."""


@cache
def programs() -> list[Program]:
    """The first ones, without what no result needs."""
    return [draw(seed, makers=[SIZED]).program.pruned() for seed in range(PROGRAMS)]


def makers(program: Program) -> dict[str, Statement]:
    return {r.name: s for s in program.statements for r in s.results}


def origin(made: dict[str, Statement], name: str) -> str:
    """The value that this one is a transpose of, or itself."""
    while name in made and made[name].operation == "transpose":
        name = made[name].operands[0]
    return name


def squares(program: Program) -> Iterator[Statement]:
    """What makes a matrix that is both operands of a product, and that nothing else reads."""
    made = makers(program)
    for product in (s for s in program.statements if s.operation == "dot_general"):
        names = {origin(made, name) for name in product.operands[:2]}
        x = names.pop()
        readers = [s for s in program.statements if x in s.operands and s.operation != "transpose"]
        if not names and x in made and x not in program.returns and readers in ([product], []):
            yield made[x]


def is_of_vectors(program: Program) -> bool:
    """X @ X, X.T @ X or X @ X.T of a large matrix that is computed of broadcasts."""
    return any(_computed_by(program, x, "broadcast_in_dim") for x in squares(program))


def is_converted(program: Program) -> bool:
    """The same of a matrix that is computed of one of a narrow type."""
    return any(x.operation == "convert" or _computed_by(program, x, "convert") for x in squares(program))


def _computed_by(program: Program, x: Statement, operation: str) -> bool:
    made = makers(program)
    large = prod(x.results[0].shape) >= LARGE and not x.results[0].is_complex
    return large and any(name in made and made[name].operation == operation for name in x.operands)


def is_complex_chain(program: Program) -> bool:
    """A complex product of a complex product."""
    made = makers(program)
    products = [s for s in program.statements if s.operation == "dot_general" and s.results[0].is_complex]
    operands = [origin(made, name) for s in products for name in s.operands[:2]]
    return any(name in made and made[name] in products for name in operands)


@pytest.mark.parametrize("holds", [is_of_vectors, is_converted, is_complex_chain])
def test_products_of_computed_matrices_are_drawn(holds: Callable[[Program], bool]) -> None:
    assert sum(map(holds, programs())) >= 2
