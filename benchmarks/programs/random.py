"""Programs that make random bits and numbers. Numbers that are drawn differ from engine to engine, bits do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import PROGRAMS, Array, Built, Program

SMALL = 1 << 20


def bits(algorithm: str) -> Callable[[int], Program]:
    def at(count: int) -> Program:
        def draw(rng: np.random.Generator) -> list[Array]:
            return [rng.integers(0, 1 << 63, 2).astype(np.uint64)]

        return Built(
            f"{algorithm.replace('rng_', '').replace('_', '-')}-{count >> 20}m",
            f"{count >> 20}Mi words of 32 random bits by {algorithm}",
            (sx.u64[2],),
            lambda state: sx.rng_bit_generator(algorithm, state, sx.u32[count])[1],
            draw=draw,
        )

    return at


for algorithm in ("rng_three_fry", "rng_philox"):
    at = bits(algorithm)
    grows(at(SMALL).name.rsplit("-", 1)[0], f"n words of 32 random bits by {algorithm}", "n", (SMALL, 16 * SMALL))(at)
    large = at(16 * SMALL)
    PROGRAMS[large.name] = large


def mean_of(name: str, count: int, draw: Callable[[sx.XlaOp, sx.XlaOp, sx.Shape], sx.XlaOp]) -> Program:
    """A sum over drawn numbers, which is about the same wherever they come from."""

    def build(low: sx.XlaOp, high: sx.XlaOp) -> sx.XlaOp:
        total = sx.reduce_all(draw(low, high, sx.f32[count]), low.builder.constant(0.0), sx.add)
        return total / float(count)

    return Built(
        f"{name}-{count >> 20}m",
        f"the mean of {count >> 20}Mi numbers drawn",
        (sx.f32[()], sx.f32[()]),
        build,
        tolerance=0.01,
        draw=lambda _: [np.float32(1), np.float32(2)],
    )


for program in (mean_of("uniform", 16 * SMALL, sx.rng_uniform), mean_of("normal", 16 * SMALL, sx.rng_normal)):
    PROGRAMS[program.name] = program
