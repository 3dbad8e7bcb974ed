"""Batch normalization, run. Oracles: XLA:CPU, and the formulas of the operation semantics in numpy's longest float.

The reference interpreter ends the process when it meets one of these operations. XLA:CPU takes the variance as the mean
of the squares less the square of the mean, which loses up to 10 times more than the formulas do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.comparison import assert_same
from tests.programs import general_only, run

EPSILON = 1e-3
SHAPES = [
    ((8, 5), 1),
    ((8, 5), 0),
    ((2, 3, 4, 5), 1),
    ((2, 3, 4, 5), 3),
    ((2, 6, 7, 33), 3),
    ((3, 40, 6, 6), 1),
    ((7,), 0),
]
SHAPES += [((2, 1, 3, 1, 2, 2), 2), ((3, 0), 1), ((37, 65), 1), ((65, 130), 0)]
# How far results may be from the formulas (the general path adds up one by one) and from XLA:CPU, of the largest one.
EXACT = {"f32": 1e-6, "f64": 2e-15}
LOOSE = {"f32": 4e-6, "f64": 1e-14}


def arrays(name: str, shape: tuple[int, ...], feature: int, seed: int = 0) -> list[np.ndarray]:
    """An operand, scale, offset, mean, variance and gradient."""
    rng = np.random.default_rng([seed, *shape])
    size = shape[feature]
    drawn = [rng.normal(2, 1.5, shape), *rng.normal(size=(3, size)), rng.random(size) + 0.1, rng.normal(size=shape)]
    return [each.astype(element_type(name).dtype) for each in drawn]


def exactly(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).astype(np.longdouble)


class Formulas:
    """The formulas of the operation semantics."""

    def __init__(self, shape: tuple[int, ...], feature: int) -> None:
        self.others = tuple(d for d in range(len(shape)) if d != feature)
        self.spread = [-1 if d == feature else 1 for d in range(len(shape))]
        self.count = np.prod([shape[d] for d in self.others], dtype=np.longdouble)

    def wide(self, features: np.ndarray) -> np.ndarray:
        return exactly(features).reshape(self.spread)

    def sum(self, x: np.ndarray) -> np.ndarray:
        return x.sum(self.others)

    def training(self, x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> list[np.ndarray]:
        mean = self.sum(exactly(x)) / self.count
        variance = self.sum((exactly(x) - mean.reshape(self.spread)) ** 2) / self.count
        return [self.inference(x, scale, offset, mean, variance), mean, variance]

    def inference(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> np.ndarray:
        deviation = np.sqrt(
            np.asarray(variance, np.longdouble).reshape(self.spread) + np.longdouble(np.float32(EPSILON))
        )
        centred = exactly(x) - np.asarray(mean, np.longdouble).reshape(self.spread)
        return self.wide(scale) * centred / deviation + self.wide(offset)

    def gradient(self, x: Any, scale: Any, mean: Any, variance: Any, grad: Any) -> list[np.ndarray]:
        g, centred = exactly(grad), exactly(x) - self.wide(mean)
        shifted = self.wide(variance) + np.longdouble(np.float32(EPSILON))
        c = self.sum(g * centred / shifted).reshape(self.spread) / self.count
        d = self.sum(g).reshape(self.spread) / self.count
        operand = self.wide(scale) / np.sqrt(shifted) * (g - d - c * centred)
        return [operand, self.sum(g * centred / np.sqrt(shifted)), self.sum(g)]


def programs(feature: int) -> list[Any]:
    """The three operations, each with the places of its operands in `arrays`."""
    return [
        (lambda b, *ops: list(sx.batch_norm_training(*ops, EPSILON, feature)), (0, 1, 2), "training"),
        (lambda b, *ops: [sx.batch_norm_inference(*ops, EPSILON, feature)], (0, 1, 2, 3, 4), "inference"),
        (lambda b, *ops: list(sx.batch_norm_grad(*ops, EPSILON, feature)), (0, 1, 3, 4, 5), "gradient"),
    ]


def wanted(which: str, shape: tuple[int, ...], feature: int, given: list[np.ndarray]) -> list[np.ndarray]:
    made = getattr(Formulas(shape, feature), which)(*given)
    return [
        np.asarray(each).astype(np.float64).astype(given[0].dtype)
        for each in (made if which != "inference" else [made])
    ]


@pytest.mark.parametrize(
    ("name", "shape", "feature"),
    [*(("f32", *each) for each in SHAPES), *(("f64", *each) for each in SHAPES[:4])],
    ids=str,
)
def test_against_the_formulas(name: str, shape: tuple[int, ...], feature: int) -> None:
    drawn = arrays(name, shape, feature)
    for make, places, which in programs(feature):
        given = [drawn[place] for place in places]
        expected = wanted(which, shape, feature, given)
        for options in (None, general_only()):
            results = run(make, *given, options=options, against=["xla"], scale=LOOSE[name])
            for result, exact in zip(results, expected, strict=True):
                assert_same(result, exact, scale=EXACT[name])


@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2", "bf16", "f16"])
@pytest.mark.parametrize("feature", [0, 1, 2])
def test_small_floats_are_rounded_once(name: str, feature: int) -> None:
    """All is computed in f32, which XLA:CPU does not do: half a unit in the last place, and what f32 loses."""
    shape = (4, 6, 5)
    drawn = arrays(name, shape, feature)
    for make, places, which in programs(feature):
        given = [drawn[place] for place in places]
        expected = wanted(which, shape, feature, given)
        run(make, *given, against=[], expected=expected, ulp=1, scale=1e-6)


def test_a_small_float_is_not_summed_up_in_itself() -> None:
    """4096 ones in bf16 would not get past 256."""
    ones = np.ones((4096, 2), element_type("bf16").dtype)
    feature = np.ones(2, ones.dtype)
    make = programs(1)[0][0]
    expected = [ones, feature, feature * 0]
    run(make, ones, feature, feature, against=[], expected=expected)


def test_no_elements() -> None:
    """The mean of nothing is NaN, as 0 / 0 is."""
    x, f = np.zeros((0, 3), np.float32), np.ones(3, np.float32)
    nan = np.full(3, np.nan, np.float32)
    run(programs(1)[0][0], x, f, f, against=["xla"], expected=[x, nan, nan])


def test_in_a_program() -> None:
    """Between other operations, as a network has it."""
    drawn = arrays("f32", (4, 6, 6, 8), 3)

    def make(b: sx.XlaBuilder, x: sx.XlaOp, scale: sx.XlaOp, offset: sx.XlaOp) -> list[sx.XlaOp]:
        y, mean, variance = sx.batch_norm_training(x * 2.0, scale, offset, EPSILON, 3)
        return [sx.max(y, 0.0), sx.sqrt(variance) + mean]

    run(make, *drawn[:3], against=["xla"], scale=LOOSE["f32"])
