"""Element-wise operators, activations and special functions on numbers, sizes and types that PyTorch's samples lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tests.interop.torch.running import compiled

special = torch.special
NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -7.0,
    20.5,
    100.0,
    -100.0,
    1e30,
    -1e-30,
    inf,
    -inf,
    nan,
]
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]


def agree(functions: Sequence[Callable[..., Any]], *tensors: torch.Tensor, signs: bool = False, **near: float) -> None:
    """Hold functions' results, all of one program, against eager PyTorch's: types, NaN and zeros' signs."""

    def all_of_them(*given: torch.Tensor) -> list[Any]:
        return [list(pytree.tree_leaves(function(*given))) for function in functions]

    made, wanted = compiled(all_of_them, *tensors), pytree.tree_leaves(all_of_them(*tensors))
    for number, (ours, theirs) in enumerate(zip(made, wanted, strict=True)):
        torch.testing.assert_close(
            ours, theirs, equal_nan=True, check_stride=False, msg=lambda told, n=number: f"result {n}: {told}", **near
        )
        if signs and theirs.is_floating_point():
            assert torch.equal(ours.signbit()[theirs == 0], theirs.signbit()[theirs == 0]), f"result {number}"


def pairs(numbers: Sequence[float], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    return values[:, None], values[None].contiguous()


def integers(dtype: torch.dtype) -> torch.Tensor:
    bounds = torch.iinfo(dtype)
    small = [n for n in (0, 1, 2, 3, 7, 100, -1, -2, -3, -7, -100) if n >= bounds.min]
    return torch.tensor([*small, bounds.min, bounds.max], dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_one_special_number(dtype: torch.dtype) -> None:
    numbers = torch.tensor(NUMBERS, dtype=torch.float64).to(dtype)
    exact = [torch.abs, torch.ceil, torch.floor, torch.trunc, torch.round, torch.sign, torch.signbit, torch.frexp]
    exact += [
        torch.isnan,
        torch.isinf,
        torch.isposinf,
        torch.isneginf,
        torch.nan_to_num,
        torch.logical_not,
        torch.angle,
    ]
    agree([*exact, lambda x: torch.nan_to_num(x, 1.0, neginf=-5.0)], numbers, signs=True, rtol=0, atol=0)
    agree([torch.sqrt, torch.rsqrt, torch.reciprocal, torch.exp, torch.exp2, torch.expm1, torch.log1p], numbers)
    agree(
        [torch.atan, torch.tanh, torch.sigmoid, torch.erf, torch.erfinv, torch.asinh, torch.log2, torch.sinc], numbers
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arithmetic_of_special_numbers(dtype: torch.dtype) -> None:
    x, y = pairs(NUMBERS, dtype)
    agree([torch.add, torch.sub, torch.mul, torch.div, torch.copysign], x, y, signs=True)
    agree([lambda x, y: torch.div(x, y, rounding_mode="trunc")], x, y, signs=True)
    # Of quotients that overflow PyTorch's own are NaN in vectors, and numbers elsewhere.
    moderate = [n for n in NUMBERS if abs(n) != 1e30]
    agree([torch.floor_divide, torch.remainder, torch.fmod], *pairs(moderate, dtype), signs=True)
    agree(
        [torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.nextafter, torch.heaviside], x, y, rtol=0, atol=0
    )
    agree([torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge], x, y)
    agree([torch.pow, torch.atan2, torch.hypot, torch.xlogy, special.xlog1py], x, y)
    agree([lambda x, y: torch.clamp(x, y, y + 1), lambda x, y: torch.clamp(x, -1, 2), torch.logaddexp], x, y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_and_round_as_in_pytorch(dtype: torch.dtype) -> None:
    x, y = integers(dtype)[:, None], integers(dtype)[None]
    agree([torch.add, torch.sub, torch.mul, torch.bitwise_and, torch.bitwise_xor, torch.maximum], x, y)
    agree([lambda x, y: torch.add(x, y, alpha=3), torch.div, torch.atan2], x, y)
    agree([torch.bitwise_left_shift, torch.bitwise_right_shift], x, y)
    agree([torch.abs, torch.neg, torch.sign, torch.bitwise_not, torch.square], x)
    divisors = y[:, y[0] > 0]
    agree([torch.floor_divide, torch.remainder, torch.fmod], x, divisors)
    # Of the least signed number PyTorch's own stops the process.
    some = x[(x > torch.iinfo(dtype).min) | (x == 0)][:, None]
    agree([torch.gcd, torch.lcm], some, some.T.contiguous())
    agree([lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: x**3, torch.pow], x, divisors)


def test_numbers_and_0d_tensors_are_promoted_by_kind() -> None:
    whole, half = torch.arange(-3, 3), torch.tensor([0.5, -2.0], dtype=torch.bfloat16)[:, None]
    agree([lambda x: x * 2.5, lambda x: x > 0.5, lambda x: 1 - x, lambda x: x // 2.0, lambda x: x**2.0], whole)
    agree([torch.clamp_min, torch.fmod, torch.lt], whole, torch.tensor(0.5))
    agree([torch.add, torch.mul, torch.maximum, lambda x, y: torch.where(x > 0, x, y)], half, torch.tensor(3.0))
    agree([torch.mul, lambda x, y: torch.add(x, y, alpha=0.3), torch.eq], whole, half)
    agree([torch.logical_and, torch.add, torch.mul, torch.bitwise_or], whole > 0, whole < 1)
    agree([lambda x: x + True, lambda x: x * 1j, lambda x: x == 1], whole > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(), (0, 3), (7, 5), (3, 4096)], ids=str)
def test_activations_of_transposed_and_strided_tensors(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(*sizes, 2) * 4).to(dtype)[..., 0]
    x = x.T if x.ndim == 2 else x
    agree([F.gelu, F.silu, F.mish, F.elu, F.softplus, F.hardswish, F.logsigmoid, F.softshrink, F.celu, F.relu6], x)
    agree(
        [lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softplus(x, 2.0, 3.0), lambda x: F.threshold(x, 1, 7)], x
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("functions", "low", "high"),
    [
        ([special.i0e, special.i1e, special.bessel_j0, special.bessel_j1, special.airy_ai, special.log_ndtr], -40, 40),
        ([special.bessel_y0, special.bessel_y1, special.entr, lambda x: torch.polygamma(1, x)], 1e-3, 40),
        ([special.scaled_modified_bessel_k0, special.scaled_modified_bessel_k1, special.modified_bessel_k0], 1e-3, 40),
        ([special.erfcx, special.modified_bessel_i0, special.i1], -4, 9),
        ([special.ndtri, torch.logit], 1e-3, 1 - 1e-3),
    ],
)
def test_special_functions_along_the_line(
    functions: list[Callable[..., Any]], low: float, high: float, dtype: torch.dtype
) -> None:
    """Across all pieces that they are put together from, against PyTorch in f64."""
    near: dict[str, float] = {"rtol": 1e-9, "atol": 1e-13} if dtype is torch.float64 else {"rtol": 2e-5, "atol": 4e-6}
    line = torch.cat([torch.linspace(-40, 40, 4001).double(), torch.logspace(-8, 2, 99).double()]).to(dtype)
    x = line[(line > low) & (line < high)]
    for ours, function in zip(compiled(lambda x: [f(x) for f in functions], x), functions, strict=True):
        torch.testing.assert_close(ours.double(), function(x.double()), **near)


@pytest.mark.parametrize("size", [0.3, 5.0, 300.0, 9e3, 1.1e4, 1e8])
def test_incomplete_gamma_functions(size: float) -> None:
    """On both sides of the diagonal, of which the series, the fraction and Temme's expansion have a part each."""
    a = torch.full((201,), size, dtype=torch.float64)
    spread = torch.linspace(-1, 1, 201, dtype=torch.float64)
    # Of larger numbers PyTorch's own series ends too early, but for those within four deviations.
    width = 0.99 if size < 1e6 else 4 / size**0.5
    x = a * (1 + spread.sign() * spread.abs() ** 4 * width)
    lower, upper = compiled(lambda a, x: [torch.igamma(a, x), torch.igammac(a, x)], a, x)
    torch.testing.assert_close(lower, torch.igamma(a, x), rtol=5e-7, atol=5e-9)
    torch.testing.assert_close(lower + upper, torch.ones_like(a), rtol=1e-12, atol=0)


def test_incomplete_gamma_functions_at_the_edges() -> None:
    edges = torch.tensor([0.0, 1.0, inf, -1.0, nan])
    agree([torch.igamma, torch.igammac], edges[:4, None], edges[None, :4].contiguous())


def test_zeta_and_polynomials_take_as_many_terms_as_they_need() -> None:
    q = torch.tensor([-30.5, -7.25, -1.5, -2.0, 0.0, 0.3, 4.0, 1e6], dtype=torch.float64)
    agree([special.zeta, lambda x, q: torch.polygamma(2, q)], torch.tensor([[2.0], [3], [100], [1.5], [1], [0.5]]), q)
    x = torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.7, 1.0, 1.01])[:, None].double()
    n = torch.tensor([-3.0, 0, 1, 2, 5, 7, 12, 60, 2.9]).double()
    agree([special.hermite_polynomial_he, special.laguerre_polynomial_l, special.legendre_polynomial_p], x, n)
    agree([special.chebyshev_polynomial_t, special.chebyshev_polynomial_u], x, n)
    agree([special.chebyshev_polynomial_v, special.chebyshev_polynomial_w], x[1:], n)
    agree([special.shifted_chebyshev_polynomial_t, lambda x, n: special.hermite_polynomial_h(x, 4)], x, n)


def test_views_of_the_same_bits() -> None:
    x = torch.arange(-6, 6, dtype=torch.float32).reshape(3, 4).T
    agree([lambda x: x.contiguous().view(torch.int32), lambda x: x.contiguous().view(torch.uint8)], x)
    agree(
        [lambda x: x.contiguous().view(torch.complex64), lambda x: torch.view_as_complex(x.contiguous().view(4, 2))],
        x[:, :2],
    )
    agree(
        [lambda x: x.view(torch.int64), lambda x: x.view(torch.bfloat16), lambda x: x.view(torch.bool)],
        torch.ones(2, 4),
    )
    z = torch.complex(x, x.flip(0))
    agree([torch.view_as_real, lambda z: z.conj() * 2, lambda z: z.resolve_conj(), torch.angle, torch.sgn], z)


def test_slopes_of_rrelu_are_drawn_between_its_bounds() -> None:
    x = torch.linspace(-3, 3, 1000)
    (made,) = compiled(lambda x: F.rrelu(x, 0.2, 0.4, training=True), x)
    slopes = (made / x)[x < 0]
    assert torch.equal(made[x > 0], x[x > 0])
    assert 0.2 <= slopes.min() < 0.21 < 0.39 < slopes.max() <= 0.4
    agree([lambda x: F.rrelu(x, 0.2, 0.4)], x)
