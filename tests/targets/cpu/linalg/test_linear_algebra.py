"""Kernels of cholesky and triangular_solve, drawn at random: in lanes, and by LAPACK. Oracle: numpy, in f64."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.emitters import Emitter
from stablexla.targets.cpu.linalg.linear_algebra import emit_cholesky, emit_triangular_solve
from tests.targets.cpu.fortran_symbols import fortran_symbols
from tests.targets.cpu.harness import compile_kernel
from tests.targets.cpu.one_kernel import OneKernel, kernel_of, program_of

DTYPES = {"f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
ALLOWED = {"f32": 2e-5, "c64": 2e-5, "f64": 1e-13, "c128": 1e-13}
# Many small matrices, of which some are left over from whole vectors; and single larger ones.
SIZES = [(33, 1), (40, 2), (17, 3), (64, 5), (19, 8), (9, 13), (1, 20), (3, 24), (1, 33), (2, 40)]


def normal(rng: np.random.Generator, name: str, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if name[0] == "c" else x).astype(DTYPES[name])


def turned(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(turned(x))


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype("c16" if x.dtype.kind == "c" else "f8")


def called(one: OneKernel, emit: Emitter, routine: str, bits: int, *arrays: np.ndarray) -> np.ndarray | None:
    """The kernel's result in all ways; None where the emitter leaves it to the general path."""
    try:
        kernel = compile_kernel(one.text, CpuTarget(vector_bits=bits), emit, symbols=fortran_symbols([routine]))
    except LookupError:
        return None
    (got,) = kernel.in_all_ways(*one.arguments(arrays))
    return got


def drawn(seed: int) -> tuple[np.random.Generator, str, int, int, int]:
    """Numbers, the element type, how many matrices of which size, and the width of vectors."""
    rng = np.random.default_rng(seed)
    batch, n = SIZES[seed % len(SIZES)]
    return rng, str(rng.choice(list(DTYPES))), batch, n, int(rng.choice([128, 256, 512]))


@pytest.mark.parametrize("seed", range(20))
def test_random_cholesky(seed: int) -> None:
    rng, name, batch, n, bits = drawn(seed)
    lower = bool(rng.integers(2))
    root = normal(rng, name, batch, n, n)
    a = (root @ adjoint(root) + 2 * n * np.eye(n)).astype(DTYPES[name])
    broken = int(rng.integers(batch)) if batch > 1 else None
    if broken is not None:  # not positive definite: NaN, and the others know nothing of it
        a[broken, -1, -1] = -1
    one = kernel_of(program_of(lambda x: sx.cholesky(x, lower), a), "cholesky")
    got = called(one, emit_cholesky, LETTERS[name] + "potrf", bits, a)
    assert got is not None
    for number, matrix in enumerate(got.reshape(a.shape)):
        if number == broken:
            assert np.isnan(matrix[np.tril_indices(n)] if lower else matrix[np.triu_indices(n)]).all()
            continue
        wanted = np.linalg.cholesky(exact(a[number]))
        wanted = wanted if lower else adjoint(wanted)
        triangle = np.tril if lower else np.triu
        error = np.abs(triangle(matrix) - wanted).max()
        assert error <= ALLOWED[name] * np.abs(wanted).max(), (name, batch, n, number)


@pytest.mark.parametrize("seed", range(30))
def test_random_triangular_solve(seed: int) -> None:
    rng, name, batch, n, bits = drawn(seed)
    left, lower, unit = (bool(rng.integers(2)) for _ in range(3))
    transpose = str(rng.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))
    others = int(rng.choice([1, 2, 7, 16, 30]))
    a = (normal(rng, name, batch, n, n) / n + 2 * np.eye(n)).astype(DTYPES[name])
    b = normal(rng, name, batch, *((n, others) if left else (others, n)))
    program = program_of(lambda x, y: sx.triangular_solve(x, y, left, lower, unit, transpose), a, b)
    one = kernel_of(program, "triangular_solve")
    got = called(one, emit_triangular_solve, LETTERS[name] + "trsm", bits, a, b)
    if got is None:
        assert batch < 16
        return
    matrix = np.tril(exact(a)) if lower else np.triu(exact(a))
    if unit:
        matrix[:, range(n), range(n)] = 1
    matrix = {"NO_TRANSPOSE": np.asarray, "TRANSPOSE": turned, "ADJOINT": adjoint}[transpose](matrix)
    wanted = np.linalg.solve(matrix, exact(b)) if left else turned(np.linalg.solve(turned(matrix), turned(exact(b))))
    error = np.abs(got.reshape(b.shape) - wanted).max()
    assert error <= ALLOWED[name] * np.abs(wanted).max(), (name, batch, n, others, left, lower, transpose, unit)
