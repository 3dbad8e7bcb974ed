"""Gates of lowering rules: other forms of an operation, and the same results.

Oracle: the usual form, and numpy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx

X = np.random.default_rng(5).permutation(40 * 40).reshape(40, 40).astype(np.float32)


def sums(x: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce_window(x, x.builder.constant(0.0, "f32"), sx.add, (1, 12), (1, 1), "VALID")


def pools(x: sx.XlaOp) -> sx.XlaOp:
    low = x.builder.constant(float("-inf"), "f32")
    image = sx.reshape(x, (1, 20, 20, 4))
    return sx.reduce_window(image, low, sx.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))


def ordered(x: sx.XlaOp) -> sx.XlaOp:
    return sx.sort(x, sx.lt, dimension=1)


def few_ordered(x: sx.XlaOp) -> sx.XlaOp:
    few = sx.slice(x, (0, 0), (8, 40), (1, 1))
    return sx.sort([few, few], lambda a, b, c, d: sx.lt(a, b), dimension=1)[0]


def best(x: sx.XlaOp) -> sx.XlaOp:
    return sx.top_k(sx.reshape(x, (4, 400)), 100)[0]


def places(x: sx.XlaOp) -> sx.XlaOp:
    keys = sx.reshape(x, (1600,))
    return sx.sort([keys, x.builder.iota(sx.s32[1600], 0)], lambda a, b, i, j: sx.lt(a, b), dimension=0)[1]


def places_in_rows(x: sx.XlaOp) -> sx.XlaOp:
    keys = sx.reshape(x, (4, 400))
    return sx.sort([keys, sx.neg(keys)], lambda a, b, i, j: sx.lt(a, b), dimension=1)[1]


def few_best(x: sx.XlaOp) -> sx.XlaOp:
    return sx.top_k(sx.reshape(x, (4, 400)), 3)[0]


def by_squares(x: sx.XlaOp) -> sx.XlaOp:
    return sx.sort(sx.reshape(x, (4, 400)), lambda a, b: sx.lt(a * a, b * b), dimension=1)


def running(x: sx.XlaOp) -> sx.XlaOp:
    low = x.builder.constant(float("-inf"), "f32")
    return sx.reduce_window(x, low, sx.max, (40, 1), (1, 1), ((39, 0), (0, 0)))


def running_by_selection(x: sx.XlaOp) -> sx.XlaOp:
    low = x.builder.constant(float("-inf"), "f32")
    larger = lambda a, b: sx.select(sx.lt(a, b), b, a)  # noqa: E731
    return sx.reduce_window(x, low, larger, (40, 1), (1, 1), ((39, 0), (0, 0)))


PROGRAMS: dict[str, tuple[Callable[[sx.XlaOp], sx.XlaOp], Callable[[], np.ndarray]]] = {
    "window.written-window=1": (sums, lambda: np.lib.stride_tricks.sliding_window_view(X, 12, 1).sum(-1)),
    "window.written-operations=3": (sums, lambda: np.lib.stride_tricks.sliding_window_view(X, 12, 1).sum(-1)),
    "window.written-window=1+window.short-window=20": (
        sums,
        lambda: np.lib.stride_tricks.sliding_window_view(X, 12, 1).sum(-1),
    ),
    "window.pooled-window=4": (pools, lambda: pooled(X.reshape(1, 20, 20, 4))),
    "sort.ranked-row=8": (few_ordered, lambda: np.sort(X[:8], 1)),
    "sort.long-digits=100": (places, lambda: np.argsort(X.ravel(), kind="stable")),
    "sort.parallel-row=1000": (places, lambda: np.argsort(X.ravel(), kind="stable")),
    "sort.stack-bytes=64": (places_in_rows, lambda: -np.sort(X.reshape(4, 400), 1)),
    "top-k.part-length=64+top-k.few-rows=8+top-k.most-parts=2": (
        few_best,
        lambda: -np.sort(-X.reshape(4, 400), 1)[:, :3],
    ),
    "sort.merge-block=64": (by_squares, lambda: np.sort(X.reshape(4, 400), 1)),
    "scan.long-scan=64": (running_by_selection, lambda: np.maximum.accumulate(X, 0)),
    "scan.line-panel=16": (running, lambda: np.maximum.accumulate(X, 0)),
    "top-k.selected-part=1": (best, lambda: -np.sort(-X.reshape(4, 400), 1)[:, :100]),
}


def pooled(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((-1, -2))


@pytest.mark.parametrize("choices", PROGRAMS)
def test_another_form_has_the_same_results(choices: str) -> None:
    build, expected = PROGRAMS[choices]
    b = sx.XlaBuilder("chosen")
    program = b.build(build(b.parameter(0, sx.f32[40, 40])))
    # A window that is written out is not split into parts, be it short or long.
    usual = "usual+window.written-window=1" if "short-window" in choices else "usual"
    executables = [sx.compile(program, options=sx.CompileOptions(choices=text)) for text in (usual, f"usual+{choices}")]
    assert executables[0].ir("tensor") != executables[1].ir("tensor")
    for executable in executables:
        np.testing.assert_array_equal(executable(X), expected())
