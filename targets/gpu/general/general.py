"""General path of kernels on a GPU: linalg's loops, a thread for each iteration of the parallel ones.

It is right for everything and quick for little: anything but a parallel loop runs in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import memref

from stablexla.dialects.choices import Gate
from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import INDEPENDENT
from stablexla.lowering.support.operations import walk
from stablexla.targets.codegen.calls import Phase
from stablexla.targets.codegen.general import (
    allocations_to_scratch,
    bufferize_kernels,
    mark_noalias,
    move_before,
    run_passes,
)
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.gpu.general.loop_fission import KernelSplitter, parts_of, ranges_of
from stablexla.targets.gpu.general.sums import block_summation
from stablexla.targets.grouping.loops import is_generic, loops_of

LOOPS = "convert-linalg-to-parallel-loops,canonicalize,cse"
THREAD_BYTES = Gate("gpu-general.thread-bytes", 16 << 10, eager=1)
"""Limit of one thread's local memory, where there are many threads."""


def emit_general(kernels: Sequence[Kernel]) -> list[Emitted]:
    """Write the functions of all given kernels, in one run of the passes."""
    if not kernels:
        return []
    with kernels[0].func.context, ir.Location.unknown():
        module, updates = bufferize_kernels(kernels, interchange_loops)
        run_passes(module, LOOPS)
        block_summation(module)
        emitted = []
        for kernel, view, update in zip(kernels, list(module.body.operations), updates, strict=True):
            phases, scratch = _mapped(kernel, view.operation)
            emitted.append(Emitted(1, 1, scratch=scratch, updates=update, phases=phases))
    return emitted


def _mapped(kernel: Kernel, function: ir.Operation) -> tuple[tuple[Phase, ...], tuple[tuple[str, int], ...]]:
    """Move a function's parts before the kernel. Returns the parts as phases, and the scratch buffers."""
    ranges = ranges_of(function, INDEPENDENT in kernel.func.attributes)
    ranges = {op: range_ for op, range_ in ranges.items() if _give_each_thread_its_own(op)}
    scratch = allocations_to_scratch(function)
    mark_noalias(function)
    splitter = KernelSplitter(function, parts_of(function, ranges))
    made = splitter.write(kernel.impl_name)
    names = {name for name, _ in made}
    for view in list(function.parent.regions[0].blocks[0].operations):
        if view.operation != function and symbol_of(view) in names:
            move_before(view.operation, kernel.func.operation)
    phases = tuple(Phase(name, items, items) for name, items in made)
    return phases, (*scratch, *splitter.spills)


def _give_each_thread_its_own(loop: ir.Operation) -> bool:
    """Move allocations of a loop's body to thread-local memory; False if that is too much."""
    allocations = [op for op in walk(loop) if op.name == "memref.alloc"]
    if sum(bytes_of(op.results[0].type) for op in allocations) > THREAD_BYTES():
        return False
    function = loop.parent
    for op in allocations:
        with op.location, ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
            local = memref.AllocaOp(op.results[0].type, [], [], alignment=16)
        op.results[0].replace_all_uses_with(local.result)
        erase(op)
    for op in list(walk(loop)):
        if op.name == "memref.dealloc":
            erase(op)
    return True


# ---- loop interchange ------------------------------------------------------------------------------------------------


def interchange_loops(module: ir.Module) -> None:
    """Interchange the loops of every `linalg.generic` of the module where that is needed."""
    for op in walk(module.operation):
        if is_generic(op):
            loops = loops_of(op)
            reduced = loops.reduced
            order = sorted(range(len(reduced)), key=lambda loop: reduced[loop])
            if order != list(range(len(reduced))):
                _renumber(op, loops.maps, order)


def _renumber(op: ir.Operation, maps: Sequence[ir.AffineMap], order: list[int]) -> None:
    """Permute loops: loop number `order[i]` becomes number i."""
    place = {old: new for new, old in enumerate(order)}
    dims = [ir.AffineDimExpr.get(place[old]) for old in range(len(order))]
    renamed = [
        ir.AffineMap.get(
            len(order), 0, [ir.AffineExpr.compose(e, ir.AffineMap.get(len(order), 0, dims)) for e in m.results]
        )
        for m in maps
    ]
    kinds = list(op.attributes["iterator_types"])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in renamed])
    op.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[old] for old in order])
    for inner in walk(op):
        if inner.name == "linalg.index":
            old = ir.IntegerAttr(inner.attributes["dim"]).value
            inner.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place[old])
