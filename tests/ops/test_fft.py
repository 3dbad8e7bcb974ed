"""Fourier transforms run.

Oracles: XLA:CPU, and numpy, which transforms extended floats too. The reference interpreter has no fft. Numbers of f32
are computed in f64 here, as numpy does it for "FFT" and "RFFT"; XLA:CPU computes them in f32, which the tolerances of
the comparisons with it allow for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import stablexla as sx
from stablexla.lowering.kernels.fft.plan import Bluestein, Rader, line
from stablexla.lowering.kernels.fft.tables import Places, Powers
from tests.comparison import assert_same
from tests.oracles import xla
from tests.programs import general_only, run

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
TYPES = ("f32", "f64")
# What XLA:CPU's own rounding may add, as a fraction of the largest element.
XLA_SCALE = {"f32": 2e-6, "f64": 4e-15}

# Arrays on the side of the real numbers, and how many dimensions of them are transformed.
SMALL = [
    ((1,), 1),
    ((2,), 1),
    ((7, 3), 1),
    ((9, 16), 1),
    ((3, 20), 1),
    ((5, 6, 4), 3),
    ((2, 61), 1),
    ((5, 9), 2),
    ((1, 1, 1), 3),
    ((16, 1), 2),
    ((2, 1, 3, 1, 2, 2), 2),
    ((3, 67), 1),
    ((2, 67, 3), 2),
    ((5, 73), 1),
]
LARGE = [
    ((64,), 1),
    ((3, 100), 1),
    ((10, 1009), 1),
    ((2018,), 1),
    ((8192,), 1),
    ((11, 256), 1),
    ((20, 33), 2),
    ((3, 16, 24, 17), 3),
    ((1, 244), 1),
    ((71, 64, 9), 2),
]


def argument(kind: str, name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """An operand for a transform whose real side has this shape."""
    rng = np.random.default_rng([seed, len(shape), shape[-1]])
    if kind == "RFFT":
        return rng.normal(size=shape).astype(sx.element_type(name).dtype)
    if kind == "IRFFT":
        shape = (*shape[:-1], shape[-1] // 2 + 1 if shape[-1] else 0)
    whole = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return whole.astype({"f32": np.complex64, "f64": np.complex128}[name])


def exact(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    """The transform in extended precision."""
    axes = tuple(range(-len(lengths), 0))
    wide = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    match kind:
        case "FFT":
            return np.fft.fftn(wide, axes=axes)
        case "IFFT":
            return np.fft.ifftn(wide, axes=axes)
        case "RFFT":
            return np.fft.rfftn(wide, axes=axes)
    return np.fft.irfftn(wide, s=lengths, axes=axes)


def same_as_exact(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Differences are a few roundings of the largest element; the type is computed in f64 at least."""
    assert actual.shape == wanted.shape
    if not actual.size:
        return
    eps = np.finfo(actual.dtype).eps
    depth = 1 + np.log2(actual.size + 1) if actual.dtype.itemsize // (1 + (actual.dtype.kind == "c")) == 8 else 2
    assert np.abs(actual - wanted).max() <= eps * depth * np.abs(wanted).max()


def transformed(kind: str, lengths: tuple[int, ...]) -> Callable[..., sx.XlaOp]:
    return lambda b, x: sx.fft(x, kind, lengths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "rank"), [*SMALL, *LARGE], ids=str)
def test_fft(kind: str, shape: tuple[int, ...], rank: int) -> None:
    lengths = shape[-rank:]
    # Both types where it is cheap: a long transform of either is the same code but for loads and stores.
    for name in TYPES if (shape, rank) in SMALL else TYPES[KINDS.index(kind) % 2 :][:1]:
        x = argument(kind, name, shape)
        (result,) = run(transformed(kind, lengths), x, against=["xla"], scale=XLA_SCALE[name])
        same_as_exact(result, exact(kind, x, lengths))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "rank"), [*SMALL[::2], ((3, 72), 1), ((2, 73), 1)], ids=str)
def test_general_path(kind: str, shape: tuple[int, ...], rank: int) -> None:
    name = TYPES[len(shape) % 2]
    x = argument(kind, name, shape)
    (result,) = run(transformed(kind, shape[-rank:]), x, against=[], options=general_only())
    same_as_exact(result, exact(kind, x, shape[-rank:]))


@pytest.mark.parametrize("vector_bits", [128, 512])
@pytest.mark.parametrize(("shape", "rank"), [((10, 100), 2), ((3, 67), 1), ((3, 73), 1)], ids=str)
def test_other_widths_of_vectors(vector_bits: int, shape: tuple[int, ...], rank: int) -> None:
    options = sx.CompileOptions(vector_bits=vector_bits)
    for kind, name in (("RFFT", "f32"), ("IFFT", "f64")):
        x = argument(kind, name, shape)
        (result,) = run(transformed(kind, shape[-rank:]), x, against=[], options=options)
        same_as_exact(result, exact(kind, x, shape[-rank:]))


@pytest.mark.parametrize("n", [61, 1000, 1009, 3**9])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_accuracy(kind: str, name: str, n: int) -> None:
    """The issue's measure: at most four times numpy's error, in the mean and at the worst element."""
    x = argument(kind, name, (n,), seed=1)
    if kind == "IRFFT":
        x[0] = x[0].real
    axis = {"FFT": np.fft.fft, "IFFT": np.fft.ifft, "RFFT": np.fft.rfft, "IRFFT": partial(np.fft.irfft, n=n)}
    (ours,) = run(transformed(kind, (n,)), x, against=[])
    wanted, theirs = exact(kind, x, (n,)), axis[kind](x)
    assert theirs.dtype == ours.dtype
    ours, theirs = np.abs(ours - wanted), np.abs(theirs - wanted)
    assert ours.max() <= 4 * theirs.max()
    assert np.square(ours).sum() <= 16 * np.square(theirs).sum()


@pytest.mark.parametrize(("shape", "rank"), [((0,), 1), ((0, 4), 1), ((3, 0), 2), ((4, 0, 2), 1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_empty(kind: str, shape: tuple[int, ...], rank: int) -> None:
    for options in (None, general_only()):
        run(transformed(kind, shape[-rank:]), argument(kind, "f32", shape), against=["xla"], options=options)


def test_a_length_of_zero_beside_others() -> None:
    """A dimension of size 0 leaves nothing to transform along the others."""
    run(transformed("FFT", (0, 4)), np.zeros((2, 0, 4), np.complex64), against=["xla"])


@pytest.mark.parametrize("shape", [(8,), (9,), (3, 16), (64,), (2, 8), (5, 1), (2,)], ids=str)
def test_inverse_to_reals_ignores_what_must_be_real(shape: tuple[int, ...]) -> None:
    """The imaginary parts of the first element, and of the last one of an even length, change nothing."""
    n = shape[-1]
    x = argument("IRFFT", "f64", shape)
    other = x.copy()
    other[..., 0] += 1j
    other[..., -1] += 5j * (n % 2 == 0)
    b = sx.XlaBuilder("inverse")
    program = b.build(sx.fft(b.parameter(0, sx.Shape("c128", x.shape)), "IRFFT", (n,)))
    references = [xla(str(program), [given])[0] for given in (x, other)]
    for options in (None, general_only()):
        executable = sx.compile(program, options=options)
        one, two = (executable(given) for given in (x, other))
        np.testing.assert_array_equal(one, two)
        for reference in references:
            assert_same(one, reference, scale=4e-15)


def test_example_of_the_specification() -> None:
    x = np.array([1, 0, 0, 0], np.complex64)
    run(transformed("FFT", (4,)), x, against=["xla"], expected=[np.ones(4, np.complex64)])


@pytest.mark.parametrize("n", [144, 720, 1024])
def test_impulses_are_roots_of_unity(n: int) -> None:
    """Each f64 table entry is rounded once: a transform of one impulse shows it.

    At lengths at which it meets few factors that are not exact; each more of them is a rounding more.
    """
    x = np.zeros(n, np.complex128)
    x[1] = 1
    (result,) = run(transformed("FFT", (n,)), x, against=[])
    roots = roots_of_unity(n)
    np.testing.assert_allclose(result.real, roots.real.astype(float), rtol=0, atol=2.3e-16)
    np.testing.assert_allclose(result.imag, roots.imag.astype(float), rtol=0, atol=2.3e-16)


@pytest.mark.parametrize("n", [360, 1009])
def test_tables_are_rounded_once(n: int) -> None:
    table = Powers(n, -1, n, rows=2).values().reshape(2, n)[1]
    roots = roots_of_unity(n)
    np.testing.assert_allclose(table.real, roots.real, rtol=0, atol=1e-18)
    np.testing.assert_allclose(table.imag, roots.imag, rtol=0, atol=1e-18)


def roots_of_unity(n: int) -> np.ndarray:
    """exp(-2 pi i j / n) by numpy's longer floats, through angles that are not reduced."""
    angle = -2 * np.pi * np.arange(n, dtype=np.longdouble) / n
    angle = angle * (np.longdouble("3.14159265358979323846264") / np.longdouble(np.pi))
    return np.cos(angle) + np.clongdouble(1j) * np.sin(angle)


@pytest.mark.parametrize("n", [67, 73, 101, 1009])
def test_orders_of_a_prime(n: int) -> None:
    """Both orders have every number once, and the second undoes the first but for its direction."""
    values = Places(n).values()
    forward, backward = values.real.astype(int).tolist(), values.imag.astype(int).tolist()
    assert sorted(forward) == list(range(1, n))
    assert [forward[-q % (n - 1)] for q in backward] == list(range(1, n))
    assert all(b == a * forward[1] % n for a, b in itertools.pairwise(forward))


def test_places_are_numbers_of_f32() -> None:
    """Of primes above 2**24 they would not be."""
    assert isinstance(line(65_537, 1, split=True), Rader)
    assert isinstance(line(9 * 2**21 + 1, 1, split=True), Bluestein)


def test_infinities_and_nans_stay_in_their_line() -> None:
    x = argument("FFT", "f32", (9, 64))
    clean = x.copy()
    x[3, 5] = np.nan
    x[8, 0] = np.inf
    (result,) = run(transformed("FFT", (64,)), x, against=[])
    wanted = run(transformed("FFT", (64,)), clean, against=[])[0]
    assert np.isnan(result[3]).all()
    assert not np.isfinite(result[8]).any()
    rest = [0, 1, 2, 4, 5, 6, 7]
    np.testing.assert_array_equal(result[rest], wanted[rest])


@pytest.mark.parametrize(
    ("shape", "rank"), [((100003, 3), 2), ((1 << 16,), 1), ((9, 1 << 15), 1), ((30011,), 1), ((15121,), 1)], ids=str
)
@pytest.mark.parametrize("kind", ["FFT", "IRFFT"])
def test_long(shape: tuple[int, ...], rank: int, kind: str) -> None:
    """Lengths for which the memory of a thread is in the arena, and ones that threads share."""
    x = argument(kind, "f32", shape)
    (result,) = run(transformed(kind, shape[-rank:]), x, against=[])
    same_as_exact(result, exact(kind, x, shape[-rank:]))


def test_the_same_on_any_number_of_threads() -> None:
    x = argument("RFFT", "f64", (1 << 15,))
    results = [
        run(transformed("RFFT", (1 << 15,)), x, against=[], options=sx.CompileOptions(num_threads=threads))[0]
        for threads in (1, 2)
    ]
    assert_same(*results)


def test_inside_a_program() -> None:
    """Between other operations, in a loop: the kernel is called with memory of the arena."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        def body(state: sx.XlaOp) -> sx.XlaOp:
            i, y = state
            spectrum = sx.fft(y, "RFFT", (48,))
            return sx.tuple([i + 1, sx.fft(spectrum * 0.5, "IRFFT", (48,))])

        init = sx.tuple([b.constant(0, "s32"), x + 1.0])
        return sx.get_tuple_element(sx.while_(lambda state: sx.get_tuple_element(state, 0) < 3, body, init), 1)

    x = argument("RFFT", "f64", (5, 48))
    run(make, x, against=["xla"], expected=[(x + 1.0) / 8], scale=XLA_SCALE["f64"])


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((5, 48), 1), ((9, 20), 2), ((3, 67), 1), ((13, 3, 10), 3), ((1 << 15,), 1), ((11, 1009), 1), ((15121,), 1)],
)
def test_in_place(shape: tuple[int, ...], rank: int) -> None:
    """Between other operations a transform may overwrite its operand."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        y = sx.fft(sx.neg(x), "FFT", shape[-rank:])
        return sx.neg(sx.fft(y, "IFFT", shape[-rank:]))

    x = argument("FFT", "f64", shape)
    run(make, x, against=[], expected=[x], scale=4e-15)


def test_lengths_of_complex_arrays_are_not_read() -> None:
    """The specification transforms what is there; XLA:CPU takes the length, and leaves the rest undefined."""
    text = """func.func public @main(%x: tensor<4xcomplex<f64>>) -> tensor<4xcomplex<f64>> {
      %0 = stablehlo.fft %x, type = FFT, length = [3] : (tensor<4xcomplex<f64>>) -> tensor<4xcomplex<f64>>
      return %0 : tensor<4xcomplex<f64>>
    }"""
    x = argument("FFT", "f64", (4,))
    same_as_exact(sx.compile(text)(x), exact("FFT", x, (4,)))


def test_what_jax_sends() -> None:
    import jax

    with jax.enable_x64(True):
        x = argument("FFT", "f64", (4, 6))
        text = jax.jit(lambda v: jax.numpy.fft.ifft2(jax.numpy.fft.fft2(v))).lower(x).as_text()
    (result,) = sx.compile(text).execute([x])
    assert_same(result, x, scale=1e-15)
