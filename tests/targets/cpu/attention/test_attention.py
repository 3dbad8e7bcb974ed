"""Attention as one kernel, as JAX and PyTorch write it. Oracles: numpy in f64, and the same program not fused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.match import attention_mask
from stablexla.targets.pipeline.steps import PREPARE

Function = Callable[..., Any]


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.dtype(dtype))


def heads(q: Any, k: Any, v: Any) -> Any:
    """BNTH, the scale before the softmax."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * 0.3
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def scaled_query(q: Any, k: Any, v: Any) -> Any:
    """The scale on the query, and the exponentials divided by a sum that is kept as a dimension."""
    scores = jnp.einsum("hqd,hkd->hqk", q / 3.0, k)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return jnp.einsum("hqk,hkd->hqd", powers / powers.sum(-1, keepdims=True), v)


def without_maximum(q: Any, k: Any, v: Any) -> Any:
    """Powers may be of any size: the division stays where it is."""
    powers = jnp.exp(jnp.einsum("hqd,hkd->hqk", q, k))
    return jnp.einsum("hqk,hkd->hqd", powers / powers.sum(-1, keepdims=True), v)


def soft_cap(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.tanh(jnp.einsum("hqd,hkd->hqk", q, k) / 5.0) * 5.0
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def one_head(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T, axis=-1) @ v


def keys_by_features(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hdk->hqk", q, k), axis=-1), v)


def features_first(q: Any, k: Any, v: Any) -> Any:
    """Values and the result along the keys and the queries."""
    return jnp.einsum("hqk,hdk->hdq", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), axis=-1), v)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = jnp.where(mask, jnp.einsum("hqd,hkd->hqk", q, k), -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def without_weights(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A key of its own for what is left (an attention sink): all weights of a row may be 0."""
    scores = jnp.where(mask, jnp.einsum("hqd,hkd->hqk", q, k), -1e30)
    most = jnp.maximum(scores.max(-1, keepdims=True), 0.5)
    powers = jnp.exp(scores - most)
    total = powers.sum(-1, keepdims=True) + jnp.exp(0.5 - most)
    return jnp.einsum("hqk,hkd->hqd", powers / total, v)


def masked_sums(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Softmax's own `where`: rows without anything are NaN."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1, where=mask), v)


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) + bias, axis=-1), v)


def decoding(q: Any, keys: Any, values: Any, place: Any) -> Any:
    """One query, and keys up to a place known when it runs."""
    scores = jnp.einsum("hd,khd->hk", q, keys)
    scores = jnp.where(jnp.arange(keys.shape[0]) <= place, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("hk,khd->hd", jax.nn.softmax(scores, axis=-1), values)


def torch_like(q: Any, k: Any, v: Any) -> Any:
    """Products of three dimensions, softmax of four: what PyTorch's decompositions give."""
    b, h, t, d = q.shape
    s = k.shape[2]
    scores = jnp.einsum("hqd,hkd->hqk", q.reshape(b * h, t, d), k.reshape(b * h, s, d)).reshape(b, h, t, s)
    weights = jax.nn.softmax(scores * 0.25, axis=-1).reshape(b * h, t, s)
    return jnp.einsum("hqk,hkd->hqd", weights, v.reshape(b * h, s, d)).reshape(b, h, t, d)


standard = jax.nn.dot_product_attention


def causal(*arguments: Any) -> Any:
    return standard(*arguments, is_causal=True)


def with_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return standard(q, k, v, mask=mask)


def with_bias(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return standard(q, k, v, bias)


def three(heads: int, queries: int, keys: int, depth: int, width: int | None = None) -> list[np.ndarray]:
    return [
        numbers(heads, queries, depth),
        numbers(heads, keys, depth, seed=1),
        numbers(heads, keys, width or depth, seed=2),
    ]


def btnh(batch: int, queries: int, keys: int, heads: int, depth: int, shared: int = 1) -> list[np.ndarray]:
    """As `jax.nn.dot_product_attention` takes them; `shared` queries' heads have one head of keys."""
    return [
        numbers(batch, queries, heads, depth),
        numbers(batch, keys, heads // shared, depth, seed=1),
        numbers(batch, keys, heads // shared, depth, seed=2),
    ]


def mask_of(*shape: int) -> np.ndarray:
    """Some of each row, nothing of the row in the middle."""
    made = np.random.default_rng(5).random(shape) < 0.6
    made[..., 0] = True
    made[..., shape[-2] // 2, :] = False
    return made


CASES: dict[str, tuple[Function, list[np.ndarray]]] = {
    "blocks of queries": (heads, three(2, 130, 700, 16)),
    "odd sizes": (heads, three(3, 77, 77, 61)),
    "a value's own width": (heads, three(2, 19, 33, 8, 21)),
    "short rows": (heads, three(5, 40, 9, 12)),
    "few queries": (heads, three(3, 4, 50, 24)),
    "one query, odd": (heads, three(3, 1, 37, 13)),
    "two features": (heads, three(2, 9, 20, 2)),
    "two keys": (heads, three(2, 9, 2, 10)),
    "scaled query": (scaled_query, three(2, 17, 40, 16)),
    "without maximum": (without_maximum, three(2, 17, 40, 4)),
    "soft cap": (soft_cap, three(2, 17, 40, 16)),
    "one head": (one_head, [numbers(33, 16), numbers(70, 16, seed=1), numbers(70, 24, seed=2)]),
    "keys by features": (keys_by_features, [numbers(2, 30, 16), numbers(2, 16, 43, seed=1), numbers(2, 43, 16)]),
    "one query, keys by features": (
        keys_by_features, [numbers(2, 1, 16), numbers(2, 16, 43, seed=1), numbers(2, 43, 16)],
    ),
    "features first": (features_first, [numbers(2, 30, 16), numbers(2, 43, 16, seed=1), numbers(2, 10, 43)]),
    "one query, features first": (
        features_first, [numbers(2, 1, 16), numbers(2, 43, 16, seed=1), numbers(2, 10, 43)],
    ),
    "masked": (masked, [*three(2, 20, 43, 8), mask_of(2, 20, 43)]),
    "mask of all heads": (masked, [*three(2, 20, 43, 8), mask_of(20, 43)]),
    "mask of keys": (masked, [*three(2, 20, 43, 8), np.arange(43) < 30]),
    "sums masked": (masked_sums, [*three(2, 20, 43, 8), mask_of(2, 20, 43)]),
    "biased": (biased, [*three(2, 20, 43, 8), numbers(2, 20, 43, seed=7)]),
    "bias of queries": (biased, [*three(2, 20, 43, 8), numbers(20, 1, seed=7)]),
    "decoding": (decoding, [numbers(4, 16), numbers(50, 4, 16, seed=1), numbers(50, 4, 16, seed=2), np.int32(31)]),
    "jax": (standard, btnh(2, 13, 29, 4, 8)),
    "jax, causal": (causal, btnh(2, 29, 29, 4, 8)),
    "jax, masked": (with_mask, [*btnh(2, 13, 29, 4, 8), mask_of(2, 1, 13, 29)]),
    "jax, biased": (with_bias, [*btnh(2, 13, 29, 4, 8), numbers(1, 4, 13, 29)]),
    "jax, shared keys": (standard, btnh(2, 13, 29, 6, 8, shared=3)),
    "jax, one head of keys": (causal, btnh(1, 29, 29, 4, 8, shared=4)),
    "jax, one query": (standard, btnh(2, 1, 29, 4, 8)),
    "jax, one query, shared keys": (standard, btnh(1, 1, 29, 4, 8, shared=2)),
    "torch": (torch_like, [numbers(2, 3, 15, 8), numbers(2, 3, 22, 8, seed=1), numbers(2, 3, 22, 8, seed=2)]),
}  # fmt: skip


def text_of(function: Function, arguments: list[np.ndarray]) -> str:
    text: str = jax.jit(function).lower(*arguments).as_text()
    return text


@cache
def unfused() -> sx.Pipeline:
    """The CPU's pipeline without the pass."""
    return sx.pipeline("cpu").with_step("kernels", [*PREPARE, "stablexla-group", "stablexla-outline"])


def kinds(executable: sx.Executable) -> list[str]:
    return [kernel.name.rsplit("_", 1)[0] for kernel in executable.kernels]


def run(executable: sx.Executable, arguments: list[np.ndarray]) -> np.ndarray:
    return np.asarray(executable(*arguments)).astype(np.float64)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@cache
def compiled(text: str, pipeline: sx.Pipeline | None = None) -> sx.Executable:
    return sx.compile(text, options=sx.CompileOptions(pipeline=pipeline))


@pytest.mark.parametrize("name", CASES)
def test_is_one_kernel_with_the_results_of_several(name: str) -> None:
    function, arguments = CASES[name]
    text = text_of(function, arguments)
    fused = compiled(text)
    assert kinds(fused).count("attention") == 1
    assert not {"contraction", "row", "reduce"} & set(kinds(fused))
    assert all(kernel.path == "emitted" for kernel in fused.kernels if kernel.kind == "attention")
    close(run(fused, arguments), run(compiled(text, unfused()), arguments))


def test_against_numpy() -> None:
    q, k, v = three(2, 21, 50, 16)
    scores = 0.3 * np.einsum("hqd,hkd->hqk", q.astype("f8"), k)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hqk,hkd->hqd", powers / powers.sum(-1, keepdims=True), v.astype("f8"))
    close(run(compiled(text_of(heads, [q, k, v])), [q, k, v]), expected)


@pytest.mark.parametrize(
    ("function", "dtype", "tolerance"),
    [
        (causal, "bfloat16", 2e-2), (heads, "bfloat16", 2e-2), (heads, "float16", 3e-3), (heads, "float64", 1e-13),
        (causal, "float64", 1e-6),
    ],
)  # fmt: skip
def test_of_other_types(function: Function, dtype: str, tolerance: float) -> None:
    """Narrow types have scores and weights of their own type between sums in f32; JAX's own takes powers in f32."""
    arguments = [a.astype(dtype) for a in (three(2, 21, 21, 16) if function is heads else btnh(1, 21, 21, 3, 16, 3))]
    with jax.enable_x64(dtype == "float64"):
        text = text_of(function, arguments)
    fused = compiled(text)
    assert "attention" in kinds(fused)
    close(run(fused, arguments), run(compiled(text, unfused()), arguments), tolerance)


@pytest.mark.parametrize("name", ["odd sizes", "few queries", "one query, odd", "jax, shared keys"])
@pytest.mark.parametrize("bits", [128, 512])
def test_with_vectors_of_other_widths(name: str, bits: int) -> None:
    function, arguments = CASES[name]
    text = text_of(function, arguments)
    step = f"stablexla-emit-kernels{{vector-bits={bits}}},stablexla-assign-buffers{{num-threads=2}}"
    other = compiled(text, sx.pipeline("cpu").with_step("buffers", step))
    close(run(other, arguments), run(compiled(text, unfused()), arguments))


@pytest.mark.parametrize("keys", [7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("function", [heads, causal, features_first, without_weights], ids=lambda f: f.__name__)
def test_long_sums(function: Function, keys: int) -> None:
    """Here the micro-kernel takes 8 terms at once, and up to 16 in blocks of 4; the kernel's own loop all others."""
    q, k, _ = three(2, keys, keys, keys + 1)
    v = numbers(2, keys, 64, seed=2)  # whole tiles
    arguments = btnh(1, keys, keys, 3, 64) if function is causal else [q, k, v]
    if function is features_first:
        arguments[2] = np.ascontiguousarray(v.swapaxes(1, 2))
    if function is without_weights:
        arguments.append(np.broadcast_to(np.arange(keys)[:, None] < 5, (2, keys, keys)).copy())
    text = text_of(function, arguments)
    choices = "usual+attention.short-sums=8+sums.longest-running=8+sums.block=4+contraction.most-blocks=4"
    made = sx.compile(text, options=sx.CompileOptions(choices=choices))
    assert "attention" in kinds(made)
    close(run(made, arguments), run(compiled(text, unfused()), arguments))


@pytest.mark.parametrize("name", ["odd sizes", "jax, causal", "decoding"])
def test_its_own_operations_give_the_same(name: str) -> None:
    """The kernel's body, through the general path."""
    function, arguments = CASES[name]
    text = text_of(function, arguments)
    step = "stablexla-emit-kernels{general-only},stablexla-assign-buffers{num-threads=2}"
    general = compiled(text, sx.pipeline("cpu").with_step("buffers", step))
    assert [kernel.path for kernel in general.kernels if kernel.kind == "attention"] == ["general"]
    close(run(general, arguments), run(compiled(text), arguments))


@pytest.mark.parametrize("function", [heads, without_maximum, masked], ids=lambda f: f.__name__)
@pytest.mark.parametrize("queries", [1, 9])
def test_what_is_not_finite(function: Function, queries: int) -> None:
    """NaN and infinity in each of the arrays reach the results that they reach unfused."""
    clean = three(3, queries, 20, 8)
    if function is masked:
        mask = np.ones((3, queries, 20), bool)
        mask[0, 0], mask[1, :, 7:] = False, False
        clean.append(mask)
    text = text_of(function, clean)
    fused, plain = compiled(text), compiled(text, unfused())
    assert "attention" in kinds(fused)
    close(run(fused, clean), run(plain, clean))
    for place in range(3):
        for value in (np.nan, np.inf, -np.inf):
            arguments = [a.copy() for a in clean]
            arguments[place][1, -1, 3] = value
            close(run(fused, arguments), run(plain, arguments))


# --- masks of indices, and weights of 0 ------------------------------------------------------------------------

QUERIES, KEYS = np.arange(77)[:, None], np.arange(203)[None, :]
HEADS = np.arange(3)[:, None, None]

MASKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "causal": lambda h, i, j: i >= j,
    "behind what was cached": lambda h, i, j: i + 126 >= j,
    "window": lambda h, i, j: (i >= j) & (i - j < 9),
    "window ahead": lambda h, i, j: (j > i + 40) & (j <= i + 90),
    "either side": lambda h, i, j: (j < 7) | (j - i > 110),
    "itself": lambda h, i, j: i + 100 == j,
    "not itself": lambda h, i, j: i + 100 != j,
    "by heads": lambda h, i, j: i + h * 60 >= j,
    "nothing of the first rows": lambda h, i, j: i - 40 >= j,
    "the last keys": lambda h, i, j: j >= 150,
    "nothing": lambda h, i, j: j + i < 0,
    "blocks": lambda h, i, j: i // 8 >= j // 8,
    "numbers that wrap around": lambda h, i, j: i + 2147483600 >= j,
}


def iotas(q: Any, k: Any) -> list[Any]:
    shape = (q.shape[0], q.shape[1], k.shape[1])
    return [jax.lax.broadcasted_iota(np.int32, shape, d) for d in range(3)]


def expected_of(q: Any, k: Any, v: Any, mask: Any, fill: float = -np.inf) -> np.ndarray:
    """Oracle: numpy in f64, without anything left out."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    with np.errstate(all="ignore"):
        scores = np.where(mask, q @ k.transpose(0, 2, 1), fill)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hqk,hkd->hqd", powers / powers.sum(-1, keepdims=True), v)


def broken(arguments: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The arguments, and copies with NaN and infinity at the first, some and the last key, in keys and in values."""
    cases = [arguments]
    for place in (1, 2):
        for key, value in ((0, np.nan), (0, np.inf), (100, np.nan), (-1, np.inf), (-1, np.nan)):
            cases.append([a.copy() for a in arguments])
            cases[-1][place][1, key, 3] = value
    return cases


@pytest.mark.parametrize("fill", [-np.inf, -1e9])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_indices(name: str, fill: float) -> None:
    """What a mask hides is left out; NaN and infinity in keys and in values reach what they reach by IEEE-754."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.where(MASKS[name](*iotas(q, k)), jnp.einsum("hqd,hkd->hqk", q, k), fill)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)

    arguments = three(3, 77, 203, 16, 40)
    arguments[0] /= 4  # scores of about 1, so that powers have no larger errors than the tolerance
    text = text_of(attend, arguments)
    fused, plain = compiled(text), compiled(text, unfused())
    assert kinds(fused).count("attention") == 1
    with np.errstate(over="ignore"):
        mask = MASKS[name](HEADS.astype(np.int32), QUERIES.astype(np.int32), KEYS.astype(np.int32))
    for case in broken(arguments):
        result = run(fused, case)
        close(result, run(plain, case))
        close(result, expected_of(*case, mask, fill))


def test_bounds_of_a_mask_are_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an index is used twice in each of many steps."""
    sums, rule = 0, attention_mask._RULES["arith.addi"]

    def counted(*given: Any) -> Any:
        nonlocal sums
        sums += 1
        return rule(*given)

    monkeypatch.setitem(attention_mask._RULES, "arith.addi", counted)

    def attend(q: Any, k: Any, v: Any) -> Any:
        _, i, j = iotas(q, k)
        for _ in range(9):
            i = i + i
        scores = jnp.where(i >= j, jnp.einsum("hqd,hkd->hqk", q, k), -jnp.inf)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)

    arguments = three(3, 77, 203, 16, 40)
    result = run(compiled(text_of(attend, arguments)), arguments)
    close(result, expected_of(*arguments, (QUERIES << 9) >= KEYS))
    assert 9 <= sums < 100


@pytest.mark.parametrize("fill", [-np.inf, -1e9, -100.0])
def test_masks_that_are_added(fill: float) -> None:
    arguments = three(3, 77, 203, 16, 40)
    arguments[0] /= 4  # scores of about 1, so that powers have no larger errors than the tolerance
    # In a row of nothing but -100 the scores have lost seven bits, of -1e9 all.
    some = (QUERIES > 5) | (fill == -100.0)
    mask = np.stack([QUERIES >= KEYS, (KEYS > 30) & (KEYS < 99) & some, KEYS + 0 * QUERIES > 180])
    bias = np.where(mask, 0, fill).astype(np.float32)
    text = text_of(biased, [*arguments, bias])
    fused, plain = compiled(text), compiled(text, unfused())
    for case in broken(arguments):
        if fill == -100.0 and np.isinf(case[2]).any():
            continue  # times infinity, e**-100 is infinity, and the 0 that it counts as is NaN
        result = run(fused, [*case, bias])
        close(result, run(plain, [*case, bias]))
        q, k, v = (a.astype(np.float64) for a in case)
        with np.errstate(all="ignore"):
            scores = (q @ k.transpose(0, 2, 1) + bias).astype(np.float32).astype(np.float64)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            close(result, np.einsum("hqk,hkd->hqd", powers / powers.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("sizes", [(6, 6), (7, 65), (64, 64), (100, 99), (131, 257)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2e-2), ("float32", 2e-6), ("float64", 1e-13)])
def test_windows_of_other_sizes_and_types(sizes: tuple[int, int], dtype: str, tolerance: float) -> None:
    """Also in vectors of other widths: the steps over keys are those of vectors and of unrolling."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        _, i, j = iotas(q, k)
        scores = jnp.where((i >= j) & (j >= i - 20), jnp.einsum("hqd,hkd->hqk", q, k), -jnp.inf)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)

    queries, keys = sizes
    arguments = [(a / 2).astype(dtype) for a in three(2, queries, keys, 8)]
    with jax.enable_x64(dtype == "float64"):
        text = text_of(attend, arguments)
    i, j = np.arange(queries)[:, None], np.arange(keys)[None]
    expected = expected_of(*arguments, (i >= j) & (j >= i - 20))
    plain = run(compiled(text, unfused()), arguments)
    for bits in (128, 256, 512):
        result = run(sx.compile(text, options=sx.CompileOptions(vector_bits=bits)), arguments)
        close(result, plain, tolerance)
        close(result, expected, tolerance)


def test_keys_of_the_mask_are_left_out() -> None:
    """Conditions of tiles in the first product and a range of keys in the second, where there is a mask for it."""

    def conditions(function: Function, *more: np.ndarray) -> int:
        text = text_of(function, [*btnh(1, 99, 99, 4, 8), *more])
        return str(sx.compile(text, options=sx.CompileOptions(vector_bits=256)).ir("buffers")).count("scf.if")

    assert conditions(standard) < conditions(with_mask, mask_of(1, 1, 99, 99)) < conditions(causal)


def test_weights_that_would_be_denormal_are_zero() -> None:
    """Large values do not show the keys of the powers e**-88 and e**-100, but that of e**-86.9."""
    q, v = np.ones((1, 6, 1), np.float32), np.full((1, 3, 1), 1e37, np.float32)
    k, v[0, 0, 0] = np.array([0, -88, -100], np.float32).reshape(1, 3, 1), 0
    assert not run(compiled(text_of(heads, [q, k * np.float32(1 / 0.3), v])), [q, k * np.float32(1 / 0.3), v]).any()
    k[0, 1, 0] = -86.9
    result = run(compiled(text_of(heads, [q, k, v])), [q, k * np.float32(1 / 0.3), v])
    np.testing.assert_allclose(result, math.exp(-86.9) * 1e37, rtol=1e-4)


def test_large_numbers() -> None:
    """Scores whose powers would overflow without the maximum."""
    arguments = three(2, 9, 30, 8)
    arguments[0] *= 1000
    text = text_of(heads, arguments)
    close(run(compiled(text), arguments), run(compiled(text, unfused()), arguments))


@pytest.mark.parametrize("function", [heads, masked], ids=lambda f: f.__name__)
@pytest.mark.parametrize("queries", [5, 9])
def test_values_next_to_overflow(function: Function, queries: int) -> None:
    """Their weighted mean is in range, their sum is not: also where one matrix of the batch holds such values alone."""
    arguments = three(2, queries, 30, 8)
    if function is masked:
        arguments.append(np.arange(30) < np.full((2, queries, 1), 29))
    arguments[2][0] *= np.finfo(np.float32).max / np.abs(arguments[2][0]).max()
    text = text_of(function, arguments)
    fused = compiled(text)
    assert "attention" in kinds(fused)
    result, expected = run(fused, arguments), run(compiled(text, unfused()), arguments)
    assert np.isfinite(result).all()
    for made, wanted in zip(result, expected, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=np.abs(wanted).max() * 1e-6)


def test_results_do_not_depend_on_threads() -> None:
    function, arguments = CASES["blocks of queries"]
    text = text_of(function, arguments)
    one = sx.compile(text, options=sx.CompileOptions(num_threads=1))
    assert run(one, arguments).tobytes() == run(compiled(text), arguments).tobytes()


# --- what is left alone -----------------------------------------------------------------------------------------


def weights_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", weights, v), weights


def gradient(q: Any, k: Any, v: Any) -> Any:
    return jax.grad(lambda *a: heads(*a).sum(), (0, 1, 2))(q, k, v)


def without_softmax(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jnp.maximum(jnp.einsum("hqd,hkd->hqk", q, k), 0), v)


def other_axis(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), axis=1), v)


def normalized_layers(q: Any, k: Any, v: Any) -> Any:
    x = jnp.einsum("hqd,hkd->hqk", q, k)
    return jnp.einsum("hqk,hkd->hqd", x / (x * x).sum(-1, keepdims=True), v)


@pytest.mark.parametrize(
    "function", [weights_too, gradient, without_softmax, other_axis, normalized_layers], ids=lambda f: f.__name__
)
def test_other_programs_are_left_alone(function: Function) -> None:
    arguments = three(2, 9, 20, 8)
    text = text_of(function, arguments)
    program = compiled(text)
    assert "attention" not in kinds(program)
    for made, expected in zip(program(*arguments), compiled(text, unfused())(*arguments), strict=True):
        close(np.asarray(made), np.asarray(expected))


@pytest.mark.parametrize("sizes", [(0, 5, 7, 4), (2, 0, 7, 4), (2, 5, 1, 4), (2, 5, 7, 1)])
def test_sizes_of_nothing_and_one(sizes: tuple[int, int, int, int]) -> None:
    arguments = three(*sizes)
    text = text_of(heads, arguments)
    close(run(compiled(text), arguments), run(compiled(text, unfused()), arguments))


def test_a_select_between_computed_sides() -> None:
    """Neither side of the select is a constant of the program, and the weights are divided by their sum after it."""

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k)
        near = jnp.arange(scores.shape[1])[:, None] > jnp.arange(scores.shape[2]) - 3
        weights = jnp.where(near, jnp.exp(scores - scores.max(-1, keepdims=True)), 0.0)
        return jnp.einsum("hqk,hkd->hqd", weights / (weights.sum(-1, keepdims=True) + 1e-6), v)

    arguments = three(2, 20, 43, 8)
    text = text_of(function, arguments)
    close(run(compiled(text), arguments), run(compiled(text, unfused()), arguments))


def test_equal_layers_are_one_kernel() -> None:
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = causal(x + 1, x * 2, jnp.sin(x))
        return x

    x = numbers(1, 20, 2, 8)
    program = compiled(text_of(layers, [x]))
    assert [(kernel.name, kernel.calls) for kernel in program.kernels if kernel.kind == "attention"] == [
        ("attention_0", 3)
    ]


@pytest.mark.parametrize("function", [sx.logistic, sx.tanh])
def test_layers_with_sums_of_their_rows_are_no_attention(function: Any) -> None:
    """Two products with a gate and a normalisation between them, whose logistic function is an exponential inside."""
    b = sx.XlaBuilder("layers")
    x, first = b.parameter(0, sx.f32[64, 128]), b.parameter(1, sx.f32[128, 128])
    hidden = x @ first
    gated = hidden * function(hidden)
    scale = sx.rsqrt(sx.reduce(gated * gated, 0.0, sx.add, (1,)) / 128.0 + 1e-5)
    program = b.build(sx.mul(gated, scale, (0,)) @ b.parameter(2, sx.f32[128, 64]))
    kinds = [kernel.kind for kernel in sx.compile(program).kernels]
    assert "attention" not in kinds
    assert kinds.count("contraction") == 2
