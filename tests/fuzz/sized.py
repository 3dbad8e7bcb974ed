"""Programs of everyday sizes, on both sides of the sizes at which rewrites and emitters begin.

Vectors and matrices of a few extents, computed of one another and read several times. All numbers are whole, so that
XLA:CPU, which is quick enough for such sizes, gives the right bits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from math import prod

import tests.fuzz.families  # noqa: F401  # registers them all
from tests.fuzz.families.products import ELEMENTS, NARROW
from tests.fuzz.program import Dims, Program
from tests.fuzz.writer import Writer

GATES = (2, 4, 8, 12, 16, 32, 48, 64, 96, 128, 192, 256, 512)
"""Extents at which something begins: one below, at and above them are drawn as often as any."""
LARGEST, MOST_ELEMENTS = 600, 1 << 17
OFTEN = ("shape", "contraction", "products", "products")
FAMILIES = ("elementwise", "conversion", "reduction", "order", "control", *OFTEN * 2, "products", "products")
MORE = ("window", "indexing", "convolution", "linear_algebra", "normalization")
"""Families of which one takes part."""


def sized(seed: int) -> Program:
    """The program of that number."""
    rng = random.Random(seed)
    families, shapes = [*FAMILIES, *rng.sample(MORE, 1)], shapes_of(rng)
    return Writer(seed, rng.randint(3, 12), families, True, shapes, MOST_ELEMENTS).write(_sources(rng, shapes))


def _sources(rng: random.Random, shapes: Sequence[Dims]) -> list[tuple[Dims, str]]:
    """Parameters that matrices for products are computed of: vectors of one type, and matrices of narrow ones."""
    element = rng.choice(ELEMENTS)
    vectors, matrices = ([shape for shape in dict.fromkeys(shapes) if len(shape) == rank] for rank in (1, 2))
    return [*((shape, element) for shape in vectors), *((rng.choice(matrices), rng.choice(NARROW)) for _ in range(2))]


def shapes_of(rng: random.Random) -> tuple[Dims, ...]:
    """Shapes of two or three extents."""
    extents = [_extent(rng) for _ in range(rng.choice((1, 2, 2, 3)))]
    wanted = [(), *((d,) for d in extents), *product(extents, repeat=2), *product(extents, repeat=2)]
    wanted += [(rng.randint(2, 5), *pair) for pair in product(extents, repeat=2)]
    wanted += [(d, rng.randint(1, 8)) for d in extents] + [(1, d) for d in extents]
    return tuple(shape for shape in wanted if prod(shape) <= MOST_ELEMENTS)


def _extent(rng: random.Random) -> int:
    return rng.choice(GATES) + rng.randint(-1, 1) if rng.random() < 0.6 else rng.randint(1, LARGEST)
