"""Sums of a million numbers keep their digits on every path. Oracle: sums in wider types."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from benchmarks import sums
from tests.numerics.summation import PATHS, REDUCTIONS, Path, bound

N = 1 << 20
LARGE = 1 << 25
"""Elements of an array from which on sums have an eighth of the terms."""
#: paths whose other element types have code of their own
TYPED = {"a scalar beside elements", "columns, few", "3 rows", "dot of vectors", "scan along a line"}
CASES = [(p, d) for p in PATHS for d in p.dtypes if d == "f32" or p.name in TYPED]
SHORT = ("positive", "equal")


@pytest.mark.parametrize(("path", "dtype"), CASES, ids=[f"{p.name}-{d}" for p, d in CASES])
def test_path(path: Path, dtype: str) -> None:
    n = N if max(map(np.prod, path.shapes(N))) < LARGE else N // 8
    errors = path.errors(n, dtype, SHORT)
    assert max(errors.values()) <= bound(n), errors


@pytest.mark.parametrize("length", [1, 255, 257, 1000, 4099, 70001])
@pytest.mark.parametrize("path", REDUCTIONS[:8], ids=lambda p: p.name)
def test_lengths(path: Path, length: int) -> None:
    """Blocks that do not divide the number of terms."""
    n = max(64, length) if "2 dim" in path.name else length
    assert max(path.errors(n, "f32", SHORT).values()) <= 8 * np.log2(n) + 2


@pytest.mark.parametrize("length", [1 << 12, 1 << 14])
@pytest.mark.parametrize("name", ["columns, many", "columns, many, 2 dimensions", "vector by matrix"])
def test_parts(name: str, length: int) -> None:
    """Sums in memory whose parts are shorter than the whole."""
    path = next(p for p in PATHS if p.name == name)
    assert max(path.errors(length, "f32", SHORT).values()) <= bound(length)


def test_mean_of_squares_and_its_gradient() -> None:
    """A scalar beside two arrays, as jax.value_and_grad of it has them."""
    jax = pytest.importorskip("jax")
    a, c = (np.random.default_rng(k).standard_normal(N).astype("f4") for k in range(2))
    text = jax.jit(jax.value_and_grad(lambda a, c: ((a * c) ** 2).mean(), (0, 1))).lower(a, c).as_text()
    value, *gradients = sx.compile(text).execute([a, c])
    wide, other = a.astype("f8"), c.astype("f8")
    assert abs(value / ((wide * other) ** 2).mean() - 1) < 1e-7
    for found, exact in zip(gradients, (2 * wide * other**2 / N, 2 * wide**2 * other / N), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("path", ["a scalar beside elements", "columns, many", "general path, columns", "rows"])
def test_special_values(path: str) -> None:
    """An infinite total stays one, opposite ones are NaN, and sums of negative zeros keep the sign."""
    found = next(p for p in PATHS if p.name == path)
    (shape,) = found.shapes(5000)
    options = found._options()
    run = sx.compile(found.program(5000, "f32"), options=options)
    ones = np.ones(shape, "f4")

    def first(values: np.ndarray) -> np.ndarray:
        return np.asarray(run.execute([values])[0])

    ones.flat[3] = np.inf
    assert first(ones).max() == np.inf
    ones[...] = 3e38
    assert (first(ones) == np.inf).all()
    ones.flat[0], ones.flat[-1] = np.inf, np.nan
    assert np.isnan(first(ones)).any()


def test_sums_of_negative_zeros() -> None:
    b = sx.XlaBuilder("zeros")
    x = b.parameter(0, sx.f32[100_000])
    run = sx.compile(b.build(sx.tuple([sx.reduce(x, b.constant(np.float32(-0.0)), sx.add, (0,)), x + x])))
    assert np.signbit(run.execute([np.full(100_000, -0.0, "f4")])[0])


def test_the_page_keeps_what_other_scripts_made() -> None:
    """Also the comment by which a script finds its own part again."""
    after = "\n<!-- made by another -->\n\n## Other\n\nc\n"
    made = f"{sums.HEADING}\n\nnew\n"
    page = f"# Page\n\n{sums.HEADING}\n\nold\n{after}"
    assert sums.replaced(page, made) == f"# Page\n\n{made}{after}"
    assert sums.replaced("# Page\n", made) == f"# Page\n\n{made}"
