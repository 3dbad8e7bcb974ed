"""LAPACK as JAX calls it, against JAX's own results, and against what the factors have to satisfy.

JAX calls the same library with the same arguments, so its results are equal but for rounding in what stands around the
calls. That would hide a fault of both: hence the second oracle, the products of the factors in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.lax import linalg

import stablexla as sx
from stablexla.lowering.rules.calls.lapack_routines import ROUTINES
from tests.interop.jax_programs import Arrays, compiled, random_array, run_both

pytestmark = pytest.mark.usefixtures("wide_numbers")

TYPES = [np.float32, np.float64, np.complex64, np.complex128]
Check = Callable[[Arrays, Arrays], None]
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Arrays], Check]] = {}


def h(x: np.ndarray) -> np.ndarray:
    """The adjoint of each matrix."""
    return np.conj(np.swapaxes(x, -1, -2))


def close(x: np.ndarray, y: np.ndarray) -> None:
    """Equal within rounding errors of a factorisation of small matrices."""
    if x.dtype.kind == "i":
        np.testing.assert_array_equal(x, y)
        return
    precision = np.finfo(x.dtype).eps * 200
    np.testing.assert_allclose(x, y, rtol=precision, atol=precision * max(1.0, float(np.abs(y).max(initial=0))))


def orthogonal(q: np.ndarray) -> None:
    """Columns of length 1 at right angles."""
    close(h(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], *[q.shape[-1]] * 2)))


def case(name: str, function: Callable[..., Any], arguments: Callable[[Any], Arrays]) -> Callable[[Check], Check]:
    """Enters a function, how its arguments are drawn for a type, and what must hold of arguments and results."""

    def register(check: Check) -> Check:
        CASES[name] = function, arguments, check
        return check

    return register


def square(dtype: Any) -> Arrays:
    return [random_array(dtype, 2, 5, 5)]


def hermitian(dtype: Any) -> Arrays:
    (a,) = square(dtype)
    return [a + h(a)]


def positive(dtype: Any) -> Arrays:
    (a,) = square(dtype)
    return [a @ h(a) + np.eye(5, dtype=dtype)]


def tall(dtype: Any) -> Arrays:
    return [random_array(dtype, 2, 6, 4)]


def wide(dtype: Any) -> Arrays:
    return [random_array(dtype, 3, 5)]


# ---- the routines ----------------------------------------------------------------------------------------------------


@case("potrf", lambda a: linalg.cholesky(a, symmetrize_input=False), positive)
def _(given: Arrays, made: Arrays) -> None:
    close(made[0] @ h(made[0]), given[0])


@case("getrf", linalg.lu, tall)
@case("getrf, wide", linalg.lu, wide)
def _(given: Arrays, made: Arrays) -> None:
    (a,), (lu, pivots, order) = given, made
    k = min(a.shape[-2:])
    low = np.tril(lu[..., :k], -1) + np.eye(a.shape[-2], k, dtype=a.dtype)
    close(low @ np.triu(lu[..., :k, :]), np.take_along_axis(a, order[..., None].astype(np.int64), -2))
    assert ((pivots >= 0) & (pivots < a.shape[-2])).all()


@case("geqrf and orgqr", jnp.linalg.qr, tall)
@case("geqrf and orgqr, all columns", lambda a: jnp.linalg.qr(a, mode="complete"), tall)
@case("geqrf and orgqr, wide", jnp.linalg.qr, wide)
def _(given: Arrays, made: Arrays) -> None:
    orthogonal(made[0])
    close(made[0] @ made[1], given[0])
    assert not np.tril(made[1], -1).any()


@case("geqp3", lambda a: jax.scipy.linalg.qr(a, pivoting=True, mode="economic"), wide)
def _(given: Arrays, made: Arrays) -> None:
    q, r, order = made
    orthogonal(q)
    close(q @ r, given[0][:, order])
    assert (np.diff(np.abs(np.diagonal(r))) <= 0).all()


def by_reflectors(left: bool, transpose: bool) -> Callable[..., Any]:
    def function(a: Any, c: Any) -> Any:
        packed, scales = jnp.linalg.qr(a, mode="raw")
        return linalg.ormqr(packed.mT, scales, c, left=left, transpose=transpose)

    return function


for _left in (True, False):
    for _transpose in (True, False):

        @case(
            f"ormqr, {_left}, {_transpose}",
            by_reflectors(_left, _transpose),
            lambda t, left=_left: [random_array(t, 2, 6, 4), random_array(t, 2, *((6, 3) if left else (3, 6)))],
        )
        def _(given: Arrays, made: Arrays, left: bool = _left, transpose: bool = _transpose) -> None:
            q = np.linalg.qr(given[0], mode="complete")[0]
            q = h(q) if transpose else q
            close(made[0], q @ given[1] if left else given[1] @ q)


@case("syevd", lambda a: linalg.eigh(a, symmetrize_input=False), hermitian)
@case("syevd, upper", lambda a: linalg.eigh(a, symmetrize_input=False, lower=False), hermitian)
def _(given: Arrays, made: Arrays) -> None:
    vectors, values = made
    orthogonal(vectors)
    close(given[0] @ vectors, vectors * values[..., None, :])
    close(values, np.linalg.eigvalsh(given[0]))


@case("syevd, singular values", lambda a: jnp.linalg.svd(a, hermitian=True), hermitian)
@case("gesdd", lambda a: jnp.linalg.svd(a, full_matrices=True), tall)
@case("gesdd, thin", lambda a: jnp.linalg.svd(a, full_matrices=False), tall)
@case("gesdd, wide", lambda a: jnp.linalg.svd(a, full_matrices=False), wide)
@case("gesvd", lambda a: linalg.svd(a, algorithm=linalg.SvdAlgorithm.QR), tall)
def _(given: Arrays, made: Arrays) -> None:
    u, s, v = made
    orthogonal(u)
    orthogonal(h(v))
    close((u[..., : s.shape[-1]] * s[..., None, :]) @ v[..., : s.shape[-1], :], given[0])
    assert (s[..., :-1] >= s[..., 1:]).all()


@case("gesdd, values", lambda a: jnp.linalg.svd(a, compute_uv=False), tall)
def _(given: Arrays, made: Arrays) -> None:
    close(made[0], np.linalg.svd(given[0], compute_uv=False))


@case("geev", lambda a: linalg.eig(a), square)
def _(given: Arrays, made: Arrays) -> None:
    values, left, right = made
    close(given[0] @ right, right * values[..., None, :])
    close(h(left) @ given[0], values[..., None] * h(left))
    close(np.linalg.norm(right, axis=-2), np.ones(right.shape[:-1], right.real.dtype))


@case("geev, values", jnp.linalg.eigvals, square)
def _(given: Arrays, made: Arrays) -> None:
    close(np.sort_complex(made[0]), np.sort_complex(np.linalg.eigvals(given[0])))


@case("gees", linalg.schur, square)
def _(given: Arrays, made: Arrays) -> None:
    triangle, vectors = made
    orthogonal(vectors)
    close(vectors @ triangle @ h(vectors), given[0])
    assert not np.tril(triangle, -2 if given[0].dtype.kind == "f" else -1).any()


@case("gees, triangle", lambda a: linalg.schur(a, compute_schur_vectors=False), square)
def _(given: Arrays, made: Arrays) -> None:
    triangles = [scipy.linalg.schur(a)[0] for a in given[0]]
    close(made[0], np.stack(triangles))


@case("gehrd", lambda a: jax.scipy.linalg.hessenberg(a, calc_q=True), lambda t: [random_array(t, 5, 5)])
def _(given: Arrays, made: Arrays) -> None:
    form, q = made
    orthogonal(q)
    close(q @ form @ h(q), given[0])
    assert not np.tril(form, -2).any()


@case("sytrd", lambda a: linalg.tridiagonal(a, lower=True), hermitian)
@case("sytrd, upper", lambda a: linalg.tridiagonal(a, lower=False), hermitian)
def _(given: Arrays, made: Arrays) -> None:
    _, diagonal, beside, _ = made
    for a, d, e in zip(given[0], diagonal, beside, strict=True):
        close(scipy.linalg.eigvalsh_tridiagonal(d, e), np.linalg.eigvalsh(a))


def three_diagonals(dtype: Any) -> Arrays:
    low, middle, up = (random_array(dtype, 2, 6, seed=i) for i in range(3))
    return [low, middle + dtype(3), up, random_array(dtype, 2, 6, 3)]


def product(given: Arrays, x: np.ndarray) -> np.ndarray:
    low, middle, up, _ = given
    made = middle[..., None] * x
    made[..., 1:, :] += low[..., 1:, None] * x[..., :-1, :]
    made[..., :-1, :] += up[..., :-1, None] * x[..., 1:, :]
    return made


@case("gtsv", linalg.tridiagonal_solve, three_diagonals)
@case("perturbed", lambda *a: linalg.tridiagonal_solve(*a, perturb_singular=True), three_diagonals)
def _(given: Arrays, made: Arrays) -> None:
    close(product(given, made[0]), given[3])


for _words in ((True, True, "N", False), (False, False, "T", True), (True, False, "C", False)):
    _left, _lower, _op, _unit = _words

    @case(
        f"trsm, {_words}",
        lambda a, b, left=_left, lower=_lower, op=_op, unit=_unit: linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=op != "N", conjugate_a=op == "C", unit_diagonal=unit
        ),
        lambda t, left=_left: [
            random_array(t, 2, 4, 4) + t(4) * np.eye(4, dtype=t),
            random_array(t, 2, *((4, 3) if left else (3, 4))),
        ],
    )
    def _(given: Arrays, made: Arrays, words: tuple[bool, bool, str, bool] = _words) -> None:
        left, lower, op, unit = words
        a = np.tril(given[0]) if lower else np.triu(given[0])
        if unit:
            a = a - a * np.eye(4) + np.eye(4)
        a = {"N": a, "T": np.swapaxes(a, -1, -2), "C": h(a)}[op].astype(given[0].dtype)
        close(a @ made[0] if left else made[0] @ a, given[1])


@pytest.mark.parametrize("name", CASES)
def test_routine(name: str) -> None:
    """One program for all types of elements; for two of them where a case is another form of one."""
    function, arguments, check = CASES[name]
    given = [arguments(dtype) for dtype in (TYPES[::3] if "," in name else TYPES)]
    here, there = run_both(lambda *calls: [function(*call) for call in calls], *given)
    for x, y in zip(here, there, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        close(x, y)
    results = len(here) // len(given)
    for i, call in enumerate(given):
        check(call, here[i * results : (i + 1) * results])


# ---- matrices that fail, and those without elements ------------------------------------------------------------------


def call(name: str, attributes: str, operands: str, results: str) -> sx.Executable:
    """A program that is a call of a routine. Types are `2x3xf32`; what has the first operand's rank lies in columns."""
    takes, gives = ([f"tensor<{t}>" for t in text.split()] for text in (operands, results))
    rank = takes[0].replace("complex", "").count("x")

    def layouts(types: list[str]) -> str:
        made = []
        for dims in (t.replace("complex", "").count("x") for t in types):
            order = list(range(dims))[::-1]
            if dims == rank:
                order[:2] = order[:2][::-1]
            made.append(f"dense<{order}> : tensor<{dims}xindex>" if dims else "dense<> : tensor<0xindex>")
        return ", ".join(made)

    names = [f"%{i}" for i in range(len(takes))]
    many = f"%r:{len(gives)}" if len(gives) > 1 else "%r"
    returned = [f"%r#{i}" for i in range(len(gives))] if len(gives) > 1 else ["%r"]
    return sx.compile(f"""
        func.func @main({", ".join(f"{n}: {t}" for n, t in zip(names, takes, strict=True))}) -> ({", ".join(gives)}) {{
          {many} = stablehlo.custom_call @lapack_{name}_ffi({", ".join(names)}) {{
            mhlo.backend_config = {{{attributes}}},
            operand_layouts = [{layouts(takes)}], result_layouts = [{layouts(gives)}]
          }} : ({", ".join(takes)}) -> ({", ".join(gives)})
          return {", ".join(returned)} : {", ".join(gives)}
        }}""")


def test_info_of_cholesky() -> None:
    """The order of the first minor that is not positive; the other matrices of the batch are done all the same."""
    run = call("spotrf", "uplo = 76 : ui8", "3x3x3xf32", "3x3x3xf32 3xi32")
    a = np.stack([np.diag(d) for d in ([1, 4, 9], [4, -1, 1], [1, 1, 0])]).astype(np.float32)
    made, info = run.execute([a])
    assert info.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(made[0], np.diag([1, 2, 3]).astype(np.float32))


def test_info_of_lu() -> None:
    run = call("dgetrf", "", "2x2x2xf64", "2x2x2xf64 2x2xi32 2xi32")
    _, pivots, info = run.execute([np.array([[[1.0, 2], [2, 4]], [[1, 2], [3, 4]]])])
    assert info.tolist() == [2, 0]
    assert pivots.tolist() == [[2, 2], [2, 2]]


def test_info_of_tridiagonal_systems() -> None:
    run = call("sgtsv", "", "3xf32 3xf32 3xf32 3x1xf32", "3xf32 3xf32 3xf32 3x1xf32 i32")
    zero, one = np.zeros(3, np.float32), np.ones((3, 1), np.float32)
    assert run.execute([zero, zero, zero, one])[-1] == 1
    assert run.execute([zero, zero + 2, zero, one])[-1] == 0


def test_elements_that_are_not_finite() -> None:
    """As JAX has it: a program ends, and says NaN for the matrices that have them; the others are right."""
    a = random_array(np.float32, 3, 4, 4)
    a = a + h(a)
    a[1, 2, 1] = a[1, 1, 2] = np.nan
    a[2, 2, 1] = a[2, 1, 2] = np.inf

    def functions(a: Any) -> Any:
        return [
            jnp.linalg.eig(a),
            jnp.linalg.eig(a + 1j),
            jnp.linalg.eigh(a),
            jnp.linalg.qr(a)[1],
            jnp.linalg.cholesky(a @ a.mT),
            jnp.linalg.inv(a),
        ]

    here, there = run_both(functions, a)
    for x, y in zip(here, there, strict=True):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        close(x[0], y[0])


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_iterations_that_would_not_end(dtype: Any) -> None:
    """Against numpy: LAPACK, and with it JAX, never returns from some of these. The matrix that is finite is right."""
    a = random_array(dtype, 4, 60, 60)
    a[1, 0, 0], a[2, 5, 7], a[3, 59, 0] = np.inf, np.nan, -np.inf

    def functions(a: Any) -> Any:
        return [
            jnp.linalg.svd(a, compute_uv=False),
            jnp.linalg.pinv(a),
            linalg.svd(a),
            linalg.svd(a, algorithm=linalg.SvdAlgorithm.QR),
            linalg.schur(a),
        ]

    made = compiled(functions, a).execute([a])
    for array in made:
        assert np.isfinite(array[0]).all()
        assert np.isnan(array[1:]).any(axis=tuple(range(1, array.ndim))).all()
    s, inverse = np.linalg.svd(a[0], compute_uv=False), np.linalg.pinv(a[0])
    close(made[0][0], s)
    np.testing.assert_allclose(made[1][0], inverse, atol=np.abs(inverse).max() * np.finfo(dtype).eps * 1e4)


@pytest.mark.parametrize("routine", ["dgesdd", "dgesvd"])
def test_results_for_matrices_that_are_not_finite(routine: str) -> None:
    """All of them are NaN, and `info` tells callers of theirs."""
    run = call(routine, f"mode = {ord('S')} : ui8", "2x3x3xf64", "2x3x3xf64 2x3xf64 2x3x3xf64 2x3x3xf64 2xi32")
    *made, info = run.execute([np.stack([np.eye(3), np.diag([1.0, np.inf, 2.0])])])
    assert info.tolist() == [0, -4]
    assert all(np.isfinite(array[0]).all() and np.isnan(array[1]).all() for array in made)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (0, 0), (1, 1), (1, 3), (3, 1)])
def test_degenerate_sizes(rows: int, columns: int) -> None:
    """What JAX has for matrices of few or no elements, alone and in batches of none."""
    given = [random_array(np.float64, *batch, rows, columns) for batch in ((), (2,), (0,))]

    def functions(*matrices: Any) -> Any:
        made = []
        for a in matrices:
            made += [jnp.linalg.qr(a), jnp.linalg.svd(a), jnp.linalg.svd(a, compute_uv=False)]
            if rows and columns:  # JAX does not trace LU of matrices without elements
                made += [linalg.lu(a)]
            if rows == columns:
                made += [jnp.linalg.eigh(a), jnp.linalg.cholesky(a @ a.mT)]
            if rows == columns == 1:
                made += [linalg.eig(a), linalg.schur(a), linalg.hessenberg(a), linalg.tridiagonal(a)]
        return made

    here, there = run_both(functions, *given)
    for x, y in zip(here, there, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        close(x, y)


def test_calls_on_matrices_without_elements() -> None:
    """They succeed; JAX itself makes no such calls. Orthogonal factors are the identity."""
    _, s, u, v, info = call(
        "sgesdd", "mode = 65 : ui8", "2x3x0xf32", "2x3x0xf32 2x0xf32 2x3x3xf32 2x0x0xf32 2xi32"
    ).execute([np.zeros((2, 3, 0), np.float32)])
    np.testing.assert_array_equal(u, np.broadcast_to(np.eye(3, dtype=np.float32), (2, 3, 3)))
    assert (s.size, v.size, info.tolist()) == (0, 0, [0, 0])
    values, info = call("zheevd", "mode = 86 : ui8, uplo = 76 : ui8", "0x0xcomplex<f64>", "0x0xcomplex<f64> 0xf64 i32")(
        np.zeros((0, 0), np.complex128)
    )[1:]
    assert (values.size, int(info)) == (0, 0)


# ---- around the calls ------------------------------------------------------------------------------------------------


def test_batches_in_parallel_and_in_loops() -> None:
    """More matrices than threads, called again and again in a loop: nothing is shared that should not be."""

    def function(a: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, x: linalg.eigh(x + x.mT)[0], a)

    given = random_array(np.float32, 64, 12, 12)
    here, there = run_both(function, given)
    np.testing.assert_allclose(np.abs(here[0]), np.abs(there[0]), atol=1e-3)


def test_memory_is_given_back() -> None:
    """Work space does not add up."""
    run = compiled(lambda a: linalg.eigh(a)[1], np.zeros((48, 48)))
    a = random_array(np.float64, 48, 48)
    run(a)
    before = resident_bytes()
    for _ in range(300):  # each takes 40 kB
        run(a)
    assert resident_bytes() - before < 5e6


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_several_threads() -> None:
    """A call of LAPACK does not hold the GIL, and one executable may be called from many threads."""
    from concurrent.futures import ThreadPoolExecutor

    run = compiled(jnp.linalg.svd, np.zeros((3, 20, 20)))
    given = [random_array(np.float64, 3, 20, 20, seed=i) for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for a, (u, s, v) in zip(given, pool.map(lambda a: run(a), given), strict=True):
            close((u * s[..., None, :]) @ v, a)


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "operands": ("sgeqrf", "", "3x3xf32 3xf32", "3x3xf32 3xf32", "takes 1 operands"),
    "type": ("sgeqrf", "", "3x3xf64", "3x3xf64 3xf64", "has a of f32, not f64"),
    "rank": ("sgeqrf", "", "3xf32", "3xf32 3xf32", "has a"),
    "sizes": ("sgeqrf", "", "3x4xf32", "3x4xf32 4xf32", "has k = 3"),
    "batch": ("sgeqrf", "", "2x3x3xf32", "2x3x3xf32 3x3xf32", "has tau"),
    "square": ("spotrf", "uplo = 76 : ui8", "3x4xf32", "3x4xf32 i32", "has n = 3"),
    "attribute": ("spotrf", "", "3x3xf32", "3x3xf32 i32", "attribute 'uplo'"),
    "letter": ("spotrf", "uplo = 77 : ui8", "3x3xf32", "3x3xf32 i32", "uplo in U, L, not 'M'"),
    "vectors": ("sgesdd", "mode = 65 : ui8", "3x2xf32", "3x2xf32 2xf32 3x2xf32 2x2xf32 i32", "mode A"),
    "reflectors": ("sorgqr", "", "3x2xf32 3xf32", "3x2xf32", "reflectors"),
    "side": (
        "sormqr",
        "left = true, transpose = false",
        "3x2xf32 2xf32 4x3xf32",
        "4x3xf32",
        "reflectors as long as the side",
    ),
    "range": ("sgehrd", "low = 1 : i32, high = 4 : i32", "3x3xf32", "3x3xf32 2xf32 i32", "high <= n"),
    "space": (
        "ssyevd",
        "mode = 86 : ui8, uplo = 76 : ui8",
        "40000x40000xf32",
        "40000x40000xf32 40000xf32 i32",
        "counts in 32 bits",
    ),
    "sorting": (
        "sgees",
        "mode = 86 : ui8, sort = 83 : ui8",
        "3x3xf32",
        "3x3xf32 3x3xf32 3xf32 3xf32 i32 i32",
        "sort in N, not 'S'",
    ),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_calls_that_no_routine_fits(row: tuple[str, str, str, str, str]) -> None:
    """A routine that were called with other sizes than its arrays have would write anywhere."""
    *text, message = row
    with pytest.raises(sx.UnsupportedError, match=message):
        call(*text)


def test_the_table_knows_all_that_jax_calls() -> None:
    from jaxlib.cpu import _lapack

    of_torch = {"sytrf", "hetrf", "sytrs", "hetrs"}
    ours = {f"lapack_{name}_ffi" for name in ROUTINES if name[1:] not in of_torch}
    ours |= {f"lapack_{letter}trsm_ffi" for letter in "sdcz"}
    assert ours | {"tridiagonal_solve_perturbed_ffi"} == set(_lapack.registrations())
