"""Random numbers, run.

Oracles: for bits XLA:CPU, and blocks computed here from the algorithms' publication; for distributions the tests of
scipy, on fixed seeds. XLA:CPU gives bits for floats as unsigned integers of their width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests import oracles
from tests.programs import general_only

DRAWS = 1_000_000
# The smallest probability at which a sample is still believed; seeds are fixed, so that no test fails by chance.
BELIEVED = 1e-3
WORD = (1 << 32) - 1


def drawing(make: Any, options: sx.CompileOptions | None = None) -> sx.Executable:
    """A program without parameters."""
    b = sx.XlaBuilder("draw")
    root = make(b)
    return sx.compile(b.build(sx.tuple(root) if isinstance(root, list) else root), options=options)


def uniform(name: str, low: Any, high: Any, *shape: int, options: sx.CompileOptions | None = None) -> sx.Executable:
    return drawing(
        lambda b: sx.rng_uniform(b.constant(low, name), b.constant(high, name), sx.Shape(name, shape)), options
    )


def normal(name: str, mu: float, sigma: float, *shape: int) -> sx.Executable:
    return drawing(lambda b: sx.rng_normal(b.constant(mu, name), b.constant(sigma, name), sx.Shape(name, shape)))


def seeded(executable: sx.Executable, seed: int) -> Any:
    executable.seed(seed)
    return executable()


def probability(x: np.ndarray, distribution: str, *parameters: float) -> float:
    """The probability of a sample at least as far from a distribution; of so many draws the limit is near enough."""
    return float(scipy.stats.kstest(x, distribution, args=parameters, method="asymp").pvalue)


# --- distributions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "low", "high"), [("f32", 0.0, 1.0), ("f32", -3.0, 5.0), ("f64", -1e300, 1e300)])
def test_uniform_floats(name: str, low: float, high: float) -> None:
    x = seeded(uniform(name, low, high, DRAWS), 1).astype(np.float64)
    assert x.min() >= low
    assert x.max() < high
    assert probability(x / high, "uniform", low / high, 1 - low / high) > BELIEVED


@pytest.mark.parametrize(("name", "mu", "sigma"), [("f32", 0.0, 1.0), ("f32", -3.0, 0.25), ("f64", 100.0, 7.0)])
def test_normal_floats(name: str, mu: float, sigma: float) -> None:
    x = seeded(normal(name, mu, sigma, DRAWS), 2).astype(np.float64)
    assert probability(x, "norm", mu, sigma) > BELIEVED
    assert abs(scipy.stats.kurtosis(x)) < 0.03
    assert np.abs((x - mu) / sigma).max() > 4.5


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e5m2", "f8e4m3fn"])
def test_small_floats(name: str) -> None:
    """Rounding never reaches the upper bound, and the moments are right."""
    x = seeded(uniform(name, 1.0, 3.0, 50_000), 3)
    assert x.dtype == element_type(name).dtype
    wide = x.astype(np.float64)
    assert wide.min() == 1
    assert wide.max() < 3
    assert abs(wide.mean() - 2) < 0.15
    y = seeded(normal(name, 0.5, 2.0, 50_000), 4).astype(np.float64)
    assert abs(y.mean() - 0.5) < 0.05
    assert abs(y.std() - 2) < 0.05


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-5, 7), (3, 4), (-(2**31), 2**31 - 1), (-(2**31), 2**30), (0, 2**31 - 1)]
)
def test_uniform_integers(low: int, high: int) -> None:
    """Every number is as likely, also where the range is no divisor of anything."""
    x = seeded(uniform("s32", low, high, DRAWS), 5).astype(np.int64)
    assert x.min() >= low
    assert x.max() < high
    if high - low <= 100:
        counts = np.bincount(x - low, minlength=high - low)
        assert high - low == 1 or scipy.stats.chisquare(counts).pvalue > BELIEVED
    else:
        assert probability(x, "uniform", low, high - low) > BELIEVED


@pytest.mark.parametrize("name", ["s4", "u4", "s8", "u8", "s16", "u16", "u32", "s64", "u64", "pred"])
def test_integer_types(name: str) -> None:
    type_ = element_type(name)
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = low + 3 * ((1 << type_.bits) // 4) if type_.bits > 1 else 1
    x = seeded(uniform(name, bool(low) if name == "pred" else low, True if name == "pred" else high, 60_000), 6)
    assert x.dtype == type_.dtype
    drawn = x.astype(object)
    assert drawn.min() >= low
    assert drawn.max() < high
    if high - low > 1:
        buckets = np.array([int(v - low) * 12 // (high - low) for v in drawn])
        assert scipy.stats.chisquare(np.bincount(buckets, minlength=12)).pvalue > BELIEVED


def test_half_open() -> None:
    """The numbers next to the bounds, and ranges in which nothing is."""
    one = np.float32(1)
    below = np.nextafter(one, np.float32(0))
    assert set(seeded(uniform("f32", float(below), 1.0, 1000), 7).tolist()) == {float(below)}
    assert (seeded(uniform("f32", -1e-45, 0.0, 1000), 8) == np.float32(-1e-45)).all()
    widest = float(np.finfo(np.float32).max)
    x = seeded(uniform("f32", -widest, widest, 100_000), 9)
    assert np.isfinite(x).all()
    assert abs((x > 0).mean() - 0.5) < 0.01
    for low, high in ((2.0, 2.0), (2.0, 1.0)):
        assert (seeded(uniform("f32", low, high, 100), 10) == 2).all()
        assert (seeded(uniform("s32", int(low), int(high), 100), 10) == 2).all()


def test_bounds_that_come_as_arguments() -> None:
    b = sx.XlaBuilder("draw")
    low, high = b.parameter(0, sx.f32[()]), b.parameter(1, sx.f32[()])
    executable = sx.compile(b.build(sx.rng_uniform(low, high, sx.f32[1000])))
    for bounds in ((0.0, 1.0), (-8.0, -7.5)):
        x = executable(*map(np.float32, bounds))
        assert bounds[0] <= x.min() < x.max() < bounds[1]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (7,), (2, 1, 3, 1, 2, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    for make in (uniform("f32", 0.0, 1.0, *shape), normal("f64", 0.0, 1.0, *shape), uniform("u8", 0, 9, *shape)):
        assert make().shape == shape


# --- when numbers are new, and when they come again -----------------------------------------------------------------


def test_each_run_and_each_operation_draws_anew() -> None:
    def two(b: sx.XlaBuilder) -> list[sx.XlaOp]:
        bounds = b.constant(0.0), b.constant(1.0)
        return [sx.rng_uniform(*bounds, sx.f32[1000]), sx.rng_uniform(*bounds, sx.f32[1000])]

    executable = drawing(two)
    drawn = [*executable(), *executable(), *drawing(two)()]
    for i, x in enumerate(drawn):
        for y in drawn[:i]:
            assert (x != y).mean() > 0.99


def test_two_operations_are_independent() -> None:
    def two(b: sx.XlaBuilder) -> list[sx.XlaOp]:
        bounds = b.constant(0.0), b.constant(1.0)
        return [sx.rng_uniform(*bounds, sx.f32[DRAWS]), sx.rng_normal(*bounds, sx.f32[DRAWS])]

    x, y = seeded(drawing(two), 11)
    assert scipy.stats.pearsonr(x, y).pvalue > BELIEVED
    assert scipy.stats.pearsonr(x[:-1], x[1:]).pvalue > BELIEVED
    cells = np.histogram2d(x, scipy.stats.norm.cdf(y), bins=10)[0]
    assert scipy.stats.chisquare(cells.reshape(-1)).pvalue > BELIEVED


def test_equal_seeds_repeat_all_that_follows() -> None:
    executable = uniform("f32", 0.0, 1.0, 500)
    executable.seed(12)
    first = [executable() for _ in range(3)]
    executable.seed(12)
    for expected in first:
        np.testing.assert_array_equal(executable(), expected)
    other = uniform("f32", 0.0, 1.0, 500)
    np.testing.assert_array_equal(seeded(other, 12), first[0])
    assert (seeded(executable, 13) != first[0]).any()


def test_each_turn_of_a_loop_draws_anew() -> None:
    def make(b: sx.XlaBuilder) -> sx.XlaOp:
        def body(state: sx.XlaOp) -> sx.XlaOp:
            i, x = state
            one = sx.rng_uniform(x.builder.constant(0.0), x.builder.constant(1.0), sx.f32[1, 50])
            return sx.tuple((i + 1, sx.dynamic_update_slice(x, one, (i, x.builder.constant(0)))))

        start = sx.tuple((b.constant(0), sx.broadcast(b.constant(0.0), (20, 50))))
        return sx.while_(lambda s: s[0] < 20, body, start)[1]

    executable = drawing(make)
    x = seeded(executable, 14)
    assert len(np.unique(x)) > 980
    np.testing.assert_array_equal(seeded(executable, 14), x)


def test_a_draw_that_nobody_reads_changes_nothing_for_the_next() -> None:
    """Draws are effects: they stay, so that what follows is the same number whether one is read or not."""

    def make(read: bool) -> Any:
        def two(b: sx.XlaBuilder) -> list[sx.XlaOp]:
            bounds = b.constant(0.0), b.constant(1.0)
            x, y = (sx.rng_uniform(*bounds, sx.f32[10]) for _ in range(2))
            return [y, x] if read else [y]

        return drawing(two)

    np.testing.assert_array_equal(seeded(make(True), 15)[0], np.asarray(seeded(make(False), 15)).reshape(-1))


def test_the_general_path_draws_the_same() -> None:
    for name in ("f32", "s64", "bf16"):
        plain, general = (uniform(name, 0, 9, 300, options=o) for o in (None, general_only()))
        np.testing.assert_array_equal(seeded(plain, 16), seeded(general, 16))


# --- rng_bit_generator ----------------------------------------------------------------------------------------------


STATE = np.array([0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFC, 0x1122334455667788], np.uint64)
ALGORITHMS = [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 2), ("rng_default", 3)]
SHAPES = [
    *((), (0,), (1,), (7,), (8,), (1001,), (20_000,), (3, 5), (5, 3), (3, 4), (4, 3), (1, 1), (2, 33), (33, 2)),
    *((5, 4, 3), (3, 3, 2), (2, 0, 3), (3, 1, 5), (4, 1500), (3, 4, 700)),
]


def bits_program(algorithm: str, length: int, shape: sx.Shape) -> sx.XlaComputation:
    b = sx.XlaBuilder("bits")
    return b.build(sx.rng_bit_generator(algorithm, b.parameter(0, sx.u64[length]), shape))


def assert_as_xla(algorithm: str, length: int, shape: sx.Shape, *, general: bool = False) -> None:
    computation = bits_program(algorithm, length, shape)
    # XLA:CPU of jaxlib 0.12 cannot hand out an array of s4; its bits are those of u4.
    asked = shape if shape.element_type.name != "s4" else sx.Shape("u4", shape.dimensions)
    expected = oracles.xla(str(bits_program(algorithm, length, asked)), [STATE[:length]])
    for options in (None, general_only()) if general else (None,):
        state, bits = sx.compile(computation, options=options).execute([STATE[:length]])
        np.testing.assert_array_equal(state, expected[0])
        assert bits.shape == shape.dimensions
        assert bits.dtype == shape.element_type.dtype
        np.testing.assert_array_equal(raw(bits), raw(expected[1]))


def raw(x: np.ndarray) -> np.ndarray:
    """An array's bits, without those above an element of less than a byte."""
    bits = np.ascontiguousarray(x).reshape(-1)
    return bits.view(np.uint8) & ((1 << min(8, element_type(x.dtype).bits)) - 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["u32", "u64"])
@pytest.mark.parametrize(("algorithm", "length"), ALGORITHMS[:3])
def test_bits_of_all_shapes(algorithm: str, length: int, name: str, shape: tuple[int, ...]) -> None:
    """The counter goes over its end: what comes after is carried into the upper half, where there is one."""
    assert_as_xla(algorithm, length, sx.Shape(name, shape), general=shape in ((3, 5), (2, 33)))


@pytest.mark.parametrize("name", ["u4", "s4", "u8", "s8", "u16", "s16", "s32", "u64", "s64"])
@pytest.mark.parametrize(("algorithm", "length"), [ALGORITHMS[0], ALGORITHMS[-1]])
def test_bits_of_all_integers(name: str, algorithm: str, length: int) -> None:
    assert_as_xla(algorithm, length, sx.Shape(name, (137,)))


def test_the_default_takes_both_states() -> None:
    for length in (2, 3):
        assert_as_xla("rng_default", length, sx.u32[9])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8e5m2", "f4e2m1fn"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_bits_of_floats(name: str, algorithm: str) -> None:
    """As those of integers of the same width, which XLA:CPU gives in their place."""
    type_ = element_type(name)
    shapes = [sx.Shape(t, (41,)) for t in (name, f"u{type_.bits}")]
    results = [sx.compile(bits_program(algorithm, 2, shape)).execute([STATE[:2]]) for shape in shapes]
    assert results[0][1].dtype == type_.dtype
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(raw(results[0][1]), raw(results[1][1]))


def threefry(key: int, counter: int) -> list[int]:
    """A block as it is published, in Python's integers."""
    keys = [key & WORD, key >> 32, (key & WORD) ^ (key >> 32) ^ 0x1BD11BDA]
    x, y = ((counter & WORD) + keys[0]) & WORD, ((counter >> 32) + keys[1]) & WORD
    for group in range(5):
        for amount in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & WORD
            y = ((y << amount | y >> (32 - amount)) & WORD) ^ x
        x, y = (x + keys[(group + 1) % 3]) & WORD, (y + keys[(group + 2) % 3] + group + 1) & WORD
    return [x, y]


def philox(key: int, counter: int) -> list[int]:
    words = [counter >> shift & WORD for shift in (0, 32, 64, 96)]
    low, high = key & WORD, key >> 32
    for _ in range(10):
        one, other = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [other >> 32 ^ words[1] ^ low, other & WORD, one >> 32 ^ words[3] ^ high, one & WORD]
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return words


def test_blocks_as_published() -> None:
    """Known answers of the publication's own test vectors, and blocks one after the other."""
    assert threefry(0, 0) == [0x6B200159, 0x99BA4EFE]
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    key, counter, upper = (int(n) for n in STATE)
    for algorithm, expected in {
        "rng_three_fry": [w for n in range(9) for w in threefry(key, (counter + n) % 2**64)],
        "rng_philox": [w for n in range(9) for w in philox(key, ((upper << 64) + counter + n) % 2**128)],
    }.items():
        length = 2 if algorithm == "rng_three_fry" else 3
        computation = bits_program(algorithm, length, sx.u32[len(expected)])
        state, bits = sx.compile(computation).execute([STATE[:length]])
        np.testing.assert_array_equal(bits, np.array(expected, np.uint32))
        assert int(state[1]) == (counter + 9) % 2**64
        assert length == 2 or int(state[2]) == upper + 1


def test_states_follow_one_another() -> None:
    """Two halves, the second from the first one's state, are the whole."""
    b = sx.XlaBuilder("bits")
    state, first = sx.rng_bit_generator("rng_philox", b.parameter(0, sx.u64[3]), sx.u32[400])
    last, second = sx.rng_bit_generator("rng_philox", state, sx.u32[400])
    *halves, end = sx.compile(b.build(sx.tuple((first, second, last)))).execute([STATE])
    state_, whole = sx.compile(bits_program("rng_philox", 3, sx.u32[800])).execute([STATE])
    np.testing.assert_array_equal(np.concatenate(halves), whole)
    np.testing.assert_array_equal(end, state_)


@pytest.mark.parametrize("vector_bits", [128, 256, 512])
def test_every_width_of_vectors(vector_bits: int) -> None:
    cases = (("rng_three_fry", sx.u32[1003]), ("rng_three_fry", sx.u32[3, 4, 21]), ("rng_philox", sx.u64[501]))
    for algorithm, shape in cases:
        computation = bits_program(algorithm, 2, shape)
        options = sx.CompileOptions(vector_bits=vector_bits)
        results = [sx.compile(computation, options=o).execute([STATE[:2]])[1] for o in (options, general_only())]
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("shape", [(1000,), (7, 33), (33001,)], ids=str)
def test_jax_random(shape: tuple[int, ...]) -> None:
    """Its own Threefry, which is a loop of five turns in StableHLO."""
    import jax

    key = np.array([42, 77], np.uint32)
    function = jax.jit(lambda k: jax.random.bits(jax.random.wrap_key_data(k), shape))
    text = function.lower(key).as_text()
    np.testing.assert_array_equal(sx.compile(text)(key), np.asarray(function(key)))
    usual = sx.compile(text, options=sx.CompileOptions(choices="usual"))
    np.testing.assert_array_equal(usual(key), np.asarray(function(key)))
    assert "scf.while" not in usual.ir("tensor")


def test_refusals() -> None:
    text = """
    func.func public @main(%s: tensor<3xui64>) -> (tensor<3xui64>, tensor<4xui32>) {
      %0:2 = "stablehlo.rng_bit_generator"(%s) <{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}>
        : (tensor<3xui64>) -> (tensor<3xui64>, tensor<4xui32>)
      return %0#0, %0#1 : tensor<3xui64>, tensor<4xui32>
    }"""
    with pytest.raises(sx.StablexlaError, match=r"the state u64\[3\] for THREE_FRY"):
        sx.compile(text)
    for state in ("f32", "2xf64", "2x2xui64"):
        with pytest.raises(sx.UnsupportedError, match="THREE_FRY, which takes 2 integers of 64 bits"):
            sx.compile(text.replace("3xui64", state))


def test_inside_a_computation() -> None:
    """Each element draws its own number."""
    b = sx.XlaBuilder("draw")
    drawn = b.build(sx.map(b.parameter(0, sx.f32[50]), lambda v: sx.rng_uniform(v, v + 1.0, sx.f32[()])))
    x = np.arange(50, dtype=np.float32)
    found = sx.compile(drawn)(x) - x
    assert found.min() >= 0
    assert found.max() <= 1
    assert len(set(found.tolist())) > 40
