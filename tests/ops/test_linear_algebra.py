"""Cholesky factors and triangular systems run.

Oracles: XLA:CPU, and numpy in f64 or wider: factors against their definition, solutions by multiplying them back. The
reference interpreter has neither operation. XLA:CPU takes the square root of a complex diagonal as it stands, where the
specification has the matrix Hermitian: such diagonals have no imaginary part here, but in a test of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.programs import general_only, run

TYPES = ("f32", "f64", "c64", "c128")
SMALL_FLOATS = ("f8e5m2", "f8e4m3fn", "bf16", "f16")
# Batches, and sizes of matrices: in lanes, by LAPACK, and in the general path's loops.
BATCHES = [((), 5), ((), 40), ((3,), 1), ((9,), 6), ((2, 3), 17), ((5,), 70), ((2, 0), 3), ((4,), 0), ((1, 1, 2, 1), 2)]
OPTIONS = {"fast": None, "general": general_only()}
TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def drawn(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of order 1."""
    rng = np.random.default_rng([seed, *shape])
    type_ = sx.element_type(name)
    values: np.ndarray = rng.normal(size=shape)
    if type_.is_complex:
        values = values + 1j * rng.normal(size=shape)
    return values.astype(type_.dtype)


def adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def positive_definite(name: str, batch: tuple[int, ...], n: int) -> np.ndarray:
    a = drawn(name, (*batch, n, n))
    made = a @ adjoint(a) + n * np.eye(n)
    return made.astype(a.dtype)


def without_triangle(a: np.ndarray, *, lower: bool, value: float = np.nan) -> np.ndarray:
    """The matrices with a value in the triangle that is not `lower`, the diagonal left as it is."""
    made = a.copy()
    rows, columns = np.triu_indices(a.shape[-1], 1) if lower else np.tril_indices(a.shape[-1], -1)
    made[..., rows, columns] = value
    return made


def close(actual: Any, wanted: Any, *, roundings: float) -> None:
    """The largest difference is this many roundings of the largest element."""
    assert actual.shape == wanted.shape
    if actual.size:
        eps = float(np.finfo(actual.dtype).eps)
        assert np.abs(actual - wanted).max() <= roundings * eps * np.abs(wanted).max()


# ---- cholesky --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", OPTIONS)
@pytest.mark.parametrize(("batch", "n"), BATCHES, ids=str)
def test_cholesky(way: str, batch: tuple[int, ...], n: int) -> None:
    for number, name in enumerate(TYPES):
        lower = (len(batch) + n + number) % 2 == 0
        a = positive_definite(name, batch, n)
        given = without_triangle(a, lower=lower)
        (result,) = run(lambda b, x, lower=lower: sx.cholesky(x, lower), given, against=[], options=OPTIONS[way])
        wide = np.complex128 if name[0] == "c" else np.float64
        factor = np.linalg.cholesky(a.astype(wide))
        close(result, factor if lower else adjoint(factor), roundings=4 + n)
        zeros = np.triu(result, 1) if lower else np.tril(result, -1)
        np.testing.assert_array_equal(zeros, 0)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_cholesky_as_xla_has_it(name: str, lower: bool) -> None:
    for batch, n in (((2,), 3), ((), 20) if lower else ((8,), 9)):
        a = positive_definite(name, batch, n)
        scale = 4e-6 if name in ("f32", "c64") else 8e-15
        run(lambda b, x: sx.cholesky(x, lower), a, against=["xla"], scale=scale)


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_cholesky_of_small_floats(name: str) -> None:
    """Computed in f32 and rounded once; XLA:CPU rounds every step."""
    a = np.array([[4, 2, 1], [2, 5, 3], [1, 3, 6]]).astype(sx.element_type(name).dtype)
    factor = np.linalg.cholesky(a.astype(np.float32)).astype(a.dtype)
    run(lambda b, x: sx.cholesky(x, lower=True), a, against=[], expected=[factor])
    a, factor = (np.broadcast_to(v, (3, 2, 3, 3)) for v in (a, factor))
    run(lambda b, x: sx.cholesky(x, lower=True), a, against=[], expected=[factor])


@pytest.mark.parametrize("way", OPTIONS)
@pytest.mark.parametrize("n", [3, 20, 40])
def test_matrices_that_are_not_positive_definite(way: str, n: int) -> None:
    """All of such a matrix is NaN, and nothing of its neighbours."""
    for name, count in (("f32", 9), ("c128", 5), ("f64", 1)):
        a = positive_definite(name, (count,), n)
        bad = a.copy()
        spoiled = [0, count - 1, count // 2]
        bad[0, -1, -1] = -1
        bad[count - 1, 0, 0] = 0
        bad[count // 2, n // 2, n // 2] = np.nan
        for lower in (True, False):
            (result,) = run(lambda b, x, lower=lower: sx.cholesky(x, lower), bad, against=[], options=OPTIONS[way])
            (right,) = run(lambda b, x, lower=lower: sx.cholesky(x, lower), a, against=[], options=OPTIONS[way])
            assert np.isnan(result[spoiled].real).all()
            rest = [i for i in range(count) if i not in spoiled]
            np.testing.assert_array_equal(result[rest], right[rest])
        if name != "c128" and n < 40:  # XLA's NaN are the same; of complex ones only the real part
            run(lambda b, x: sx.cholesky(x, True), bad[spoiled], against=["xla"], options=OPTIONS[way])


@pytest.mark.parametrize("way", OPTIONS)
def test_the_imaginary_part_of_the_diagonal_is_not_read(way: str) -> None:
    for count, n in ((1, 3), (5, 3), (2, 30)):
        a = positive_definite("c64", (count,), n)
        other = a.copy()
        other[:, range(n), range(n)] += 3j
        one, two = (run(lambda b, x: sx.cholesky(x, True), v, against=[], options=OPTIONS[way])[0] for v in (a, other))
        np.testing.assert_array_equal(one, two)


# ---- triangular systems ----------------------------------------------------------------------------------------------


def solve(a: Any, b: Any, *, left: bool, lower: bool, unit: bool, transpose: str, **options: Any) -> np.ndarray:
    (result,) = run(
        lambda _, x, y: sx.triangular_solve(x, y, left, lower, unit, transpose), a, b, **({"against": []} | options)
    )
    return result


def system(name: str, batch: tuple[int, ...], n: int, *, lower: bool, unit: bool) -> np.ndarray:
    """Triangles whose systems are well conditioned."""
    a = drawn(name, (*batch, n, n)) / max(1, n)
    a[..., range(n), range(n)] = 1 if unit else a[..., range(n), range(n)] * 0 + 1.5
    return without_triangle(a, lower=lower, value=0)


SYSTEMS = [
    ((), 5, 3), ((), 40, 9), ((3,), 1, 1), ((9,), 6, 5), ((2, 3), 17, 4), ((2,), 70, 30), ((2, 0), 3, 2), ((4,), 0, 2),
    ((4,), 3, 0),
]  # fmt: skip


@pytest.mark.parametrize("transpose", TRANSPOSES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("way", OPTIONS)
def test_triangular_solve(way: str, left: bool, transpose: str) -> None:
    for number, (batch, n, count) in enumerate(SYSTEMS):
        for lower in (True, False):
            name, unit = TYPES[(number + lower + len(way)) % 4], (number + lower) % 3 == 0
            a = system(name, batch, n, lower=lower, unit=unit)
            given = without_triangle(a, lower=lower)
            if unit:
                given[..., range(n), range(n)] = np.nan
            b = drawn(name, (*batch, n, count) if left else (*batch, count, n))
            flags = {"left": left, "lower": lower, "unit": unit, "transpose": transpose}
            x = solve(given, b, **flags, options=OPTIONS[way])
            wide = a.astype(np.complex128 if name[0] == "c" else np.float64)
            op = {"NO_TRANSPOSE": wide, "TRANSPOSE": np.swapaxes(wide, -1, -2), "ADJOINT": adjoint(wide)}[transpose]
            close(x.astype(x.dtype), _solved(op, b, left=left).astype(x.dtype), roundings=20 + 2 * n)


def _solved(op: np.ndarray, b: np.ndarray, *, left: bool) -> np.ndarray:
    if left:
        return np.linalg.solve(op, b.astype(op.dtype))
    turned = np.linalg.solve(np.swapaxes(op, -1, -2), np.swapaxes(b, -1, -2).astype(op.dtype))
    return np.swapaxes(turned, -1, -2)


@pytest.mark.parametrize("transpose", TRANSPOSES)
@pytest.mark.parametrize("name", TYPES)
def test_triangular_solve_as_xla_has_it(name: str, transpose: str) -> None:
    scale = 4e-6 if name in ("f32", "c64") else 8e-15
    for left, lower, unit, batch, n in ((True, True, False, (2,), 4), (False, False, True, (), 30)):
        a = without_triangle(system(name, batch, n, lower=lower, unit=unit), lower=lower)
        b = drawn(name, (*batch, n, 3) if left else (*batch, 3, n))
        solve(a, b, left=left, lower=lower, unit=unit, transpose=transpose, against=["xla"], scale=scale)


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_triangular_solve_of_small_floats(name: str) -> None:
    dtype = sx.element_type(name).dtype
    a = np.array([[2, 0], [1, 4]]).astype(dtype)
    b = np.array([[1, 4], [3, 1]]).astype(dtype)
    expected = np.linalg.solve(a.astype(np.float32), b.astype(np.float32)).astype(dtype)
    flags = {"left": True, "lower": True, "unit": False, "transpose": "NO_TRANSPOSE"}
    solve(a, b, **flags, expected=[expected])


@pytest.mark.parametrize("way", OPTIONS)
@pytest.mark.parametrize(("count", "n"), [(1, 3), (8, 3), (1, 40)])
def test_singular_systems(way: str, count: int, n: int) -> None:
    """A zero on the diagonal divides: what depends on it is not finite, and nothing else is lost."""
    a = system("f32", (count,), n, lower=True, unit=False)
    b = drawn("f32", (count, n, 2))
    right = solve(a, b, left=True, lower=True, unit=False, transpose="NO_TRANSPOSE", options=OPTIONS[way])
    a[:, n // 2, n // 2] = 0
    x = solve(a, b, left=True, lower=True, unit=False, transpose="NO_TRANSPOSE", options=OPTIONS[way])
    np.testing.assert_allclose(x[:, : n // 2], right[:, : n // 2], rtol=1e-6)
    assert not np.isfinite(x[:, n // 2 :]).any()


def test_example_of_the_specification() -> None:
    a = np.float32([[1, 0, 0], [2, 4, 0], [3, 5, 6]])
    b = np.float32([[2, 0, 0], [4, 8, 0], [6, 10, 12]])
    flags = {"left": True, "lower": True, "unit": False, "transpose": "NO_TRANSPOSE"}
    # XLA:CPU multiplies with an inverse of the triangle, which is why it has not these whole numbers.
    solve(a, b, **flags, against=["xla"], expected=[2 * np.eye(3, dtype=np.float32)], scale=1e-7)


@pytest.mark.parametrize("vector_bits", [128, 512])
def test_other_widths_of_vectors(vector_bits: int) -> None:
    options = sx.CompileOptions(vector_bits=vector_bits)
    for name in ("f32", "c128"):
        a = positive_definite(name, (19,), 7)
        (factor,) = run(lambda b, x: sx.cholesky(x, True), a, against=[], options=options)
        close(factor @ adjoint(factor), a, roundings=20)
        b = drawn(name, (19, 3, 7))
        x = solve(factor, b, left=False, lower=True, unit=False, transpose="ADJOINT", options=options)
        close(x @ adjoint(factor), b, roundings=200)


def test_division_by_large_and_small_complex_numbers() -> None:
    """The square of a diagonal element leaves the range of its type; the quotient does not."""
    for count in (1, 8):
        a = np.array([[[3e30 + 4e30j]], [[1e-30 - 2e-30j]]] * count, np.complex64)
        b = (a * (2 - 1j)).astype(np.complex64)
        x = solve(a, b, left=True, lower=True, unit=False, transpose="NO_TRANSPOSE")
        close(x, np.full(b.shape, 2 - 1j, np.complex64), roundings=4)


def test_solving_a_positive_definite_system() -> None:
    """Both operations in one program, with the solutions overwriting what they came from."""

    def make(b: sx.XlaBuilder, a: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        factor = sx.cholesky(a + 0.0, lower=True)
        z = sx.triangular_solve(factor, y + 1.0, True, True, False, "NO_TRANSPOSE")
        return sx.triangular_solve(factor, z, True, True, False, "ADJOINT")

    for batch, n in (((6,), 5), ((), 60), ((11,), 3)):
        a, y = positive_definite("f64", batch, n), drawn("f64", (*batch, n, 4))
        (x,) = run(make, a, y, against=["xla"], scale=1e-13)
        close(a @ x, y + 1.0, roundings=200)


def test_what_jax_sends() -> None:
    """For a CPU it calls LAPACK's functions by names of its own; everywhere else it sends these operations."""
    import jax

    def function(a: Any, b: Any) -> Any:
        return jax.scipy.linalg.cho_solve((jax.lax.linalg.cholesky(a), True), b)

    with jax.enable_x64(True):
        a, b = positive_definite("f64", (2,), 3), drawn("f64", (2, 3, 1))
        text = jax.jit(function).trace(a, b).lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.cholesky" in text
    (x,) = sx.compile(text).execute([a, b])
    close(a @ x, b, roundings=50)
