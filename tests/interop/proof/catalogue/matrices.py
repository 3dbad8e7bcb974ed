"""Calls of linear algebra: `jax.numpy.linalg`, `jax.scipy.linalg`, `jax.lax.linalg`.

Eigenvectors and singular vectors come from the same LAPACK as JAX's, so that they are compared as they are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, through

F, C = v.reals, v.complexes
SQUARE, CSQUARE, DEFINITE, HERMITIAN, SYMMETRIC = (
    v.square(),
    v.complex_square(),
    v.definite(),
    v.hermitian(),
    v.symmetric(),
)
_TALL, _WIDE, _BATCH = F(5, 3), F(3, 5), v.square(3, 2)
_ANY = [call(SQUARE), call(CSQUARE), call(_BATCH)]
_RECTANGULAR = [call(_TALL), call(_WIDE), call(C(5, 3)), call(F(2, 4, 3))]
_HERMITIANS = [call(SYMMETRIC), call(HERMITIAN), call(v.symmetric(3, 2))]

_NUMPY: dict[str, list[Call]] = {
    "cholesky": [call(DEFINITE), call(HERMITIAN), call(v.definite(3, 2)), call(DEFINITE, upper=True)],
    "cond": [call(SQUARE), call(_TALL), *[call(SQUARE, p) for p in ("fro", 1, np.inf, -2)]],
    "cross": [call(F(5, 3), F(5, 3, seed=1))],
    "det": [*_ANY, call(v.square(2)), call(v.square(3))],
    "eig": _ANY,
    "eigh": [*_HERMITIANS, call(SYMMETRIC, UPLO="U")],
    "eigvals": _ANY,
    "eigvalsh": _HERMITIANS,
    "inv": _ANY,
    "lstsq": [call(_TALL, F(5)), call(_TALL, F(5, 2)), call(_WIDE, F(3))],
    "matrix_norm": [call(F(3, 4)), *[call(F(3, 4), ord=o) for o in ("nuc", 1, np.inf, 2)]],
    "matrix_power": [call(SQUARE, 3), call(SQUARE, -2), call(CSQUARE, 5), call(v.integers(3, 3), 4)],
    "matrix_rank": [call(SQUARE), call(_TALL), call(np.ones((4, 3), np.float32))],
    "multi_dot": [call([F(3, 4), F(4, 5), F(5, 2)])],
    "norm": [
        call(F(9)),
        call(C(9)),
        call(F(3, 4)),
        *[call(F(3, 4), o) for o in ("fro", "nuc", 1, -1, 2, np.inf)],
        *[call(F(9), o) for o in (0, 1, 3, np.inf)],
        call(F(3, 4), axis=1, keepdims=True),
    ],
    "outer": [call(F(3), F(4)), call(C(3), C(4))],
    "pinv": [call(_TALL), call(_WIDE), call(C(5, 3)), call(SYMMETRIC, hermitian=True)],
    "qr": [*_RECTANGULAR, *[call(_TALL, mode) for mode in ("complete", "r", "raw")]],
    "slogdet": [*_ANY, call(SQUARE, method="qr")],
    "solve": [call(SQUARE, F(4)), call(CSQUARE, C(4, 2)), call(_BATCH, F(2, 3, 2))],
    "svd": [
        *_RECTANGULAR,
        call(_TALL, full_matrices=False),
        call(_TALL, compute_uv=False),
        call(SYMMETRIC, hermitian=True),
    ],
    "svdvals": _RECTANGULAR,
    "tensorinv": [call((F(6, 6) + 3 * np.eye(6, dtype=np.float32)).reshape(2, 3, 6), ind=2)],
    "tensorsolve": [call((F(6, 6) + 3 * np.eye(6, dtype=np.float32)).reshape(2, 3, 6), F(2, 3))],
    "vector_norm": [call(F(3, 4)), call(F(3, 4), axis=1), *[call(F(3, 4), axis=1, ord=o) for o in (0, 1, 3, np.inf)]],
}

_SCIPY: dict[str, list[Call]] = {
    "block_diag": [call(F(2, 3), F(1, 2), F(2, 2))],
    "cho_factor": [call(DEFINITE), call(HERMITIAN, lower=True)],
    "cho_solve": [call((v.lower(), True), F(4)), call((np.ascontiguousarray(v.lower().T), False), F(4, 2))],
    "cholesky": [call(DEFINITE), call(HERMITIAN, lower=True), call(v.definite(3, 2))],
    "det": _ANY,
    "dft": [call(5), call(4, "sqrtn")],
    "eigh": [*_HERMITIANS, call(SYMMETRIC, eigvals_only=True), call(SYMMETRIC, lower=False)],
    "eigh_tridiagonal": [call(F(6), F(5), eigvals_only=True)],
    "expm": [call(SQUARE), call(CSQUARE), call(_BATCH), call(np.triu(SQUARE), upper_triangular=True)],
    "expm_frechet": [call(SQUARE, F(4, 4))],
    "funm": [call(SQUARE, jnp.sin), call(SYMMETRIC, jnp.exp)],
    "hadamard": [call(8)],
    "helmert": [call(5), call(4, full=True)],
    "hessenberg": [call(SQUARE), call(SQUARE, calc_q=True), call(CSQUARE, calc_q=True), call(v.square(5, 2))],
    "hilbert": [call(5)],
    "inv": _ANY,
    "invhilbert": [call(5)],
    "invpascal": [call(5), call(4, "upper")],
    "leslie": [call(v.positive(4), v.unit(3))],
    "lu": [call(SQUARE), call(CSQUARE), call(_TALL), call(_WIDE), call(SQUARE, permute_l=True)],
    "lu_factor": [*_ANY, call(_TALL)],
    "lu_solve": [
        through(lambda f, a, b, t: f(jax.scipy.linalg.lu_factor(a), b, trans=t), a, b, t)
        for a, b, t in ((SQUARE, F(4), 0), (SQUARE, F(4, 2), 1), (CSQUARE, C(4), 2))
    ],
    "pascal": [call(5), call(4, "lower")],
    "polar": [call(SQUARE), call(_TALL), call(_TALL, method="svd")],
    "qr": [*_RECTANGULAR, call(_TALL, mode="economic"), call(_TALL, mode="r"), call(_TALL, pivoting=True)],
    "qr_multiply": [call(_TALL, F(4, 5)), call(_TALL, F(3, 4), mode="left")],
    "rsf2csf": [through(lambda f, a: f(*jax.scipy.linalg.schur(a)), SQUARE)],
    "schur": [call(SQUARE), call(SQUARE, output="complex"), call(CSQUARE, output="complex")],
    "solve": [
        call(SQUARE, F(4)),
        call(CSQUARE, C(4, 2)),
        call(DEFINITE, F(4), assume_a="pos"),
        call(DEFINITE, F(4, 2), assume_a="sym"),
    ],
    "solve_sylvester": [
        call(SQUARE, v.square(3), F(4, 3)),
        call(SQUARE, v.square(3), F(4, 3), method="eigen"),
    ],
    "solve_triangular": [
        call(v.lower(), F(4), lower=True),
        call(v.lower(), F(4, 2), lower=True, trans=1),
        call(np.triu(CSQUARE), C(4), trans=2),
        call(np.triu(SQUARE), F(4), unit_diagonal=True),
    ],
    "sqrtm": [call(DEFINITE), call(SQUARE)],
    "svd": [
        *_RECTANGULAR,
        call(_TALL, full_matrices=False),
        call(_TALL, compute_uv=False),
        call(_TALL, lapack_driver="gesvd"),
    ],
    "toeplitz": [call(F(4)), call(C(4), C(3))],
    "hankel": [call(F(4)), call(C(4), C(3))],
}

_LAX: dict[str, list[Call]] = {
    "cholesky": [call(DEFINITE), call(HERMITIAN), call(v.definite(3, 2)), call(DEFINITE, symmetrize_input=False)],
    "cholesky_update": [call(np.ascontiguousarray(np.linalg.cholesky(DEFINITE).T), F(4))],
    "eig": [*_ANY, call(SQUARE, compute_left_eigenvectors=False)],
    "eigh": [*_HERMITIANS, call(SYMMETRIC, lower=False)],
    "hessenberg": [call(SQUARE), call(CSQUARE), call(v.square(5, 2))],
    "householder_product": [call(F(5, 3), v.unit(3)), call(C(5, 3), C(3))],
    "ormqr": [call(F(5, 3), v.unit(3), F(5, 2)), call(F(5, 3), v.unit(3), F(2, 5), left=False, transpose=True)],
    "lu": [*_ANY, call(_TALL), call(_WIDE)],
    "lu_pivots_to_permutation": [call(np.array([2, 1, 3, 3], np.int32), 4), call(np.array([2, 1], np.int32), 5)],
    "qdwh": [call(SQUARE), call(SYMMETRIC, is_hermitian=True)],
    "qr": [*_RECTANGULAR, call(_TALL, full_matrices=False), call(_TALL, pivoting=True)],
    "schur": [call(SQUARE), call(CSQUARE), call(SQUARE, compute_schur_vectors=False)],
    "svd": [
        *_RECTANGULAR,
        call(_TALL, full_matrices=False),
        call(_TALL, compute_uv=False),
        call(_TALL, algorithm=jax.lax.linalg.SvdAlgorithm.QR),
    ],
    "symmetric_product": [call(F(4, 3), SYMMETRIC, alpha=1.5, beta=0.5)],
    "triangular_solve": [
        call(v.lower(), F(4, 2), left_side=True, lower=True),
        call(v.lower(), F(2, 4), lower=True, transpose_a=True),
        call(np.triu(CSQUARE), C(4, 2), left_side=True, transpose_a=True, conjugate_a=True),
        call(v.lower(3, 2), F(2, 3, 2), left_side=True, lower=True, unit_diagonal=True),
    ],
    "tridiagonal": [call(SYMMETRIC), call(HERMITIAN), call(SYMMETRIC, lower=False)],
    "tridiagonal_solve": [
        call(F(6), v.positive(6) + 3, F(6, seed=1), F(6, 2)),
        call(F(6), v.positive(6) + 3, F(6, seed=1), F(6, 2), perturb_singular=True),
    ],
}
ENTRIES = {
    **{f"jax.numpy.linalg.{name}": calls for name, calls in _NUMPY.items()},
    **{f"jax.scipy.linalg.{name}": calls for name, calls in _SCIPY.items()},
    **{f"jax.lax.linalg.{name}": calls for name, calls in _LAX.items()},
}
