"""Products of matrices, factorizations and Fourier transforms, in sizes, batches and strides of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stablexla.interop import torch as sx_torch
from stablexla.interop.torch.dynamo import backend
from tests.interop.torch.running import agrees, compiled

TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
Function = Callable[..., Any]


def close(x: torch.Tensor, y: torch.Tensor) -> None:
    precision = torch.finfo(y.dtype).eps * 500
    torch.testing.assert_close(x, y, rtol=precision, atol=precision * max(1.0, float(y.abs().max())))


def batch(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype)


def regular(dtype: torch.dtype, n: int, count: int = 3) -> torch.Tensor:
    return batch(dtype, count, n, n) + 2 * n**0.5 * torch.eye(n, dtype=dtype)


BY_TRIANGLE = pytest.mark.parametrize(("dtype", "upper"), list(zip(TYPES, (False, True, True, False))), ids=str)


@BY_TRIANGLE
def test_eigenvalues_of_one_triangle(dtype: torch.dtype, upper: bool) -> None:
    """An unsymmetric matrix stands for the symmetric one that its triangle makes, and no other."""
    a = batch(dtype, 3, 6, 6)
    half = a.triu() if upper else a.tril()
    whole = half + half.mH - torch.diag_embed(half.diagonal(dim1=-2, dim2=-1).real).to(dtype)
    if a.is_complex():
        whole.diagonal(dim1=-2, dim2=-1).imag.zero_()
    letter = "U" if upper else "L"
    values, vectors = compiled(lambda a: torch.linalg.eigh(a, letter), a)
    close(values, torch.linalg.eigvalsh(whole))
    close(vectors @ torch.diag_embed(values).to(dtype) @ vectors.mH, whole)
    close(compiled(lambda a: torch.linalg.eigvalsh(a, letter), a)[0], values)


FACTORS: dict[str, Function] = {
    "svd": lambda a: _product_of_singular(*torch.linalg.svd(a, full_matrices=False)),
    "qr": lambda a: torch.matmul(*torch.linalg.qr(a)),
    "complete qr": lambda a: torch.matmul(*torch.linalg.qr(a, "complete")),
    "lu": lambda a: torch.linalg.multi_dot(torch.linalg.lu(a)) if a.ndim == 2 else _product(*torch.linalg.lu(a)),
}


def _product_of_singular(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> torch.Tensor:
    return (u * s.unsqueeze(-2)) @ vh


def _product(p: torch.Tensor, low: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return p @ low @ up


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("sizes", [(7, 3), (2, 4, 3), (40, 30), (0, 3), (0, 2, 2)], ids=str)
def test_factors_multiply_to_the_matrix(name: str, sizes: tuple[int, ...]) -> None:
    dtype = TYPES[len(sizes) + sizes[0] % 2]
    for a in (batch(dtype, *sizes), batch(dtype, *sizes[:-2], *sizes[-2:][::-1]).mT):
        (made,) = compiled(FACTORS[name], a)
        assert made.shape == a.shape
        if a.numel():
            close(made, a)


SOLUTIONS: dict[str, Function] = {
    "solve": torch.linalg.solve,
    "solve from the right": lambda a, b: torch.linalg.solve(a, b.mT, left=False),
    "solve for vectors": lambda a, b: torch.linalg.solve(a, b[..., 0]),
    "inv": lambda a, b: torch.linalg.inv(a),
    "det": lambda a, b: torch.linalg.det(a),
    "slogdet": lambda a, b: torch.linalg.slogdet(a)[1],
}


@pytest.mark.parametrize(
    ("name", "dtype", "turned"),
    [
        *((name, torch.float64, False) for name in SOLUTIONS),
        *((name, torch.float64, True) for name in ("solve", "det", "slogdet")),
        *((name, torch.complex64, False) for name in ("solve", "det", "slogdet")),
    ],
    ids=str,
)
def test_solutions_and_their_gradients(name: str, dtype: torch.dtype, turned: bool) -> None:
    """For determinants PyTorch keeps the factors of the transpose of a real contiguous matrix, on which gradients
    count."""

    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        made = SOLUTIONS[name](a, b)
        grads = torch.autograd.grad((made * made.conj()).real.sum(), (a, b), allow_unused=True)
        return [made, *(grad for grad in grads if grad is not None)]

    a, b = regular(dtype, 5), batch(dtype, 3, 5, 2)
    a = a.mT if turned else a
    for ours, theirs in zip(compiled(function, a, b), function(a, b), strict=True):
        close(ours, theirs.detach())


def test_checks_of_factors_in_training() -> None:
    """AOTAutograd hands tokens on, to keep the checks of `info` in order."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (
            torch.linalg.solve(a @ a.mT, b).sum() + torch.linalg.inv(a).trace() + torch.linalg.cholesky(a @ a.mT).sum()
        )

    made = torch.compile(function, backend=backend, fullgraph=True)
    a, b = regular(torch.float64, 5)[0], batch(torch.float64, 5, 2)
    close(made(a, b), function(a, b))
    grads = [torch.autograd.grad(f(a.requires_grad_(), b), a)[0] for f in (made, function)]
    close(*grads)


def test_checks_of_factors_in_an_exported_program() -> None:
    class Inverse(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.linalg.inv(a), torch.linalg.cholesky(a @ a.mT)

    a = regular(torch.float64, 4)
    for made, wanted in zip(sx_torch.compile(Inverse(), (a,))(a), Inverse()(a), strict=True):
        close(made, wanted)


@pytest.mark.parametrize("dtype", TYPES[1:3], ids=str)
def test_larger_systems(dtype: torch.dtype) -> None:
    a, b = regular(dtype, 70, 1)[0], batch(dtype, 70, 3)
    for made, wanted in zip(compiled(lambda a, b: [torch.linalg.solve(a, b), torch.linalg.det(a / 9)], a, b), [
        torch.linalg.solve(a, b), torch.linalg.det(a / 9),
    ], strict=True):  # fmt: skip
        close(made, wanted)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_systems_by_their_factors(left: bool, adjoint: bool) -> None:
    """Permutations of all sides, and a right-hand side with a batch of its own."""
    a, b = batch(torch.complex128, 2, 1, 5, 5), batch(torch.complex128, 3, *((5, 2) if left else (2, 5)))
    factors, pivots = torch.linalg.lu_factor(a)

    def function(factors: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lu_solve(factors, pivots, b, left=left, adjoint=adjoint)

    agrees(function, factors, pivots, b, rtol=1e-9, atol=1e-9)


@BY_TRIANGLE
def test_cholesky(dtype: torch.dtype, upper: bool) -> None:
    a = regular(dtype, 6)
    a = a @ a.mH

    def function(a: torch.Tensor) -> Any:
        factor, info = torch.linalg.cholesky_ex(a, upper=upper)
        return [factor, info, torch.cholesky_inverse(factor, upper), torch.cholesky_solve(a, factor, upper)]

    factor, info, inverse, solution = compiled(function, a)
    close(factor.mH @ factor if upper else factor @ factor.mH, a)
    assert not info.any()
    close(inverse @ a, solution)


def test_a_matrix_that_is_not_positive_definite() -> None:
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 2, 2] = -1
    factor, info = compiled(torch.linalg.cholesky_ex, a)
    assert info.tolist() == [0, 3]
    assert torch.equal(factor[0], a[0])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_symmetric_indefinite_systems(dtype: torch.dtype) -> None:
    """LAPACK's sytrf and hetrf: complex matrices are symmetric, or Hermitian."""
    b = batch(dtype, 2, 5, 3)
    for hermitian in (False, True):
        a = batch(dtype, 2, 5, 5)
        a = a + (a.mH if hermitian else a.mT)

        def function(a: torch.Tensor, b: torch.Tensor, hermitian: bool = hermitian) -> Any:
            factors, pivots, _ = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
            return torch.linalg.ldl_solve(factors, pivots, b, hermitian=hermitian)

        (made,) = compiled(function, a, b)
        torch.testing.assert_close(a @ made, b, rtol=1e-3, atol=1e-3 if dtype in TYPES[::2] else 1e-8)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 20.0])
def test_exponential_of_matrices(scale: float) -> None:
    a = batch(torch.float64, 3, 5, 5) * scale * torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64).reshape(3, 1, 1)
    agrees(torch.linalg.matrix_exp, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_products_of_halves_are_summed_in_f32(dtype: torch.dtype) -> None:
    x, y, z = batch(dtype, 5, 3000), batch(dtype, 3000, 4), batch(dtype, 4)
    (made,) = compiled(lambda x, y, z: torch.addmm(z, x, y, beta=2, alpha=0.5), x, y, z)
    wanted = 2 * z.double() + 0.5 * (x.double() @ y.double())
    torch.testing.assert_close(made, wanted.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-3)


def test_beta_0_hides_the_bias() -> None:
    bias = torch.full((2, 2), torch.nan)
    agrees(lambda b, x: torch.addmm(b, x, x, beta=0), bias, torch.ones(2, 2))


def test_products_of_integers_wrap() -> None:
    x = torch.randint(-128, 127, (9, 40), dtype=torch.int8)
    agrees(lambda x: [x @ x.T, torch._int_mm(x, x.T.contiguous()), torch.addmm(x[:, :9], x, x.T, beta=2, alpha=3)], x)


def test_products_of_f8_with_scales() -> None:
    x, y = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    rows, columns = torch.rand(16, 1), torch.rand(1, 16)

    def by_rows(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(x, y.t(), a, b, out_dtype=torch.bfloat16)

    def by_recipe(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._scaled_mm_v2(x, y.t(), [a], [0], [], [b], [0], [], None, torch.float32)

    agrees(by_rows, x, y, rows, columns)
    agrees(by_recipe, x, y, torch.tensor(0.5), torch.tensor(3.0))


TRANSFORMS: dict[str, Function] = {
    "rfftn": torch.fft.rfftn,
    "fftn": torch.fft.fftn,
    "ifftn": torch.fft.ifftn,
    "irfftn": lambda x, dim, norm: torch.fft.irfftn(x, [x.shape[d] + 1 for d in dim], dim, norm),
    "hfftn": torch.fft.hfftn,
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(("dim", "norm"), [((1,), "backward"), ((-1, 0), "forward"), ((3, 0, 2, 1), "ortho")], ids=str)
def test_transforms_over_dimensions_in_any_order(name: str, dim: tuple[int, ...], norm: str) -> None:
    x = torch.randn(2, 3, 2, 5, dtype=torch.float64 if name == "rfftn" else torch.complex128)
    agrees(lambda x: TRANSFORMS[name](x, dim=dim, norm=norm), x.permute(3, 1, 0, 2))


def test_pseudoinverse_by_bounds() -> None:
    a = torch.diag(torch.tensor([3.0, 1.0, 1e-3, 0.0]))[:, :3]
    for options in ({}, {"rtol": 0.01}, {"atol": 1.5}, {"atol": 1e-6, "rtol": 0.5}):
        agrees(lambda a, options=options: torch.linalg.pinv(a, **options), a)
    agrees(lambda a: torch.linalg.pinv(a, hermitian=True), torch.diag(torch.tensor([3.0, -1.0, 0.0])))
