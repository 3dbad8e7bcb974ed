"""Threads, warps and blocks of GPU kernels: launch configurations, kernel functions, grid-stride loops, reductions.

Warps reduce by shuffles between their 32 threads, blocks through shared memory between warps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, gpu, memref, scf

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.configs import config_attribute, read_config
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget

# ---- launch configurations -------------------------------------------------------------------------------------------

LAUNCH = "stablexla.launch"
"""Attribute of a function whose body is one thread's code: see `Launch`."""
THREADS = 256
ACCESS_BITS = 128
"""Bits that a thread loads or stores in one access, at most."""
MOST_BLOCKS = Gate("gpu-launch.most-blocks", 1 << 16, eager=1)


@dataclass(frozen=True)
class Launch:
    """Launch configuration: blocks of the grid, threads of a block (x alone), a block's shared memory in bytes."""

    blocks: int
    threads: int
    shared: int = 0

    @staticmethod
    def for_items(items: int) -> Launch:
        """Return a launch with a thread for each item; beyond a limit, a grid-stride loop takes several each."""
        threads = min(THREADS, -(-items // 32) * 32)
        return Launch(min(MOST_BLOCKS(), -(-items // threads)), threads)

    def write(self, function: ir.Operation) -> None:
        """Set the attribute on a function."""
        function.attributes[LAUNCH] = config_attribute(self)

    @staticmethod
    def read(function: ir.Operation) -> Launch:
        """Read the attribute of a function."""
        return read_config(Launch, function.attributes[LAUNCH], LAUNCH)


def launched_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Return a module's functions that hold one thread's code, by name."""
    return {symbol_of(view): view.operation for view in module.body.operations if LAUNCH in view.operation.attributes}


def launched(names: Sequence[str], scratch: Sequence[tuple[str, int]] = ()) -> Emitted:
    """Return what a kernel is that functions of these names launch, one after another."""
    return Emitted(1, 1, scratch=tuple(scratch), phases=tuple(Phase(name, 1, 1) for name in names))


def unlaunched(kernel: Kernel) -> Emitted:
    """Return what a kernel without elements is: nothing is launched."""
    return Emitted(0, 1, phases=(Phase(kernel.impl_name, 0, 1),))


def access_lanes(bits: int, *extents: int, most: int = 8) -> int:
    """Return the vector width of a 16-byte access of elements of so many bits, which divides all extents."""
    lanes = max(1, min(most, ACCESS_BITS // max(8, bits)))
    while any(extent % lanes for extent in extents):
        lanes //= 2
    return lanes


# ---- kernel functions ------------------------------------------------------------------------------------------------

ALIGNMENT = 16
"""Alignment of every buffer, in bytes."""


@contextmanager
def kernel_function(
    kernel: Kernel, launch: Launch, name: str | None = None, scratch: Sequence[tuple[str, int]] = ()
) -> Iterator[KernelArguments]:
    """Declare the kernel's function; what is emitted inside the context is the body of one thread."""
    function, arguments = kernel.declare(scratch, name)
    launch.write(function.operation)
    mark_arguments(function.operation)
    with cg.emitting(function, CpuTarget(vector_bits=128), in_blocks=False):
        yield arguments


def mark_arguments(function: ir.Operation) -> None:
    """Mark all buffer arguments noalias and aligned, for LLVM."""
    types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    i64 = ir.IntegerType.get_signless(64)
    row = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get(), "llvm.align": ir.IntegerAttr.get(i64, ALIGNMENT)})
    rows = [row if isinstance(t, ir.MemRefType) else ir.DictAttr.get({}) for t in types]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)


# ---- grid-stride loops -----------------------------------------------------------------------------------------------


def constant(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), value).result


def global_thread() -> ir.Value:
    """Return this thread's number in the grid."""
    x = gpu.Dimension.x
    return arith.addi(arith.muli(gpu.block_id(x), gpu.block_dim(x)), gpu.thread_id(x))


def grid_stride_loop(items: int, body: Callable[[ir.Value], None]) -> None:
    """Emit a grid-stride loop over items thread, thread + threads, ... below `items`: accesses are coalesced."""
    x = gpu.Dimension.x
    stride = arith.muli(gpu.grid_dim(x), gpu.block_dim(x))
    loop = scf.ForOp(global_thread(), constant(items), stride)
    with ir.InsertionPoint(loop.body):
        body(loop.induction_variable)
        scf.YieldOp([])


def in_first_thread(body: Callable[[], None]) -> None:
    """Emit the body under a mask of the grid's first thread."""
    first = arith.cmpi(arith.CmpIPredicate.eq, global_thread(), constant(0))
    with ir.InsertionPoint(scf.IfOp(first).then_block):
        body()
        scf.YieldOp([])


def delinearize(item: ir.Value, extents: Sequence[int]) -> list[ir.Value]:
    """Delinearize an index in row-major order; in 32 bits where they suffice."""
    if len(extents) == 1:
        return [item]
    narrow = prod(extents) < 1 << 31
    index, i32 = ir.IndexType.get(), ir.IntegerType.get_signless(32)
    rest = arith.index_castui(i32, item) if narrow else item
    found: list[ir.Value] = []
    for extent in reversed(extents[1:]):
        size = arith.ConstantOp(i32, extent).result if narrow else constant(extent)
        found.append(arith.remui(rest, size))
        rest = arith.divui(rest, size)
    found.append(rest)
    return [arith.index_castui(index, v) if narrow else v for v in reversed(found)]


def coordinates(item: Value, extents: Sequence[int]) -> list[Value]:
    """Delinearize an item's number, see `delinearize`."""
    return [Value(v) for v in delinearize(item.ssa, extents)]


def grid_loop(items: int) -> cg.loop:
    """Return a grid-stride loop in the language of emitters: `with grid_loop(n) as item: ... item.iv`."""
    first, x = global_thread(), gpu.Dimension.x
    return cg.loop(Value(first), items, Value(arith.muli(gpu.grid_dim(x), gpu.block_dim(x))))


# ---- warps and blocks ------------------------------------------------------------------------------------------------

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


def scan_warp(values: list[Value], join: Join, identity: list[Value]) -> tuple[list[Value], list[Value]]:
    """Return the exclusive scan over the warp's threads, and the total.

    Threads exchange the totals of ever larger groups, as in a reduction; each adds those of the groups before its own,
    so that the order of combination is kept.

    Args:
        identity: what the first thread gets.
    """
    lane = thread_index() % WARP
    before, whole, offset = identity, values, 1
    while offset < WARP:
        other = [shuffle_xor(v, offset) for v in whole]
        upper = _has_bits(lane, offset)
        none_yet = (lane % offset).eq(0)
        extended = [cg.select(none_yet, o, j) for o, j in zip(other, join(other, before), strict=True)]
        before = [cg.select(upper, e, b) for e, b in zip(extended, before, strict=True)]
        first = [cg.select(upper, o, w) for o, w in zip(other, whole, strict=True)]
        second = [cg.select(upper, w, o) for o, w in zip(other, whole, strict=True)]
        whole = join(first, second)
        offset *= 2
    return before, whole


def _has_bits(lane: Value, bits: int) -> Value:
    number = arith.index_cast(ir.IntegerType.get_signless(32), lane.ssa)
    return (Value(number) & bits).ne(0)
