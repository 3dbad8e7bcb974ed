"""Identities of arithmetic at special values: programs mean what is written, whatever the compiler makes of them.

Oracle: numpy, in the type that is computed in. Zeros have signs, and denormal numbers their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from benchmarks import identities as table
from stablexla.inspection.judging.tolerances import ulp_distance
from tests.numerics.identities import COMPLEX, FLOATS, IDENTITIES, INTEGERS, REWRITES, Array, Identity, special_numbers
from tests.targets.gpu.simulation import run_simulated


def _accepted(identity: Identity, x: Array, y: Array) -> list[Array]:
    """A program evaluated by numpy, in f32 for narrower floats, rounded to the arrays' type."""
    wide = np.float32 if x.dtype.itemsize < 4 and x.dtype.kind not in "iu" else x.dtype
    with np.errstate(all="ignore"):
        found = identity.reference(x.astype(wide), y.astype(wide))
        return [np.asarray(r).astype(x.dtype) for r in (found if isinstance(found, tuple) else (found,))]


def _is_one_of(made: Array, accepted: list[Array], ulp: int) -> Array:
    """Whether each element is the one of one of several arrays: a NaN any NaN, -0 not 0."""
    if made.dtype.kind in "iu":
        return np.equal(made, accepted[0])
    if made.dtype.kind == "c":
        parts = [_is_one_of(part(made), [part(v) for v in accepted], ulp) for part in (np.real, np.imag)]
        return np.logical_and(*parts)
    signs = [np.signbit(v) & ~np.isnan(v) for v in (made, *accepted)]
    found = [
        (ulp_distance(np.ascontiguousarray(made), np.ascontiguousarray(v)) <= ulp) & (s == signs[0])
        for v, s in zip(accepted, signs[1:], strict=True)
    ]
    return np.any(found, axis=0)


def _check(name: str, run: Callable[[sx.XlaComputation, Array, Array], Sequence[Array]]) -> None:
    """Run all identities of a type in one program."""
    x, y = special_numbers(name)
    rows = [each for each in IDENTITIES if name in each.types]
    b = sx.XlaBuilder("identities")
    given = [b.parameter(i, sx.Shape(v.dtype, v.shape)) for i, v in enumerate((x, y))]
    results = run(b.build(sx.tuple([each.program(*given) for each in rows])), x, y)
    for each, made in zip(rows, results, strict=True):
        accepted = _accepted(each, x, y)
        right = _is_one_of(made, accepted, ulp=3 if each.rounds else 0)
        wrong = [(x[i], y[i], made[i], accepted[0][i]) for i in np.flatnonzero(~right)[:3]]
        assert not wrong, f"{each.written}: {(~right).sum()} wrong, as (x, y, result, right) {wrong}"


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *COMPLEX])
def test_identities(name: str) -> None:
    _check(name, lambda program, *arrays: sx.compile(program).execute(list(arrays)))


def test_identities_on_a_simulated_gpu() -> None:
    _check("f32", lambda program, *arrays: run_simulated(program, *arrays)[1])


# Both sides of the least length of a sum in blocks, several of them, and several threads'.
LENGTHS = (5, 256, 300, 5000, 200_000)


@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
def test_sums_of_special_numbers(name: str) -> None:
    """Blocks and their rounding errors make no NaN of an infinity, and no number of a NaN."""
    dtype = sx.Shape(name, ()).element_type.dtype
    kinds = {
        "infinity": [np.inf, 1],
        "both infinities": [np.inf, -np.inf],
        "NaN": [np.nan, 1],
        "overflow": [float(ml_dtypes.finfo(dtype).max)] * 2,
        "zeros": [-0.0, -0.0],
    }
    for n in LENGTHS:
        b = sx.XlaBuilder("sums")
        x = b.parameter(0, sx.Shape(dtype, (len(kinds), n)))
        zero = b.constant(np.array(0, dtype))
        ones = sx.broadcast(b.constant(np.array(1, dtype)), (n,))
        made = sx.compile(b.build(sx.tuple([sx.reduce(x, zero, sx.add, (1,)), sx.dot(x, ones)])))
        rows = np.full((len(kinds), n), 1, dtype)
        for row, (first, later) in zip(rows, kinds.values(), strict=True):
            row[:] = later if first == later else 1
            row[n // 3], row[n - 1] = first, later
        wanted = np.array([np.inf, np.nan, np.nan, np.inf, 0.0], dtype)
        for sums in made.execute([rows]):
            assert _is_one_of(np.asarray(sums), [wanted], 0).all(), (n, sums)


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_first_values(name: str) -> None:
    """Numbers that are no identities of what is reduced, and zeros of both signs, which are and are not."""
    dtype = sx.Shape(name, ()).element_type.dtype
    firsts = [0.0, -0.0, 5.0, np.inf, np.nan]
    for n in (3, 1000):
        b = sx.XlaBuilder("first values")
        x, y = (b.parameter(i, sx.Shape(dtype, (n,))) for i in range(2))
        results = [
            sx.reduce(v, b.constant(np.array(first, dtype)), combine, (0,))
            for first in firsts
            for v, combine in ((x, sx.add), (y, sx.mul), (x, sx.max), (x, sx.min))
        ]
        arrays = [np.full(n, -0.0, dtype), np.ones(n, dtype)]
        made = np.array(sx.compile(b.build(sx.tuple(results))).execute(arrays), dtype)
        wanted = [v for f in np.array(firsts, np.float32) for v in (f + arrays[0][0], f * 1, *_extremes(f))]
        assert _is_one_of(made, [np.array(wanted, dtype)], 0).all(), (n, made, wanted)


def _extremes(first: float) -> tuple[float, float]:
    """The larger and the smaller one of a number and -0."""
    if np.isnan(first):
        return first, first
    return (first, -0.0) if first > 0 or not np.signbit(first) else (-0.0, first)


def test_the_table_is_that_of_the_page() -> None:
    assert table.section() in Path("docs/numerics.md").read_text()


def test_the_files_that_the_table_names_are_there() -> None:
    for each in (*IDENTITIES, *REWRITES):
        assert "/" not in each.where or Path(each.where).is_file(), each.where
    for each in REWRITES:
        file, _, name = each.test.partition("::")
        assert f"def {name}" in Path(file).read_text(), each.test
