"""Warp-level and block-level reductions: shuffles between the 32 threads of a warp, shared memory between warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, gpu, memref

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value

WARP = 32
Join = Callable[[list[Value], list[Value]], list[Value]]


def thread_index() -> Value:
    """Return this thread's number in its block."""
    return Value(gpu.thread_id(gpu.Dimension.x))


def block_index() -> Value:
    """Return this block's number."""
    return Value(gpu.block_id(gpu.Dimension.x))


def reduce_warp(totals: list[Value], join: Join, threads: int = WARP) -> list[Value]:
    """Reduce over all threads of a warp, or so many neighbours in it, by butterfly shuffles; each gets the result."""
    offset = threads // 2
    while offset:
        others = [shuffle_xor(v, offset) for v in totals]
        totals = join(totals, others)
        offset //= 2
    return totals


def shuffle_xor(value: Value, offset: int) -> Value:
    """Shuffle: return the value of the thread whose number differs in the bits of `offset`."""
    bits, i32 = cg.bits_of(value.type), ir.IntegerType.get_signless(32)
    whole = ir.IntegerType.get_signless(bits)
    word = arith.bitcast(whole, value.ssa) if cg.is_float(value.type) else value.ssa
    if bits == 64:
        sent = [arith.trunci(i32, word), arith.trunci(i32, arith.shrui(word, arith.constant(whole, 32)))]
        low, high = (arith.extui(whole, _shuffled(v, offset)) for v in sent)
        word = arith.ori(low, arith.shli(high, arith.constant(whole, 32)))
    elif bits == 32:
        word = _shuffled(word, offset)
    else:
        word = arith.trunci(whole, _shuffled(arith.extui(i32, word), offset))
    return Value(arith.bitcast(value.type, word) if cg.is_float(value.type) else word)


def _shuffled(word: ir.Value, offset: int) -> ir.Value:
    i32 = ir.IntegerType.get_signless(32)
    return gpu.ShuffleOp(
        word, arith.constant(i32, offset), arith.constant(i32, WARP), gpu.ShuffleMode.XOR
    ).shuffleResult


def reduction_shared_bytes(types: Sequence[ir.Type], warps: int) -> int:
    """Return the shared memory that `reduce_block` needs for accumulators of these types."""
    return sum(warps * max(8, cg.bits_of(t) // 8) for t in types)


def reduce_block(totals: list[Value], join: Join, warps: int, first_byte: int) -> list[Value]:
    """Reduce over all threads of a block, in shared memory from `first_byte` on; each gets the result."""
    totals = reduce_warp(totals, join)
    if warps == 1:
        return totals
    places = []
    for number, value in enumerate(totals):
        offset = first_byte + number * warps * 8
        places.append(shared_buffer(value.type, warps, offset))
    me = thread_index()
    with cg.when((me % WARP).eq(0)):
        for value, place in zip(totals, places, strict=True):
            cg.store(value, place, me // WARP)
    gpu.barrier()
    sets = [[cg.load(place, w) for place in places] for w in range(warps)]
    joined = sets[0]
    for other in sets[1:]:
        joined = join(joined, other)
    return joined


def shared_buffer(element: ir.Type, size: int, first_byte: int) -> Value:
    """Return a part of the block's shared memory."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    dynamic, byte = ir.ShapedType.get_dynamic_size(), ir.IntegerType.get_signless(8)
    whole = gpu.DynamicSharedMemoryOp(ir.MemRefType.get([dynamic], byte, memory_space=space)).result
    offset = arith.constant(ir.IndexType.get(), first_byte)
    return Value(memref.view(ir.MemRefType.get([size], element, memory_space=space), whole, offset, []))
