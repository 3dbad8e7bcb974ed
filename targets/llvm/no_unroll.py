"""Keep LLVM from unrolling the loops of emitted functions.

Their emitters unroll where it pays. LLVM would unroll the remaining loops too, which for a product of matrices doubles
the code and the time to compile it, and makes it no faster. Nor does it pay for a long body, such as that of a sine,
whose copies take a second to compile.

A long body with a call, such as one for huge angles, has its vectors on the stack, as a call keeps no vector register.
LLVM aligns them there only if a register for the frame was kept free before it knew: without one they lie across cache
lines as chance has it (`complex-exp-256k` of the benchmarks).
"""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import operations_named, terminator_of
from stablexla.targets.codegen.kernel import ROLLED
from stablexla.targets.pipeline.passes import module_pass

LONG_BODY = Gate("no-unroll.long-body", 200, eager=1)
"""Operations in LLVM's dialect up to which LLVM may unroll a loop."""
FRAMED = Gate("no-unroll.framed", 60, eager=1)
"""Operations up to which a kernel's loop with a call has its vectors where they come on the stack, not aligned."""


@module_pass("stablexla-keep-rolled", "tells LLVM not to unroll long loops, and those of functions that ask for it")
def keep_loops_rolled(module: ir.Module) -> None:
    """Annotate the back edges of long loops, and of all loops of marked functions; keep a register for some frames."""
    with module.context:
        annotation = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
        framed = ir.Attribute.parse("#llvm.framePointerKind<all>")
    for view in module.body.operations:
        function = view.operation
        is_marked = ROLLED in function.attributes
        if is_marked:
            del function.attributes[ROLLED]
        if function.name == "llvm.func":
            is_kernel = "_impl" in symbol_of(function)
            calling = {call.block for call in operations_named(function, "llvm.call")} if is_kernel else set()
            for last, size, blocks in _back_edges(function):
                if is_marked or size > LONG_BODY():
                    last.attributes["loop_annotation"] = annotation
                if size > FRAMED() and not calling.isdisjoint(blocks):
                    function.attributes["frame_pointer"] = framed


def _back_edges(function: ir.Operation) -> Iterator[tuple[ir.Operation, int, list[ir.Block]]]:
    """Yield the branches back to a block before, each with the number of operations in between and their blocks."""
    counted = 0
    starts: dict[ir.Block, int] = {}
    blocks: list[ir.Block] = []
    for block in function.regions[0].blocks:
        starts[block] = counted
        blocks.append(block)
        counted += len(block.operations)
        last = terminator_of(block)
        if last.name in ("llvm.br", "llvm.cond_br"):
            heads = [s for s in last.successors if s in starts]
            if heads:
                head = min(heads, key=starts.__getitem__)
                yield last, counted - starts[head], blocks[blocks.index(head) :]
