"""Kernels that call LAPACK, drawn at random. Oracle: numpy, in f64, on the products of what the routines give.

In a kernel a matrix lies in columns, so that arrays of numpy hold transposes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlir.ir as ir
import numpy as np
import pytest

from stablexla.lowering.rules.calls.lapack import LapackConfig
from stablexla.lowering.support.configs import config_attribute
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.host.lapack_calls import emit_lapack
from tests.targets.cpu.fortran_symbols import fortran_symbols
from tests.targets.cpu.harness import CompiledKernel, compile_kernel

TYPES = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
DTYPES = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
ALLOWED = {"s": 5e-5, "c": 5e-5, "d": 1e-12, "z": 1e-12}
Shape = tuple[int, ...]


class RandomCall:
    """Draws the elements' type, the number of matrices and their sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.letter = str(self.rng.choice(list(TYPES)))
        self.part = TYPES["d" if self.letter in "dz" else "s"]
        self.batch = int(self.rng.choice([1, 2, 5, 13]))
        self.m, self.n = (int(n) for n in self.rng.choice([1, 2, 3, 7, 16, 25], 2))
        self.k = min(self.m, self.n)
        self.upper = bool(self.rng.integers(2))

    def matrices(self, rows: int, columns: int) -> np.ndarray:
        x = self.rng.normal(size=(self.batch, rows, columns))
        if self.letter in "cz":
            x = x + 1j * self.rng.normal(size=x.shape)
        return x.astype(DTYPES[self.letter])

    def call(
        self,
        routine: str,
        given: Sequence[np.ndarray],
        results: Sequence[tuple[Shape, str]],
        config: Mapping[str, int | str],
    ) -> list[np.ndarray]:
        """The results for matrices of numpy, which are handed on in columns and come back in rows."""
        kernel = self._kernel(self.letter + routine, [x.shape[1:] for x in given], results, config)
        columns = [np.ascontiguousarray(np.swapaxes(x, -1, -2)) if x.ndim == 3 else x for x in given]
        updates = dict(kernel.emitted.updates)
        ways = [kernel(*columns, chunks=chunks, in_place=updates) for chunks in (1, 2, 3)]
        for way in ways[1:]:
            for got, expected in zip(way, ways[0], strict=True):
                assert got.tobytes() == expected.tobytes(), "the result depends on how the batch is shared"
        return [np.swapaxes(x, -1, -2) if x.ndim == 3 else x for x in ways[0]]

    def _kernel(
        self,
        routine: str,
        given: Sequence[Shape],
        results: Sequence[tuple[Shape, str]],
        config: Mapping[str, int | str],
    ) -> CompiledKernel:
        def tensor(shape: Shape, element: str) -> str:
            extents = [self.batch, *shape[::-1]]
            return f"tensor<{'x'.join(map(str, extents))}x{element}>"

        sizes = {name: value for name, value in config.items() if isinstance(value, int)}
        words = {name: value for name, value in config.items() if isinstance(value, str)}
        with ir.Context():
            listed = str(config_attribute(LapackConfig(routine, self.batch, sizes, words)))
        taken = ", ".join(f"%x{i}: {tensor(shape, TYPES[self.letter])}" for i, shape in enumerate(given))
        types = [tensor(shape, element) for shape, element in results]
        made = "\n".join(f"%r{i} = tensor.empty() : {type_}" for i, type_ in enumerate(types))
        values = ", ".join(f"%r{i}" for i in range(len(types)))
        attributes = f'{{stablexla.kernel = "lapack", stablexla.config = {listed}}}'
        text = f"func.func private @lapack({taken}) -> ({', '.join(types)}) attributes {attributes} {{\n{made}\n"
        text += f"return {values} : {', '.join(types)} }}"
        return compile_kernel(text, CpuTarget(vector_bits=256), emit_lapack, symbols=fortran_symbols([routine]))

    @property
    def element(self) -> str:
        return TYPES[self.letter]

    @property
    def uplo(self) -> str:
        return "U" if self.upper else "L"

    def assert_near(self, got: np.ndarray, wanted: np.ndarray) -> None:
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        assert np.abs(got - wanted).max(initial=0) <= ALLOWED[self.letter] * scale, (self.letter, self.m, self.n)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("c16" if x.dtype.kind == "c" else "f8")


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("seed", range(8))
def test_random_cholesky(seed: int) -> None:
    drawn = RandomCall(seed)
    n = drawn.n
    root = drawn.matrices(n, n)
    a = (root @ adjoint(root) + n * np.eye(n)).astype(root.dtype)
    a[0, 0, 0] = -1  # not positive definite: the routine says from which column on
    results = [((n, n), drawn.element), ((), "i32")]
    factor, info = drawn.call("potrf", [a], results, {"n": n, "uplo": drawn.uplo})
    assert info.tolist() == [1] + [0] * (drawn.batch - 1)
    triangle = wide(np.triu(factor) if drawn.upper else np.tril(factor))[1:]
    drawn.assert_near(adjoint(triangle) @ triangle if drawn.upper else triangle @ adjoint(triangle), wide(a)[1:])


@pytest.mark.parametrize("seed", range(8))
def test_random_lu(seed: int) -> None:
    drawn = RandomCall(seed)
    m, n, k = drawn.m, drawn.n, drawn.k
    a = drawn.matrices(m, n)
    results = [((m, n), drawn.element), ((k,), "i32"), ((), "i32")]
    factors, pivots, info = drawn.call("getrf", [a], results, {"m": m, "n": n, "k": k})
    assert not info.any()
    for matrix, packed, swaps in zip(a, wide(factors), pivots, strict=True):
        low = np.tril(packed[:, :k], -1) + np.eye(m, k)
        wanted = wide(matrix)
        for row, other in enumerate(swaps.tolist()):
            wanted[[row, other - 1]] = wanted[[other - 1, row]]
        drawn.assert_near(low @ np.triu(packed[:k]), wanted)


@pytest.mark.parametrize("seed", range(8))
def test_random_qr(seed: int) -> None:
    """R, and then Q of the reflectors, by a routine that takes two arrays."""
    drawn = RandomCall(seed)
    m, n, k = drawn.m, drawn.n, drawn.k
    a = drawn.matrices(m, n)
    packed, tau = drawn.call("geqrf", [a], [((m, n), drawn.element), ((k,), drawn.element)], {"m": m, "n": n, "k": k})
    right = np.triu(wide(packed)[:, :k])
    reflectors = np.ascontiguousarray(packed[:, :, :k])
    name = "ungqr" if drawn.letter in "cz" else "orgqr"
    (q,) = drawn.call(name, [reflectors, tau], [((m, k), drawn.element)], {"m": m, "n": k, "k": k})
    drawn.assert_near(wide(q) @ right, wide(a))
    drawn.assert_near(adjoint(wide(q)) @ wide(q), np.broadcast_to(np.eye(k), (drawn.batch, k, k)))


@pytest.mark.parametrize("seed", range(8))
def test_random_eigenvalues(seed: int) -> None:
    drawn = RandomCall(seed)
    n, vectors = drawn.n, seed % 2 == 0
    a = drawn.matrices(n, n)
    a = a + adjoint(a)
    given = np.triu(a) if drawn.upper else np.tril(a)  # the other triangle is not read
    results = [((n, n), drawn.element), ((n,), drawn.part), ((), "i32")]
    name = "heevd" if drawn.letter in "cz" else "syevd"
    made, values, info = drawn.call(name, [given], results, {"n": n, "mode": "NV"[vectors], "uplo": drawn.uplo})
    assert not info.any()
    drawn.assert_near(values, np.linalg.eigvalsh(wide(a)))
    if vectors:
        drawn.assert_near(wide(a) @ wide(made), wide(made) * values[:, None, :].astype("f8"))


@pytest.mark.parametrize("seed", range(8))
def test_random_singular_values(seed: int) -> None:
    drawn = RandomCall(seed)
    m, n, k = drawn.m, drawn.n, drawn.k
    a = drawn.matrices(m, n)
    element = drawn.element
    results = [((m, n), element), ((k,), drawn.part), ((m, k), element), ((k, n), element), ((), "i32")]
    config = {"m": m, "n": n, "k": k, "p": k, "q": k, "mode": "S"}
    _, values, u, vt, info = drawn.call("gesdd", [a], results, config)
    assert not info.any()
    drawn.assert_near(values, np.linalg.svd(wide(a), compute_uv=False))
    drawn.assert_near(wide(u) * values[:, None, :] @ wide(vt), wide(a))


@pytest.mark.parametrize("seed", range(8))
def test_random_general_eigenvalues(seed: int) -> None:
    """Vectors of real matrices come packed; a matrix with an infinity is not handed on."""
    drawn = RandomCall(seed)
    n, is_complex = drawn.n, drawn.letter in "cz"
    complex_type = TYPES["z" if drawn.letter in "dz" else "c"]
    a = drawn.matrices(n, n)
    if drawn.batch > 1:
        a[-1, 0, n - 1] = np.inf
    values = [((n,), drawn.element)] if is_complex else [((n,), drawn.element)] * 2
    results = [*values, ((n, n), complex_type), ((), "i32")]
    config = {"n": n, "compute_left": "N", "compute_right": "V"}
    *parts, vectors, info = drawn.call("geev", [a], results, config)
    fine = drawn.batch - (drawn.batch > 1)
    assert info.tolist() == [0] * fine + [-4] * (drawn.batch - fine)
    found = (parts[0] if is_complex else parts[0] + 1j * parts[1])[:fine].astype("c16")
    drawn.assert_near(a[:fine].astype("c16") @ vectors[:fine], vectors[:fine] * found[:, None, :])
    assert (np.linalg.norm(vectors[:fine], axis=-2) > 0.5).all()
