"""Kernels of random bits, drawn at random. Oracle: blocks one by one as they are published, in Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.elementwise.random_bits import BLOCKS, emit_random_bits
from tests.ops.test_random import philox, threefry
from tests.targets.cpu.harness import compile_kernel
from tests.targets.cpu.one_kernel import kernel_of, program_of

TYPES = {"u4": 4, "s8": 8, "u16": 16, "s32": 32, "u32": 32, "u64": 64}
# Shapes whose blocks are whole along the dimension where Threefry puts their words, or that are that dimension.
SHAPES = [(1,), (2,), (7,), (1001,), (2 * BLOCKS() + 3,), (4 * BLOCKS() + 9,)]
SHAPES += [(3, 8), (5, 2, 9), (2, BLOCKS() + 7), (40, 33)]


def words(algorithm: str, state: list[int], block: int, bits: int) -> list[int]:
    """The elements of a block: its words, cut to fewer bits, or two words for each.

    As in XLA, the key stands for the upper half of Philox's counter where the state has two numbers.
    """
    key, counter, upper = (*state, state[0])[:3]
    if algorithm == "rng_three_fry":
        made = threefry(key, (counter + block) % 2**64)
    else:
        made = philox(key, ((upper << 64) + counter + block) % 2**128)
    if bits == 64:
        return [low | high << 32 for low, high in zip(made[::2], made[1::2], strict=True)]
    return [word % (1 << bits) for word in made]


def expected(algorithm: str, state: list[int], shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Elements side by side; Threefry's two words lie along the first even dimension, else along the longest."""
    count = len(words(algorithm, state, 0, bits))
    if algorithm == "rng_philox" or count == 1:
        outer, length, inner = 1, int(np.prod(shape)), 1
    else:
        even = [d for d, n in enumerate(shape) if n % 2 == 0]
        along = even[0] if even else shape.index(max(shape))
        outer, length, inner = int(np.prod(shape[:along])), shape[along], int(np.prod(shape[along + 1 :]))
    across = -(-length // count)
    blocks = [words(algorithm, state, n, bits) for n in range(outer * across * inner)]
    table = np.array(blocks, np.uint64).reshape(outer, across, inner, count)
    return np.moveaxis(table, 3, 2).reshape(outer, across * count, inner)[:, :length].reshape(-1)


@pytest.mark.parametrize("seed", range(24))
def test_random_kernel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    algorithm = ("rng_three_fry", "rng_philox")[seed % 2]
    shape, name = SHAPES[int(rng.integers(len(SHAPES)))], str(rng.choice(list(TYPES)))
    length = int(rng.integers(2, 4)) if algorithm == "rng_philox" else 2
    # Counters that pass the end of 64 bits, too.
    state = [int(n) for n in rng.integers(0, 2**64, length, dtype=np.uint64)]
    state[1] = 2**64 - int(rng.integers(1, 50)) if rng.random() < 0.5 else state[1]
    program = program_of(
        lambda s: sx.rng_bit_generator(algorithm, s, sx.Shape(name, shape)), np.array(state, np.uint64)
    )
    one = kernel_of(program, "random_bits")
    kernel = compile_kernel(one.text, CpuTarget(vector_bits=int(rng.choice([128, 256, 512]))), emit_random_bits)
    (got,) = kernel.in_all_ways(*(np.uint64(n).astype(np.int64) for n in state))
    wanted = expected(algorithm, state, shape, TYPES[name])
    np.testing.assert_array_equal(
        got.view(f"u{got.itemsize}"), wanted.astype(f"u{got.itemsize}"), err_msg=f"{name} {shape}"
    )
