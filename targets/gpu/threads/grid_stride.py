"""Grid-stride loops: the items of a range that are a thread's own, or all, for a single thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, gpu, scf

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value


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
