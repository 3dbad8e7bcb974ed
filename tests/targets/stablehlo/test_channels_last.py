"""Layout of convolutional networks, NCHW to NHWC: random ones, and programs that must stay. Oracle: XLA:CPU.

Catches dimensions that are not permuted with the operands' layout, and arrays that are read in the wrong one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests import oracles
from tests.comparison import assert_same
from tests.ops.building import without_chlo

ALWAYS = "usual+channels-last.least-convolutions=1+channels-last.most-moved=1000"
NEVER = "usual+channels-last.least-convolutions=1000"
NUMBERS = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
Step = Callable[["Network", sx.XlaOp], sx.XlaOp]


class Network:
    """A random network; `steps` are its operations on an array of rank 4 with 2 images."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), sx.XlaBuilder("network")
        self.numpy = np.random.default_rng(seed)
        self.arguments: list[np.ndarray] = []

    def given(self, *shape: int) -> sx.XlaOp:
        self.arguments.append(self.numpy.standard_normal(shape).astype(np.float32))
        return self.b.parameter(len(self.arguments) - 1, sx.f32[shape])

    def constant(self, *shape: int) -> sx.XlaOp:
        return self.b.constant(self.numpy.standard_normal(shape).astype(np.float32))

    def convolution(self, x: sx.XlaOp) -> sx.XlaOp:
        _, features, *size = x.shape.dimensions
        groups = self.random.choice([1, 1, features])
        out, window = (features * self.random.randint(1, 2), self.random.choice([1, 3]))
        weights = self.random.choice([self.given, self.constant])(out, features // groups, window, window)
        stride = self.random.randint(1, 1 if min(size) < 4 else 2)
        around = [(window // 2, window // 2)] * 2
        return 0.3 * sx.conv_general_dilated(
            x, weights, (stride, stride), around, (1, 1), (1, 1), NUMBERS, feature_group_count=groups
        )

    def normalized(self, x: sx.XlaOp) -> sx.XlaOp:
        scale, shift = (self.given(x.shape.dimensions[1]) for _ in range(2))
        shape = x.shape.dimensions
        return x * sx.broadcast_in_dim(scale, shape, [1]) + sx.broadcast_in_dim(shift, shape, [1])

    def activated(self, x: sx.XlaOp) -> sx.XlaOp:
        zero, one = (sx.broadcast(self.b.constant(np.float32(n)), x.shape.dimensions) for n in (0, 1))
        return self.random.choice([
            lambda: sx.max(x, zero), lambda: x * sx.logistic(x), lambda: sx.select(sx.lt(x, zero), 0.1 * x, x),
            lambda: sx.clamp(self.b.constant(np.float32(-1)), x, self.b.constant(np.float32(2))),
            lambda: sx.tanh(x) + one, lambda: x * (sx.erf(0.7 * x) + one),
            lambda: sx.reshape(sx.atan(x), x.shape.dimensions),
        ])()  # fmt: skip

    def pooled(self, x: sx.XlaOp) -> sx.XlaOp:
        largest = self.b.constant(np.float32(-np.inf))
        return sx.reduce_window(x, largest, sx.max, (1, 1, 3, 2), (1, 1, 1, 1), "SAME")

    def padded(self, x: sx.XlaOp) -> sx.XlaOp:
        return sx.pad(x, self.b.constant(np.float32(0.5)), [(0, 0, 0), (1, 0, 0), (0, 2, 0), (1, 0, 1)])

    def part(self, x: sx.XlaOp) -> sx.XlaOp:
        n, c, h, w = x.shape.dimensions
        return sx.slice(x, [0, c // 3, 0, 0], [n, c, h, w], [1, 1, 1, 2])

    def joined(self, x: sx.XlaOp) -> sx.XlaOp:
        return sx.concatenate([x, self.given(*x.shape.dimensions[:1], 2, *x.shape.dimensions[2:])], 1)

    def reversed(self, x: sx.XlaOp) -> sx.XlaOp:
        return sx.rev(x, [1, 3])

    def shuffled(self, x: sx.XlaOp) -> sx.XlaOp:
        """Features of groups by turns, or another order that is no such shuffle; and maybe a second user half-way."""
        n, c, h, w = x.shape.dimensions
        count = self.random.choice([k for k in range(1, c + 1) if c % k == 0])
        order = self.random.choice([[0, 2, 1, 3, 4], [0, 2, 1, 3, 4], [0, 1, 2, 4, 3], [0, 2, 1, 4, 3]])
        split = sx.reshape(x, (n, count, c // count, h, w))
        merged = sx.reshape(sx.transpose(split, order), (n, c, h, w))
        return merged + sx.reshape(sx.neg(split), (n, c, h, w)) if self.random.random() < 0.3 else merged

    def excited(self, x: sx.XlaOp) -> sx.XlaOp:
        """Squeeze and excite: a mean of each feature, a convolution of one pixel, and the product."""
        n, c, *_ = x.shape.dimensions
        mean = sx.reduce(x, self.b.constant(np.float32(0)), sx.add, [2, 3])
        weights = self.given(c, c, 1, 1)
        gate = sx.conv_general_dilated(
            sx.reshape(mean, (n, c, 1, 1)), weights, (1, 1), [(0, 0)] * 2, (1, 1), (1, 1), NUMBERS
        )
        flat = sx.logistic(sx.reshape(gate, (n, c)))
        wide = sx.broadcast_in_dim(flat, x.shape.dimensions, [0, 1])
        return x * wide + sx.broadcast_in_dim(sx.tanh(gate), x.shape.dimensions, [0, 1, 2, 3])

    def over_features(self, x: sx.XlaOp) -> sx.XlaOp:
        """The largest feature of each pixel, and sums over the batch, which come back as another order."""
        largest = sx.reduce(x, self.b.constant(np.float32(-np.inf)), sx.max, [1])
        total = sx.reduce(x, self.b.constant(np.float32(0)), sx.add, [0])
        return x - sx.broadcast_in_dim(largest, x.shape.dimensions, [0, 2, 3]) + sx.broadcast_in_dim(
            total, x.shape.dimensions, [1, 2, 3]
        )  # fmt: skip

    def transposed(self, x: sx.XlaOp) -> sx.XlaOp:
        """A sum along the last dimension between two transposes."""
        last = sx.transpose(x, [0, 2, 3, 1])
        last = last + sx.broadcast_in_dim(self.given(last.shape.dimensions[3]), last.shape.dimensions, [3])
        return sx.transpose(last, [0, 3, 1, 2])

    def counted(self, x: sx.XlaOp) -> sx.XlaOp:
        place = self.b.iota(sx.s32[x.shape.dimensions], self.random.randrange(4))
        return x + 0.1 * sx.convert_element_type(place, "f32") + self.constant(*x.shape.dimensions)

    def build(self, count: int) -> tuple[sx.XlaComputation, list[np.ndarray]]:
        steps: list[Step] = [
            Network.normalized, Network.activated, Network.pooled, Network.padded, Network.part, Network.joined,
            Network.reversed, Network.excited, Network.over_features, Network.transposed, Network.counted,
            Network.shuffled, Network.shuffled,
        ]  # fmt: skip
        x = self.given(2, 6, 9, 8)
        results, earlier = [], x
        for number in range(count):
            x = self.convolution(x) if number % 2 == 0 else self.random.choice(steps)(self, x)
            if x.shape == earlier.shape:
                x = x + earlier
            earlier = x
            if self.random.random() < 0.2:
                results.append(x)
        flat = sx.reshape(x, (2, x.shape.size // 2))
        return self.b.build(sx.tuple([*results, flat])), self.arguments


@pytest.mark.parametrize("seed", range(24))
def test_random_networks(seed: int) -> None:
    network, arguments = Network(seed).build(9)
    results = sx.compile(str(network), options=sx.CompileOptions(choices=ALWAYS)).execute(arguments)
    for made, wanted in zip(results, oracles.xla(without_chlo(network), arguments), strict=True):
        assert_same(made, wanted, scale=2e-5)


def compiled(text: str, choices: str = ALWAYS) -> str:
    return sx.compile(text, options=sx.CompileOptions(choices=choices)).ir("stablehlo")


def test_transposes_are_left_at_the_edges() -> None:
    network = Network(0)
    x = network.given(1, 8, 14, 14)
    for _ in range(4):
        weights = network.given(8, 8, 3, 3)
        x = sx.conv_general_dilated(x, weights, (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), NUMBERS)
        x = network.normalized(x)
        x = sx.max(x, sx.broadcast(network.b.constant(np.float32(0)), x.shape.dimensions)) + x
    mean = sx.reduce(x, network.b.constant(np.float32(0)), sx.add, [2, 3])
    text = str(network.b.build(mean))
    made = compiled(text, "usual")
    assert re.findall(r"stablehlo.transpose.*-> (\S+)", made) == ["tensor<1x14x14x8xf32>"]
    assert made.count("[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]") == 4
    assert "[b, f, 0, 1]" in compiled(text, NEVER)


def test_shuffled_features() -> None:
    """In groups, as ShuffleNet has them: the layout goes through."""
    network = Network(0)
    x = network.given(2, 6, 9, 9)
    for _ in range(3):
        x = sx.conv_general_dilated(x, network.given(6, 6, 3, 3), (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), NUMBERS)
        x = sx.reshape(sx.transpose(sx.reshape(x, (2, 2, 3, 9, 9)), [0, 2, 1, 3, 4]), (2, 6, 9, 9))
    text = str(network.b.build(x))
    made = compiled(text)
    shuffles = ["tensor<2x9x9x3x2xf32>"] * 3
    edges = ["tensor<2x9x9x6xf32>", "tensor<2x6x9x9xf32>"]
    assert re.findall(r"stablehlo.transpose.*-> (\S+)", made) == [edges[0], *shuffles, edges[1]]
    results = sx.compile(text, options=sx.CompileOptions(choices=ALWAYS)).execute(network.arguments)
    assert_same(results[0], oracles.xla(text, network.arguments)[0], scale=2e-5)


def test_functions_that_are_composites() -> None:
    """The error function of a GELU, also of an array that is read in its own order."""
    network = Network(0)
    x = y = network.given(2, 6, 9, 8)
    for _ in range(3):
        x = sx.conv_general_dilated(x, network.given(6, 6, 3, 3), (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), NUMBERS)
        x = x + 0.3 * x * sx.erf(x)
    built = network.b.build(sx.reshape(x, (2, 432)) + sx.reshape(sx.erf(y), (2, 432)))
    text = str(built)
    made = compiled(text)
    assert re.findall(r"stablehlo.transpose.*-> (\S+)", made) == ["tensor<2x9x8x6xf32>", "tensor<2x6x9x8xf32>"]
    assert (
        sorted(re.findall(r'composite "chlo.erf".*-> (\S+)', made))
        == ["tensor<2x6x9x8xf32>"] + ["tensor<2x9x8x6xf32>"] * 3
    )
    results = sx.compile(text, options=sx.CompileOptions(choices=ALWAYS)).execute(network.arguments)
    assert_same(results[0], oracles.xla(without_chlo(built), network.arguments)[0], scale=2e-5)


def gradient() -> str:
    """Of weights: batch and features change places."""
    network = Network(0)
    x, g = network.given(2, 3, 8, 8), network.given(2, 4, 8, 8)
    numbers = sx.ConvDimensionNumbers.of("CNHW", "IOHW", "CNHW")
    return str(network.b.build(sx.conv_general_dilated(x, g, (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), numbers)))


LOOP = """
func.func @main(%x: tensor<1x2x4x4xf32>, %w: tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %made:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<1x2x4x4xf32>
  cond {
    %three = stablehlo.constant dense<3> : tensor<i32>
    %goes = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %goes : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.convolution(%y, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
    stablehlo.return %next, %z : tensor<i32>, tensor<1x2x4x4xf32>
  }
  return %made#1 : tensor<1x2x4x4xf32>
}
"""


def test_a_network_in_a_loop() -> None:
    """Its edges are in the body."""
    arguments = [np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4), np.float32([[[[1]], [[2]]], [[[0]], [[1]]]])]
    made = sx.compile(LOOP, options=sx.CompileOptions(choices=ALWAYS)).execute(arguments)
    assert_same(made[0], oracles.xla(LOOP, arguments)[0])


def test_gradients_of_weights_stay() -> None:
    assert "transpose" not in compiled(gradient())


def test_a_result_that_a_branch_reads() -> None:
    """An operation in a region reads the channels-last array."""
    text = """
    func.func @main(%p: tensor<i1>, %x: tensor<1x2x3x4xf32>, %w: tensor<2x2x1x1xf32>) -> tensor<1x2x3x4xf32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x2x3x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x3x4xf32>
      %z = "stablehlo.if"(%p) ({
        %n = stablehlo.negate %y : tensor<1x2x3x4xf32>
        stablehlo.return %n : tensor<1x2x3x4xf32>
      }, {
        stablehlo.return %x : tensor<1x2x3x4xf32>
      }) : (tensor<i1>) -> tensor<1x2x3x4xf32>
      return %z : tensor<1x2x3x4xf32>
    }
    """
    rest = [np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4), np.float32([[[[1]], [[2]]], [[[0]], [[1]]]])]
    run = sx.compile(text, options=sx.CompileOptions(choices=ALWAYS))
    for p in (True, False):
        arguments: list[Any] = [np.bool_(p), *rest]
        assert_same(run.execute(arguments)[0], oracles.xla(text, arguments)[0])
