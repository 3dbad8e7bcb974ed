"""Complex numbers in lanes: no kernel of these programs is on the general path. Oracle: numpy, wide for sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.op_traits import TRAITS
from stablexla.targets.codegen.machine import host_target
from tests.targets.cpu.one_kernel import program_of

DTYPES = (np.complex64, np.complex128)
BITS = tuple(bits for bits in (128, 256, 512) if bits <= host_target().vector_bits)


def numbers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def compiled(make: Callable[..., Any], arrays: Sequence[np.ndarray], bits: int | None = None) -> sx.Executable:
    """The program, all of whose kernels an emitter took."""
    made = sx.compile(program_of(make, *arrays), options=sx.CompileOptions(vector_bits=bits))
    assert [k for k in made.explain().kernels if k.path != "emitted"] == []
    return made


def ulp(x: np.ndarray) -> Any:
    """Units in the last place of the larger part."""
    return np.spacing(np.maximum(np.abs(x.real), np.abs(x.imag)))


# name -> a program and the same by numpy, exact or correctly rounded
MAPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: sx.add(x, y), lambda x, y: x + y),
    "negate": (lambda x, y: sx.neg(sx.sub(x, y)), lambda x, y: -(x - y)),
    "conjugate": (lambda x, y: sx.conj(x), lambda x, y: np.conj(x)),
    "parts": (lambda x, y: sx.complex(sx.imag(x), sx.real(y)), lambda x, y: y.real * 1j + x.imag),
    "real": (lambda x, y: sx.add(sx.real(x), sx.imag(y)), lambda x, y: x.real + y.imag),
    "select": (
        lambda x, y: sx.select(sx.gt(sx.real(x), sx.imag(y)), x, y),
        lambda x, y: np.where(x.real > y.imag, x, y),
    ),
    "equal": (
        lambda x, y: sx.eq(x, sx.select(sx.lt(sx.real(y), sx.imag(y)), x, y)),
        lambda x, y: x == np.where(y.real < y.imag, x, y),
    ),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str, dtype: Any, bits: int) -> None:
    """Whole vectors, a remainder behind them, less than a vector, and one number."""
    ours, wanted = MAPS[name]
    for shape in ((64,), (77,), (3,), (1,), (5, 13)):
        x, y = numbers(dtype, *shape), numbers(dtype, *shape, seed=1)
        np.testing.assert_array_equal(compiled(ours, (x, y), bits)(x, y), wanted(x, y))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_and_quotients(dtype: Any, bits: int) -> None:
    x, y = numbers(dtype, 1001), numbers(dtype, 1001, seed=1)
    got = compiled(sx.mul, (x, y), bits)(x, y)
    wide = x.astype(np.clongdouble) * y.astype(np.clongdouble)
    largest = np.maximum(
        np.abs(x.real * y.real) + np.abs(x.imag * y.imag), np.abs(x.real * y.imag) + np.abs(x.imag * y.real)
    )
    assert (np.abs(got - wide) <= 2 * np.spacing(largest)).all()
    got = compiled(sx.div, (x, y), bits)(x, y)
    wide = x.astype(np.clongdouble) / y.astype(np.clongdouble)
    assert (np.abs(got - wide) <= TRAITS["stablehlo.divide"].complex_ulp * ulp(wide.astype(dtype))).all()


def test_a_branch_is_each_lanes_own() -> None:
    """Among finite quotients there are some that are recovered from NaN by annex G of C99."""
    x, y = numbers(np.complex64, 100), numbers(np.complex64, 100, seed=1)
    x[7], y[7] = complex(np.inf, 1), 2 + 1j
    y[50] = 0
    x[93], y[93] = 1 + 1j, complex(np.inf, np.nan)
    got = compiled(sx.div, (x, y))(x, y)
    plain = np.delete(np.arange(100), [7, 50, 93])
    np.testing.assert_allclose(got[plain], x[plain] / y[plain], rtol=1e-6)
    assert np.isinf(got[[7, 50]]).all()
    alone = compiled(sx.div, (x[:1], y[:1]))
    for number in (7, 50, 93):
        np.testing.assert_array_equal(got[number : number + 1], alone(x[number : number + 1], y[number : number + 1]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_real_divisors_among_others_divide_the_parts_as_they_are(dtype: Any) -> None:
    x, y = numbers(dtype, 100), numbers(dtype, 100, seed=1)
    real = [3, 40, 41, 99]
    y.imag[real] = 0
    got = compiled(sx.div, (x, y))(x, y)
    np.testing.assert_array_equal(got.real[real], x.real[real] / y.real[real])
    np.testing.assert_array_equal(got.imag[real], x.imag[real] / y.real[real])
    wide = x.astype(np.clongdouble) / y.astype(np.clongdouble)
    assert (np.abs(got - wide) <= TRAITS["stablehlo.divide"].complex_ulp * ulp(wide.astype(dtype))).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
class TestPlaces:
    """Where elements are read and written: all of these are exact."""

    def check(self, make: Callable[..., Any], wanted: np.ndarray, bits: int, *arrays: np.ndarray) -> None:
        np.testing.assert_array_equal(compiled(make, arrays, bits)(*arrays), wanted)

    def test_broadcast(self, dtype: Any, bits: int) -> None:
        x, row, column = numbers(dtype, 9, 21), numbers(dtype, 21, seed=1), numbers(dtype, 9, seed=2)
        self.check(
            lambda x, r, c: sx.add(sx.add(x, r, broadcast_dimensions=(1,)), c, broadcast_dimensions=(0,)),
            x + row + column[:, None],
            bits,
            *(x, row, column),
        )

    def test_few_repeated(self, dtype: Any, bits: int) -> None:
        """A cycle of three, which the emitter tabulates."""
        x, row = numbers(dtype, 500, 3), numbers(dtype, 3, seed=1)
        self.check(lambda x, r: sx.add(x, r, broadcast_dimensions=(1,)), x + row, bits, x, row)

    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_slices(self, step: int, dtype: Any, bits: int) -> None:
        x = numbers(dtype, 211)
        self.check(
            lambda x: sx.add(sx.slice(x, [5], [200], [step]), sx.slice(x, [7], [202], [step])),
            x[5:200:step] + x[7:202:step],
            bits,
            x,
        )

    def test_backwards(self, dtype: Any, bits: int) -> None:
        x = numbers(dtype, 77)
        self.check(lambda x: sx.add(sx.rev(x, [0]), x), x[::-1] + x, bits, x)

    def test_assembled(self, dtype: Any, bits: int) -> None:
        x, y = numbers(dtype, 6, 19), numbers(dtype, 6, 14, seed=1)
        self.check(lambda x, y: sx.concat_in_dim([x, sx.neg(y)], 1), np.concatenate([x, -y], 1), bits, x, y)
        wanted = np.zeros((9, 40), dtype)
        wanted[1:7, 3::2] = x
        self.check(lambda x: sx.pad(x, 0.0, [(1, 2, 0), (3, 0, 1)]), wanted, bits, x)

    def test_interleaved(self, dtype: Any, bits: int) -> None:
        """Both halves of a step of `associative_scan`."""
        x, y = numbers(dtype, 50), numbers(dtype, 50, seed=1)
        self.check(
            lambda x, y: sx.add(sx.pad(x, 0.0, [(0, 1, 1)]), sx.pad(y, 0.0, [(1, 0, 1)])),
            np.stack([x, y], 1).reshape(-1),
            bits,
            *(x, y),
        )

    def test_rows_gathered(self, dtype: Any, bits: int) -> None:
        x, rows = numbers(dtype, 40, 33), np.array([3, 39, 0, 17], np.int32)
        self.check(lambda x, i: sx.torch_index_select(x, i, 0), x[rows], bits, x, rows)


def test_past_the_caches() -> None:
    """So large a result takes non-temporal stores."""
    x, y = numbers(np.complex64, 1 << 22), numbers(np.complex64, 1 << 22, seed=1)
    np.testing.assert_array_equal(compiled(sx.add, (x, y))(x, y), x + y)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5000,), (0,)), ((300_001,), (0,)), ((7, 513), (1,)), ((700, 33), (0,)), ((4, 50, 9), (1,)), ((3, 5, 7), (0, 2))],
)
def test_sums(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any, bits: int) -> None:
    x = numbers(dtype, *shape)
    made = compiled(lambda x: sx.reduce(sx.mul(x, x), complex(0.5, -2), sx.add, axes), (x,), bits)
    wide = x.astype(np.clongdouble) ** 2
    bound = 8 * np.finfo(dtype).eps * (np.abs(wide).sum(axes) + 3)
    assert (np.abs(made(x) - (wide.sum(axes) + complex(0.5, -2))) <= bound).all()


def test_a_reduction_that_is_no_sum_is_right() -> None:
    """Its accumulators are not understood, and the general path takes it."""
    x = numbers(np.complex64, 9, 40)
    made = sx.compile(program_of(lambda x: sx.reduce(x, 1.0, sx.mul, (1,)), x))
    np.testing.assert_allclose(made(x), x.astype(np.complex128).prod(1), rtol=1e-5)
