"""Counter-based random bits: a thread generates a block of words and stores them as a vector, or scattered by rows."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.lowering.kernels.random.blocks import resized
from stablexla.lowering.rules.random import RANDOM_BITS, RandomBitsConfig, words_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, coordinates, grid_loop, kernel_function


@gpu_emitter(RANDOM_BITS)
def emit_random_bits(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit any generator of random bits."""
    config = kernel.config(RandomBitsConfig)
    layout = config.layout
    with kernel_function(kernel, Launch.for_items(layout.blocks)) as arguments:
        result = arguments.results[0]
        with grid_loop(layout.blocks) as item:
            number = arith.index_cast(ir.IntegerType.get_signless(64), item.iv.ssa)
            made = words_of(config.algorithm, [v.ssa for v in arguments.inputs], number, config.bits)
            words = [_stored(word, result.element, config.bits) for word in made]
            if layout.inner == 1:
                _side_by_side(words, result, item.iv * layout.words, layout.outer * layout.length)
            else:
                row, column = coordinates(item.iv, [layout.outer * layout.across, layout.inner])
                for which, word in enumerate(words):
                    cg.store(word, result, (row * layout.words + which) * layout.inner + column)
    return Emitted(1, 1)


def _side_by_side(words: list[Value], result: Value, at: Value, end: int) -> None:
    """Store contiguous words, as one vector unless some of them are beyond the end."""
    if len(words) == 1:
        cg.store(words[0], result, at)
        return
    whole = cg.splat(cg.constant(0, words[0].type), len(words))
    for lane, word in enumerate(words):
        whole = cg.insert(word, whole, lane)
    if end % len(words) == 0:
        cg.store(whole, result, at)
        return
    sides = cg.branch((at + len(words)).le(end))
    with sides.then:
        cg.store(whole, result, at)
    with sides.otherwise:
        for lane, word in enumerate(words):
            with cg.when((at + lane).lt(end)):
                cg.store(word, result, at + lane)


def _stored(word: ir.Value, element: ir.Type, bits: int) -> Value:
    value = Value(resized(word, max(8, bits)))
    if bits < 8:
        return value & ((1 << bits) - 1)
    return cg.bitcast(value, element) if isinstance(element, ir.FloatType) else value
