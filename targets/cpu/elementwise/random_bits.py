"""Emit random bits (Threefry, Philox), vectorized with one block per lane."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, vector

from stablexla.dialects.choices import Gate
from stablexla.lowering.kernels.random.blocks import resized
from stablexla.lowering.rules.random import RANDOM_BITS, RandomBitsConfig, words_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.cpu.emitters import emitter

# Blocks in a work item, and the grain: the smallest number of items worth a thread.
BLOCKS = Gate("random-bits.blocks", 1024, eager=1)
GRAIN = 4
# The rounds of a Threefry block are a dependency chain: with two registers interleaved 16M words take 9.1 ms, with one
# 11.8. A round of Philox has two products in each half of a register.
REGISTERS = {"THREE_FRY": 2, "PHILOX": 1}


@emitter(RANDOM_BITS)
def emit_random_bits(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit random bits, one block per 32-bit lane of the registers; a block's words are stored contiguously."""
    config = kernel.config(RandomBitsConfig)
    layout = config.layout
    across = layout.blocks if layout.inner == 1 else layout.inner
    lanes = REGISTERS[config.algorithm] * target.vector_bits // 32
    size = rounded_up(BLOCKS(), lanes)
    pieces = -(-across // size)
    rows = layout.blocks // across
    with kernel.phase(target) as arguments:
        writer = _Writer(config, arguments, lanes)
        with arguments.items(rows * pieces) as item:
            row, piece = (item, cg.index(0)) if pieces == 1 else (item // pieces, item % pieces)
            first = piece * size
            with cg.loop(first, cg.minimum(first + size, across), lanes) as turn:
                writer.write(row, turn.iv, across)
    return Emitted(items=rows * pieces, grain=GRAIN)


class _Writer:
    """Emit some blocks and store their words.

    With nothing after the words' dimension, blocks and words are numbered through; otherwise each row of blocks has a
    row of the result for each word.
    """

    def __init__(self, config: RandomBitsConfig, arguments: KernelArguments, lanes: int) -> None:
        self._config = config
        self._layout = config.layout
        self._lanes = lanes
        self._result = arguments.results[0]
        self._state = [cg.splat(number, lanes).ssa for number in arguments.inputs]
        self._i64 = ir.VectorType.get([lanes], ir.IntegerType.get_signless(64))
        self._counts = Value(arith.index_cast(self._i64, cg.iota_vector(lanes).ssa))

    def write(self, row: Value, at: Value, across: int) -> None:
        """Store the blocks from place `at` of a row on, which has `across` of them."""
        number = row * across + at
        start = Value(arith.index_cast(self._i64.element_type, number.ssa))
        blocks = (cg.splat(start, self._lanes) + self._counts).ssa
        words = words_of(self._config.algorithm, self._state, blocks, self._config.bits)
        if self._layout.inner == 1:
            size = self._layout.outer * self._layout.length
            self._put(_interleaved(words), at * self._layout.words, size)
            return
        for which, word in enumerate(words):
            start = (row * self._layout.words + which) * across
            self._put(word, start + at, start + across)

    def _put(self, words: ir.Value, at: Value, end: Value | int) -> None:
        """Store the words, with a scalar remainder: none of those from `end` on."""
        value = self._stored(words)
        sides = cg.branch((at + value.lanes).le(end))
        with sides.then:
            cg.store(value, self._result, at)
        with sides.otherwise, cg.loop(at, end) as rest:
            lane = (rest.iv - at).ssa
            element = vector.extract(value.ssa, [lane], [ir.ShapedType.get_dynamic_size()])
            cg.store(Value(element), self._result, rest.iv)

    def _stored(self, words: ir.Value) -> Value:
        element = self._result.element
        bits = self._config.bits
        value = Value(resized(words, max(8, bits)))
        if bits < 8:
            return value & ((1 << bits) - 1)
        return cg.bitcast(value, element) if isinstance(element, ir.FloatType) else value


def _interleaved(words: list[ir.Value]) -> ir.Value:
    """Interleave the words of all blocks, so that those of a block are contiguous."""
    while len(words) > 1:
        half = len(words) // 2
        words = [vector.interleave(a, b) for a, b in zip(words[:half], words[half:], strict=True)]
    return words[0]
