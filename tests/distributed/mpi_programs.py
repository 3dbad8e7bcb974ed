"""The programs that are run in one process and in many, with their arguments. Results must be the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import stablexla as sx
from stablexla.dialects.builds.stablehlo_version import has_stablehlo

Array = npt.NDArray[Any]
Build = Callable[[sx.XlaBuilder, sx.XlaOp], list[sx.XlaOp]]
TYPES = ("f32", "f64", "bf16", "f16", "s8", "u32", "s64", "pred", "c64", "f8e4m3fn")
LARGE = 4 * 131_101  # so that arrays are cut into slices and chunks of different sizes


@dataclass(frozen=True)
class Program:
    """What `build` computes from a parameter of `shape`, on some replicas and partitions."""

    name: str
    replicas: int
    partitions: int
    shape: sx.Shape
    build: Build

    def compile(self) -> Any:
        b = sx.XlaBuilder(self.name)
        made = self.build(b, b.parameter(0, self.shape))
        return sx.compile(b.build(sx.tuple(made)), num_replicas=self.replicas, num_partitions=self.partitions)

    def arguments(self) -> list[list[Array]]:
        return [[_values(self.shape, device)] for device in range(self.replicas * self.partitions)]


def _values(shape: sx.Shape, device: int) -> Array:
    random = np.random.default_rng(device)
    dtype, sizes = shape.element_type.dtype, shape.dimensions
    if dtype.kind in "iu":
        return random.integers(0, 100, sizes).astype(dtype)
    values = random.standard_normal(sizes) * 10.0 ** random.integers(-2, 3, sizes)
    return values > 0 if dtype.kind == "b" else (values * (1 + 1j) if dtype.kind == "c" else values).astype(dtype)


def _typed(name: str, *sizes: int) -> sx.Shape:
    return next(t for t in sx.ELEMENT_TYPES if t.name == name)[sizes]


def _lopsided(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
    """Neither commutative nor associative: the order of the fold is seen in the result."""
    return a * 0.75 + b


def _every(n: int) -> Build:
    """Every collective over all devices."""
    everybody = tuple(range(n))

    def build(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [
            sx.all_reduce(x, sx.max if x.shape.element_type.name != "c64" else sx.mul),
            sx.reduce_scatter(x, _first, 0, n),
            sx.reduce_scatter(x, _first, 1, n),
            sx.all_gather(x, 0, n),
            sx.all_gather(x, 1, n),
            sx.all_to_all(x, 0, 1, n),
            sx.all_to_all(x, 1, 0, n),
            sx.collective_permute(x, [(i, i + 1) for i in range(n - 1)]),
            sx.collective_broadcast(x, [everybody[::-1]]),
        ]

    return build


def _roots(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """One member of each group gives, or gets; six devices."""
    groups = [(5, 0, 1), (4, 3, 2)]
    return [
        *sx.collective_broadcast([x, x + 1.0], groups, root=[2, 1]),
        sx.collective_reduce(x, _lopsided, groups),
        sx.collective_reduce(x, _lopsided, groups, root=1),
    ]


def _first(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
    return a


def _four_modes(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """The ways to form groups, of two replicas and two partitions."""
    return [
        sx.all_reduce(x, _lopsided, [(1, 0)]),
        sx.all_reduce(x, _lopsided, [(0,), (1,)], 1),
        sx.all_reduce(x, _lopsided, [(1, 0)], 2),
        sx.all_reduce(x, _lopsided, [(3, 0), (2, 1)], 3, True),
        sx.all_gather(x, 0, 2, [(0, 3), (1, 2)], 4, True),
        sx.all_to_all(x, 0, 0, 2, [(1, 0)], 5),
        sx.collective_permute(x, [(0, 1)], 6),
        sx.collective_permute(x, [(1, 0)]),
    ]


def _uneven(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """Groups of several sizes, of six devices."""
    return [
        sx.all_reduce(x, _lopsided, [(5, 0, 1), (2,), (4, 3)]),
        sx.all_reduce([x, x + 1.0], _lopsided, [(3, 1), (0, 2, 4, 5)])[1],
        sx.collective_broadcast(x, [(4, 0), (1, 5)]),
        sx.collective_permute(x, [(0, 5), (5, 0), (1, 2), (3, 3)]),
        sx.all_gather(x, 1, 3, [(0, 2, 4), (5, 3, 1)]),
    ]


def _large(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    return [
        sx.all_reduce(x, _lopsided),
        sx.all_reduce(x, sx.add, [(2, 0), (1, 3)]),
        sx.reduce_scatter(sx.reshape(x, [2, x.shape.dimensions[0] // 2]), _lopsided, 1, 2, [(3, 1), (0, 2)]),
        sx.all_gather(x, 0, 4),
        sx.collective_permute(x, [(0, 3), (3, 1)]),
    ]


def _loop(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """Collectives that devices come to many times."""
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]

    def body(state: sx.XlaOp) -> sx.XlaOp:
        i, y = state
        return sx.tuple([i + 1, sx.all_reduce(y * 0.3, _lopsided) + sx.collective_permute(y, ring)])

    return [sx.while_(lambda state: sx.lt(state[0], 50), body, sx.tuple([b.constant(np.int32(0)), x]))[1]]


def _messages(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """Every device but the last sends to the next, twice."""
    pairs = [(0, 1), (1, 2), (2, 3)]
    token = sx.send_with_token(x, b.create_token(), 1, pairs)
    token = sx.send_with_token(x * 2.0, token, 1, pairs)
    first, token = sx.recv_with_token(token, x.shape, 1, pairs)
    second, token = sx.recv_with_token(token, x.shape, 1, pairs)
    return [first, second]


def _pieces(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """Exchanges of arrays that are apart, and of pieces whose sizes differ by the device."""
    number = sx.convert_element_type(b.replica_id(), "s32")
    begins, sizes = sx.broadcast(number, (4,)), b.constant([2, 0, 2, 1])
    places = sx.broadcast(number * 2, (4,))
    output = sx.concatenate([x, x], 0) * 0.5
    return [
        *sx.all_to_all_tuple([x, x + 1.0, x * 2.0, -x], [(2, 0, 3, 1)]),
        *sx.multi_collective_permute([x, x > 0.0], [(0, 3), (3, 1)]),
        sx.ragged_all_to_all(x, begins, sizes, output, places, sizes),
    ]


PROGRAMS = {
    program.name: program
    for program in (
        *(Program(f"every_{name}", 4, 1, _typed(name, 8, 4), _every(4)) for name in TYPES),
        Program("pair", 2, 1, sx.f32[4, 6], _every(2)),
        Program("modes", 2, 2, sx.f32[2, 3], _four_modes),
        Program("partitions", 1, 4, sx.f64[3], lambda b, x: [sx.all_gather(x, 0, 4, [(2, 0, 3, 1)], 1, True)]),
        Program("uneven", 6, 1, sx.f32[3, 5], _uneven),
        Program("large", 4, 1, sx.f32[LARGE], _large),
        Program("loop", 4, 1, sx.f32[5], _loop),
        Program("pieces", 4, 1, sx.f32[5, 3], _pieces),
        *([Program("roots", 6, 1, sx.f32[3, 5], _roots)] if has_stablehlo("1.20") else []),
        Program("messages", 4, 1, sx.f32[7], _messages),
    )
}
